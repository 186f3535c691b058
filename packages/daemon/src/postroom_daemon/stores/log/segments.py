"""The segments of a log: files of records, and a sparse index of each."""

from __future__ import annotations

import os
import stat
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from ...platform.files import READ_FLAGS, Files
from .records import LEAST_BYTES, checksum_at, head_at, next_intact, not_intact, size_at, walk

#: An index has a mark at the first record behind so many bytes.
MARK_BYTES: Final = 32 * 1024
#: Bytes that a scan or a search reads at once.
_CHUNK: Final = 1024 * 1024
_SEARCH: Final = 64 * 1024
#: Files that are open at the same time.
_FDS_LIMIT: Final = 64
_MARK: Final = Struct("<qqq")
_CRC: Final = Struct("<I")
_MARK_SIZE: Final = _MARK.size + _CRC.size
NO_LIMIT: Final = 2**62
_BLOCK_BYTES: Final = 4096

Key = tuple[int, int]
"""A log, and the first position of one of its segments."""


class Index:
    """Some of the records of a segment, in order: their positions, offsets and wall times. The first ``saved`` of them
    are in its file."""

    def __init__(self) -> None:
        self.positions = array("q")
        self.offsets = array("q")
        self.walls = array("q")
        self.saved = 0

    @property
    def next_offset(self) -> int:
        """The offset from which on the next record is marked."""
        return self.offsets[-1] + MARK_BYTES if self.offsets else 0

    def add(self, position: int, offset: int, wall_ms: int) -> None:
        """Mark a record."""
        self.positions.append(position)
        self.offsets.append(offset)
        self.walls.append(wall_ms)

    def offset_before(self, position: int) -> int:
        """The offset of the last marked record at a position or before it."""
        at = bisect_right(self.positions, position)
        return self.offsets[at - 1] if at else 0

    def unsaved(self) -> bytes:
        """The marks that the file lacks, as it is to have them."""
        marks = (_MARK.pack(*mark) for mark in self._marks(self.saved))
        return b"".join(mark + _CRC.pack(crc32(mark)) for mark in marks)

    def _marks(self, start: int) -> Iterator[tuple[int, int, int]]:
        return zip(self.positions[start:], self.offsets[start:], self.walls[start:], strict=True)

    @classmethod
    def read(cls, data: bytes, size: int) -> Index:
        """The marks of an index file, up to the first damaged one, of a segment of ``size`` bytes."""
        index, last, last_offset = cls(), 0, -1
        for at in range(0, len(data) - _MARK_SIZE + 1, _MARK_SIZE):
            position, offset, wall_ms = _MARK.unpack_from(data, at)
            (checksum,) = _CRC.unpack_from(data, at + _MARK.size)
            is_intact = checksum == crc32(data[at : at + _MARK.size])
            if not is_intact or position <= last or not last_offset < offset < size:
                break
            index.add(position, offset, wall_ms)
            last, last_offset = position, offset
        index.saved = len(index.positions)
        return index


@dataclass(slots=True)
class Segment:
    """``first`` is the position of its first record, or a lower one, and names it. ``last`` is that of its last record,
    ``last_wall`` the highest wall time. Of its ``records`` and its ``size`` in bytes, some at the beginning may be
    trimmed. It is ``suspect`` if not all of it can be read. ``mark`` is the checksum of its first record (0: unknown),
    which that of another root has not. The kernel began to write its first ``started`` bytes."""

    first: int
    size: int = 0
    records: int = 0
    last: int = 0
    last_wall: int = 0
    trimmed_records: int = 0
    trimmed_bytes: int = 0
    suspect: bool = False
    mark: int = 0
    started: int = 0

    def to_json(self) -> list[int]:
        """As stored in the state of the logs."""
        numbers = [self.first, self.size, self.records, self.last, self.last_wall]
        return [*numbers, self.trimmed_records, self.trimmed_bytes, int(self.suspect), self.mark]

    @classmethod
    def from_json(cls, data: list[int]) -> Segment:
        """Read what ``to_json`` made. Raises ``TypeError`` for anything else."""
        first, size, records, last, last_wall, trimmed_records, trimmed_bytes, suspect, *mark = data
        return cls(first, size, records, last, last_wall, trimmed_records, trimmed_bytes, bool(suspect), *mark)


class Scan(NamedTuple):
    """What a scan found from an offset on: so many intact records up to the offset ``end``, the last at the position
    ``last``, and the wall time of the last of those before each mark."""

    records: int
    end: int
    last: int
    wall_ms: int


@dataclass(slots=True)
class Intact:
    """What is intact of a segment that is damaged: its bytes, where each intact record begins and ends with its
    position, and the ranges of other bytes. ``after`` and ``before`` are the positions between which records are
    missing."""

    data: bytes
    is_unreadable: bool = False
    records: list[tuple[int, int, int]] = field(default_factory=list)
    damaged: list[tuple[int, int]] = field(default_factory=list)
    after: int = 0
    before: int = 0


class SegmentFiles:
    """The files of all segments below a directory. Raises ``OSError``."""

    def __init__(self, root: Path, files: Files) -> None:
        self.root = root
        self.files = files
        self._fds: dict[tuple[int, int, bool], int] = {}  # least recently used first

    def directory(self, log: int) -> Path:
        """The directory of a log."""
        return self.root / f"{log:020d}"

    def path(self, log: int, first: int) -> Path:
        """The file of a segment; that of its index has the suffix ``.idx``."""
        return self.directory(log) / f"{first:020d}.log"

    def fd(self, log: int, first: int, writing: bool = False, new: bool = False) -> int:
        """A segment's file, open. A ``new`` one is created, or emptied."""
        key = (log, first, writing)
        fd = None if new else self._fds.pop(key, None)
        if fd is None:
            if new:
                self._close(key)
            flags = READ_FLAGS if not writing else os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
            opened: int = self.files.open(self.path(log, first), flags | (os.O_CREAT | os.O_TRUNC) * new, 0o600)
            fd = opened
            while len(self._fds) >= _FDS_LIMIT:
                self._close(next(iter(self._fds)))
        self._fds[key] = fd
        return fd

    def forget(self, log: int, first: int) -> None:
        """Close the files of a segment that is removed or replaced."""
        self._close((log, first, False))
        self._close((log, first, True))

    def close(self) -> None:
        """Close all files."""
        for key in list(self._fds):
            self._close(key)

    def _close(self, key: tuple[int, int, bool]) -> None:
        fd = self._fds.pop(key, None)
        if fd is not None:
            self.files.close(fd)

    def read(self, log: int, segment: Segment, offset: int, size: int) -> bytes:
        """Bytes of a segment, no more than it has."""
        data: bytes = self.files.pread(self.fd(log, segment.first), min(size, segment.size - offset), offset)
        return data

    def mark(self, log: int, segment: Segment) -> int:
        """The checksum of the first record in the file of a segment; 0: it has none."""
        data = self.read(log, segment, 0, LEAST_BYTES)
        return checksum_at(data, 0) if len(data) == LEAST_BYTES else 0

    # --- the index ------------------------------------------------------------------------------------------------

    def read_index(self, log: int, segment: Segment) -> Index:
        """The index of a segment. What its file lacks is made again."""
        path = self.path(log, segment.first).with_suffix(".idx")
        try:
            index = Index.read(path.read_bytes(), segment.size) if path.is_file() else Index()
        except OSError:
            index = Index()
        start = index.offsets[-1] if index.offsets else 0
        self.scan(log, segment, start, index.positions[-1] - 1 if index.offsets else 0, index)
        return index

    def save_index(self, log: int, segment: Segment, index: Index) -> None:
        """Write the marks that the file lacks, without making them durable."""
        data = index.unsaved()
        if not data:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = self.files.open(self.path(log, segment.first).with_suffix(".idx"), flags, 0o600)
        try:
            self.files.pwrite_all(fd, data, index.saved * _MARK_SIZE)
            self.files.ftruncate(fd, len(index.positions) * _MARK_SIZE)
        finally:
            self.files.close(fd)
        index.saved = len(index.positions)

    # --- scans ----------------------------------------------------------------------------------------------------

    def scan(self, log: int, segment: Segment, offset: int, last: int, index: Index) -> Scan:
        """Go through a segment from a record on, behind one at the position ``last``, up to its end or to the first
        that is not intact, and mark records in the index that are not."""
        records, highest, chunk = 0, 0, _CHUNK
        while offset < segment.size:
            data, at = self.read(log, segment, offset, chunk), 0
            while True:
                walked = walk(data, offset, at, last, NO_LIMIT, max(1, index.next_offset - offset - at))
                if not walked.records:
                    break
                if offset + at >= index.next_offset:
                    wall_ms, position, _ = head_at(data, at)
                    index.add(position, offset + at, wall_ms)
                records, at, last, highest = (
                    records + walked.records,
                    walked.end,
                    walked.last,
                    max(highest, walked.wall_ms),
                )
            offset += at
            if walked.broken:
                break
            if at:
                chunk = _CHUNK
                continue
            chunk = size_at(data, 0) if len(data) >= LEAST_BYTES else 0
            if not len(data) < chunk <= segment.size - offset:
                break  # its last record is incomplete
        return Scan(records, offset, last, highest)

    def seek(self, log: int, segment: Segment, is_behind: Callable[[int, int], bool], offset: int) -> int:
        """The offset of the first record, from that at ``offset`` on, of whose wall time and position ``is_behind`` is
        true; the segment's size if there is none. Raises ``LogDamaged``."""
        while offset < segment.size:
            data = self.read(log, segment, offset, _SEARCH)
            at = 0
            while at + LEAST_BYTES <= len(data):
                wall_ms, position, end = head_at(data, at)
                if is_behind(wall_ms, position):
                    return offset + at
                if not offset + at < end <= segment.size:
                    raise not_intact(self.path(log, segment.first), offset + at)
                at = end - offset
            if not at:
                raise not_intact(self.path(log, segment.first), offset)
            offset += at
        return offset

    def intact(self, log: int, segment: Segment, limit: int) -> Intact:
        """What is intact of a segment, and of all that is in the file if it is suspect. All records are below the
        position ``limit``. One that cannot be read has nothing, and so has one of another root."""
        is_unreadable = False
        path = self.path(log, segment.first)
        try:
            data = path.read_bytes() if path.is_file() else b""
        except OSError:
            data, is_unreadable = _readable(path), True
        data = data if segment.suspect else data[: segment.size]
        found = Intact(data, is_unreadable)
        at, last = 0, segment.first - 1
        after = before = 0
        begin = walk(data, 0, 0, last, 1, NO_LIMIT)
        if begin.records and segment.mark not in (0, checksum_at(data, 0)):
            limit = limit if segment.first < begin.last <= segment.last else 0
        while at < len(data):
            walked = walk(data, 0, at, last, 1, NO_LIMIT)
            if walked.records and walked.last < limit:
                found.records.append((at, walked.end, walked.last))
                at, last = walked.end, walked.last
                if after and not before:
                    before = last
                continue
            following = next_intact(data, 0, at + 1, last) if limit else len(data)
            found.damaged.append((at, following))
            after, before = after or max(last, 1), 0
            at = following
        if last < segment.last:  # its end is not there, either
            after, before = after or max(last, 1), segment.last + 1
        found.after, found.before = after or segment.first - 1, before or segment.last + 1
        return found


def _readable(path: Path) -> bytes:
    """The blocks of a file that can be read; in place of the others, zeros. Nothing, if it is no file."""
    try:
        fd = os.open(path, READ_FLAGS)
    except OSError:
        return b""
    blocks: list[bytes] = []
    try:
        size = os.fstat(fd).st_size if stat.S_ISREG(os.fstat(fd).st_mode) else 0
        for at in range(0, size, _BLOCK_BYTES):
            try:
                blocks.append(os.pread(fd, _BLOCK_BYTES, at))
            except OSError:
                blocks.append(bytes(min(_BLOCK_BYTES, size - at)))
    finally:
        os.close(fd)
    return b"".join(blocks)
