"""The periodic tasks: what the daemon does without a request.

A task is a generator of steps, each a list of events to record; a step is folded before the next is asked for, so that
it sees what the one before has changed. A task that has much to do ends early, and continues in the next group.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from postroom_common.events import EventType
from postroom_common.protocol import ReasonCode, State

from ..engine.context import Context, Draft
from ..engine.verbs import settle
from ..engine.verbs.terminations import about, died, dropped, failure
from ..model.cursors import Cursors
from ..model.facts import CLAIM_END
from ..model.records import Entry
from ..stores.errors import StoreError
from .periodic_logs import DUE_LOGS, append_due
from .periodic_pipes import has_more_to_pass_on, pass_on
from .periodic_queues import count_usage, look_at_queues
from .schedule_firing import fire_schedules

log = logging.getLogger(__name__)

Task = Callable[[Context], Iterator[list[Draft]]]

#: Leases that one group ends; the rest follows in the next.
ENDED_LEASES_LIMIT: Final = 500
#: Engine milliseconds between two runs of the tasks that can wait.
SLOW_TASKS_EVERY_MS: Final = 1000


def end_leases(context: Context) -> Iterator[list[Draft]]:
    """End the leases whose time is over."""
    for entry in context.store.due.ended_leases(context.now.engine, ENDED_LEASES_LIMIT):
        yield settle.lease_expired(context.afresh(), entry)  # the one before was folded


#: Claims that one event ends, and such events in one turn.
_CLAIMS_AN_EVENT: Final = 500
_EVENTS_A_TURN: Final = 4
#: Claims that a group ends where a turn has left some: they may come faster than turns.
_CLAIMS_A_GROUP: Final = 100
_LEFT: Final = "dedup keys: more are left"


def end_dedup_keys(context: Context) -> Iterator[list[Draft]]:
    """End the claims of keys whose time is over, oldest first."""
    context.cursors[_LEFT] = False
    for _ in range(_EVENTS_A_TURN):
        claims = _over(context, _CLAIMS_AN_EVENT)
        if claims:
            yield _ended(claims)
        if len(claims) < _CLAIMS_AN_EVENT:
            return
    context.cursors[_LEFT] = True


def has_more(cursors: Cursors) -> bool:
    """Whether the tasks of each group have something to do that is not due at a time."""
    return bool(cursors.get(_LEFT) or cursors.get(DUE_LOGS) or has_more_to_pass_on(cursors))


def end_more_dedup_keys(context: Context) -> Iterator[list[Draft]]:
    """End some of those that ``end_dedup_keys`` has left."""
    if context.cursors.get(_LEFT):
        claims = _over(context, _CLAIMS_A_GROUP)
        context.cursors[_LEFT] = len(claims) == _CLAIMS_A_GROUP
        if claims:
            yield _ended(claims)


def pass_more_on(context: Context) -> Iterator[list[Draft]]:
    """Go on with the pipes that have more to pass on."""
    if has_more_to_pass_on(context.cursors):
        yield from pass_on(context)


def _over(context: Context, limit: int) -> list[list[str]]:
    """Queue and name of claims whose time is over."""
    names = context.store.facts.names(CLAIM_END, "", limit)
    ends = [name.removeprefix(CLAIM_END).split(":", 1) for name in names]
    return [[*rest.rsplit("\0", 1)] for until, rest in ends if int(until) <= context.now.engine]


def _ended(claims: list[list[str]]) -> list[Draft]:
    return [{"type": EventType.CLAIMS_ENDED, "claims": claims}]


#: Clocks that move against each other by less (ms) have not been set: they drift, and are slewed.
STEP_MS: Final = 1000
#: Delayed messages that one turn looks at.
_LOOKS: Final = 2000
_KNOWN, _AFTER = "wall clock", "wall clock, looked at up to"


def follow_wall_clock(context: Context) -> Iterator[list[Draft]]:
    """After a start, and after each step of the wall clock, recompute when messages with ``deliverAt`` are due."""
    cursors, now = context.cursors, context.now
    offset = now.wall - now.engine
    offset_before = cursors.get(_KNOWN)
    if offset_before is None or abs(offset - offset_before) > STEP_MS:
        cursors[_KNOWN], cursors[_AFTER] = offset, ()
    if cursors[_AFTER] is None:
        return
    delayed, cursors[_AFTER] = context.store.pages.scan("", State.DELAYED, cursors[_AFTER], _LOOKS)
    cursors[_AFTER] = cursors[_AFTER] or None
    for entry in delayed:
        due = max(now.engine, entry.due_wall - offset)
        retried = entry.attempt > 0 or entry.failures > 0  # what it waits for now is the end of its backoff
        if entry.due_wall and not retried and abs(due - entry.due) > STEP_MS:
            yield [about(EventType.RESCHEDULED, entry) | {"dueEngineMs": due}]


#: Messages that one group sees to; the rest follows in the next.
EXPIRIES_LIMIT: Final = 500


def expire_messages(context: Context) -> Iterator[list[Draft]]:
    """End the waiting of messages whose time is over."""
    for entry in context.store.due.expiring(context.now.engine, EXPIRIES_LIMIT):
        yield expired(context.afresh(), entry)  # the one before was folded


def expired(context: Context, entry: Entry) -> list[Draft]:
    """A message is past its time to live: it dies or is dropped, by its queue's policy. A draft has not become ready
    in time: it is dropped. Or its target has not come in time: anyone may have it from now on."""
    if not entry.expires or entry.expires > context.now.engine:
        return [about(EventType.RETARGETED, entry)]
    if entry.state is State.DRAFTING:
        text = f"not ready within {entry.expires - entry.created} ms of its drafting"
        return dropped(entry, ReasonCode.DRAFT_EXPIRED, text)
    policy = context.policies.effective(entry.queue, context.store.queue(entry.queue))
    text = f"not consumed within {entry.expires - entry.created} ms of its publishing"
    if policy.ttl_action == "drop":
        return dropped(entry, ReasonCode.MESSAGE_EXPIRED, text)
    return died(context, entry, failure(entry, ReasonCode.MESSAGE_EXPIRED, text))


EACH_GROUP: Final[tuple[Task, ...]] = (end_leases, expire_messages, end_more_dedup_keys, append_due, pass_more_on)
EACH_SECOND: Final[tuple[Task, ...]] = (
    follow_wall_clock,
    fire_schedules,
    look_at_queues,
    end_dedup_keys,
    count_usage,
    pass_on,
)

#: The cursor that names the task that failed last.
_FAILED: Final = "failed"


def steps_of(task: Task, context: Context) -> Iterator[list[Draft]]:
    """The steps of a task. A task that fails while it looks for its next step is logged once, and must not keep the
    others from theirs. Raises ``StoreError``."""
    steps = task(context)
    while True:
        try:
            drafts = next(steps, None)
        except StoreError:
            raise
        except Exception as error:
            failed = (task.__name__, repr(error))
            if context.cursors.get(_FAILED) != failed:
                context.cursors[_FAILED] = failed
                log.exception("%s failed, and will be tried again", task.__name__)
            return
        if drafts is None:
            return
        yield drafts
