"""What has to be done without a request.

A duty is asked in each group, a chore about once a second. Each gives what follows, one step after the other: a step
is applied before the next is asked for, so that it sees it. Both end early where there is much to do: the next group
goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from ..engine.context import Context, Draft, Pending
from ..engine.verbs import settle
from .periodic_tasks.dedup_keys import claims_left, claims_over
from .periodic_tasks.depths import depths
from .periodic_tasks.firing import due_schedules
from .periodic_tasks.idle import idle_queues
from .periodic_tasks.retention import old_dead_letters
from .periodic_tasks.ttl import lapses
from .periodic_tasks.usage import stored_before
from .periodic_tasks.wall_time import clock_steps

Duty = Callable[[Context], Iterator[list[Draft]]]

#: Leases that one group ends; the rest follows in the next.
EXPIRY_LIMIT: Final = 500
#: Engine milliseconds between two times that chores are done.
CHORES_EVERY_MS: Final = 1000


def leases_over(context: Context) -> Iterator[list[Draft]]:
    """Leases that are over."""
    for entry in context.store.due.ended_leases(context.now.engine, EXPIRY_LIMIT):
        yield settle.lease_expired(replace(context, pending=Pending()), entry)  # the one before has been applied


DUTIES: Final[tuple[Duty, ...]] = (leases_over, lapses, claims_left)
CHORES: Final[tuple[Duty, ...]] = (
    clock_steps,
    due_schedules,
    idle_queues,
    claims_over,
    old_dead_letters,
    depths,
    stored_before,
)
