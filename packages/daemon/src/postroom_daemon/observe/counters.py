"""Counters in memory since the start: requests, groups, events and durations."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from typing import Final

from postroom_common.events import Event, EventType
from postroom_common.protocol import Command

from ..model.request import Answer, Request
from ..platform.histogram import Doublings, Histogram

#: Period (s) over which rates are computed.
RATE_SECONDS = 60
_ACKED: Final = EventType.ACKED
#: Ages above this are not counted: the wall clock was set since the request was made.
_OLDEST_MS = 24 * 3600 * 1000


class Counters:
    """``requests`` and how many of them ``failed``; ``commands`` and error ``codes`` by name. ``last_ns`` is the time
    of the last request, which ended at ``last_wall_ms`` (Unix ms; 0: there was none)."""

    def __init__(self) -> None:
        self.requests = 0
        self.failed = 0
        self.commands: defaultdict[Command, int] = defaultdict(int)  # much faster than a Counter
        self.codes: defaultdict[str, int] = defaultdict(int)
        self.last_ns = 0
        self.last_wall_ms = 0
        self.lease_to_ack = Histogram()
        self.request_ns = Doublings(17, 34)
        """Durations of requests: 131 microseconds to 17 seconds."""
        self.request_age_ms = Doublings(2, 17)
        """Ages of requests when they were answered: 4 ms (about the resolution of file timestamps) to 131 seconds."""
        self.group_requests = Doublings(0, 12)
        self._most_requests = 0
        self._groups_without = 0  # groups with events of the daemon alone
        self._second = -1
        self._of_second: defaultdict[str, int] = defaultdict(int)  # the last one of the seconds
        self._seconds: deque[tuple[int, defaultdict[str, int]]] = deque()
        self._events: Counter[str] = Counter()

    def count_answers(self, answers: Sequence[tuple[Request, Answer]], now_ns: int, wall_ms: int) -> None:
        """Count requests that are answered at ``now_ns`` (monotonic) and ``wall_ms`` (Unix ms)."""
        commands, oldest_ms = self.commands, wall_ms - _OLDEST_MS
        durations: list[int] = []
        ages: list[int] = []
        for request, answer in answers:
            durations.append(now_ns - request.started_ns or 1)
            made_ms, command = request.arrived_wall, request.command
            if oldest_ms <= made_ms <= wall_ms and not request.has_waited:  # a wait takes long by design
                ages.append(wall_ms - made_ms or 1)
            if answer.error:
                self.failed += 1
                self.codes[answer.error.code] += 1
            if command is not None:
                commands[command] += 1
        self.request_ns.add_all(durations)
        self.request_age_ms.add_all(ages)
        if durations:
            self.last_ns = durations[-1]
        self.requests += len(answers)
        self.last_wall_ms = wall_ms

    def count_rejected(self, code: str, wall_ms: int) -> None:
        """Count a request that could not be answered, at ``wall_ms``."""
        self.last_wall_ms = wall_ms
        self.requests += 1
        self.failed += 1
        self.codes[code] += 1

    def count_group(self, requests: int, events: list[Event], now: int) -> None:
        """Count a group that became durable at ``now`` (engine ms)."""
        if requests:
            self.group_requests.add(requests)
            if requests > self._most_requests:
                self._most_requests = requests
        elif events:
            self._groups_without += 1
        if not events:
            return
        second = now // 1000
        if second != self._second:
            self._begin_second(second)
        counter = self._of_second
        for event in events:
            type_ = event["type"]
            counter[type_] += 1
            if type_ == _ACKED:
                self.lease_to_ack.add(event["heldMs"])

    def _begin_second(self, second: int) -> None:
        self._second = second
        self._of_second = defaultdict(int)
        self._seconds.append((second, self._of_second))
        if len(self._seconds) > RATE_SECONDS:
            self._events.update(self._seconds.popleft()[1])

    def groups(self) -> dict[str, int]:
        """The groups and what was in them, by name on the wire; nothing before the first one."""
        count = self.group_requests.count + self._groups_without
        if not count:
            return {}
        return {
            "count": count,
            "requests": self.group_requests.total,
            "events": self.events().total(),
            "maxRequests": self._most_requests,
        }

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
