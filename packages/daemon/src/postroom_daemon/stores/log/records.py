"""The records of a log, byte for byte: all numbers are little-endian.

    i64 wallMs | i64 position | i64 checksum | i64 end | block

``checksum`` is the CRC-32 of wallMs, position and block. ``end`` is the offset of the record's end in its segment. So
a record is recognised wherever it is. A block is that of ``postroom_common.log_blocks``.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from .contract import LogDamaged

_CHECKED: Final = Struct("<qq")
_HEADER: Final = Struct("<qqqq")
_HEAD: Final = Struct("<qqqqI")
#: Bytes of a record before its block, and before its headers.
HEADER_BYTES: Final = 32
LEAST_BYTES: Final = HEADER_BYTES + 8
_SHORT_BYTES: Final = 2048


def record_of(wall_ms: int, position: int, block: bytes, offset: int) -> bytes:
    """A record that begins at an offset of its segment."""
    checksum = crc32(block, crc32(_CHECKED.pack(wall_ms, position)))
    return _HEADER.pack(wall_ms, position, checksum, offset + HEADER_BYTES + len(block)) + block


class Walked(NamedTuple):
    """How far a walk came: so many intact records, which end at the byte ``end`` of the data; position and wall time of
    the last one. ``broken``: what follows is not the beginning of an intact record."""

    records: int
    end: int
    last: int
    wall_ms: int
    broken: bool


def walk(data: bytes, base: int, at: int, last: int, limit: int, limit_bytes: int, has_some: bool = False) -> Walked:
    """Check records one after the other, from ``at`` on; the first byte of ``data`` is at the offset ``base`` of the
    segment. Each must have a higher position than the one before, which had ``last``. Ends after ``limit`` records or
    before more than ``limit_bytes``, but not before the first, unless ``has_some``; and before a record that is not all
    there."""
    count, most, last_wall = 0, at + limit_bytes, 0
    length, unpack, view = len(data), _HEAD.unpack_from, memoryview(data)
    while count < limit and at + LEAST_BYTES <= length:
        wall_ms, position, checksum, end, content = unpack(data, at)
        following = at + LEAST_BYTES + content
        if end != base + following or position <= last:
            return Walked(count, at, last, last_wall, True)
        if following > length or (following > most and (count or has_some)):
            break
        # A copy of a short block takes less time than a view of it.
        block = (data if content < _SHORT_BYTES else view)[at + HEADER_BYTES : following]
        if crc32(block, crc32(data[at : at + 16])) != checksum:
            return Walked(count, at, last, last_wall, True)
        at, last, last_wall = following, position, wall_ms
        count += 1
    return Walked(count, at, last, last_wall, False)


def records_of(raw: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Wall time (ms), position and block of each of the records of a page."""
    at = 0
    while at < len(raw):
        wall_ms, position, _, _, content = _HEAD.unpack_from(raw, at)
        end = at + LEAST_BYTES + content
        yield wall_ms, position, raw[at + HEADER_BYTES : end]
        at = end


def size_at(data: bytes, at: int) -> int:
    """The size of the record that begins at ``at``, of which the first ``LEAST_BYTES`` are there."""
    return LEAST_BYTES + int(_HEAD.unpack_from(data, at)[4])


def head_at(data: bytes, at: int) -> tuple[int, int, int]:
    """Wall time (ms), position, and end in its segment, of the record that begins at ``at``, unchecked."""
    wall_ms, position, _, end, _ = _HEAD.unpack_from(data, at)
    return wall_ms, position, end


def checksum_at(data: bytes, at: int) -> int:
    """The checksum of the record that begins at ``at``, unchecked."""
    return int(_HEADER.unpack_from(data, at)[2])


def next_intact(data: bytes, base: int, at: int, last: int) -> int:
    """Where the first intact record behind ``at`` begins that has a higher position than ``last``; the length of
    ``data`` if none does."""
    length, unpack = len(data), _HEAD.unpack_from
    while at + LEAST_BYTES <= length:
        _, position, checksum, end, content = unpack(data, at)
        following = at + LEAST_BYTES + content
        if end == base + following and following <= length and position > last:
            checked = data[at : at + 16] + data[at + HEADER_BYTES : following]
            if crc32(checked) == checksum:
                return at
        at += 1
    return length


def not_intact(path: object, offset: int) -> LogDamaged:
    """The error for a record that cannot be read."""
    return LogDamaged(f"{path}: the record at byte {offset} is damaged")
