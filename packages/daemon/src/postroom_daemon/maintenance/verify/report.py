"""What a verification comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from .findings import Finding, Kind

#: Findings of a kind that a report holds; further ones are counted.
HELD_LIMIT: Final = 1000

OnFinding = Callable[[Finding], None]
Say = Callable[[str], None]


@dataclass(slots=True)
class Report:
    """``as_of_event`` is the event at which store and journal were compared, ``applied`` the last one that the store
    has folded. ``only_in_store`` are messages of which the journal does not tell any more."""

    root: str
    backend: str
    running: bool
    as_of_event: int = 0
    applied: int = 0
    messages: int = 0
    only_in_store: int = 0
    queues: int = 0
    journal: dict[str, Any] = field(default_factory=dict)
    quarantine: dict[str, int] = field(default_factory=dict)
    counts: Counter[Kind] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def add(self, finding: Finding) -> None:
        """Take a finding in."""
        self.counts[finding.kind] += 1
        if self.counts[finding.kind] <= HELD_LIMIT:
            self.findings.append(finding)

    @property
    def faults(self) -> int:
        """How many findings are faults."""
        return sum(count for kind, count in self.counts.items() if Finding(kind, "", "").is_fault)

    def to_json(self) -> dict[str, Any]:
        """The report as ``--json`` prints it."""
        return {
            "ok": not self.faults,
            "root": self.root,
            "backend": self.backend,
            "running": self.running,
            "asOfEvent": self.as_of_event,
            "applied": self.applied,
            "messages": self.messages,
            "onlyInStore": self.only_in_store,
            "queues": self.queues,
            "journal": self.journal,
            "quarantine": self.quarantine,
            "faults": self.faults,
            "counts": {kind.value: count for kind, count in sorted(self.counts.items())},
            "findings": [finding.to_json() for finding in self.findings],
        }
