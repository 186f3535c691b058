"""What is known of a daemon: its answers, each with the time that it tells of.

Counts come from answers alone, never from adding up the tail: who joins in the middle cannot add up. Rates are the
differences of two answers' totals, over the engine time between them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..i18n import tr

#: Answers that a trend shows.
TREND_POINTS: Final = 60
#: Queues that are kept; a device with more is looked at by a filter of names.
QUEUES_LIMIT: Final = 10_000
#: An answer so old is no longer taken for the present.
STALE_MS: Final = 5000
#: Age of a ready message that is trouble.
OLD_READY_MS: Final = 60_000

#: What reading an answer raises that another version of the daemon, or somebody, has shaped otherwise.
STRANGE: Final = (AttributeError, IndexError, KeyError, TypeError, ValueError, OverflowError)


@dataclass(slots=True)
class Queue:
    """A queue as the last answer tells it; rates in messages a second, None until there are two answers."""

    name: str
    ready: int = 0
    inflight: int = 0
    delayed: int = 0
    held: int = 0
    dead: int = 0
    publish_paused: bool = False
    consume_paused: bool = False
    oldest_ready_ms: int | None = None
    bytes: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    in_rate: float | None = None
    out_rate: float | None = None
    trend: deque[int] = field(default_factory=lambda: deque(maxlen=TREND_POINTS))
    in_trend: deque[float] = field(default_factory=lambda: deque(maxlen=TREND_POINTS))
    out_trend: deque[float] = field(default_factory=lambda: deque(maxlen=TREND_POINTS))

    @property
    def backlog(self) -> int:
        """Messages that wait for somebody."""
        return self.ready + self.delayed + self.held

    @property
    def is_paused(self) -> bool:
        return self.publish_paused or self.consume_paused

    @property
    def is_old(self) -> bool:
        """Whether a ready message has waited for long."""
        return (self.oldest_ready_ms or 0) >= OLD_READY_MS

    @property
    def trouble(self) -> tuple[bool, ...]:
        """What is wrong with it, the worst first: sorts queues with less trouble in front."""
        return (self.is_paused, self.dead > 0, self.is_old)


@dataclass(slots=True)
class Slice:
    """An answer: its data, the journal event that it reflects, and when it came (monotonic milliseconds)."""

    data: dict[str, Any] = field(default_factory=dict)
    as_of: int = 0
    engine_ms: int = 0
    at_ms: int = -1


class Model:
    """The state of one daemon, brought up to date by ``take`` and ``fail``. All times are handed in."""

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.slices: dict[str, Slice] = {}
        self.problem = ""
        self.problem_code = ""
        #: Questions that the daemon refused last, and what it said.
        self.refusals: dict[str, str] = {}
        self.heard_ms = -1
        self.reconnects = 0

    def take(self, name: str, data: Mapping[str, Any], at_ms: int) -> None:
        """An answer to the question ``name``. One of another shape than is known here is no answer."""
        before = self.slices.get(name)
        try:
            now = Slice(dict(data), int(data.get("asOfEvent") or 0), int(data.get("engineNowMs") or 0), at_ms)
            if name == "queues":
                self._take_queues(before, now)
        except STRANGE as error:
            self.fail(name, "", tr("an answer of another shape: {error}").format(error=repr(error)), at_ms)
            return
        if self.problem and not self.problem_code:
            self.reconnects += 1
        self.problem = self.problem_code = ""
        self.refusals.pop(name, None)
        self.heard_ms = at_ms
        self.slices[name] = now

    def fail(self, name: str, code: str, problem: str, at_ms: int) -> None:
        """The question ``name`` had no answer, or was refused with a ``code``: then the daemon was heard all the same.
        What was known stays, and grows old."""
        if code:
            self.heard_ms = at_ms
            self.refusals[name] = f"{code}: {problem}"
        self.problem_code, self.problem = code, problem

    @property
    def has_more_queues(self) -> bool:
        """Whether the device has more queues than were told of."""
        told = self.slices.get("queues")
        return bool(told and told.data.get("next"))

    def forget(self, name: str) -> None:
        """Another question is asked by this name from now on: the answer to the one before is none to it."""
        self.slices.pop(name, None)
        self.refusals.pop(name, None)

    def age_ms(self, now_ms: int) -> int | None:
        """How long ago the daemon was last heard; None: never."""
        return None if self.heard_ms < 0 else now_ms - self.heard_ms

    def is_stale(self, now_ms: int) -> bool:
        """Whether what is shown may no longer be true."""
        age = self.age_ms(now_ms)
        return age is None or age > STALE_MS or bool(self.problem and not self.problem_code)

    def engine_now(self, name: str, now_ms: int) -> int:
        """The engine time now, told by the answer to a question and the time since: for deadlines in that answer."""
        told = self.slices.get(name)
        return told.engine_ms + now_ms - told.at_ms if told else 0

    def _take_queues(self, before: Slice | None, now: Slice) -> None:
        span_s = (now.engine_ms - before.engine_ms) / 1000 if before and now.as_of >= before.as_of else 0.0
        found: dict[str, Queue] = {}
        for told in (now.data.get("queues") or [])[:QUEUES_LIMIT]:
            name = str(told["queue"])
            found[name] = _updated(self.queues.get(name) or Queue(name), told, span_s)
        self.queues = found


def _updated(queue: Queue, told: Mapping[str, Any], span_s: float) -> Queue:
    before = queue.totals
    paused = told.get("paused") or {}
    queue.ready, queue.inflight, queue.delayed = int(told["ready"]), int(told["inflight"]), int(told["delayed"])
    queue.held, queue.dead = int(told.get("held") or 0), int(told["dlq"])
    queue.publish_paused, queue.consume_paused = bool(paused.get("publish")), bool(paused.get("consume"))
    queue.oldest_ready_ms = told.get("oldestReadyAgeMs")
    queue.bytes, queue.reasons = int(told.get("bytes") or 0), dict(told.get("reasons") or {})
    queue.totals = dict(told.get("totals") or {})
    queue.trend.append(queue.backlog)
    if before and span_s > 0:
        queue.in_rate = _rate(before, queue.totals, "published", span_s)
        queue.out_rate = _rate(before, queue.totals, "acked", span_s)
        queue.in_trend.append(queue.in_rate)
        queue.out_trend.append(queue.out_rate)
    return queue


def _rate(before: Mapping[str, int], now: Mapping[str, int], name: str, span_s: float) -> float:
    return max(now.get(name, 0) - before.get(name, 0), 0) / span_s
