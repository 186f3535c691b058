"""What a look at all files of the filesystem store finds: numbers, what is done, and what is not as it should be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from postroom_common.protocol import State

from .index import Index
from .names import FileName, queue_of_key, read_name


class ScanFinding(NamedTuple):
    """What is not as it should be. ``kind`` is

    - ``second``: another file of a message, which tells less;
    - ``stranger``: none of ours;
    - ``blocking``: none of ours, or not to be listed, where a directory of ours belongs;
    - ``temporary``: left unfinished by a crash, its message is in the journal;
    - ``misplaced``: in another folder than its name says; or, with a ``queue``, in another queue's directory.

    ``directory`` and ``place`` are its path below the root, ``key`` is its message, if that is known.
    """

    kind: str
    directory: str
    place: str
    key: str = ""
    queue: str = ""

    @property
    def path(self) -> str:
        """Its path below the store's root."""
        return f"{self.directory}/{self.place}" if self.directory else self.place


class Done(NamedTuple):
    """The file of a message that is done."""

    directory: str
    place: str
    version: int


@dataclass(slots=True)
class Numbers:
    """What is counted of a queue's messages: see ``QueueRecord``."""

    counts: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    def add(self, state: str, size: int, reason: str, by: int) -> None:
        """Count messages of one state: so many of them, of ``size`` bytes together."""
        self.counts[state] = self.counts.get(state, 0) + by
        if state != State.DEAD:
            self.bytes += size
        elif reason:
            self.reasons[reason] = self.reasons.get(reason, 0) + by
            if not self.reasons[reason]:
                del self.reasons[reason]


@dataclass(slots=True)
class Scan:
    """What was found. ``newest`` is the last event that any file reflects. ``numbers`` are by queue; ``queues`` has the
    queues of the messages whose key does not tell it.

    ``lacking`` are messages whose name says that facts stand inside the file, which does not have them: with the event
    up to which it does. ``misplaced`` have a key each, and lie in another folder than their name says.
    """

    newest: int = 0
    directories: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, Numbers] = field(default_factory=dict)
    queues: dict[str, str] = field(default_factory=dict)
    done: dict[str, Done] = field(default_factory=dict)
    misplaced: list[str] = field(default_factory=list)
    lacking: dict[str, int] = field(default_factory=dict)
    findings: list[ScanFinding] = field(default_factory=list)

    def version_of(self, key: str, index: Index) -> int:
        """The last event that a message's file reflects; 0 when there is none."""
        done = self.done.get(key)
        if done:
            return done.version
        name = self.name_of(key, index)
        return name.version if name else 0

    def name_of(self, key: str, index: Index) -> FileName | None:
        """The name of the file of a message that has one, and is not done."""
        return read_name((index.places.get(key) or "").rpartition("/")[2])

    def count_of(self, queue: str) -> int:
        """How many messages a queue has."""
        return sum(self.numbers[queue].counts.values()) if queue in self.numbers else 0

    def queue_of(self, key: str) -> str:
        """The queue of a message."""
        return self.queues.get(key) or queue_of_key(key)
