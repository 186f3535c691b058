"""What stands beside the list of queues where there is room: how the one under the cursor is. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..i18n import tr
from .action_log import Entry
from .model import Queue
from .notable import Notable
from .text import age, clean, cut, figure, fit
from .times import moment
from .views import ENDING_MS, short_key

#: Leases and reasons that are listed.
_LISTED = 6


def side_lines(
    queue: Queue,
    told: Mapping[str, Mapping[str, Any]],
    notable: Notable,
    entries: Iterable[Entry],
    engine_now: int,
    wall_ms: int,
    cells: int,
) -> list[str]:
    """Lines of at most so many cells. ``told`` has the last answers about this queue by command: ``status``,
    ``list_inflight``, ``count_dlq``. ``wall_ms`` is now, to tell how long it has been paused."""
    lines = [
        clean(queue.name),
        *_paused(queue, notable, wall_ms),
        f"{tr('ready')} {figure(queue.ready)}  {tr('delayed')} {figure(queue.delayed)}  {tr('held')} {queue.held}",
        *_policy(told.get("status", {})),
        "",
        *_leases(queue, told.get("list_inflight", {}), engine_now),
        "",
        *_dead(queue, told.get("count_dlq", {}), wall_ms),
        "",
        *_deeds(queue.name, notable, entries, wall_ms),
    ]
    return [cut(line, cells) for line in lines]


def _paused(queue: Queue, notable: Notable, wall_ms: int) -> Iterator[str]:
    if not queue.is_paused:
        return
    what = [tr("consuming")] * queue.consume_paused + [tr("publishing")] * queue.publish_paused
    yield f"{tr('PAUSED')}: {', '.join(what)}"
    event = notable.pause_of(queue.name)
    if event:
        since = age(max(wall_ms - event.wall_ms, 0))
        yield f"  {tr('since')} {moment(event.wall_ms, wall_ms)} ({since}) {tr('by')} {clean(event.client or '-')}"
    else:
        yield f"  {tr('since before the tail begins')}"


def _policy(status: Mapping[str, Any]) -> Iterator[str]:
    policy = status.get("policy")
    if policy:
        retry = policy.get("retry") or {}
        yield (
            f"{tr('lease')} {policy.get('visibilityTimeoutSec')}s  {tr('tries')} {retry.get('limit')}  "
            f"{retry.get('initialDelaySec')}s..{retry.get('maxDelaySec')}s"
        )


def _leases(queue: Queue, told: Mapping[str, Any], engine_now: int) -> Iterator[str]:
    yield _title(tr("LEASES"), queue.inflight)
    messages: Sequence[Mapping[str, Any]] = told.get("messages", [])
    for message in messages[:_LISTED]:
        left = int(message["leaseUntilEngineMs"]) - engine_now
        mark = "!" if left <= ENDING_MS else " "
        holder = fit(clean(str(message.get("consumerId") or "")), 14)
        yield f"{mark}{short_key(message['messageKey'])} {holder} {tr('left')} {age(left)}"
    if queue.inflight > _LISTED and messages:
        yield f" {tr('and {n} more').format(n=figure(queue.inflight - _LISTED))}"


def _dead(queue: Queue, told: Mapping[str, Any], wall_ms: int) -> Iterator[str]:
    yield _title(tr("DEAD"), queue.dead)
    for reason, number in sorted(queue.reasons.items(), key=lambda pair: (-pair[1], pair[0]))[:_LISTED]:
        yield f" {fit(clean(reason), 18)} {figure(number)}"
    if told.get("newestAt") is not None:
        hour, day = int(told.get("diedLastHour") or 0), int(told.get("diedLastDay") or 0)
        newest = f"{tr('last')} {moment(int(told['newestAt']), wall_ms)}"
        yield f" +{figure(hour)} {tr('in 1h')}  +{figure(day)} {tr('in 24h')}  {newest}"


def _deeds(queue: str, notable: Notable, entries: Iterable[Entry], now_ms: int) -> Iterator[str]:
    """What was done to it, from here and from elsewhere, the latest in front."""
    found = [(event.wall_ms, f"{event.kind} {clean(event.client)} {event.detail}") for event in notable.of(queue)]
    found += [
        (entry.wall_ms, f"{tr(entry.verb)} {tr(entry.result.value)} {clean(entry.text)}")
        for entry in entries
        if entry.queue == queue and entry.result and entry.result.value != "ok"
    ]
    yield _title(tr("DONE"), None)
    for wall_ms, words in sorted(found, reverse=True)[:_LISTED]:
        yield f" {moment(wall_ms, now_ms)} {words.rstrip()}"


def _title(text: str, number: int | None) -> str:
    return f"-- {text} {'' if number is None else figure(number)}".rstrip() + " --"
