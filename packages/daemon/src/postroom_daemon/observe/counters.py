"""Counters in memory since the start: requests, groups, events and durations."""

from __future__ import annotations

from collections import Counter, deque

from postroom_common.events import Event, EventType
from postroom_common.protocol import Command

from ..platform.histogram import Doublings, Histogram

#: Period (s) over which rates are computed.
RATE_SECONDS = 60
#: Ages above this are not counted: the wall clock was set since the request was made.
_OLDEST_MS = 24 * 3600 * 1000


class Counters:
    """``requests`` and how many of them ``failed``; ``commands`` and error ``codes`` by name; ``groups`` by name on the
    wire. ``processing_ns`` is the time of all requests together, ``last_ns`` that of the last one, which ended at
    ``last_wall_ms`` (Unix ms; 0: there was none)."""

    def __init__(self) -> None:
        self.requests = 0
        self.failed = 0
        self.commands: Counter[Command] = Counter()
        self.codes: Counter[str] = Counter()
        self.groups: Counter[str] = Counter()
        self.processing_ns = 0
        self.last_ns = 0
        self.last_wall_ms = 0
        self.lease_to_ack = Histogram()
        self.request_ns = Doublings(17, 34)
        """Durations of requests: 131 microseconds to 17 seconds."""
        self.request_age_ms = Doublings(2, 17)
        """Ages of requests when they were answered: 4 ms (about the resolution of file timestamps) to 131 seconds."""
        self.group_requests = Doublings(0, 12)
        self._seconds: deque[tuple[int, Counter[str]]] = deque()
        self._events: Counter[str] = Counter()

    def count_answer(self, command: Command | None, code: str, took_ns: int, wall_ms: int, made_ms: int | None) -> None:
        """Count a request that was answered at ``wall_ms`` and made at ``made_ms`` (Unix ms; None: it has waited for
        a message, which takes long by design). A non-empty ``code`` means an error."""
        if made_ms is not None and made_ms <= wall_ms <= made_ms + _OLDEST_MS:
            self.request_age_ms.add(wall_ms - made_ms or 1)
        self.processing_ns += took_ns
        self.last_ns = took_ns
        self.last_wall_ms = wall_ms
        self.request_ns.add(took_ns)
        self.requests += 1
        if code:
            self.failed += 1
            self.codes[code] += 1
        if command is not None:
            self.commands[command] += 1

    def count_rejected(self, code: str, wall_ms: int) -> None:
        """Count a request that could not be answered, at ``wall_ms``."""
        self.last_wall_ms = wall_ms
        self.requests += 1
        self.failed += 1
        self.codes[code] += 1

    def count_group(self, requests: int, events: list[Event], now: int) -> None:
        """Count a group that became durable at ``now`` (engine ms)."""
        if not requests and not events:
            return
        self.groups["count"] += 1
        self.groups["requests"] += requests
        self.groups["events"] += len(events)
        self.groups["maxRequests"] = max(self.groups["maxRequests"], requests)
        if requests:
            self.group_requests.add(requests)
        second = now // 1000
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append((second, Counter()))
            if len(self._seconds) > RATE_SECONDS:
                self._events.update(self._seconds.popleft()[1])
        counter = self._seconds[-1][1]
        for event in events:
            type_ = event["type"]
            counter[type_] += 1
            if type_ == EventType.ACKED:
                self.lease_to_ack.add(event["heldMs"])

    def recent_events(self, now: int) -> Counter[str]:
        """Number of events in the last ``RATE_SECONDS`` by type."""
        oldest = now // 1000 - RATE_SECONDS
        sums: Counter[str] = Counter()
        for second, counter in self._seconds:
            if second > oldest:
                sums.update(counter)
        return sums

    def events(self) -> Counter[str]:
        """Number of all events by type."""
        sums = self._events.copy()
        for _, counter in self._seconds:
            sums.update(counter)
        return sums
