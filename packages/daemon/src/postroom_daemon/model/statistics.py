"""How many messages are published to a queue and delivered from it, how fast, and how long they wait: an observer of
the fold, in memory, for queues whose policy says so.

The rates are the exponentially weighted ones of folsom's meters (https://github.com/folsom-project/folsom), advanced
each five seconds; the waits are its sliding window of the last minute, with at most 100 samples of each second.
"""

from __future__ import annotations

import math
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from postroom_common.events import Event, EventType

from .observer import Observer, Observers
from .records import Entry

#: Queues that are measured at a time; the one that has been idle longest is forgotten first.
QUEUES_LIMIT = 20_000
#: Samples of all queues; those of the oldest second go first.
SAMPLES_LIMIT = 200_000
#: Messages whose return is remembered, as the moment since which they wait.
_RETURNS_LIMIT: Final = 10_000
_TICK_MS: Final = 5000
_WINDOW_S: Final = 60
_SAMPLES_A_SECOND: Final = 100
#: The weight of the newest tick in the averages over 1, 5 and 15 minutes and a day.
_WEIGHTS: Final = tuple(1 - math.exp(-_TICK_MS / 60_000 / minutes) for minutes in (1, 5, 15, 1440))
_NAMES: Final = ("oneMinute", "fiveMinutes", "fifteenMinutes", "oneDay")
_QUEUE_DELETED: Final = EventType.QUEUE_DELETED
_PART_APPENDED: Final = EventType.PART_APPENDED
_PART_SET: Final = EventType.PART_SET


class Meter:
    """Counts something, and how often a second it happens. Times are engine ms."""

    __slots__ = ("_rates", "_since", "_tick", "_uncounted", "count")

    def __init__(self, now: int) -> None:
        self.count = 0
        self._since = self._tick = now
        self._uncounted = 0
        self._rates: list[float] = []

    def note(self, now: int) -> None:
        """It has happened once."""
        self._advance(now)
        self.count += 1
        self._uncounted += 1

    def _advance(self, now: int) -> None:
        """Take the ticks that are due by ``now``."""
        ticks = (now - self._tick) // _TICK_MS
        if ticks <= 0:
            return
        instant = self._uncounted * 1000 / _TICK_MS
        rates = self._rates or [instant] * len(_WEIGHTS)
        rates = [rate + weight * (instant - rate) for rate, weight in zip(rates, _WEIGHTS, strict=True)]
        idle = ticks - 1
        self._rates = [rate * (1 - weight) ** idle for rate, weight in zip(rates, _WEIGHTS, strict=True)]
        self._tick += ticks * _TICK_MS
        self._uncounted = 0

    def to_wire(self, now: int) -> dict[str, Any]:
        """The count, and the rates per second."""
        self._advance(now)
        rates = self._rates or [0.0] * len(_WEIGHTS)
        mean = self.count * 1000 / (now - self._since) if now > self._since else 0.0
        return {"count": self.count, **dict(zip(_NAMES, rates, strict=True)), "mean": mean}


class _Second:
    """The samples of one second of one queue, ``seen`` of which there were."""

    __slots__ = ("samples", "second", "seen")

    def __init__(self, second: int) -> None:
        self.second = second
        self.seen = 0
        self.samples = array("d")


class QueueStatistics:
    """The figures of one queue."""

    __slots__ = ("_seconds", "delivered", "published")

    def __init__(self, now: int) -> None:
        self.published = Meter(now)
        self.delivered = Meter(now)
        self._seconds: list[_Second] = []  # an empty list takes less memory than an empty deque

    def second(self, now: int) -> _Second:
        """The samples of this second."""
        second = now // 1000
        seconds = self._seconds
        if not seconds or seconds[-1].second < second:
            while seconds and seconds[0].second < second - _WINDOW_S:
                del seconds[0]
            seconds.append(_Second(second))
        return seconds[-1]

    def waits(self, now: int) -> list[float]:
        """How long (s) messages waited that were delivered within the last minute: a sample."""
        oldest = now // 1000 - _WINDOW_S
        return [wait for one in self._seconds if one.second >= oldest for wait in one.samples]


class Statistics(Observer):
    """The figures by queue. ``chance`` returns a random number from 0 to 1. A participant of transactions: what a group
    has published and delivered counts once it is durable."""

    event_types: ClassVar[frozenset[EventType]] = frozenset(
        {
            EventType.RELEASED,
            EventType.REPROCESSED,
            EventType.UNHELD,
            EventType.PART_APPENDED,
            EventType.PART_SET,
            EventType.QUEUE_DELETED,
        }
    )

    def __init__(self, observers: Observers, chance: Callable[[], float]) -> None:
        self._observers = observers
        self._chance = chance
        self._observes = False
        self._queues: OrderedDict[str, QueueStatistics] = OrderedDict()
        self._returned: dict[str, int] = {}  # by message key: since when it waits (engine ms)
        self._pending: list[tuple[str, int, float]] = []  # queue, engine ms, the wait of a delivery (s) or -1
        self._seconds: deque[_Second] = deque()  # of all queues, oldest first
        self._samples = 0

    def measure(self, queue: str, now: int) -> None:
        """Measure a queue from now on (engine ms); until the first call this costs nothing."""
        if queue in self._queues:
            return
        if not self._observes:
            self._observes = True
            self._observers.add(self)
        if len(self._queues) >= QUEUES_LIMIT:
            self._queues.popitem(last=False)
        self._queues[queue] = QueueStatistics(now)

    def of(self, queue: str) -> QueueStatistics | None:
        """The figures of a queue; None if it was not used since it is measured."""
        return self._queues.get(queue)

    def published(self, entries: Sequence[Entry]) -> None:
        """See ``Observer``."""
        self._pending += [(entry.queue, entry.created, -1.0) for entry in entries if entry.queue in self._queues]

    def leased(self, entries: Sequence[Entry]) -> None:
        """See ``Observer``."""
        if entries[0].queue not in self._queues:
            return
        for entry in entries:
            now = entry.leased_at
            due = entry.due if entry.due <= now else 0
            since = max(entry.created, due, self._returned.pop(entry.key, 0))
            self._pending.append((entry.queue, now, max(0, now - since) / 1000))

    def folded(self, event: Event) -> None:
        """A message waits again from this moment on, has got a further part, or a queue is gone."""
        if event["type"] == _QUEUE_DELETED:
            self._queues.pop(event["queue"], None)
        elif event["queue"] not in self._queues:
            return
        elif event["type"] == _PART_APPENDED:
            self._pending.append((event["queue"], event["engineMs"], -1.0))
        elif event["type"] != _PART_SET or "state" in event:
            returned = self._returned
            if len(returned) >= _RETURNS_LIMIT:
                del returned[next(iter(returned))]
            returned[event["key"]] = event["engineMs"]

    def commit(self) -> None:
        """See ``Participant``."""
        if self._pending:
            for queue, now, wait in self._pending:
                one = self._queues.get(queue)
                if one is None:
                    continue
                if wait < 0:
                    one.published.note(now)
                else:
                    one.delivered.note(now)
                    self._sample(one, now, wait)
                self._queues.move_to_end(queue)
            self._pending.clear()

    def rollback(self) -> None:
        """See ``Participant``."""
        self._pending.clear()

    def _sample(self, one: QueueStatistics, now: int, wait: float) -> None:
        second = one.second(now)
        samples = second.samples
        second.seen += 1
        if len(samples) < _SAMPLES_A_SECOND:
            if not samples:
                self._seconds.append(second)
            samples.append(wait)
            self._samples += 1
            while self._samples > SAMPLES_LIMIT or self._seconds[0].second < second.second - _WINDOW_S:
                self._drop_oldest()
        else:
            at = int(self._chance() * second.seen)
            if at < _SAMPLES_A_SECOND:
                samples[at] = wait

    def _drop_oldest(self) -> None:
        oldest = self._seconds.popleft()
        self._samples -= len(oldest.samples)
        oldest.samples = array("d")
