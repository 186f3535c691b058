"""The pane beside the list of queues on wide screens, which describes the queue under the cursor."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ..i18n import tr
from .action_log import LogEntry
from .model import Queue
from .records import Record
from .text import age, clean, cut, figure, fit, size
from .times import moment
from .views import ENDING_MS, short_key

#: Events that operators cause.
OPERATOR_EVENTS: Final = frozenset(
    {"paused", "resumed", "policy_set", "reprocessed", "moved", "quarantined", "held", "unheld", "queue_deleted"}
)
#: Queues, and events of each, that are remembered.
_QUEUES: Final = 500
_EACH: Final = 8


#: Leases and reasons that are listed.
_LISTED = 6


class AdminEvents:
    """The last operator events of each queue, as the tail shows them. The queues that were not touched for the longest
    time are forgotten first."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[Record]] = {}

    def add(self, records: Iterable[Record]) -> None:
        """Remember the operator events among new records."""
        for record in records:
            if record.is_event and record.kind in OPERATOR_EVENTS and record.queue:
                last = self._queues.pop(record.queue, None) or deque(maxlen=_EACH)
                last.append(record)
                self._queues[record.queue] = last
                if len(self._queues) > _QUEUES:
                    del self._queues[next(iter(self._queues))]

    def of(self, queue: str) -> list[Record]:
        """The last events of a queue, newest first."""
        return list(reversed(self._queues.get(queue, ())))

    def pause_of(self, queue: str) -> Record | None:
        """The event that paused a queue, if the tail reaches back to it."""
        for record in self.of(queue):
            if record.kind == "paused":
                return record
            if record.kind == "resumed":
                break
        return None


def detail_lines(
    queue: Queue,
    answers: Mapping[str, Mapping[str, Any]],
    events: AdminEvents,
    entries: Iterable[LogEntry],
    engine_now: int,
    wall_ms: int,
    cells: int,
) -> list[str]:
    """The lines of the pane, of at most ``cells`` cells. ``answers`` has the last answers about the queue by command:
    ``status``, ``list_inflight``, ``count_dlq``. ``wall_ms`` is the present."""
    lines = [
        clean(queue.name),
        *_paused(queue, events, wall_ms),
        f"{tr('ready')} {figure(queue.ready)}  {tr('delayed')} {figure(queue.delayed)}  {tr('held')} {queue.held}",
        *([_log(queue)] if queue.is_log else []),
        *([f"{tr('gathering')} {figure(queue.gathering)}"] if queue.gathering else []),
        *([f"{tr('ordered')} {figure(queue.ordered)}"] if queue.ordered else []),
        *([f"{tr('done')} {figure(queue.done)}"] if queue.done else []),
        *([f"{tr('drafting')} {figure(queue.drafting)}"] if queue.drafting else []),
        *_policy(answers.get("status", {})),
        "",
        *_leases(queue, answers.get("list_inflight", {}), engine_now),
        "",
        *_dead(queue, answers.get("count_dlq", {}), wall_ms),
        "",
        *_operator_actions(queue.name, events, entries, wall_ms),
    ]
    return [cut(line, cells) for line in lines]


def _log(queue: Queue) -> str:
    text = tr("log: {records} records, {size}, {readers} readers")
    return text.format(records=figure(queue.records), size=size(queue.bytes), readers=queue.readers)


def _paused(queue: Queue, events: AdminEvents, wall_ms: int) -> Iterator[str]:
    if not queue.is_paused:
        return
    what = [tr("consuming")] * queue.consume_paused + [tr("publishing")] * queue.publish_paused
    yield f"{tr('PAUSED')}: {', '.join(what)}"
    event = events.pause_of(queue.name)
    if event:
        since = age(max(wall_ms - event.wall_ms, 0))
        yield f"  {tr('since')} {moment(event.wall_ms, wall_ms)} ({since}) {tr('by')} {clean(event.client or '-')}"
    else:
        yield f"  {tr('since before the start of the tail')}"


def _policy(status: Mapping[str, Any]) -> Iterator[str]:
    policy = status.get("policy")
    if policy:
        retry = policy.get("retry") or {}
        yield (
            f"{tr('lease')} {policy.get('visibilityTimeoutSec')}s  {tr('tries')} {retry.get('limit')}  "
            f"{retry.get('initialDelaySec')}s..{retry.get('maxDelaySec')}s"
        )


def _leases(queue: Queue, answer: Mapping[str, Any], engine_now: int) -> Iterator[str]:
    yield _title(tr("LEASES"), queue.inflight)
    messages: Sequence[Mapping[str, Any]] = answer.get("messages", [])
    for message in messages[:_LISTED]:
        left = int(message["leaseUntilEngineMs"]) - engine_now
        mark = "!" if left <= ENDING_MS else " "
        holder = fit(clean(str(message.get("consumerId") or "")), 14)
        yield f"{mark}{short_key(message['messageKey'])} {holder} {tr('left')} {age(left)}"
    if queue.inflight > _LISTED and messages:
        yield f" {tr('and {n} more').format(n=figure(queue.inflight - _LISTED))}"


def _dead(queue: Queue, answer: Mapping[str, Any], wall_ms: int) -> Iterator[str]:
    yield _title(tr("DEAD"), queue.dead)
    for reason, number in sorted(queue.reasons.items(), key=lambda pair: (-pair[1], pair[0]))[:_LISTED]:
        yield f" {fit(clean(reason), 18)} {figure(number)}"
    if answer.get("newestAt") is not None:
        hour, day = int(answer.get("diedLastHour") or 0), int(answer.get("diedLastDay") or 0)
        newest = f"{tr('last')} {moment(int(answer['newestAt']), wall_ms)}"
        yield f" +{figure(hour)} {tr('in 1h')}  +{figure(day)} {tr('in 24h')}  {newest}"


def _operator_actions(queue: str, events: AdminEvents, entries: Iterable[LogEntry], now_ms: int) -> Iterator[str]:
    """What operators did to the queue, here and elsewhere, newest first."""
    found = [(event.wall_ms, f"{event.kind} {clean(event.client)} {event.detail}") for event in events.of(queue)]
    found += [
        (entry.wall_ms, f"{tr(entry.verb)} {tr(entry.result.value)} {clean(entry.text)}")
        for entry in entries
        if entry.queue == queue and entry.result and entry.result.value != "ok"
    ]
    yield _title(tr("ACTIONS"), None)
    for wall_ms, words in sorted(found, reverse=True)[:_LISTED]:
        yield f" {moment(wall_ms, now_ms)} {words.rstrip()}"


def _title(text: str, number: int | None) -> str:
    return f"-- {text} {'' if number is None else figure(number)}".rstrip() + " --"
