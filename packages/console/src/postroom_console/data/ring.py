"""The last records, and those of them that a filter means."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence

from .filters import Test, compile_filter
from .records import Record

RING_RECORDS = 10_000
#: Requests that a technician seldom looks for: the console's own, and other programs' questions.
_OWN_PREFIX = "console-"


class Ring:
    """At most ``limit`` records in the order of engine time, each with a number that only rises.

    ``dropped`` counts records that had to go; ``shown`` is the part that the filter means.
    """

    def __init__(self, limit: int = RING_RECORDS) -> None:
        self.dropped = 0
        self.taken = 0
        self._limit = limit
        self._all: deque[tuple[int, Record]] = deque()
        self._test: Test = compile_filter("")
        self._hides_own = True
        self.shown: deque[tuple[int, Record]] = deque()

    def __len__(self) -> int:
        return len(self._all)

    def add(self, records: Iterable[Record]) -> int:
        """Take records, which came after all others; how many of them are shown."""
        before = self.taken
        shown = 0
        for record in sorted(records, key=lambda record: record.engine_ms):
            self.taken += 1
            self._all.append((self.taken, record))
            if self._means(record):
                self.shown.append((self.taken, record))
                shown += 1
        excess = len(self._all) - self._limit
        for _ in range(excess):
            self._all.popleft()
        self.dropped += max(excess, 0)
        first = self._all[0][0] if self._all else before + 1
        while self.shown and self.shown[0][0] < first:
            self.shown.popleft()
        return shown

    def filter(self, text: str, hides_own: bool = True) -> None:
        """Show what a filter means. Raises ``FilterError``."""
        self._test, self._hides_own = compile_filter(text), hides_own
        self.shown = deque(pair for pair in self._all if self._means(pair[1]))

    def _means(self, record: Record) -> bool:
        if self._hides_own and record.client.startswith(_OWN_PREFIX) and not record.is_event:
            return False
        return self._test(record)

    def window(self, end: int, rows: int) -> Sequence[tuple[int, Record]]:
        """The shown records up to the number ``end``, at most so many of the last of them."""
        stop = bisect_left(self.shown, end + 1, key=lambda pair: pair[0])
        return [self.shown[index] for index in range(max(0, stop - rows), stop)]

    def search(self, test: Test, number: int, step: int) -> int | None:
        """The number of the next shown record that ``test`` means, before (-1) or behind (1) a number."""
        pairs = self.shown if step > 0 else reversed(self.shown)
        for at, record in pairs:
            if (at > number if step > 0 else at < number) and test(record):
                return at
        return None
