"""What has to be done without a request.

A duty is asked in each group, a chore about once a second. Each gives what follows, one step after the other: a step
is applied before the next is asked for, so that it sees it. Both end early where there is much to do: the next group
goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from .chores.claims import claims_left, claims_over
from .chores.depths import depths
from .chores.firing import due_schedules
from .chores.idle import idle_queues
from .chores.lapses import lapses
from .chores.retention import old_dead_letters
from .chores.stored import stored_before
from .chores.wall_time import clock_steps
from .context import Context, Draft, Pending
from .verbs import settle

Duty = Callable[[Context], Iterator[list[Draft]]]

#: Leases that one group ends; the rest follows in the next.
EXPIRY_LIMIT: Final = 500
#: Engine milliseconds between two times that chores are done.
CHORES_EVERY_MS: Final = 1000


def leases_over(context: Context) -> Iterator[list[Draft]]:
    """Leases that are over."""
    for entry in context.store.expired(context.now.engine, EXPIRY_LIMIT):
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
