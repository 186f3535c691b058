"""A group of the journal as a message of the stream: its lines are the body, the rest is in headers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .errors import StreamUnavailable

_FIRST: Final = "Postroom-First"
_LAST: Final = "Postroom-Last"
_CRC: Final = "Postroom-Crc"
_EPOCH: Final = "Postroom-Epoch"
_ROOT: Final = "Postroom-Root"
_LEADER: Final = "Postroom-Leader"
_ADDRESS: Final = "Postroom-Address"
_RUN: Final = "Postroom-Run"
#: The end of a line of the journal.
_LINE_END: Final = re.compile(rb',"crc":"([0-9a-f]{8})"\}\n?\Z')


@dataclass(frozen=True, slots=True)
class Group:
    """Events that became durable together. ``first`` and ``last`` are ids, ``crc`` is the checksum of the last event,
    ``lines`` are those of the journal.

    A *beat* has no lines, and ``last`` and ``crc`` of the group before it: it only shows that the leader lives.
    """

    first: int
    last: int
    epoch: int
    crc: str
    lines: bytes = b""

    def crc_at(self, event_id: int) -> str:
        """The checksum of one of its events; "" if it does not have the event."""
        lines = self.lines.splitlines(keepends=True)
        return crc_of(lines[event_id - self.first]) if 0 <= event_id - self.first < len(lines) else ""

    @property
    def is_beat(self) -> bool:
        """Whether it has no events."""
        return not self.lines


@dataclass(frozen=True, slots=True)
class Author:
    """Who appends. ``run`` differs at each start of the process, so that two nodes with one name are not mistaken for
    each other; ``address`` is what clients are referred to."""

    node: str
    run: str
    root: str
    address: str = ""


@dataclass(frozen=True, slots=True)
class Stored:
    """A group with its place in the stream, and how many messages the stream had behind it when it was sent."""

    sequence: int
    group: Group
    author: Author
    pending: int = 0


def crc_of(lines: bytes) -> str:
    """The checksum of the last line. Raises ``ValueError`` if there is none."""
    found = _LINE_END.search(lines[-32:])
    if not found:
        raise ValueError("a group without the checksum of its last event")
    return found[1].decode()


def headers_of(group: Group, author: Author) -> dict[str, str]:
    """The headers of a group's message."""
    return {
        _FIRST: str(group.first),
        _LAST: str(group.last),
        _CRC: group.crc,
        _EPOCH: str(group.epoch),
        _ROOT: author.root,
        _LEADER: author.node,
        _RUN: author.run,
        **({_ADDRESS: author.address} if author.address else {}),
    }


def read_stored(sequence: int, headers: Mapping[str, str] | None, body: bytes | None, pending: int = 0) -> Stored:
    """The group in a message. Raises ``StreamUnavailable`` if there is none: somebody else writes to the stream."""
    fields = headers or {}
    try:
        lines = body or b""
        group = Group(int(fields[_FIRST]), int(fields[_LAST]), int(fields[_EPOCH]), fields[_CRC], lines)
        author = Author(fields[_LEADER], fields[_RUN], fields[_ROOT], fields.get(_ADDRESS, ""))
        is_right = crc_of(lines) == group.crc if lines else group.first == group.last + 1
    except (KeyError, ValueError):
        is_right = False
    if not is_right:
        raise StreamUnavailable(f"message {sequence} of the stream is no intact group of a journal")
    return Stored(sequence, group, author, pending)
