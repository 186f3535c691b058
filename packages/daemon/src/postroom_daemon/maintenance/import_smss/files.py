"""Read the data directory of smss (822e6a1): the files of its binlog and of its topics, also as a crash leaves them.

A record is ``u32 length of the line | line | payload``. The files have no checksums: a record is intact if its line is
one, and its payload has the length and the end that it must have.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from struct import Struct
from typing import BinaryIO, Final, NamedTuple

#: Highest event id and time (Unix ms) that are believed: beyond them, a record is garbage.
HIGHEST: Final = 2**53
#: Longest line that smss writes, with room to spare; what is searched at once for an intact record (bytes).
_LINE_BYTES: Final = 1024
_WINDOW: Final = 2**20
_U32: Final = Struct("<I")
_FILE: Final = re.compile(r"([0-9]{1,18})\.log")
#: Time of writing, command, event id, time of receiving, topic, length of the payload.
_BINLOG_LINE: Final = re.compile(
    rb"([0-9]{1,19})\t([0-9]{1,3})\t([0-9]{1,19})\t[0-9]{1,19}\t([^\t\n\0]{0,512})\t([0-9]{1,10})\n"
)
#: Time of the record, event id, time of saving, length of the payload, index in its batch, file and place in the
#: binlog.
_TOPIC_LINE: Final = re.compile(
    rb"([0-9]{1,19})\t([0-9]{1,19})\t[0-9]{1,19}\t([0-9]{1,10})\t[0-9]{1,10}\t[0-9]{1,19}\t[0-9]{1,19}\n"
)


class Op(IntEnum):
    """The commands of the binlog, with their numbers."""

    PUB = 1
    CREATE = 2
    DELETE = 3
    DELAY = 16
    DELAY_APPLY = 101


class Entry(NamedTuple):
    """An entry of the binlog, which has the first of its event ids; ``place`` is where its payload begins."""

    wall_ms: int
    op: int
    event_id: int
    topic: bytes
    payload: bytes
    file: int
    place: int


class Message(NamedTuple):
    """A message of a topic, with its block."""

    wall_ms: int
    event_id: int
    block: bytes


class Damage(NamedTuple):
    """Bytes of a file that are no intact record: the first of them are ``data``."""

    file: str
    offset: int
    length: int
    data: bytes


NoteDamage = Callable[[Damage], None]


class _Record(NamedTuple):
    event_id: int
    line: re.Match[bytes]
    payload: bytes
    place: int
    end: int


@dataclass(frozen=True, slots=True)
class SmssFiles:
    """A data directory. Nothing in it is changed. Methods raise ``OSError``."""

    root: Path

    def state(self) -> list[tuple[str, int, int]]:
        """What changes when smss works."""
        found = [path for name in ("binlog", "topic") for path in sorted((self.root / name).rglob("*"))]
        return [(str(path), (stat := path.lstat()).st_size, stat.st_mtime_ns) for path in found]

    def topics(self) -> Iterator[tuple[bytes, Path]]:
        """The topics that have a directory: the name, and the directory."""
        for path in sorted((self.root / "topic").glob("*/*/*")):
            if path.is_dir():
                yield os.fsencode(path.name), path

    def binlog(self, note: NoteDamage) -> Iterator[Entry]:
        """The entries of the binlog, in order."""
        for number, path in _numbered(self.root / "binlog"):
            for record in self._records(path, _BINLOG_LINE, _entry_at, note):
                wall, op, _, topic, _ = record.line.groups()
                yield Entry(int(wall), int(op), record.event_id, topic, record.payload, number, record.place)

    def binlog_bytes(self, file: int, place: int, length: int) -> bytes:
        """A part of a file of the binlog."""
        with (self.root / "binlog" / f"{file}.log").open("rb") as opened:
            opened.seek(place)
            return opened.read(length)

    def messages(self, directory: Path, note: NoteDamage) -> Iterator[Message]:
        """The messages of a topic, in the order of its files."""
        for _, path in _numbered(directory):
            for record in self._records(path, _TOPIC_LINE, _message_at, note):
                yield Message(int(record.line[1]), record.event_id, record.payload)

    def _records(
        self,
        path: Path,
        line: re.Pattern[bytes],
        read_at: Callable[[BinaryIO, int, int], _Record | None],
        note: NoteDamage,
    ) -> Iterator[_Record]:
        name = str(path.relative_to(self.root))
        with path.open("rb") as file:
            size, offset = os.fstat(file.fileno()).st_size, 0
            while offset < size:
                record = read_at(file, offset, size)
                if record is None:
                    following, record = _next(file, offset + 1, size, line, read_at)
                    file.seek(offset)
                    data = file.read(min(_LINE_BYTES, following - offset))
                    note(Damage(name, offset, following - offset, data))
                if record:
                    yield record
                offset = record.end if record else size


def _numbered(directory: Path) -> list[tuple[int, Path]]:
    """The files of a directory in order."""
    names = [(path, _FILE.fullmatch(path.name)) for path in directory.iterdir()] if directory.is_dir() else []
    return sorted((int(match[1]), path) for path, match in names if match and path.is_file())


def _line_at(file: BinaryIO, offset: int, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
    file.seek(offset)
    head = file.read(4)
    length = _U32.unpack(head)[0] if len(head) == 4 else 0
    return pattern.fullmatch(file.read(length)) if 0 < length <= _LINE_BYTES else None


def _entry_at(file: BinaryIO, offset: int, size: int) -> _Record | None:
    """The entry of a binlog at an offset; None if it is not intact."""
    line = _line_at(file, offset, _BINLOG_LINE)
    if line is None:
        return None
    place = offset + 4 + line.end()
    event_id, length = int(line[3]), int(line[5])
    if not 0 < event_id < HIGHEST or int(line[1]) > HIGHEST or place + length > size:
        return None
    payload = file.read(length)
    if payload[-1:] != b"\n" and length:
        return None
    return _Record(event_id, line, payload[:-1], place, place + length)


def _message_at(file: BinaryIO, offset: int, size: int) -> _Record | None:
    """The message of a topic at an offset; None if it is not intact."""
    line = _line_at(file, offset, _TOPIC_LINE)
    if line is None:
        return None
    place = offset + 4 + line.end()
    event_id, sizes = int(line[2]), file.read(8)
    length = 8 + _U32.unpack_from(sizes)[0] if len(sizes) == 8 else 0
    # The end of the line behind a block is part of the length, or not.
    if int(line[3]) - length not in (0, 1) or place + length + 1 > size:
        return None
    if not 0 < event_id < HIGHEST or int(line[1]) > HIGHEST:
        return None
    rest = file.read(length - 7)
    if rest[-1:] != b"\n":
        return None
    return _Record(event_id, line, sizes + rest[:-1], place, place + length + 1)


def _next(
    file: BinaryIO,
    start: int,
    size: int,
    line: re.Pattern[bytes],
    read_at: Callable[[BinaryIO, int, int], _Record | None],
) -> tuple[int, _Record | None]:
    """The next intact record from an offset on, and where it begins; None and the size of the file if there is none."""
    at = start
    while at < size:
        file.seek(at)
        window = file.read(_WINDOW)
        for match in line.finditer(window):
            begin = at + match.start() - 4
            if begin >= at and _U32.unpack_from(window, match.start() - 4)[0] == len(match[0]):
                record = read_at(file, begin, size)
                if record:
                    return begin, record
        if at + len(window) >= size:
            break
        at += len(window) - _LINE_BYTES
    return size, None
