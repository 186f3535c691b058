"""The last records of the tail, and those of them that match the filter."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import Final

from .filters import Filter, Test
from .records import Record

RING_RECORDS: Final = 10_000
#: Bytes of lines in memory.
RING_BYTES: Final = 16 * 1024 * 1024
#: The client ids of consoles, whose requests are hidden by default.
_OWN_PREFIX: Final = "console-"


class Ring:
    """At most ``limit`` records of at most ``limit_bytes``, with ascending numbers. Records that are added together are
    sorted by engine time.

    ``taken`` is the number of the last record, ``dropped`` counts the records that were removed, and ``shown`` are
    those that match the filter.
    """

    def __init__(self, limit: int = RING_RECORDS, limit_bytes: int = RING_BYTES) -> None:
        self.dropped = 0
        self.taken = 0
        self.shown: deque[tuple[int, Record]] = deque()
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._all: deque[tuple[int, Record]] = deque()
        self._test = Filter("")
        self._hides_own = True

    def __len__(self) -> int:
        return len(self._all)

    @property
    def problem(self) -> str:
        """What is wrong with the filter; empty if it works."""
        return self._test.problem

    def add(self, records: Iterable[Record]) -> None:
        """Add records that came after all others."""
        pairs = list(enumerate(sorted(records, key=attrgetter("engine_ms")), self.taken + 1))
        self._bytes += sum([len(record.raw) for _, record in pairs])
        self.taken += len(pairs)
        self._all.extend(pairs)
        self.shown.extend(self._meant(pairs))
        before = self.dropped
        self._drop(len(self._all) - self._limit)
        while self._bytes > self._limit_bytes and self._all:
            self._drop(1)
        first = self._all[0][0] if self._all else self.taken + 1
        while self.dropped > before and self.shown and self.shown[0][0] < first:
            self.shown.popleft()

    def _drop(self, count: int) -> None:
        if count > 0:
            self.dropped += count
            drop = self._all.popleft
            self._bytes -= sum([len(drop()[1].raw) for _ in range(count)])

    def clear(self) -> None:
        """Remove all records. The filter stays, and the numbers continue."""
        self._all.clear()
        self.shown.clear()
        self._bytes = self.dropped = 0

    def filter(self, text: str, hides_own: bool = True) -> None:
        """Set the filter. Raises ``FilterError``."""
        self._test, self._hides_own = Filter(text), hides_own
        self.shown = deque(self._meant(self._all))

    def _meant(self, pairs: Iterable[tuple[int, Record]]) -> Iterable[tuple[int, Record]]:
        if self._hides_own:
            pairs = [pair for pair in pairs if pair[1].is_event or not pair[1].client.startswith(_OWN_PREFIX)]
        return pairs if self._test.is_empty else [pair for pair in pairs if self._test(pair[1])]

    def window(self, end: int, rows: int) -> Sequence[tuple[int, Record]]:
        """The last ``rows`` of the shown records up to the number ``end``."""
        count = len(self.shown)
        is_all = not count or self.shown[-1][0] <= end
        stop = count if is_all else bisect_left(self.shown, end + 1, key=lambda pair: pair[0])
        # From the right, where the wanted ones mostly are: a deque is slow in its middle.
        found = list(islice(reversed(self.shown), count - stop, count - stop + rows))
        return found[::-1]

    def search(self, test: Test, number: int, step: int) -> int | None:
        """The number of the next shown record that matches ``test``, before (-1) or after (1) a number."""
        pairs = self.shown if step > 0 else reversed(self.shown)
        for at, record in pairs:
            if (at > number if step > 0 else at < number) and test(record):
                return at
        return None
