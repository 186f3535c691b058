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
    SCHEDULE_WRONG = "schedule-wrong"
    DRAIN_WRONG = "drain-wrong"
    CLOCK_WRONG = "clock-wrong"
    ROW_ORPHAN = "row-orphan"
    FILE_ORPHAN = "file-orphan"
    FILE_MISPLACED = "file-misplaced"
    FILE_STRANGE = "file-strange"
    FILE_SECOND = "file-second"
    FILE_UNREADABLE = "file-unreadable"
    FILE_LEFT_OVER = "file-left-over"
    CHECKPOINT_DAMAGED = "checkpoint-damaged"
    MOVED_BY_HAND = "moved-by-hand"


class Rule(NamedTuple):
    """What a kind means, and what repair does; ``note``: it is no fault, and fails nothing. Without ``repair`` nothing
    can be done by a program."""

    meaning: str
    repair: str
    note: bool = False


_CUT: Final = "keeps the whole file in quarantine, and writes it anew without these bytes"
_ASIDE: Final = "moves it to quarantine"
_START: Final = "nothing: the next start does it"

RULES: Final[dict[Kind, Rule]] = {
    Kind.JOURNAL_DAMAGED: Rule("bytes of the journal that are no intact event", _CUT),
    Kind.JOURNAL_INCOMPLETE: Rule("a request that has lost an event, and counts for nothing", _CUT),
    Kind.JOURNAL_DISORDER: Rule(
        "an event whose number was there before", "moves copied files to quarantine; else " + _CUT
    ),
    Kind.JOURNAL_MISNAMED: Rule("a file of the journal under the name of another", "renames it"),
    Kind.JOURNAL_NOT_A_FILE: Rule("a directory, link or pipe where a file of the journal should be", _ASIDE),
    Kind.JOURNAL_FOREIGN: Rule("a file of another root's journal", _ASIDE),
    Kind.JOURNAL_UNREADABLE: Rule(
        "a file of the journal that cannot be read", _ASIDE + ", unless only the mode forbids it"
    ),
    Kind.JOURNAL_EPOCH: Rule("the epoch falls, or rises without an event that begins it", ""),
    Kind.JOURNAL_FORMAT: Rule("written by a newer version, which alone may work on it", ""),
    Kind.JOURNAL_UNFINISHED: Rule(
        "the journal ends in a group that was not written whole, nor answered", _START, note=True
    ),
    Kind.JOURNAL_MISSING: Rule(
        "the journal is not there, or empty, while there is a store: mount it or put it back, if you have it",
        "begins a new one behind the store's last event: messages stay, and what had happened to them is gone",
    ),
    Kind.EVENTS_LOST: Rule(
        "events that neither journal nor store has: messages of then may be missing, and ended ones may be back",
        "takes note of it, as `accept-loss` does",
    ),
    Kind.EVENTS_MISSING: Rule(
        "events that the journal lacks, while the store has folded them: their history is gone",
        "takes note of it",
    ),
    Kind.EVENTS_NOTED: Rule("events that are not there, as the journal itself says", "nothing", note=True),
    Kind.STORE_MISSING: Rule("the journal has events, and there is no store", "folds the journal into a new one"),
    Kind.STORE_DAMAGED: Rule(
        "the store cannot be read",
        "does what a start does: sets it aside, and makes a new one of its intact rows and the journal",
    ),
    Kind.STORE_REFUSED: Rule("the store is not one that this version and configuration can open", ""),
    Kind.STORE_FOREIGN: Rule("the store is of another root than the journal", ""),
    Kind.STORE_OF_CPP: Rule(
        "a database of the C++ system that was not imported", "nothing: `postroomd import cpp` imports it", note=True
    ),
    Kind.STORE_BEHIND: Rule("the store has not folded the journal's last events yet", _START, note=True),
    Kind.STORE_AHEAD: Rule("the journal has lost its last events, which the store has folded", _START, note=True),
    Kind.NOT_COMPARED: Rule(
        "store and journal are not compared as long as the journal is not in order: what else is wrong, or lost for"
        " good, is not known yet",
        "compares them once it is, and mends what it then finds",
        note=True,
    ),
    Kind.MESSAGE_MISSING: Rule("a message that the store lacks", "puts it back from its event"),
    Kind.MESSAGE_LOST: Rule(
        "a message that the store lacks, published in a file of the journal that is gone", "nothing: restore a backup"
    ),
    Kind.MESSAGE_LEFT: Rule(
        "a message in the store that has ended, or was never published", "keeps it in quarantine, and removes it"
    ),
    Kind.MESSAGE_WRONG: Rule("a message whose facts are not what its events say", "sets them to what the events say"),
    Kind.MESSAGE_UNCERTAIN: Rule(
        "a message that differs from its events, while later events are missing: the store may know better",
        "nothing: the store is believed",
        note=True,
    ),
    Kind.BODY_LOST: Rule(
        "the body of a message is missing or damaged",
        "puts it back from its event; where only the file had it, makes the message a dead letter, `BODY_LOST`",
    ),
    Kind.BODY_WRONG: Rule(
        "the body of a message is not what was published", "as `body-lost`, the body kept in quarantine"
    ),
    Kind.BODY_BURIED: Rule(
        "a dead letter whose body is lost", "nothing: put the right bytes back, and reprocess it", note=True
    ),
    Kind.QUEUE_MISSING: Rule("a queue without a record", "makes one from its events"),
    Kind.QUEUE_COUNTS: Rule(
        "a queue's counts are not the number of its messages, their bytes, or the reasons of its dead letters",
        "counts anew",
    ),
    Kind.QUEUE_WRONG: Rule("a queue's pauses, policy or totals are not what its events say", "sets them to that"),
    Kind.DLQ_NAME: Rule("the name of a queue's dead letters is not known to be one", "makes it known"),
    Kind.CLAIM_WRONG: Rule(
        "a deduplication key of a queue is in use, or is not, unlike its events say: a message would be called a"
        " duplicate, or a duplicate be taken",
        "sets it to what the events say",
    ),
    Kind.SCHEDULE_WRONG: Rule("a schedule is not what its events say", "sets it to what the events say"),
    Kind.DRAIN_WRONG: Rule("the root drains, or does not, unlike its events say", "sets it to what the events say"),
    Kind.CLOCK_WRONG: Rule("the last mark of the clocks is not the journal's", "takes the journal's"),
    Kind.ROW_ORPHAN: Rule(
        "a body or history in the database that belongs to no message", "keeps it in quarantine, and removes it"
    ),
    Kind.FILE_ORPHAN: Rule("a file with a body that no message refers to", _ASIDE),
    Kind.FILE_MISPLACED: Rule(
        "a message's file in the wrong directory", "puts it back, or moves it to quarantine where another is there"
    ),
    Kind.FILE_STRANGE: Rule("a file among the messages that is none", _ASIDE),
    Kind.FILE_SECOND: Rule("a second file of a message", "moves the one that tells less to quarantine"),
    Kind.FILE_UNREADABLE: Rule("a directory of bodies that cannot be read", ""),
    Kind.FILE_LEFT_OVER: Rule("a file that a crash has left", _START, note=True),
    Kind.CHECKPOINT_DAMAGED: Rule("a checkpoint of the filesystem store that cannot be read", _ASIDE),
    Kind.MOVED_BY_HAND: Rule(
        "a dead letter that was moved among the ready messages: the next start reprocesses it", _START, note=True
    ),
}


class Finding(NamedTuple):
    """One thing that was found. ``where`` is a file, a message's key, a queue's name or a range of events."""

    kind: Kind
    where: str
    text: str

    @property
    def rule(self) -> Rule:
        return RULES[self.kind]

    @property
    def is_fault(self) -> bool:
        """Whether it should not be so."""
        return not self.rule.note

    def to_json(self) -> dict[str, Any]:
        """The finding as ``--json`` shows it."""
        return {
            "kind": self.kind.value,
            "fault": self.is_fault,
            "where": self.where,
            "text": self.text,
            "repair": self.rule.repair,
        }


def table() -> str:
    """All kinds as a table for the documents."""
    lines = ["| kind | | meaning | `repair --apply` |", "|---|---|---|---|"]
    for kind in Kind:
        rule = RULES[kind]
        lines.append(
            f"| `{kind}` | {'note' if rule.note else 'fault'} | {rule.meaning} | {rule.repair or 'cannot help'} |"
        )
    return "\n".join(lines)


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
