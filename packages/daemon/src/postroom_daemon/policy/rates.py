"""Rate limits: a token bucket in memory for each queue (or account) that has one.

The capacity of a bucket is the number of messages per second, at least one. It starts full, and engine time refills it.
"""

from __future__ import annotations

from typing import Final

from postroom_common.events import Event, EventType

from ..model.observer import Observer

#: Number of buckets above which full ones are removed.
BUCKETS_LIMIT: Final = 1000
_ROUNDING: Final = 1e-6


class _Bucket:
    __slots__ = ("at", "rate", "tokens")

    def __init__(self, rate: float, now: int) -> None:
        self.rate = rate
        self.tokens = max(1.0, rate)
        self.at = now

    def fill(self, rate: float, now: int) -> None:
        if now == self.at and rate == self.rate:
            return
        self.rate = rate
        self.tokens = min(max(1.0, rate), self.tokens + max(0, now - self.at) * rate / 1000)
        self.at = now


class Rates(Observer):
    """The buckets by queue. A participant of transactions."""

    event_types = frozenset({EventType.PUBLISHED, EventType.PART_APPENDED, EventType.APPENDED})

    def __init__(self) -> None:
        self._buckets: dict[str, _Bucket] = {}
        self._taken: list[str] = []

    def wait_ms(self, queue: str, rate: float, count: int, now: int) -> int:
        """Milliseconds until a queue with a limit of ``rate`` per second accepts ``count`` messages; 0: now."""
        bucket = self._buckets.get(queue)
        if bucket is None:
            self._drop_full(now)
            bucket = self._buckets[queue] = _Bucket(rate, now)
        bucket.fill(rate, now)
        missing = count - bucket.tokens
        return 0 if missing <= _ROUNDING else max(1, -int(-missing * 1000 // rate))

    def folded(self, event: Event) -> None:
        """Take a token for a published message. Imported messages do not count: they were published at another time."""
        if self._buckets:
            bucket = self._buckets.get(event["queue"])
            if bucket and event["engineMs"] >= bucket.at:
                self._taken.append(event["queue"])
                self.take(event["queue"])

    def commit(self) -> None:
        """See ``Participant``."""
        self._taken.clear()

    def rollback(self) -> None:
        """See ``Participant``."""
        for queue in self._taken:
            self.take(queue, -1)
        self._taken.clear()

    def take(self, queue: str, count: int = 1) -> None:
        """Take tokens for published messages; a negative ``count`` returns them."""
        bucket = self._buckets.get(queue)
        if bucket:
            bucket.tokens -= count
            if bucket.tokens < -_ROUNDING:  # nobody has called ``wait_ms`` before: the limit is gone
                del self._buckets[queue]

    def _drop_full(self, now: int) -> None:
        if len(self._buckets) >= BUCKETS_LIMIT:
            for queue, bucket in list(self._buckets.items()):
                bucket.fill(bucket.rate, now)
                if bucket.tokens >= max(1.0, bucket.rate):
                    del self._buckets[queue]
