"""What can be wrong with a root: a closed list, with what each finding means and what repair does about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple


class Kind(StrEnum):
    """A finding's kind. The names are stable: scripts may rely on them."""

    JOURNAL_DAMAGED = "journal-damaged"
    JOURNAL_INCOMPLETE = "journal-incomplete-request"
    JOURNAL_DISORDER = "journal-disorder"
    JOURNAL_MISNAMED = "journal-misnamed"
    JOURNAL_NOT_A_FILE = "journal-not-a-file"
    JOURNAL_FOREIGN = "journal-foreign"
    JOURNAL_UNREADABLE = "journal-unreadable"
    JOURNAL_EPOCH = "journal-epoch"
    JOURNAL_FORMAT = "journal-format"
    JOURNAL_UNFINISHED = "journal-unfinished"
    JOURNAL_RECENT = "journal-recent"
    JOURNAL_MISSING = "journal-missing"
    EVENTS_LOST = "events-lost"
    EVENTS_MISSING = "events-missing"
    EVENTS_NOTED = "events-noted"
    STORE_MISSING = "store-missing"
    STORE_DAMAGED = "store-damaged"
    STORE_REFUSED = "store-refused"
    STORE_FOREIGN = "store-foreign"
    STORE_OF_CPP = "store-of-cpp"
    STORE_BEHIND = "store-behind"
    STORE_AHEAD = "store-ahead"
    NOT_COMPARED = "not-compared"
    MESSAGE_MISSING = "message-missing"
    MESSAGE_LOST = "message-lost"
    MESSAGE_LEFT = "message-left"
    MESSAGE_WRONG = "message-wrong"
    MESSAGE_UNCERTAIN = "message-uncertain"
    BODY_LOST = "body-lost"
    BODY_WRONG = "body-wrong"
    BODY_BURIED = "body-buried"
    QUEUE_MISSING = "queue-missing"
    QUEUE_COUNTS = "queue-counts"
    QUEUE_WRONG = "queue-wrong"
    DLQ_NAME = "dlq-name"
    CLAIM_WRONG = "claim-wrong"
    NAME_WRONG = "name-wrong"
    SCHEDULE_WRONG = "schedule-wrong"
    DRAIN_WRONG = "drain-wrong"
    POLICY_PATTERNS_WRONG = "policy-patterns-wrong"
    CLOCK_WRONG = "clock-wrong"
    LOG_DAMAGED = "log-damaged"
    LOG_WRONG = "log-wrong"
    LOG_STRANGE = "log-strange"
    ROW_ORPHAN = "row-orphan"
    FILE_ORPHAN = "file-orphan"
    FILE_MISPLACED = "file-misplaced"
    FILE_STRANGE = "file-strange"
    FILE_SECOND = "file-second"
    FILE_UNREADABLE = "file-unreadable"
    FILE_LEFT_OVER = "file-left-over"
    CHECKPOINT_DAMAGED = "checkpoint-damaged"
    MOVED_BY_HAND = "moved-by-hand"


class Advice(NamedTuple):
    """The meaning of a kind, and what repair does about it. A ``note`` is not a fault, and fails nothing. Without
    ``repair``, repair cannot help."""

    meaning: str
    repair: str
    note: bool = False


_CUT: Final = "copies the file to quarantine, and rewrites it without these bytes"
_ASIDE: Final = "moves it to quarantine"
_START: Final = "nothing: the next start does it"

RULES: Final[dict[Kind, Advice]] = {
    Kind.JOURNAL_DAMAGED: Advice("bytes of the journal that are not an intact event", _CUT),
    Kind.JOURNAL_INCOMPLETE: Advice("a request that has lost an event, and is therefore ignored", _CUT),
    Kind.JOURNAL_DISORDER: Advice(
        "an event whose id occurred before", "moves copied segments to quarantine; otherwise " + _CUT
    ),
    Kind.JOURNAL_MISNAMED: Advice("a segment of the journal with the name of another one", "renames it"),
    Kind.JOURNAL_NOT_A_FILE: Advice("a directory, link or pipe in place of a segment", _ASIDE),
    Kind.JOURNAL_FOREIGN: Advice("a segment of another root's journal", _ASIDE),
    Kind.JOURNAL_UNREADABLE: Advice("a segment that cannot be read", _ASIDE + ", unless only its mode prevents it"),
    Kind.JOURNAL_EPOCH: Advice("the epoch falls, or rises without an `epoch_started` event", ""),
    Kind.JOURNAL_FORMAT: Advice("written by a newer version; only that version may use it", ""),
    Kind.JOURNAL_UNFINISHED: Advice(
        "the journal ends with an incomplete group, which was not answered", _START, note=True
    ),
    Kind.JOURNAL_RECENT: Advice(
        "events that the last segment lacks since the power was cut, and that `journal/recent` has", _START, note=True
    ),
    Kind.JOURNAL_MISSING: Advice(
        "the journal is missing or empty, but there is a store: restore it if possible",
        "starts a new journal after the store's last event; the history of messages is lost",
    ),
    Kind.EVENTS_LOST: Advice(
        "events or messages that neither journal nor store has: messages may be missing, and ended ones may be back",
        "accepts the loss, as `accept-loss` does",
    ),
    Kind.EVENTS_MISSING: Advice(
        "events that the journal lacks, but that the store has folded: their history is lost",
        "accepts the loss",
    ),
    Kind.EVENTS_NOTED: Advice("missing events whose loss was accepted", "nothing", note=True),
    Kind.STORE_MISSING: Advice("the journal has events, but there is no store", "folds the journal into a new one"),
    Kind.STORE_DAMAGED: Advice(
        "the store cannot be read",
        "as a start: moves it to quarantine, and rebuilds it from its intact rows and the journal",
    ),
    Kind.STORE_REFUSED: Advice("this version and configuration cannot open the store", ""),
    Kind.STORE_FOREIGN: Advice("the store belongs to another root than the journal", ""),
    Kind.STORE_OF_CPP: Advice(
        "data of the C++ system that was not imported", "nothing: `postroomd import cpp` imports it", note=True
    ),
    Kind.STORE_BEHIND: Advice("the store has not folded the journal's last events yet", _START, note=True),
    Kind.STORE_AHEAD: Advice("the journal has lost its last events, which the store has folded", _START, note=True),
    Kind.NOT_COMPARED: Advice(
        "store and journal are not compared until the journal is repaired: there may be further faults",
        "compares them when it is, and repairs what it finds",
        note=True,
    ),
    Kind.MESSAGE_MISSING: Advice("a message that the store lacks", "restores it from its event"),
    Kind.MESSAGE_LOST: Advice(
        "a message that the store lacks, and whose segment is missing", "nothing: restore a backup"
    ),
    Kind.MESSAGE_LEFT: Advice(
        "a message in the store that has ended, or was never published", "copies it to quarantine, and removes it"
    ),
    Kind.MESSAGE_WRONG: Advice("a message that differs from its events", "sets it to what the events say"),
    Kind.MESSAGE_UNCERTAIN: Advice(
        "a message that differs from its events, but later events are missing: the store may be right",
        "nothing: the store is trusted",
        note=True,
    ),
    Kind.BODY_LOST: Advice(
        "the body of a message is missing or damaged",
        "restores it from its event; if only the file had it, the message dies (`BODY_LOST`)",
    ),
    Kind.BODY_WRONG: Advice(
        "the body of a message differs from the published one", "as `body-lost`; copies the body to quarantine"
    ),
    Kind.BODY_BURIED: Advice(
        "a dead letter whose body is lost", "nothing: restore the right bytes, and reprocess it", note=True
    ),
    Kind.QUEUE_MISSING: Advice("a queue without a record", "creates it from its events"),
    Kind.QUEUE_COUNTS: Advice(
        "wrong counts of a queue: messages, bytes, or reasons of dead letters",
        "counts again",
    ),
    Kind.QUEUE_WRONG: Advice(
        "pauses, policy or totals of a queue differ from its events", "sets them to what the events say"
    ),
    Kind.DLQ_NAME: Advice("the dead-letter address of a queue is missing from the index", "adds it"),
    Kind.CLAIM_WRONG: Advice(
        "a deduplication key is in use, or free, contrary to its events",
        "sets it to what the events say",
    ),
    Kind.NAME_WRONG: Advice("a message is not found by its name, or another one is", "sets it to what the events say"),
    Kind.SCHEDULE_WRONG: Advice("a schedule differs from its events", "sets it to what the events say"),
    Kind.DRAIN_WRONG: Advice(
        "the root is draining, or is not, contrary to its events", "sets it to what the events say"
    ),
    Kind.POLICY_PATTERNS_WRONG: Advice(
        "the policies by pattern differ from their events", "sets them to what the events say"
    ),
    Kind.CLOCK_WRONG: Advice("the last clock mark differs from the journal's", "uses the journal's"),
    Kind.LOG_DAMAGED: Advice(
        "records of a log that are damaged or missing",
        "writes the segment again, with the records that the journal has; accepts the loss of others",
    ),
    Kind.LOG_WRONG: Advice("the numbers of a log differ from its records", "counts again"),
    Kind.LOG_STRANGE: Advice("a file among the logs that is no file of a log", _ASIDE),
    Kind.ROW_ORPHAN: Advice(
        "a body or history in the database without a message", "copies it to quarantine, and removes it"
    ),
    Kind.FILE_ORPHAN: Advice("a file with a body, but without a message", _ASIDE),
    Kind.FILE_MISPLACED: Advice(
        "a message's file in the wrong directory", "moves it back, or to quarantine if another file is there"
    ),
    Kind.FILE_STRANGE: Advice("a file among the messages that is not a message", _ASIDE),
    Kind.FILE_SECOND: Advice("a second file of a message", "moves the one with the older state to quarantine"),
    Kind.FILE_UNREADABLE: Advice("a directory of bodies that cannot be read", ""),
    Kind.FILE_LEFT_OVER: Advice("a file left behind by a crash", _START, note=True),
    Kind.CHECKPOINT_DAMAGED: Advice("a checkpoint of the filesystem store that cannot be read", _ASIDE),
    Kind.MOVED_BY_HAND: Advice(
        "a dead letter that was moved to the ready messages by hand: the next start reprocesses it", _START, note=True
    ),
}


class Finding(NamedTuple):
    """One finding. ``where`` is a file, a message key, a queue name or a range of events."""

    kind: Kind
    where: str
    text: str

    @property
    def rule(self) -> Advice:
        return RULES[self.kind]

    @property
    def is_fault(self) -> bool:
        """Whether it is a fault, not a note."""
        return not self.rule.note

    def to_json(self) -> dict[str, Any]:
        """The finding as ``--json`` prints it."""
        return {
            "kind": self.kind.value,
            "fault": self.is_fault,
            "where": self.where,
            "text": self.text,
            "repair": self.rule.repair,
        }


def table() -> str:
    """A Markdown table of all kinds."""
    lines = ["| kind | | meaning | `repair --apply` |", "|---|---|---|---|"]
    for kind in Kind:
        rule = RULES[kind]
        lines.append(
            f"| `{kind}` | {'note' if rule.note else 'fault'} | {rule.meaning} | {rule.repair or 'cannot help'} |"
        )
    return "\n".join(lines)


#: Maximum number of findings of a kind in a report; further ones are only counted.
HELD_LIMIT: Final = 1000

OnFinding = Callable[[Finding], None]
Say = Callable[[str], None]


@dataclass(slots=True)
class Report:
    """``as_of_event`` is the event at which store and journal were compared, ``applied`` the last event that the store
    has folded. ``only_in_store`` counts messages that the journal no longer contains."""

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
        """Add a finding."""
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
