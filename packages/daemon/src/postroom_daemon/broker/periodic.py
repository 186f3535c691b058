"""The periodic tasks: what the daemon does without a request.

A task is a generator of steps, each a list of events to record; a step is folded before the next is asked for, so that
it sees what the one before has changed. A task that has much to do ends early, and goes on in the next group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from ..engine.context import Context, Draft, Pending
from ..engine.verbs import settle
from .periodic_tasks.counts import count_depths, count_usage
from .periodic_tasks.dedup_keys import end_dedup_keys, end_more_dedup_keys
from .periodic_tasks.firing import fire_schedules
from .periodic_tasks.idle import delete_idle_queues
from .periodic_tasks.retention import drop_old_dead_letters
from .periodic_tasks.ttl import expire_messages
from .periodic_tasks.wall_time import follow_wall_clock

Task = Callable[[Context], Iterator[list[Draft]]]

#: Leases that one group ends; the rest follows in the next.
ENDED_LEASES_LIMIT: Final = 500
#: Engine milliseconds between two runs of the tasks that can wait.
SLOW_TASKS_EVERY_MS: Final = 1000


def end_leases(context: Context) -> Iterator[list[Draft]]:
    """End the leases whose time is over."""
    for entry in context.store.due.ended_leases(context.now.engine, ENDED_LEASES_LIMIT):
        yield settle.lease_expired(replace(context, pending=Pending()), entry)  # the one before was folded


EACH_GROUP: Final[tuple[Task, ...]] = (end_leases, expire_messages, end_more_dedup_keys)
EACH_SECOND: Final[tuple[Task, ...]] = (
    follow_wall_clock,
    fire_schedules,
    delete_idle_queues,
    end_dedup_keys,
    drop_old_dead_letters,
    count_depths,
    count_usage,
)
