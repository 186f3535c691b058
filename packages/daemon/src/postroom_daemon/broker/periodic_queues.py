"""Periodic tasks over all queues, some at a time: count messages and stored bytes, delete idle queues, drop old dead
letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any, Final, NamedTuple

from postroom_common.events import EventType
from postroom_common.protocol import ReasonCode, State

from ..engine.context import Context, Draft
from ..engine.selection import dead_letters
from ..engine.verbs.terminations import QUARANTINED, dropped
from ..model.records import Entry, QueueRecord

#: Queues that one turn counts; counting all of them takes as many turns as it needs.
_QUEUES_A_TURN: Final = 200
#: Messages that one turn counts: three milliseconds.
_MESSAGES_A_TURN: Final = 500
_COUNTING: Final = "depths: how far"
_COUNTED: Final = "depths: the last complete count"


def count_depths(context: Context) -> Iterator[list[Draft]]:
    """Count the messages of some more queues. Changes nothing."""
    after, sums = context.cursors.get(_COUNTING, ("", {}))
    names = context.store.pages.queue_names(after, _QUEUES_A_TURN)
    counted = Counter(sums)
    for name in names:
        record = context.store.queue(name)
        counted.update(record.counts if record else {})
    complete = len(names) < _QUEUES_A_TURN
    if complete:
        context.cursors[_COUNTED] = dict(counted)
    context.cursors[_COUNTING] = ("", {}) if complete else (names[-1], dict(counted))
    yield from ()


def depths(cursors: dict[str, Any]) -> dict[str, int]:
    """The messages of all queues by state, as last counted; empty before that."""
    counts: dict[str, int] = cursors.get(_COUNTED, {})
    return counts


def count_usage(context: Context) -> Iterator[list[Draft]]:
    """After the start, count the bytes of some more messages that were stored before it. Changes nothing."""
    usage = context.usage
    if usage and not usage.is_complete:
        page = context.store.pages.entries(usage.counted, _MESSAGES_A_TURN)
        usage.count(page, is_last=len(page) < _MESSAGES_A_TURN)
    yield from ()


_IDLE_ROUND: Final = "idle queues"


def delete_idle_queues(context: Context) -> Iterator[list[Draft]]:
    """Delete empty queues in which nothing has happened for as long as their policy says, and which nobody has asked
    for messages meanwhile. A paused queue stays: its pause would be lost with it."""
    store = context.store
    names = store.pages.queue_names(context.cursors.get(_IDLE_ROUND, ""), _QUEUES_A_TURN)
    context.cursors[_IDLE_ROUND] = names[-1] if len(names) == _QUEUES_A_TURN else ""
    asked: dict[str, int] | None = None
    for name in names:
        record = store.queue(name)
        keep_ms = context.policies.effective(name, record).expire_after_idle_ms
        if not record or not keep_ms or any(record.counts.values()) or record.publish_paused or record.consume_paused:
            continue
        since = context.now.engine - keep_ms
        if record.used > since or context.subscriptions.on(name):
            continue
        if asked is None:
            asked = _last_asked(context)
        if asked.get(name, 0) <= since:
            yield [{"type": EventType.QUEUE_DELETED, "queue": name, "reason": "idle"}]


def _last_asked(context: Context) -> dict[str, int]:
    """When each queue was last asked for a message since the start (engine ms)."""
    asked: dict[str, int] = {}
    for queue, _, consumer in context.consumers.listed():
        asked[queue] = max(consumer.asked, asked.get(queue, 0))
    return asked


#: Queues that one turn looks at, and dead letters of each that it removes. A round over all queues takes as many turns
#: as it needs.
_DLQ_QUEUES_A_TURN: Final = 100
_REMOVED_A_QUEUE: Final = 100
#: Dead letters of a queue that one turn looks at for these; the next turn continues after them.
_LOOKS_A_QUEUE: Final = 2000
#: Engine milliseconds before a queue is looked through again, for each dead letter that stays: those that are
#: quarantined stay for long, and must not be read every second.
_REST_MS: Final = 10
_RETENTION_ROUND: Final = "retention of dead letters"
_PLACES: Final = "places of the retention of dead letters"
_DAY_MS: Final = 24 * 3600 * 1000


class _Place(NamedTuple):
    """How far a queue is looked through: after which dead letter the next turn continues, how many stay, and the
    engine time before which it rests."""

    after: tuple[int, int] = (-1, -1)
    stay: int = 0
    rests_until: int = 0


def drop_old_dead_letters(context: Context) -> Iterator[list[Draft]]:
    """Drop, oldest first, dead letters older than their queue retains them, and those that are too many since
    its policy was made stricter. Those that are leased or quarantined stay, and however many these are, the newest."""
    store = context.store
    places: dict[str, _Place] = context.cursors.setdefault(_PLACES, {})
    names = store.pages.queue_names(context.cursors.get(_RETENTION_ROUND, ""), _DLQ_QUEUES_A_TURN)
    context.cursors[_RETENTION_ROUND] = names[-1] if len(names) == _DLQ_QUEUES_A_TURN else ""
    for name in names:
        record = store.queue(name)
        place = places.get(name, _Place())
        if not record or not record.counts[State.DEAD]:
            places.pop(name, None)
        elif context.now.engine >= place.rests_until:
            places[name] = yield from _look_through(context, record, place)
    if not context.cursors[_RETENTION_ROUND]:  # of queues that are gone, and of those that need none
        for name in [name for name, place in places.items() if store.queue(name) is None or place == _Place()]:
            del places[name]


def _look_through(context: Context, record: QueueRecord, place: _Place) -> Generator[list[Draft], None, _Place]:
    """One turn over the dead letters of a queue. Returns where the next one continues."""
    policy = context.policies.effective(record.name, record)
    before = context.now.engine - round(policy.retention_days * _DAY_MS)
    surplus = record.counts[State.DEAD] - policy.dlq_max_messages if policy.dlq_max_messages else 0
    removed, stay, after = 0, place.stay, place.after
    page = dead_letters(context.store, [record.name], after)
    entry = next(page, None)
    for _ in range(_LOOKS_A_QUEUE):
        if entry is None or (entry.dead_at > before and surplus <= 0):
            break
        if removed == _REMOVED_A_QUEUE:
            return _Place(after, stay)
        after, old, behind = (entry.dead_at, entry.seq), entry.dead_at <= before, next(page, None)
        if entry.lease_id or entry.phase == QUARANTINED or not (old or behind):
            stay += 1
        else:
            yield _dropped(entry, old)
            surplus -= 1
            removed += 1
        entry = behind
    else:
        if entry:
            return _Place(after, stay)
    return _Place(rests_until=context.now.engine + stay * _REST_MS if stay > _REMOVED_A_QUEUE else 0)


_DONE_ROUND: Final = "retention of messages that are done"


def drop_old_done(context: Context) -> Iterator[list[Draft]]:
    """Drop, oldest first, messages that are done for longer than their queue keeps them, and those that are too
    many."""
    store, now = context.store, context.now.engine
    names = store.pages.queue_names(context.cursors.get(_DONE_ROUND, ""), _QUEUES_A_TURN)
    context.cursors[_DONE_ROUND] = names[-1] if len(names) == _QUEUES_A_TURN else ""
    for name in names:
        record = store.queue(name)
        if not record or not record.counts[State.DONE]:
            continue
        policy = context.policies.effective(name, record)
        days, most = policy.done_retention_days, policy.done_max_messages
        before = now - round(days * _DAY_MS) if days else -1
        surplus = record.counts[State.DONE] - most if most else 0
        if surplus <= 0 and not days:
            continue
        for entry in store.pages.scan(name, State.DONE, (), _REMOVED_A_QUEUE)[0]:
            if entry.dead_at <= before:
                yield dropped(entry, ReasonCode.PURGED, "older than its queue keeps messages that are done")
            elif surplus > 0:
                yield dropped(entry, ReasonCode.QUEUE_FULL, "more messages that are done than its queue keeps")
            else:
                break
            surplus -= 1


def _dropped(entry: Entry, old: bool) -> list[Draft]:
    if old:
        return dropped(entry, ReasonCode.PURGED, "older than its queue keeps dead letters")
    return dropped(entry, ReasonCode.QUEUE_FULL, "more dead letters than its queue keeps")
