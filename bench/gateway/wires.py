"""A protocol as the bytes of one connection: what a push, a pull and an ack are, and what the answers say.

No client library is used, so that every protocol costs its client about the same.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, TypeVar

T = TypeVar("T")
_PATIENCE_S: Final = 30.0
#: A pulled message that is not acknowledged in this time (s) is delivered again, where this can be set.
LEASE_S: Final = 300
CRLF: Final = b"\r\n"


class Refused(Exception):
    """A server answered something else than was expected."""


class Pulled(NamedTuple):
    """A message, and what its ack must contain."""

    body: bytes
    handle: Any


class Answer(NamedTuple):
    """``key`` is that of the command; None if answers keep the order of the commands. ``pulled`` is None for all but a
    pull that got a message."""

    key: int | None
    pulled: Pulled | None = None
    is_empty: bool = False


class Wire(Protocol):
    """One connection that uses one queue. Keys of its commands count from 0. A connection pushes, with many commands in
    flight, or pulls and acknowledges, one command at a time."""

    #: Whether the server answers an ack.
    ack_is_answered: bool

    def __init__(self, queue: str) -> None: ...

    def open(self, connection: socket.socket) -> None:
        """Introduce the client, and create the queue if it does not exist. Raises ``Refused`` and ``OSError``."""

    def push(self, key: int, body: bytes) -> bytes: ...

    def pull(self, key: int) -> bytes:
        """A pull that does not wait."""

    def ack(self, key: int, handle: Any) -> bytes: ...

    def answers(self, buffer: bytearray) -> list[Answer]:
        """The complete answers in ``buffer``, which are removed from it. Raises ``Refused``."""

    def left(self, connection: socket.socket) -> int:
        """Messages in the queue by the server's own count, pulled ones that are not acknowledged included. On an open
        connection without commands in flight."""


def exchange(connection: socket.socket, data: bytes, parse: Callable[[bytearray], T | None]) -> T:
    """Send ``data``, and wait for what ``parse`` takes out of the answer. Raises ``OSError``."""
    connection.settimeout(_PATIENCE_S)
    connection.sendall(data)
    buffer = bytearray()
    while (found := parse(buffer)) is None:
        more = connection.recv(65536)
        if not more:
            raise ConnectionError("the server has closed the connection")
        buffer += more
    connection.settimeout(None)
    return found
