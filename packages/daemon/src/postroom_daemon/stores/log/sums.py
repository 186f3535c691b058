"""Checksums of many records at once, in memory. A page that is read again, or that this process has written, is checked
by one or two of them, and not record by record."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from .records import Walked, head_at, walk

#: A boundary is noted at the first record behind so many bytes.
_APART_BYTES: Final = 4096
#: So many records are added to a run at once.
_APART_RECORDS: Final = 16


class Sums:
    """A run of intact records of a segment, and some of the boundaries between them: at each the offset, how many
    records of the run are before it, the position of the last of these, and the CRC-32 of the run up to there."""

    def __init__(self) -> None:
        self._begin(0)

    def _begin(self, offset: int) -> None:
        self._offsets = array("q", [offset])
        self._counts = array("q", [0])
        self._lasts = array("q", [0])
        self._sums = array("I", [0])
        self._end, self._count, self._sum = offset, 0, 0

    def written(self, offset: int, data: bytes, records: Sequence[bytes]) -> None:
        """Records, which are ``data`` together, were written at an offset. What was noted before is forgotten, unless
        it ends there."""
        if offset != self._end:
            self._begin(offset)
        start = end = first = 0
        if len(data) > _APART_BYTES:
            view = memoryview(data)
            for number, size in enumerate(map(len, records), 1):
                end += size
                if end - start >= _APART_BYTES:
                    self._add(view[start:end], number - first, records[number - 1])
                    start, first = end, number
            data = data[start:]
        if data:
            self._add(data, len(records) - first, records[-1])

    def _add(self, data: bytes | memoryview, records: int, last: bytes | int) -> None:
        """So many records follow the run, the last of which, or its position, is ``last``."""
        self._sum = crc32(data, self._sum)
        self._end += len(data)
        self._count += records
        if self._end - self._offsets[-1] >= _APART_BYTES:
            self._offsets.append(self._end)
            self._counts.append(self._count)
            self._lasts.append(last if isinstance(last, int) else head_at(last, 0)[1])
            self._sums.append(self._sum)

    def walk(self, data: bytes, base: int, last: int, limit: int, limit_bytes: int) -> Walked:
        """As ``records.walk``, from the beginning of ``data``. What follows the run, and is intact, becomes a part of
        it."""
        if limit < _APART_RECORDS:
            return walk(data, base, 0, last, limit, limit_bytes)
        view, offsets, counts = memoryview(data), self._offsets, self._counts
        most_end = base + min(limit_bytes, len(data))
        at = count = 0
        while True:
            offset = base + at
            place = bisect_left(offsets, offset)
            if place < len(offsets) and offsets[place] == offset:
                end = min(bisect_right(counts, counts[place] + limit - count), bisect_right(offsets, most_end)) - 1
                if end > place and crc32(view[at : offsets[end] - base], self._sums[place]) == self._sums[end]:
                    count, last, place = count + counts[end] - counts[place], self._lasts[end], end
                    offset = offsets[end]
                    at = offset - base
                place += 1
            stop = offsets[place] if place < len(offsets) else self._end
            most, most_bytes = limit - count, limit_bytes - at
            if stop > offset:
                most_bytes = min(most_bytes, stop - offset)
            elif stop == offset:
                most = min(most, _APART_RECORDS)
            walked = walk(data, base, at, last, most, most_bytes, count > 0)
            if stop == offset and walked.records:
                self._add(view[at : walked.end], walked.records, walked.last)
            count, at, last = count + walked.records, walked.end, walked.last
            goes_on = walked.records == most if stop == offset else base + at == stop
            if walked.broken or count == limit or not walked.records or not goes_on:
                return Walked(count, at, last, walked.wall_ms, walked.broken)
