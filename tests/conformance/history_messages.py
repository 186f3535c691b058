"""What the model of the histories knows of single messages, and of those who wait for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.conformance.bench import Sent

#: States in which a message waits to be consumed.
WAITS = ("ready", "delayed")
#: States in which a message expires, and is moved or purged.
EXPIRES = (*WAITS, "gathering")
#: States in which a message ends at a time, whatever becomes of it then.
LAPSES = (*EXPIRES, "drafting")
#: States in which a message counts for the limits of its queue.
ALIVE = (*LAPSES, "inflight", "held")
#: States in which the parts of a message can be set.
SETTABLE = ("drafting", *WAITS)
#: The parts of every draft.
PARTS = ("part-one", "part-two")


class New(NamedTuple):
    """What is published, by whomever."""

    queue: str
    priority: int = 0
    delay: int = 0
    target: str = ""
    ttl: int = 0
    ordering_key: str = ""
    deduplication_key: str = ""


@dataclass(eq=False)
class Message:
    """What the model knows of one message. ``order`` is its place among all that were ever published, ``place`` the one
    behind those that were there when it last returned to the end."""

    key: str
    queue: str
    priority: int
    order: int
    place: int = 0
    target: str = ""
    ordering_key: str = ""
    expires: int = 0
    created: int = 0
    state: str = "ready"
    due: int = 0
    attempt: int = 0
    lease: str = ""
    consumer: str = ""
    until: int = 0
    died: int = 0
    apart: bool = False
    ordered: bool = False  # its lease is in the first phase
    was_set: bool = False  # its body is another one than when it was published
    parts: int = 0  # of a gathered one, or of one that was drafted
    unset: tuple[str, ...] | None = None  # the parts of one that was drafted that have no value; None: it was not
    name: tuple[str, str] = ("", "")  # with the queue in which it was drafted

    @property
    def turn(self) -> int:
        """Its place among those of its priority."""
        return self.place or self.order

    @property
    def is_free(self) -> bool:
        """Whether a letter is neither leased nor quarantined."""
        return not self.lease and not self.apart

    def end_lease(self) -> None:
        self.lease, self.consumer, self.until, self.ordered = "", "", 0, False


@dataclass(eq=False)
class Schedule:
    """What is published every so often."""

    new: New
    every: int
    missed: str
    begin: int
    next: int


@dataclass(eq=False)
class Waiting:
    """A request that waits for messages. ``most`` is 0 where it did not ask for several."""

    sents: list[Sent]
    queue: str
    consumer: str
    until: int
    most: int = 0


def nothing(most: int) -> dict[str, Any]:
    """The answer to a request that gets no message."""
    return {"messages": []} if most else {"message": None}
