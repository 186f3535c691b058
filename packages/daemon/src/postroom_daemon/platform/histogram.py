"""Histograms of bounded size: one for percentiles, one with the same buckets on every device."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any


class Histogram:
    """Counts non-negative integers in buckets that are at most 1/16 of their value wide, so that percentiles are exact
    to about six per cent, with about 600 counters at most."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.total = 0
        self.max = 0

    def add(self, value: int) -> None:
        """Count one value."""
        bucket = value
        if value < 0:
            bucket = value = 0
        elif value >= 32:
            shift = value.bit_length() - 5
            bucket = (shift << 5) + (value >> shift)
        self.count += 1
        self.total += value
        if value > self.max:
            self.max = value
        self._counts[bucket] = self._counts.get(bucket, 0) + 1

    def percentile(self, fraction: float) -> int | None:
        """The upper bound of the bucket in which that fraction of all values is reached; None without values."""
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
    """Counts positive integers in buckets whose bounds are powers of two. The bounds are the same on every device, so
    that histograms of many devices can be added.

    The first bucket counts values of at most 2 ** ``first``, the last but one values of at most 2 ** ``last``, and the
    last one all others.
    """

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, first: int, last: int) -> None:
        self._bounds = range(first, last + 1)
        self._counts = [0] * 65  # by the number of bits that the value below has
        self.total = 0

    def add(self, value: int) -> None:
        """Count one value from 1 to 2 ** 64."""
        self.total += value
        self._counts[(value - 1).bit_length()] += 1

    def add_all(self, values: Iterable[int]) -> None:
        """Count many of them."""
        counts, total = self._counts, 0
        for value in values:
            total += value
            counts[(value - 1).bit_length()] += 1
        self.total += total

    def cumulated(self) -> list[tuple[int, int]]:
        """Each bound with the number of values up to it."""
        counts = list(accumulate(self._counts))
        return [(2**bits, counts[bits]) for bits in self._bounds]

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self._counts)
