"""Reading logs: from a position, or from a time on. A reader that goes on is not searched for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ...platform.files import LOST_ERRNOS
from ..errors import StoreErrors
from .contract import NO_PAGE, LogDamaged, Page
from .open_logs import OpenLog, OpenLogs
from .records import LEAST_BYTES, not_intact, size_at, walk
from .segments import Index, Key, Segment

#: Places of the last reads, where the next ones continue; indexes in memory besides those of the last segments.
_PLACES_LIMIT: Final = 4096
_INDEXES_LIMIT: Final = 32
_BLOCK_BYTES: Final = 4096


class Reader:
    """Reads committed records. Raises ``LogDamaged``, and notes the segment for the next start; ``StoreError``."""

    def __init__(self, opened: OpenLogs) -> None:
        self._opened = opened
        self._logs = opened.logs
        self._segments = opened.segments
        self._errors = StoreErrors(opened.root)
        self._places: dict[tuple[int, int], tuple[Segment, int]] = {}  # by log and position
        self._indexes: dict[Key, Index] = {}

    def read(self, number: int, after: int, limit: int, limit_bytes: int) -> Page:
        """As ``Logs.read``."""
        one = self._logs.get(number)
        if one is None or after >= one.last or limit < 1:
            return NO_PAGE
        after = max(after, one.before - 1)
        with self._errors:
            place = self._places.pop((number, after), None) or self._find(number, one, after)
            while place and place[1] >= place[0].size:
                place = self._next_segment(one, place[0])
            return self._read_at(number, *place, after, limit, limit_bytes) if place else NO_PAGE

    def before_time(self, number: int, wall_ms: int) -> int:
        """As ``Logs.before_time``."""
        one = self._logs.get(number)
        if one is None or not one.segments:
            return one.last if one else 0
        before = 0
        with self._errors:
            for segment in one.segments:
                if segment.last_wall >= wall_ms:
                    with self._noting_damage(number, segment):
                        last = self._last_before(number, one, segment, wall_ms) or before
                    return last if last >= one.before else 0
                before = segment.last
        return one.last

    def forget_places(self) -> None:
        """What was read is elsewhere from now on, or gone."""
        self._places.clear()

    def forget(self, number: int, segment: Segment) -> None:
        """A segment is removed or replaced."""
        self._segments.forget(number, segment.first)
        self._opened.unsynced.pop((number, segment.first), None)
        self._opened.sums.pop((number, segment.first), None)
        self._indexes.pop((number, segment.first), None)

    def _next_segment(self, one: OpenLog, segment: Segment) -> tuple[Segment, int] | None:
        at = bisect_right(one.segments, segment.first, key=lambda other: other.first)
        return (one.segments[at], 0) if at < len(one.segments) else None

    def _find(self, number: int, one: OpenLog, after: int) -> tuple[Segment, int] | None:
        """Where the next record behind a position begins."""
        at = bisect_right(one.segments, after, key=lambda segment: segment.last)
        if at == len(one.segments):
            return None
        segment = one.segments[at]
        if after < segment.first:
            return segment, 0
        with self._noting_damage(number, segment):
            index = self._index(number, one, segment)
            offset = index.offset_before(after)
            return segment, self._segments.seek(number, segment, lambda _, position: position > after, offset)

    def _index(self, number: int, one: OpenLog, segment: Segment) -> Index:
        if segment is one.segments[-1]:
            return one.index
        key = (number, segment.first)
        unsynced = self._opened.unsynced.get(key)
        if unsynced:
            return unsynced[1]
        index = self._indexes.pop(key, None) or self._segments.read_index(number, segment)
        if len(self._indexes) >= _INDEXES_LIMIT:
            del self._indexes[next(iter(self._indexes))]
        self._indexes[key] = index
        return index

    def _read_at(self, number: int, segment: Segment, offset: int, after: int, limit: int, limit_bytes: int) -> Page:
        usual = (limit + 4) * (segment.size // max(1, segment.records)) + _BLOCK_BYTES
        with self._noting_damage(number, segment):
            data = self._segments.read(number, segment, offset, max(min(usual, limit_bytes), LEAST_BYTES))
            walked = self._opened.sums_of(number, segment).walk(data, offset, after, limit, limit_bytes)
            if not walked.records and not walked.broken and len(data) >= LEAST_BYTES:
                data = self._segments.read(number, segment, offset, size_at(data, 0))
                walked = walk(data, offset, 0, after, 1, limit_bytes)
            if not walked.records:
                raise not_intact(self._segments.path(number, segment.first), offset)
        if len(self._places) >= _PLACES_LIMIT:
            del self._places[next(iter(self._places))]
        self._places[number, walked.last] = (segment, offset + walked.end)
        return Page(data[: walked.end] if walked.end < len(data) else data, walked.records, walked.last)

    def _last_before(self, number: int, one: OpenLog, segment: Segment, wall_ms: int) -> int:
        """The position of the last record of a segment before the first at a wall time or later; 0: none."""
        index, last = self._index(number, one, segment), 0

        def is_late(wall: int, position: int) -> bool:
            nonlocal last
            if wall < wall_ms:
                last = position
            return wall >= wall_ms

        at = next((at for at, wall in enumerate(index.walls) if wall >= wall_ms), len(index.walls))
        self._segments.seek(number, segment, is_late, index.offsets[at - 1] if at else 0)
        return last

    @contextmanager
    def _noting_damage(self, number: int, segment: Segment) -> Iterator[None]:
        """Note that a segment cannot be read, if so in the block, which raises ``LogDamaged`` then."""
        try:
            yield
        except LogDamaged:
            segment.suspect = True
            self._opened.note_damage()
            raise
        except OSError as error:
            if error.errno not in LOST_ERRNOS:
                raise
            segment.suspect = True
            self._opened.note_damage()
            raise LogDamaged(f"{self._segments.path(number, segment.first)}: {error}") from error
