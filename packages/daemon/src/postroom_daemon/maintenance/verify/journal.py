"""What is wrong with the journal, as findings of a root."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ...journal.audit import JournalAudit, JournalFinding, JournalFindingKind
from .findings import Finding, Kind

_KINDS: Final = {
    JournalFindingKind.UNREADABLE: Kind.JOURNAL_UNREADABLE,
    JournalFindingKind.NOT_A_FILE: Kind.JOURNAL_NOT_A_FILE,
    JournalFindingKind.DAMAGED: Kind.JOURNAL_DAMAGED,
    JournalFindingKind.INCOMPLETE_REQUEST: Kind.JOURNAL_INCOMPLETE,
    JournalFindingKind.GAP: Kind.EVENTS_NOTED,
    JournalFindingKind.DISORDER: Kind.JOURNAL_DISORDER,
    JournalFindingKind.MISNAMED: Kind.JOURNAL_MISNAMED,
    JournalFindingKind.FOREIGN: Kind.JOURNAL_FOREIGN,
    JournalFindingKind.EPOCH: Kind.JOURNAL_EPOCH,
    JournalFindingKind.FORMAT: Kind.JOURNAL_FORMAT,
    JournalFindingKind.UNKNOWN_TYPE: Kind.JOURNAL_FORMAT,
    JournalFindingKind.UNFINISHED: Kind.JOURNAL_UNFINISHED,
}  # a torn group is what recovery makes of a crash; what is missing is told once it is known who has taken note of it
#: As long as one of these stands, what the journal says cannot be told from what somebody has put there.
_CONFUSING: Final = frozenset(
    {
        Kind.JOURNAL_NOT_A_FILE,
        Kind.JOURNAL_DISORDER,
        Kind.JOURNAL_MISNAMED,
        Kind.JOURNAL_FOREIGN,
        Kind.JOURNAL_EPOCH,
        Kind.JOURNAL_FORMAT,
        Kind.JOURNAL_UNREADABLE,
    }
)


class JournalCheck:
    """One pass over a journal. Afterwards ``in_order`` tells whether the store can be compared with it, and ``missing``
    the ranges of events that it lacks, unless a gap event tells of them."""

    def __init__(self, root: Path, running: bool) -> None:
        self.in_order = True
        self.missing: list[tuple[int, int]] = []
        self._running = running
        self._root = root
        self._audit = JournalAudit(root)

    def findings(self) -> Iterator[Finding]:
        """All findings. Raises ``OSError``."""
        for found in self._audit.findings():
            if found.kind is JournalFindingKind.MISSING:
                self.missing.append((found.first_id, found.last_id))
            kind = _KINDS.get(found.kind)
            if kind is None or (kind is Kind.JOURNAL_UNFINISHED and self._running):
                continue
            self.in_order &= kind not in _CONFUSING
            yield Finding(kind, _where(kind, found), found.text)

    def figures(self) -> dict[str, Any]:
        """What there is."""
        summary = self._audit.summary
        return {
            "segments": summary.segments,
            "bytes": summary.bytes,
            "events": summary.events,
            "firstEvent": summary.first_id,
            "lastEvent": summary.last_id,
            "epoch": summary.epoch,
            "root": summary.root,
        }


def _where(kind: Kind, found: JournalFinding) -> str:
    if kind is Kind.EVENTS_NOTED:
        return f"{found.first_id}-{found.last_id}"
    place = f"{found.segment.name}"
    if found.length:
        place += f":{found.offset}+{found.length}"
    return place
