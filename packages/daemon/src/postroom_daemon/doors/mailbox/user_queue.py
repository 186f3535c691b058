"""What one user of a shared mailbox has waiting, and has being worked on."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import NamedTuple

from .spill import Shelf


class Seen(NamedTuple):
    """A file in ``requests/``; sorts as it came."""

    ctime_ns: int
    name: str
    size: int


@dataclass(slots=True)
class Working:
    """Requests that are being worked on, by user: how many, and their bytes."""

    requests: Counter[int] = field(default_factory=Counter)
    bytes: Counter[int] = field(default_factory=Counter)

    def add(self, uid: int, size: int) -> None:
        """One more."""
        self.requests[uid] += 1
        self.bytes[uid] += size

    def remove(self, uid: int, size: int) -> None:
        """One less."""
        self.requests[uid] -= 1
        self.bytes[uid] -= size
        if not self.requests[uid]:
            del self.requests[uid], self.bytes[uid]


@dataclass(slots=True)
class Line:
    """What one user has waiting: ``again`` was left for a while, ``shelf`` is held, and older than what is ``here``.
    ``over`` is beyond what the user may have, and goes on the shelf ``refused``."""

    shelf: Shelf
    refused: Shelf
    here: deque[Seen] = field(default_factory=deque)
    over: deque[Seen] = field(default_factory=deque)
    again: deque[str] = field(default_factory=deque)

    def __len__(self) -> int:
        """How much is pending."""
        return self.shelf.count + self.refused.count + len(self.here) + len(self.over) + len(self.again)

    def next(self, refused: bool) -> str | None:
        """The name of the next request, or of the next that is to be refused; it is no longer in the line."""
        if not refused and self.again:
            return self.again.popleft()
        shelf, here = (self.refused, self.over) if refused else (self.shelf, self.here)
        name = shelf.first()
        if name is not None:
            shelf.take_first()
            return name
        return here.popleft().name if here else None
