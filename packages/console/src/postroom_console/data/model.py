"""The known state of a daemon: its answers, each with its time.

Counts come only from answers, never from adding up the tail, of which the beginning is missing. Rates are the
differences between the totals of two answers, per engine time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..i18n import tr
from .member import Member, member_of

#: Answers that a trend shows.
TREND_POINTS: Final = 60
#: Queues that are shown; of more than these only the first ones by name.
QUEUES_LIMIT: Final = 10_000
#: Age at which an answer counts as stale.
STALE_MS: Final = 5000
#: Age at which a ready message counts as a problem.
OLD_READY_MS: Final = 60_000

#: What reading a malformed answer raises, one of another version or of someone else.
MALFORMED: Final = (AttributeError, IndexError, KeyError, TypeError, ValueError, OverflowError)


@dataclass(slots=True)
class Queue:
    """A queue or log as the last answer describes it. Rates are messages per second, None until there are two answers.
    The ``bytes`` of a log are those of its records."""

    name: str
    ready: int = 0
    inflight: int = 0
    delayed: int = 0
    gathering: int = 0
    done: int = 0
    ordered: int = 0
    drafting: int = 0
    is_log: bool = False
    records: int = 0
    readers: int = 0
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
        """Messages that are ready, delayed or on hold, or gather parts; and drafts."""
        return self.ready + self.delayed + self.gathering + self.drafting + self.held

    @property
    def is_paused(self) -> bool:
        return self.publish_paused or self.consume_paused

    @property
    def is_old(self) -> bool:
        """Whether a ready message has waited for long."""
        return (self.oldest_ready_ms or 0) >= OLD_READY_MS

    @property
    def trouble(self) -> tuple[bool, ...]:
        """The problems of the queue, the worst first; as a sort key it puts queues with problems first."""
        return (self.is_paused, self.dead > 0, self.is_old)


@dataclass(slots=True)
class TimedAnswer:
    """An answer: its data, the event and the engine time that it reflects, and when it came (monotonic
    milliseconds)."""

    data: dict[str, Any] = field(default_factory=dict)
    as_of: int = 0
    engine_ms: int = 0
    at_ms: int = -1


class Model:
    """The state of one daemon, updated by ``take`` and ``fail``. It has no clock of its own."""

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.answers: dict[str, TimedAnswer] = {}
        self.problem = ""
        self.problem_code = ""
        #: Queries that were refused last, and why.
        self.refusals: dict[str, str] = {}
        self.heard_ms = -1
        self.reconnects = 0
        #: The node of a cluster that the daemon is; None if it is in no cluster.
        self.member: Member | None = None

    def take(self, name: str, data: Mapping[str, Any], at_ms: int) -> None:
        """Take the answer to the query ``name``. A malformed answer counts as a failure."""
        before = self.answers.get(name)
        try:
            now = TimedAnswer(dict(data), int(data.get("asOfEvent") or 0), int(data.get("engineNowMs") or 0), at_ms)
            if name == "queues":
                self._take_queues(before, now)
            elif name == "health":
                self.member = member_of(now.data)
        except MALFORMED as error:
            self.fail(name, "", tr("malformed answer: {error}").format(error=repr(error)), at_ms)
            return
        if self.problem and not self.problem_code:
            self.reconnects += 1
        self.problem = self.problem_code = ""
        self.refusals.pop(name, None)
        self.heard_ms = at_ms
        self.answers[name] = now

    def fail(self, name: str, code: str, problem: str, at_ms: int) -> None:
        """The query ``name`` failed, or was refused with a ``code``, which shows that the daemon lives. Its last answer
        stays, and becomes stale."""
        if code:
            self.heard_ms = at_ms
            self.refusals[name] = f"{code}: {problem}"
        self.problem_code, self.problem = code, problem

    @property
    def has_more_queues(self) -> bool:
        """Whether the device has more queues than the answer."""
        return bool(self.data("queues").get("next"))

    def forget(self, name: str) -> None:
        """Drop the answer of a query whose name now means another one."""
        self.answers.pop(name, None)
        self.refusals.pop(name, None)

    def data(self, name: str) -> Mapping[str, Any]:
        """The last answer to a query; empty while there is none."""
        answer = self.answers.get(name)
        return answer.data if answer else {}

    def age_ms(self, now_ms: int) -> int | None:
        """How long ago the daemon was last heard; None before the first time."""
        return None if self.heard_ms < 0 else now_ms - self.heard_ms

    def is_stale(self, now_ms: int) -> bool:
        """Whether the state may be out of date."""
        age = self.age_ms(now_ms)
        return age is None or age > STALE_MS or bool(self.problem and not self.problem_code)

    def engine_now(self, name: str, now_ms: int) -> int:
        """The present engine time, from that of an answer and the time since: for deadlines in that answer."""
        answer = self.answers.get(name)
        return answer.engine_ms + now_ms - answer.at_ms if answer else 0

    def _take_queues(self, before: TimedAnswer | None, now: TimedAnswer) -> None:
        span_s = (now.engine_ms - before.engine_ms) / 1000 if before and now.as_of >= before.as_of else 0.0
        queues: dict[str, Queue] = {}
        for entry in (now.data.get("queues") or [])[:QUEUES_LIMIT]:
            name = str(entry["queue"])
            queues[name] = _updated(self.queues.get(name) or Queue(name), entry, span_s)
        self.queues = queues


def _updated(queue: Queue, entry: Mapping[str, Any], span_s: float) -> Queue:
    before = queue.totals
    paused = entry.get("paused") or {}
    queue.ready, queue.inflight, queue.delayed = int(entry["ready"]), int(entry["inflight"]), int(entry["delayed"])
    queue.gathering, queue.held = int(entry.get("gathering") or 0), int(entry.get("held") or 0)
    queue.drafting, queue.ordered = int(entry.get("drafting") or 0), int(entry.get("ordered") or 0)
    queue.dead, queue.done = int(entry["dlq"]), int(entry.get("done") or 0)
    queue.publish_paused, queue.consume_paused = bool(paused.get("publish")), bool(paused.get("consume"))
    queue.oldest_ready_ms = entry.get("oldestReadyAgeMs")
    log = entry.get("log") or {}
    queue.is_log = bool(log)
    queue.records, queue.readers = int(log.get("records") or 0), int(log.get("readers") or 0)
    queue.bytes, queue.reasons = int((log or entry).get("bytes") or 0), dict(entry.get("reasons") or {})
    queue.totals = dict(entry.get("totals") or {})
    queue.trend.append(queue.backlog)
    if before and span_s > 0:
        queue.in_rate = _rate(before, queue.totals, "appended" if queue.is_log else "published", span_s)
        queue.out_rate = _rate(before, queue.totals, "acked", span_s)
        queue.in_trend.append(queue.in_rate)
        queue.out_trend.append(queue.out_rate)
    return queue


def _rate(before: Mapping[str, int], now: Mapping[str, int], name: str, span_s: float) -> float:
    return max(now.get(name, 0) - before.get(name, 0), 0) / span_s
