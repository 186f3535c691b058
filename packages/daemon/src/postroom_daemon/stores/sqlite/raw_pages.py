"""The pages of a database file, read without SQLite: every row that is intact, whatever became of the rest.

SQLite finds a page by way of others, so that one bad page hides many good ones. Here each page is read by itself.
Free pages are skipped, since deleted rows may still be in them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_LEAF: Final = 13
_TREE_PAGES: Final = frozenset({2, 5, 10, _LEAF})
_PAGE_BYTES: Final = 4096
#: Kinds of pages in the pointer map: a root, a free page, an inner or outer page of a tree.
_ROOT, _FREE, _TREE = 1, 2, 5
_ROW_BYTES_LIMIT: Final = 2**30
_WAL_MAGIC: Final = 0x377F0682
_INTEGER_BYTES: Final = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


class _Bad(Exception):
    """These bytes are not a row."""


class RawPages:
    """A database file and its log. ``damaged`` counts pages and rows that cannot be read."""

    def __init__(self, database: Path, wal: Path) -> None:
        self.damaged = 0
        self._fd = os.open(database, os.O_RDONLY | os.O_CLOEXEC) if database.is_file() else -1
        self._wal_fd = os.open(wal, os.O_RDONLY | os.O_CLOEXEC) if wal.is_file() else -1
        self._frames: dict[int, int] = {}  # page to its place in the log
        self._size = self._find_size()
        self._count = os.fstat(self._fd).st_size // self._size if self._fd >= 0 else 0
        self._read_wal()
        head = self._page(1) or b""
        self._usable = self._size - (head[20] if head.startswith(b"SQLite format 3") else 0)
        second = self._page(2) or b"\0"
        self._mapped = second[0] == _ROOT  # the map begins with page 3, which is a table's
        self._free = set() if self._mapped else self._freelist(head)

    def close(self) -> None:
        """Let go of the files."""
        for fd in (self._fd, self._wal_fd):
            if fd >= 0:
                os.close(fd)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The values of every intact row of every table, in no order."""
        self.damaged = 0
        for number in range(2, self._count + 1):
            kind = self._kind(number)
            if kind == _FREE or number in self._free:
                continue
            page = self._page(number)
            if page is None:
                self.damaged += 1
            elif page[0] == _LEAF and kind in (0, _ROOT, _TREE):
                yield from self._leaf(page)
            elif kind in (_ROOT, _TREE) and page[0] not in _TREE_PAGES:
                self.damaged += 1

    def _find_size(self) -> int:
        head = self._pread(self._fd, 18, 0)
        size = int.from_bytes(head[16:18], "big") if head.startswith(b"SQLite format 3\0") else 0
        if size == 1:
            return 65536
        return size if size >= 512 and size & (size - 1) == 0 else _PAGE_BYTES

    def _pread(self, fd: int, count: int, place: int) -> bytes:
        try:
            return os.pread(fd, count, place) if fd >= 0 else b""
        except OSError:
            return b""

    def _page(self, number: int) -> bytes | None:
        if number in self._frames:
            page = self._pread(self._wal_fd, self._size, self._frames[number])
        else:
            page = self._pread(self._fd, self._size, (number - 1) * self._size)
        return page if len(page) == self._size else None

    def _read_wal(self) -> None:
        """Find the frames of the log that were committed: up to the last one whose checksums hold."""
        head = self._pread(self._wal_fd, 32, 0)
        if len(head) < 32 or int.from_bytes(head[:4], "big") & ~1 != _WAL_MAGIC:
            return
        pairs = struct.Struct(">II" if head[3] & 1 else "<II")
        salts, sums = head[16:24], _wal_sums(head[:24], (0, 0), pairs)
        if struct.pack(">II", *sums) != head[24:32]:
            return
        place, pending = 32, {}
        while True:
            frame = self._pread(self._wal_fd, 24 + self._size, place)
            if len(frame) < 24 + self._size or frame[8:16] != salts:
                return
            sums = _wal_sums(frame[24:], _wal_sums(frame[:8], sums, pairs), pairs)
            if struct.pack(">II", *sums) != frame[16:24]:
                return
            number, count = struct.unpack(">II", frame[:8])
            pending[number] = place + 24
            if count:
                self._frames.update(pending)
                self._count = count
                pending = {}
            place += 24 + self._size

    def _kind(self, number: int) -> int:
        """The pointer map's entry for a page; 0 if it has none."""
        if not self._mapped:
            return 0
        entries = self._usable // 5
        map_page = (number - 2) // (entries + 1) * (entries + 1) + 2
        if number == map_page:
            return _FREE  # the map itself: no rows
        page, place = self._page(map_page), 5 * (number - map_page - 1)
        kind = page[place] if page else 0
        return kind if 1 <= kind <= _TREE else 0

    def _freelist(self, head: bytes) -> set[int]:
        found: set[int] = set()
        trunk = int.from_bytes(head[32:36], "big")
        while trunk and trunk not in found and trunk <= self._count:
            found.add(trunk)
            page = self._page(trunk) or bytes(8)
            count = min(int.from_bytes(page[4:8], "big"), self._usable // 4 - 2)
            found.update(struct.unpack_from(f">{count}I", page, 8))
            trunk = int.from_bytes(page[:4], "big")
        return found

    def _leaf(self, page: bytes) -> Iterator[tuple[Any, ...]]:
        cells = int.from_bytes(page[3:5], "big")
        if 8 + 2 * cells > self._usable:
            self.damaged += 1
            return
        for place in struct.unpack_from(f">{cells}H", page, 8):
            try:
                yield _values(self._payload(page, place))
            except (_Bad, IndexError, UnicodeDecodeError, struct.error):
                self.damaged += 1

    def _payload(self, page: bytes, place: int) -> bytes:
        """A row's bytes, including those on overflow pages."""
        length, place = _varint(page, place)
        _, place = _varint(page, place)
        most = self._usable - 35
        if length > _ROW_BYTES_LIMIT:
            raise _Bad
        if length <= most:
            return _exactly(page[place : place + length], length)
        least = (self._usable - 12) * 32 // 255 - 23
        local = least + (length - least) % (self._usable - 4)
        if local > most:
            local = least
        data = bytearray(_exactly(page[place : place + local], local))
        following = int.from_bytes(_exactly(page[place + local : place + local + 4], 4), "big")
        while len(data) < length:
            rest = self._page(following) if 1 < following <= self._count else None
            if rest is None:
                raise _Bad
            data += rest[4 : min(self._usable, 4 + length - len(data))]
            following = int.from_bytes(rest[:4], "big")
        return bytes(data)


def _wal_sums(data: bytes, sums: tuple[int, int], pairs: struct.Struct) -> tuple[int, int]:
    first, second = sums
    for a, b in pairs.iter_unpack(data):
        first = first + a + second & 0xFFFFFFFF
        second = second + b + first & 0xFFFFFFFF
    return first, second


def _exactly(data: bytes, length: int) -> bytes:
    if len(data) != length:
        raise _Bad
    return data


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for count in range(9):
        byte = data[place + count]
        if count == 8:
            return value << 8 | byte, place + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + count + 1
    raise _Bad


def _values(record: bytes) -> tuple[Any, ...]:
    """The values of a row, by the types in its header."""
    head_bytes, place = _varint(record, 0)
    types = []
    while place < head_bytes:
        type_, place = _varint(record, place)
        types.append(type_)
    if place != head_bytes:
        raise _Bad
    values: list[Any] = []
    for type_ in types:
        if type_ == 0:
            values.append(None)
        elif type_ in (8, 9):
            values.append(type_ - 8)
        elif type_ in _INTEGER_BYTES or type_ == 7:
            length = _INTEGER_BYTES.get(type_, 8)
            data = _exactly(record[place : place + length], length)
            values.append(struct.unpack(">d", data)[0] if type_ == 7 else int.from_bytes(data, "big", signed=True))
            place += length
        elif type_ >= 12:
            length = (type_ - 12) // 2
            data = _exactly(record[place : place + length], length)
            values.append(data.decode() if type_ & 1 else data)
            place += length
        else:
            raise _Bad
    if place != len(record):
        raise _Bad
    return tuple(values)
