"""What a queue must offer to be measured, and the check of its results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

#: Kinds of queues: our stores, and what nothing that is durable can undercut.
STORES = ("sqlite", "filesystem", "hybrid")
FLOORS = ("append", "overwrite")
#: Characters, and bytes, of a message.
BODY_BYTES = 1024
_DIGITS = 12

Taken = tuple[str, Any]
"""A body, and what is needed to acknowledge it."""


class Queue(Protocol):
    """A first-in, first-out queue in one directory. Every call is one group: durable as a whole when it returns."""

    def prepare(self, durable: bool) -> None:
        """From now on wait for the disk, or do not."""

    def publish(self, bodies: list[str]) -> None: ...

    def consume(self, count: int) -> list[Taken]:
        """The next ``count`` messages, which nobody else gets from now on."""

    def ack(self, handles: list[Any]) -> None:
        """Raises when one of them was not held."""

    def fill(self, bodies: Iterator[str]) -> None:
        """Publish as fast as possible, without waiting for the disk."""

    def tidy(self) -> None:
        """What has to be done from time to time: removal of what was acknowledged, checkpoints."""

    def left(self) -> int:
        """Messages in the queue by its own count, consumed ones that are not acknowledged included."""

    def versions(self) -> dict[str, str]:
        """Versions of what it is made of."""

    def close(self) -> None: ...


class WrongMessages(Exception):
    """A queue lost, doubled or changed messages: its figures mean nothing."""


class Ledger:
    """Which messages a queue was given, and which it gave back."""

    def __init__(self) -> None:
        self._settled = bytearray()
        self._settled_count = 0

    @property
    def left(self) -> int:
        """Messages that the queue must have now."""
        return len(self._settled) - self._settled_count

    def make(self, count: int) -> Iterator[str]:
        """New messages, all of which must be published."""
        first = len(self._settled)
        self._settled.extend(bytes(count))
        return map(_body, range(first, first + count))

    def settle(self, bodies: list[str]) -> None:
        """These were consumed and acknowledged. Raises ``WrongMessages`` unless each was published, and is settled
        for the first time."""
        for body in bodies:
            number = int(body[:_DIGITS])
            if number >= len(self._settled) or body != _body(number):
                raise WrongMessages(f"message {number} is not what was published")
            if self._settled[number]:
                raise WrongMessages(f"message {number} was delivered twice")
            self._settled[number] = 1
        self._settled_count += len(bodies)

    def check(self, left: int) -> None:
        """Raises ``WrongMessages`` unless the queue has what is not settled."""
        if left != self.left:
            raise WrongMessages(f"the queue has {left} messages and should have {self.left}")


def _body(number: int) -> str:
    return f"{number:0{_DIGITS}d}".ljust(BODY_BYTES, "x")
