"""Reads the events of the journal in order, from any event on.

Nothing is read behind an event that an answer of the daemon has named (``asOfEvent``), so everything that is read is
complete and stays.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from postroom_common.errors import DamagedRecord, PostroomError
from postroom_common.events import Event, decode_event

#: A longer line is damage: an event has at most one body, and a body at most 16 MB.
LINE_BYTES_LIMIT: Final = 64 * 1024 * 1024
_NAME: Final = re.compile(r"(\d{20})\.jsonl")
_PLACE: Final = re.compile(rb'\{"id":(\d+),"epoch":(\d+),')
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
#: Errors of a bad block: what it holds is missing.
_BAD_BLOCK_ERRNOS: Final = (errno.EIO, errno.EBADMSG, errno.EUCLEAN)
#: Bytes within which an event is no longer searched by halving.
_NEAR_BYTES: Final = 65_536


class JournalPosition(NamedTuple):
    """The position behind an event. Epochs and ids rise together; without an epoch only the id counts."""

    epoch: int | None
    event: int

    def is_behind(self, epoch: int, event: int) -> bool:
        """Whether this position is behind an event."""
        return event <= self.event if self.epoch is None else (epoch, event) <= (self.epoch, self.event)


class JournalUnreadable(PostroomError):
    """The journal cannot be read by this user, or is not the daemon's; the text says why."""


class Journal:
    """The journal in a directory. Every method raises ``JournalUnreadable``, and ``OSError`` for errors of the disk."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def segments(self) -> list[tuple[int, Path]]:
        """The files, oldest first, each with the id of its first event."""
        try:
            with os.scandir(self.root) as entries:
                names = [(_NAME.fullmatch(entry.name), entry) for entry in entries]
                found = [
                    (int(match[1]), self.root / entry.name)
                    for match, entry in names
                    if match and entry.is_file(follow_symlinks=False)
                ]
        except OSError as error:
            raise JournalUnreadable(f"{self.root}: {error.strerror}") from error
        if not found:
            raise JournalUnreadable(f"{self.root}: there is no journal")
        return sorted(found)

    def position_of_time(self, wall_ms: int) -> JournalPosition:
        """A position before all events of a time or later, and close to them unless the clock was set back."""
        for first, path in reversed(self.segments()):
            with _opened(path) as file:
                event = next(filter(None, map(_decoded, _lines(file))), None)
            if event and event["wallMs"] < wall_ms:
                return JournalPosition(None, first - 1)
        return JournalPosition(None, 0)

    def available_from(self) -> int:
        """The id of the first event."""
        return self.segments()[0][0]

    def owner(self) -> str:
        """The id of the root that the journal belongs to, from the newest segment that has it."""
        for _, path in reversed(self.segments()):
            with _opened(path) as file:
                for line, _ in zip(_lines(file), range(8), strict=False):
                    event = _decoded(line)
                    if event and type(event.get("root")) is str:
                        return str(event["root"])
        raise JournalUnreadable(f"{self.root}: no segment names its root")

    def wait_for(self, event: int, pause: Callable[[float], None], patience_s: float) -> int:
        """Wait for an event to appear; returns its epoch, or that of a later one. Raises ``JournalUnreadable`` after
        the timeout."""
        ends = time.monotonic() + patience_s
        while True:
            last = self.last()
            if last and last["id"] >= event:
                return int(last["epoch"])
            if time.monotonic() > ends:
                raise JournalUnreadable(f"{self.root} does not have event {event}: is it the journal of this daemon?")
            pause(0.01)

    def last(self) -> Event | None:
        """The last event that can be read."""
        for _, path in reversed(self.segments()):
            with _opened(path) as file:
                size = os.fstat(file.fileno()).st_size
                span = _NEAR_BYTES
                while size:
                    begin = max(0, size - span)
                    data = os.pread(file.fileno(), size - begin, begin)
                    for line in reversed(data[: data.rfind(b"\n") + 1].split(b"\n")):
                        event = _decoded(line) if line.startswith(b'{"id":') else None
                        if event:
                            return event
                    if not begin:
                        break
                    span *= 8
        return None

    def find(self, epoch: int, event: int) -> Event | None:
        """An event; None where it is missing or damaged."""
        behind = JournalPosition(epoch, event - 1)
        for path in self._from(behind):
            with _opened(path) as file:
                file.seek(_offset(file, behind))
                for found in filter(None, map(_decoded, _lines(file))):
                    if not behind.is_behind(found["epoch"], found["id"]):
                        return found if (found["epoch"], found["id"]) == (epoch, event) else None
        return None

    def events(self, behind: JournalPosition, last: int) -> Iterator[Event]:
        """The events behind a position up to the id ``last``, in order, of complete requests.

        A damaged line is skipped together with all events of its request, which does not count. An id that is not
        returned is missing.
        """
        asked, request = behind, list[Event]()
        for path in self._from(behind):
            try:
                file = _opened(path)
            except FileNotFoundError:  # RACE: retention has just removed it
                continue
            with file:
                file.seek(_offset(file, behind))
                is_behind = False  # once true it stays true
                for line in _lines(file):
                    event = _decoded(line)
                    if event is None:
                        continue
                    number = event["id"]
                    if not is_behind:
                        is_behind = not behind.is_behind(event["epoch"], number)
                        if not is_behind:
                            continue
                    if number > last:
                        return
                    if request and (event["req"] != request[-1]["req"] or number != request[-1]["id"] + 1):
                        request = []
                    if number != event["req"]:
                        request.append(event)
                        continue
                    behind = JournalPosition(event["epoch"], number)
                    if not request and "n" not in event:
                        yield event
                    elif _is_whole([*request, event], asked):
                        yield from request
                        yield event
                    request = []

    def _from(self, behind: JournalPosition) -> list[Path]:
        """The segments that may have events behind a position."""
        paths = [path for _, path in self.segments()]
        while len(paths) > 1:
            try:
                with _opened(paths[1]) as file:
                    place = next(filter(None, map(_place, _lines(file))), None)
            except FileNotFoundError:
                place = None
            if place is None or not behind.is_behind(*place):
                break
            del paths[0]
        return paths


def _is_whole(request: list[Event], asked: JournalPosition) -> bool:
    """Whether a request lacks no event, except for those that are not behind the position that was asked for."""
    first, last = request[0], request[-1]
    begin = last["id"] - last.get("n", 1) + 1
    if asked.epoch in (None, first["epoch"]):
        begin = max(begin, asked.event + 1)
    return bool(first["id"] == begin)


def _offset(file: BinaryIO, behind: JournalPosition) -> int:
    """Where in a segment the first line begins that may be behind a position, found by halving."""
    low, high = 0, os.fstat(file.fileno()).st_size
    while high - low > _NEAR_BYTES:
        middle = (low + high) // 2
        file.seek(middle)
        file.readline(LINE_BYTES_LIMIT)  # the rest of a line
        begin = file.tell()
        place = None
        while begin < high and place is None:
            place = _place(file.readline(LINE_BYTES_LIMIT))
            if place is None:
                begin = file.tell()
        if place is None or begin >= high or not behind.is_behind(*place):
            high = middle
        else:
            low = begin
    return low


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The complete lines of a file, up to a bad block."""
    try:
        while line := file.readline(LINE_BYTES_LIMIT):
            if line.endswith(b"\n"):
                yield line
    except OSError as error:
        if error.errno not in _BAD_BLOCK_ERRNOS:
            raise


def _decoded(line: bytes) -> Event | None:
    try:
        return decode_event(line)
    except (DamagedRecord, ValueError):
        return None


def _place(line: bytes) -> tuple[int, int] | None:
    """Epoch and id of the event of a line, not verified."""
    match = _PLACE.match(line)
    return (int(match[2]), int(match[1])) if match and len(match[1]) < 20 and len(match[2]) < 20 else None


def _opened(path: Path) -> BinaryIO:
    try:
        return os.fdopen(os.open(path, _FLAGS), "rb", 1024 * 1024)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise JournalUnreadable(f"{path}: {error.strerror}") from error
