"""The state machine of a message, as one table, and the arithmetic of retries.

Two rules. Everything that decides which state may follow which stands in ``TRANSITIONS``. Nothing here knows of disks,
clocks or sockets.
"""

from __future__ import annotations

from typing import Final

from postroom_common.errors import PostroomError
from postroom_common.events import EventType
from postroom_common.policy import Policy
from postroom_common.protocol import State

#: Not stored: before the publish, and after the end.
GONE: Final = None

#: Event type: the states it may find a message in, the states it may leave it in.
#: Becoming due (delayed to ready) is no event: the store derives it from the time.
TRANSITIONS: Final[dict[EventType, tuple[tuple[State | None, ...], tuple[State | None, ...]]]] = {
    EventType.PUBLISHED: ((GONE,), (State.READY, State.DELAYED)),
    EventType.LEASED: ((State.READY, State.DELAYED), (State.INFLIGHT,)),
    EventType.LEASE_EXTENDED: ((State.INFLIGHT,), (State.INFLIGHT,)),
    EventType.ACKED: ((State.INFLIGHT,), (GONE,)),
    EventType.RELEASED: ((State.INFLIGHT,), (State.READY,)),
    EventType.RETRIED: ((State.INFLIGHT,), (State.DELAYED,)),
    EventType.DIED: ((State.INFLIGHT, State.READY, State.DELAYED), (State.DEAD,)),
    EventType.DROPPED: ((State.INFLIGHT,), (GONE,)),
    EventType.REPROCESSED: ((State.DEAD,), (State.READY,)),
}


class IllegalTransition(PostroomError):
    """An event that does not fit the state it finds. Nothing was changed."""


def check_transition(before: State | None, event: EventType, after: State | None) -> None:
    """Raise ``IllegalTransition`` unless the table allows ``event`` to lead from ``before`` to ``after``."""
    befores, afters = TRANSITIONS[event]
    if before not in befores or after not in afters:
        raise IllegalTransition(f"{event} cannot lead from {before or 'gone'} to {after or 'gone'}")


def attempts_spent(policy: Policy, attempt: int) -> bool:
    """Whether delivery number ``attempt`` was the last that the policy allows (a limit of 0 acts as 1)."""
    return attempt >= max(1, policy.retry_limit)


def backoff_ms(policy: Policy, attempt: int) -> int:
    """Milliseconds to wait after failed delivery number ``attempt`` (from 1).

    exponential min(initial * 2^(attempt-1), longest), linear min(initial * attempt, longest), fixed initial: the
    formulas of the C++ system.
    """
    attempt = max(1, attempt)
    if policy.backoff == "fixed":
        return policy.initial_delay_ms
    if policy.backoff == "linear":
        return min(policy.initial_delay_ms * attempt, policy.max_delay_ms)
    return min(policy.initial_delay_ms << min(attempt - 1, 62), policy.max_delay_ms)
