"""How fast messages are published to queues that have a limit: one bucket of tokens each, in memory.

A bucket holds as many tokens as may be published in a second, at least one, and is full at the start. It is filled in
engine time.
"""

from __future__ import annotations

from typing import Final

#: Buckets that are kept before those that are full again are forgotten.
BUCKETS_LIMIT: Final = 1000
_ROUNDING: Final = 1e-6


class _Bucket:
    __slots__ = ("at", "rate", "tokens")

    def __init__(self, rate: float, now: int) -> None:
        self.rate = rate
        self.tokens = max(1.0, rate)
        self.at = now

    def fill(self, rate: float, now: int) -> None:
        self.rate = rate
        self.tokens = min(max(1.0, rate), self.tokens + max(0, now - self.at) * rate / 1000)
        self.at = now


class Rates:
    """The buckets by queue."""

    def __init__(self) -> None:
        self._buckets: dict[str, _Bucket] = {}

    @property
    def limits_any(self) -> bool:
        """Whether a queue with a limit was asked for: of others nothing is counted."""
        return bool(self._buckets)

    def wait_ms(self, queue: str, rate: float, count: int, now: int) -> int:
        """How long it takes until ``count`` messages may be published to a queue that takes ``rate`` a second. 0: they
        may be now. Changes nothing."""
        bucket = self._buckets.get(queue)
        if bucket is None:
            self._forget_full(now)
            bucket = self._buckets[queue] = _Bucket(rate, now)
        bucket.fill(rate, now)
        lacking = count - bucket.tokens
        return 0 if lacking <= _ROUNDING else max(1, -int(-lacking * 1000 // rate))

    def take(self, queue: str, count: int = 1) -> None:
        """Messages have been published to a queue; or have not, after all, if ``count`` is negative."""
        bucket = self._buckets.get(queue)
        if bucket:
            bucket.tokens -= count
            if bucket.tokens < -_ROUNDING:  # nobody has asked: there is no limit any more
                del self._buckets[queue]

    def _forget_full(self, now: int) -> None:
        if len(self._buckets) >= BUCKETS_LIMIT:
            for queue, bucket in list(self._buckets.items()):
                bucket.fill(bucket.rate, now)
                if bucket.tokens >= max(1.0, bucket.rate):
                    del self._buckets[queue]
