"""Periodic tasks over all queues, some at a time: one looks at each queue, one counts stored bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any, Final, NamedTuple

from postroom_common.protocol import ReasonCode, State

from ..engine.context import Context, Draft
from ..engine.selection import dead_letters
from ..engine.verbs.addresses import queue_deleted
from ..engine.verbs.terminations import QUARANTINED, dropped
from ..model.records import Entry, QueueRecord
from ..policy.policies import Policies
from .periodic_logs import NEVER, look_at_log
from .periodic_pipes import note_pipe

#: Queues that one turn looks at; a round over all of them takes as many turns as it needs.
_QUEUES_A_TURN: Final = 100
_ROUND: Final = "queues: the round over all of them"
_COUNTED: Final = "queues: their messages, as last counted"


class _Round(NamedTuple):
    """A round over all queues. Before ``due`` (engine ms) another one would do nothing, unless an event was folded
    since this one began, or the configuration was reloaded: then ``applied`` or ``policies`` are others."""

    applied: int
    policies: Policies
    after: str
    """The queue after which the next turn continues."""
    counts: dict[str, int]
    """The messages by state of the queues up to that one."""
    due: int
    is_complete: bool


def look_at_queues(context: Context) -> Iterator[list[Draft]]:
    """Look at some more queues: count their messages, delete those that are idle, drop old dead letters and messages
    that were done long ago. Nothing is read while there is nothing to do."""
    store, cursors = context.store, context.cursors
    present = (store.applied, context.policies)
    last: _Round | None = cursors.get(_ROUND)
    if last and last.is_complete and last[:2] == present and context.now.engine < last.due:
        return
    if last is None or last.is_complete:
        last = _Round(*present, after="", counts={}, due=NEVER, is_complete=False)
    page = store.pages.queues(last.after, _QUEUES_A_TURN)
    after, is_complete = page[-1].name if page else "", len(page) < _QUEUES_A_TURN
    turn = last._replace(after=after, due=0, is_complete=is_complete)
    cursors[_ROUND] = turn  # if a queue cannot be looked at, the next turn continues behind these
    counts, due, asked = Counter(last.counts), last.due, _Asked(context)
    for record in page:
        note_pipe(context, record)
        if record.log:
            due = min(due, (yield from look_at_log(context, record)))
        if any(record.counts.values()):
            for state, number in record.counts.items():
                counts[state] += number
            due = min(due, (yield from _drop_old_dead_letters(context, record)))
            if record.counts[State.DONE]:
                due = min(due, (yield from _drop_old_done(context, record)))
        elif not record.log:
            due = min(due, (yield from _delete_if_idle(context, record, asked)))
    cursors[_ROUND] = turn._replace(counts=dict(counts), due=due)
    if is_complete:
        cursors[_COUNTED] = dict(counts)
        _forget_places_of_others(context)


def depths(cursors: dict[str, Any]) -> dict[str, int]:
    """The messages of all queues by state, as last counted; empty before that."""
    counts: dict[str, int] = cursors.get(_COUNTED, {})
    return counts


class _Asked:
    """When each queue was last asked for a message since the start (engine ms). Listed once, if it is needed at all."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._times: dict[str, int] | None = None

    def last(self, queue: str) -> int:
        if self._times is None:
            self._times = {}
            for name, _, consumer in self._context.consumers.listed():
                self._times[name] = max(consumer.asked, self._times.get(name, 0))
        return self._times.get(queue, 0)


def _delete_if_idle(context: Context, record: QueueRecord, asked: _Asked) -> Generator[list[Draft], None, int]:
    """Delete an empty queue in which nothing has happened for as long as its policy says, and which nobody has asked
    for messages meanwhile. A paused queue stays: its pause would be lost with it. Returns when it is to be looked at
    again (engine ms)."""
    now, name = context.now.engine, record.name
    keep_ms = context.policies.effective(name, record).expire_after_idle_ms
    if not keep_ms or record.publish_paused or record.consume_paused:
        return NEVER
    if context.subscriptions.on(name):
        return now + keep_ms
    due = record.used + keep_ms
    if due <= now:
        due = max(due, asked.last(name) + keep_ms)
    if due <= now:
        yield [queue_deleted(record, "idle")]
    return due


#: Dead letters of a queue that one turn removes.
_REMOVED_A_QUEUE: Final = 100
#: Dead letters of a queue that one turn looks at for these; the next turn continues after them.
_LOOKS_A_QUEUE: Final = 2000
#: Engine milliseconds before a queue is looked through again, for each dead letter that stays: those that are
#: quarantined stay for long, and must not be read every second.
_REST_MS: Final = 10
_PLACES: Final = "places of the retention of dead letters"
_DAY_MS: Final = 24 * 3600 * 1000


class _Place(NamedTuple):
    """How far a queue is looked through: after which dead letter the next turn continues, how many stay, and the
    engine time before which it rests."""

    after: tuple[int, int] = (-1, -1)
    stay: int = 0
    rests_until: int = 0


def _drop_old_dead_letters(context: Context, record: QueueRecord) -> Generator[list[Draft], None, int]:
    """Drop, oldest first, dead letters older than their queue retains them, and those that are too many since
    its policy was made stricter. Those that are leased or quarantined stay, and however many these are, the newest.
    Returns when the queue is to be looked at again (engine ms)."""
    places: dict[str, _Place] = context.cursors.setdefault(_PLACES, {})
    place = places.pop(record.name, _Place())
    if not record.counts[State.DEAD]:
        return NEVER
    due = place.rests_until
    if context.now.engine >= due:
        place, due = yield from _look_through(context, record, place)
    if place != _Place():
        places[record.name] = place
    return due


def _forget_places_of_others(context: Context) -> None:
    """Forget the places in queues that are gone, or have become empty."""
    places: dict[str, _Place] = context.cursors.get(_PLACES, {})
    for name in [*places]:
        record = context.store.queue(name)
        if record is None or not record.counts[State.DEAD]:
            del places[name]


def _look_through(
    context: Context, record: QueueRecord, place: _Place
) -> Generator[list[Draft], None, tuple[_Place, int]]:
    """One turn over the dead letters of a queue. Returns where the next one continues, and when it is due."""
    policy, now = context.policies.effective(record.name, record), context.now.engine
    retention_ms = round(policy.retention_days * _DAY_MS)
    surplus = record.counts[State.DEAD] - policy.dlq_max_messages if policy.dlq_max_messages else 0
    removed, stay, after, due = 0, place.stay, place.after, NEVER
    page = dead_letters(context.store, [record.name], after)
    entry = next(page, None)
    for _ in range(_LOOKS_A_QUEUE):
        if entry is None:
            break
        old_at = entry.dead_at + retention_ms
        if old_at > now:
            due = min(due, old_at)
            if surplus <= 0:
                break
        if removed == _REMOVED_A_QUEUE:
            return _Place(after, stay), now
        after, behind = (entry.dead_at, entry.seq), next(page, None)
        if entry.lease_id or entry.phase == QUARANTINED or not (old_at <= now or behind):
            stay += 1
        else:
            yield _dropped(entry, old_at <= now)
            surplus -= 1
            removed += 1
        entry = behind
    else:
        if entry:
            return _Place(after, stay), now
    rests_until = now + stay * _REST_MS if stay > _REMOVED_A_QUEUE else 0
    return _Place(rests_until=rests_until), max(due, rests_until)


def _drop_old_done(context: Context, record: QueueRecord) -> Generator[list[Draft], None, int]:
    """Drop, oldest first, messages that are done for longer than their queue keeps them, and those that are too
    many. Returns when the queue is to be looked at again (engine ms)."""
    now, policy = context.now.engine, context.policies.effective(record.name, record)
    keep_ms, most = round(policy.done_retention_days * _DAY_MS), policy.done_max_messages
    surplus = record.counts[State.DONE] - most if most else 0
    if surplus <= 0 and not keep_ms:
        return NEVER
    page, following = context.store.pages.scan(record.name, State.DONE, (), _REMOVED_A_QUEUE)
    for entry in page:
        if keep_ms and entry.dead_at + keep_ms <= now:
            yield dropped(entry, ReasonCode.PURGED, "older than its queue keeps messages that are done")
        elif surplus > 0:
            yield dropped(entry, ReasonCode.QUEUE_FULL, "more messages that are done than its queue keeps")
        else:
            return entry.dead_at + keep_ms if keep_ms else NEVER
        surplus -= 1
    return now if following else NEVER


def _dropped(entry: Entry, old: bool) -> list[Draft]:
    if old:
        return dropped(entry, ReasonCode.PURGED, "older than its queue keeps dead letters")
    return dropped(entry, ReasonCode.QUEUE_FULL, "more dead letters than its queue keeps")


#: Messages that one turn counts: half a millisecond.
_MESSAGES_A_TURN: Final = 500


def count_usage(context: Context) -> Iterator[list[Draft]]:
    """After the start, count the bytes of some more messages that were stored before it. Changes nothing."""
    usage = context.usage
    if usage and not usage.is_complete:
        usage.count(*context.store.pages.stored_bytes(usage.counted, usage.since, _MESSAGES_A_TURN))
    yield from ()
