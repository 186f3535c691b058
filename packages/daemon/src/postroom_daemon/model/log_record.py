"""What a store keeps of a log beside its records: their numbers, and its readers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Self

from postroom_common.events import Event

#: The ``kind`` of a queue that is a log.
LOG: Final = "log"


def number_of(event: Event) -> int:
    """The number of the log that an event creates: its id, unless the log was imported with its number."""
    number: int = event.get("log") or event["id"]
    return number


def position_of(event: Event) -> int:
    """The position of the record that an event appends: its id, unless the record was imported with its position."""
    position: int = event.get("position") or event["id"]
    return position


@dataclass(slots=True)
class LogRecord:
    """``created`` is the event that created the log, and its number wherever a name could be that of another log. One
    that was imported has the number, and its records the positions, that they had.

    ``first`` is the lowest position that may still be there, ``trimmed`` the position of the last record that was
    trimmed (0: none): a reader at a lower position was overtaken. ``last`` is the position of the last record (0: there
    was none), ``records`` and ``bytes`` are how many there are, and their bytes on disk. ``readers`` has the position
    of each reader by its name, which is that of the last record that it has processed, and when it moved there (engine
    ms).
    """

    created: int
    first: int = 0
    trimmed: int = 0
    last: int = 0
    records: int = 0
    bytes: int = 0
    readers: dict[str, tuple[int, int]] = field(default_factory=dict)

    def copy(self) -> LogRecord:
        """The record as it is now."""
        return LogRecord(
            self.created, self.first, self.trimmed, self.last, self.records, self.bytes, self.readers.copy()
        )

    def append(self, position: int, size: int) -> bool:
        """A record of ``size`` bytes is appended. Returns False if it was before."""
        if position <= self.last:
            return False
        self.first = self.first or position
        self.last = position
        self.records += 1
        self.bytes += size
        return True

    def trim(self, before: int, last: int, records: int, size: int) -> None:
        """The records before a position are trimmed: so many, of ``size`` bytes together, the last at ``last``. Does
        nothing if they were before."""
        if last <= self.trimmed:
            return
        self.first, self.trimmed = before, last
        self.records -= records
        self.bytes -= size

    def lose(self, last: int, records: int, size: int) -> None:
        """So many records, of ``size`` bytes together, are lost; negative: were found. The last that is there, or
        was, is at ``last``."""
        self.first = self.first or last
        self.last = max(self.last, last)
        self.records -= records
        self.bytes -= size

    def to_json(self) -> dict[str, Any]:
        """The record as stored."""
        return {
            "created": self.created,
            "first": self.first,
            "trimmed": self.trimmed,
            "last": self.last,
            "records": self.records,
            "bytes": self.bytes,
            "readers": self.readers,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Read what ``to_json`` made. Raises ``KeyError``, ``TypeError`` or ``ValueError`` for anything else."""
        readers = {name: (position, moved) for name, (position, moved) in data["readers"].items()}
        first, trimmed, last = data["first"], data["trimmed"], data["last"]
        return cls(data["created"], first, trimmed, last, data["records"], data["bytes"], readers)
