"""Histograms of bounded size: one for percentiles, one whose buckets are the same everywhere."""

from __future__ import annotations

from itertools import accumulate
from typing import Any


class Histogram:
    """Counts of non-negative integers in buckets that are at most 1/16 of their value wide: percentiles are right to
    about six per cent, in at most some 600 counters."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.total = 0
        self.max = 0

    def add(self, value: int) -> None:
        """Count one value."""
        value = max(0, value)
        self.count += 1
        self.total += value
        self.max = max(self.max, value)
        shift = max(0, value.bit_length() - 5)
        bucket = (shift << 5) + (value >> shift)
        self._counts[bucket] = self._counts.get(bucket, 0) + 1

    def percentile(self, fraction: float) -> int | None:
        """The upper end of the bucket in which that fraction of all values is reached; None without values."""
        if not self.count:
            return None
        wanted = max(1, round(fraction * self.count + 0.4999))
        for bucket in sorted(self._counts):
            wanted -= self._counts[bucket]
            if wanted <= 0:
                shift = bucket >> 5
                return min(self.max, (((bucket & 31) + 1) << shift) - 1)
        return self.max

    def to_wire(self) -> dict[str, Any]:
        """Count, mean and percentiles."""
        return {
            "count": self.count,
            "mean": round(self.total / self.count, 3) if self.count else None,
            "p50": self.percentile(0.5),
            "p90": self.percentile(0.9),
            "p99": self.percentile(0.99),
            "max": self.max if self.count else None,
        }


class Doublings:
    """Counts of positive integers in buckets that each reach twice as far as the one before: bounds that are the same
    for everybody, so that histograms of many devices can be added up.

    The first bucket holds what is at most 2 ** ``first``, the last but one what is at most 2 ** ``last``, the last one
    all else.
    """

    __slots__ = ("_first", "counts", "last", "total")

    def __init__(self, first: int, last: int) -> None:
        self._first = first
        self.counts = [0] * (last - first + 2)
        self.last = last - first + 1
        self.total = 0

    def add(self, value: int) -> None:
        """Count one value, which is at least 1."""
        self.total += value
        bucket = ((value - 1) >> self._first).bit_length()
        self.counts[bucket if bucket < self.last else self.last] += 1

    def cumulated(self) -> list[tuple[int, int]]:
        """Each bound, and how many values are at most that."""
        return list(zip((2 ** (self._first + i) for i in range(self.last)), accumulate(self.counts), strict=False))

    @property
    def count(self) -> int:
        """How many values were counted."""
        return sum(self.counts)
