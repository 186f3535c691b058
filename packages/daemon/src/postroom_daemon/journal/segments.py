"""Read the journal's segments: list them, and find what is intact.

``<first event id, 20 digits>.jsonl``, one event a line. Nothing here writes.
"""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from postroom_common.errors import DamagedRecord
from postroom_common.events import Event, decode_event
from postroom_common.protocol import REQUEST_BYTES_CEILING

from ..platform.files import LOST_ERRNOS, READ_FLAGS, retry_after_eio

#: Errors of a single segment, not of the machine: the others are read nevertheless.
UNREADABLE_ERRNOS: Final = LOST_ERRNOS | {errno.EACCES, errno.EPERM}
#: Errors of a part of a file, and the number of bytes that are skipped for one.
_BAD_BLOCK_ERRNOS: Final = frozenset({errno.EIO, errno.EBADMSG, errno.EUCLEAN})
_BLOCK_BYTES: Final = 4096
_BUFFER_BYTES: Final = 2**16
#: The longest line (bytes): the body of one request, and its attributes.
LINE_LIMIT: Final = REQUEST_BYTES_CEILING + 2**16
#: Bits of an offset: a segment ends with the first group beyond ``journal.segmentBytes``, at most 2 GiB.
_OFFSET_BITS = 40
_NAME = re.compile(r"(\d{20})\.jsonl")


class Damage(NamedTuple):
    """Bytes of a segment that are not an intact event, or belong to a request that has lost one."""

    segment: Path
    offset: int
    data: bytes
    reason: str


OnDamage = Callable[[Damage], None]


class Line(NamedTuple):
    """A line of a segment; ``event`` is None if it is damaged."""

    offset: int
    data: bytes
    event: Event | None

    @property
    def id(self) -> int:
        """Its event's id; 0 if it is damaged."""
        return int(self.event["id"]) if self.event else 0


def segment_name(first_id: int) -> str:
    """The name of the segment that begins with an event."""
    return f"{first_id:020d}.jsonl"


def is_segment_name(name: str) -> bool:
    """Whether this is the name of a segment."""
    return _NAME.fullmatch(name) is not None


def list_segments(root: Path) -> list[tuple[int, Path]]:
    """The segments in order, each with the id of its first event. Other files are ignored."""
    found = []
    with os.scandir(root) as entries:
        for entry in entries:
            match = _NAME.fullmatch(entry.name)
            if match and entry.is_file(follow_symlinks=False):
                found.append((int(match[1]), root / entry.name))
    return sorted(found)


def list_strangers(root: Path) -> list[str]:
    """Names of segments that are directories, links or pipes; in order."""
    with os.scandir(root) as entries:
        return sorted(e.name for e in entries if is_segment_name(e.name) and not e.is_file(follow_symlinks=False))


class _Bytes(io.RawIOBase):
    """The bytes of a segment. Unless ``strict``, an unreadable block is read as NULs, so that reading can continue
    behind it."""

    def __init__(self, path: Path, start: int, strict: bool = False) -> None:
        super().__init__()
        self._strict = strict
        self._fd = retry_after_eio(lambda: os.open(path, READ_FLAGS))
        self._size = os.fstat(self._fd).st_size
        self._at = start

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        try:
            count = os.preadv(self._fd, [view], self._at)
        except OSError as error:
            if self._strict or error.errno not in _BAD_BLOCK_ERRNOS or self._at >= self._size:
                raise
            count = self._read_block(view)
        self._at += count
        return count

    def _read_block(self, view: memoryview) -> int:
        length = min(_BLOCK_BYTES - self._at % _BLOCK_BYTES, self._size - self._at, len(view))
        try:
            return os.preadv(self._fd, [view[:length]], self._at)
        except OSError:
            view[:length] = bytes(length)
            return length

    def close(self) -> None:
        if not self.closed:
            os.close(self._fd)
        super().close()


def read_bytes(path: Path, start: int = 0, length: int = -1) -> bytes:
    """Bytes of a segment, to its end unless a length is given. Raises ``OSError``."""
    with io.BufferedReader(_Bytes(path, start, strict=True), _BUFFER_BYTES) as file:
        return file.read(length)


def read_lines(path: Path, start: int = 0) -> Iterator[Line]:
    """The lines of a segment from a byte offset on, damaged ones included.

    Longer lines than any event come in pieces, unreadable blocks as NULs. A line without an end is the last one, even
    if the daemon appends meanwhile. Raises ``OSError``.
    """
    offset = start
    with io.BufferedReader(_Bytes(path, start), _BUFFER_BYTES) as file:
        while data := file.readline(LINE_LIMIT):
            event = None
            ended = data.endswith(b"\n")
            if ended:
                try:
                    event = decode_event(data)
                except DamagedRecord:
                    pass
            yield Line(offset, data, event)
            if not ended and len(data) < LINE_LIMIT:
                return
            offset += len(data)


class PlacedRequest(NamedTuple):
    """An intact request: its events, and the place of the first of them."""

    events: list[Event]
    place: int


class Start(NamedTuple):
    """An offset of a segment at which a request begins or will begin."""

    segment: Path
    offset: int


def read_requests(
    root: Path, from_id: int, on_damage: OnDamage, begins: Start | None = None
) -> Iterator[PlacedRequest]:
    """All intact requests that end at ``from_id`` or later, in order. Reading starts at ``begins``, if
    the caller knows that none begins before it, else not far before the first of them.

    Damaged lines, and the rest of a request that has lost one, go to ``on_damage``; so does an unreadable segment,
    without its bytes. Raises ``OSError`` for faults of the machine.
    """
    segments = list_segments(root)
    for index, (_, path) in enumerate(segments):
        if index + 1 < len(segments) and segments[index + 1][0] <= from_id:
            continue
        start = begins.offset if begins and begins.segment == path else None
        yield from _read_segment(path, start, from_id, on_damage)


def _read_segment(path: Path, start: int | None, from_id: int, on_damage: OnDamage) -> Iterator[PlacedRequest]:
    pending: list[Line] = []
    try:
        for line in read_lines(path, find_start(path, from_id) if start is None else start):
            event = line.event
            if event is None:
                _report(path, pending, "its request is incomplete", on_damage)
                on_damage(Damage(path, line.offset, line.data, "no intact event"))
                pending = []
                continue
            if pending and (event["req"] != _request(pending[0]) or event["id"] != pending[-1].id + 1):
                _report(path, pending, "its request is incomplete", on_damage)
                pending = []
            pending.append(line)
            if event["id"] == event["req"]:
                if len(pending) != event.get("n", 1):
                    _report(path, pending, "its request is incomplete", on_damage)
                elif event["id"] >= from_id:
                    events = [pended.event for pended in pending if pended.event is not None]
                    yield PlacedRequest(events, place_of(pending[0].id, pending[0].offset))
                pending = []
    except OSError as error:
        if error.errno not in UNREADABLE_ERRNOS:
            raise
        on_damage(Damage(path, 0, b"", f"cannot be read: {error.strerror}"))
    _report(path, pending, "its request is incomplete", on_damage)


def _request(line: Line) -> int:
    return int(line.event["req"]) if line.event else 0


def find_start(path: Path, from_id: int) -> int:
    """The offset of a request of a segment before which none ends at ``from_id`` or later, and which is not far before
    the first that does. Raises ``OSError``."""
    start, end = 0, path.stat().st_size
    while end - start > _BUFFER_BYTES:
        middle = (start + end) // 2
        ended = _first_end(path, middle, end)
        if ended and ended.id < from_id:
            start = ended.offset + len(ended.data)
        else:
            end = middle
    return start


def _first_end(path: Path, start: int, end: int) -> Line | None:
    """The first intact line between two offsets that ends a request."""
    for line in read_lines(path, start):
        if line.offset >= end:
            return None
        if line.event and line.id == line.event["req"]:
            return line
    return None


def _report(path: Path, lines: list[Line], reason: str, on_damage: OnDamage) -> None:
    for line in lines:
        on_damage(Damage(path, line.offset, line.data, reason))


def place_of(event_id: int, offset: int) -> int:
    """The place of an event as one number: its id, and its line's offset in its segment."""
    return event_id << _OFFSET_BITS | offset


def places_of(first_id: int, offsets: Iterable[int]) -> list[int]:
    """The places of events in a row, of which the first has ``first_id``."""
    return [event_id << _OFFSET_BITS | offset for event_id, offset in enumerate(offsets, first_id)]


def find_request(root: Path, place: int) -> list[Event] | None:
    """The events of the request that begins at a place; None if its segment was removed or one of them is damaged.
    Raises ``OSError``."""
    event_id, offset = place >> _OFFSET_BITS, place & ((1 << _OFFSET_BITS) - 1)
    holding = [path for first, path in list_segments(root) if first <= event_id]
    if not holding:
        return None
    events: list[Event] = []
    try:
        for line in read_lines(holding[-1], offset):
            if line.event is None or line.event["id"] != event_id + len(events):
                return None
            events.append(line.event)
            if line.event["id"] == line.event["req"]:
                return events
    except OSError as error:
        if error.errno not in UNREADABLE_ERRNOS:
            raise
    return None


class Span(NamedTuple):
    """The ids of a segment's first and last intact event, and whether the first is at its beginning."""

    first: int
    last: int
    whole_from_start: bool


def read_span(path: Path) -> Span | None:
    """The span of a segment, read at its two ends; None if no event is intact. Raises ``OSError``."""
    head = next((line for line in read_lines(path) if line.event), None)
    if head is None or head.event is None:
        return None
    first, size, tail = head.event, path.stat().st_size, _BUFFER_BYTES
    last, start = first, size
    while last is first and start > head.offset:
        start = max(head.offset, size - tail)
        for line in read_lines(path, start):
            last = line.event or last
        tail *= 16
    return Span(first["id"], last["id"], head.offset == 0)


def begun_at(path: Path) -> int | None:
    """The engine time of a segment's first intact event; None if there is none. Raises ``OSError``."""
    try:
        return next((int(line.event["engineMs"]) for line in read_lines(path) if line.event), None)
    except OSError as error:
        if error.errno not in UNREADABLE_ERRNOS:
            raise
        return None
