"""The state machine of a message, as one table, and the arithmetic of retries.

Two rules. ``TRANSITIONS`` alone decides which state may follow which. Nothing here knows of disks, clocks or sockets.
"""

from __future__ import annotations

from typing import Final

from postroom_common.errors import PostroomError
from postroom_common.events import Event, EventType
from postroom_common.policy import Policy
from postroom_common.protocol import State

#: Not stored: before the publish, and after the end.
GONE: Final = None

_Step = tuple[State | None, State | None]
_R, _D, _G, _I = State.READY, State.DELAYED, State.GATHERING, State.INFLIGHT
_H, _X, _K, _W = State.HELD, State.DEAD, State.DONE, State.DRAFTING

#: By event type: the steps that it may be, from one state to another.
#: Becoming due (delayed or gathering to ready) is no event: the store derives it from the time, and whoever folds the
#: journal alone meets a message in its former state. A dead letter that is leased under its dead-letter address stays
#: dead. One that is abandoned dies a second time, as does a message that was done.
TRANSITIONS: Final[dict[EventType, tuple[_Step, ...]]] = {
    EventType.PUBLISHED: ((GONE, _R), (GONE, _D), (GONE, _G), (GONE, _W)),
    EventType.PART_APPENDED: ((_G, _G),),
    EventType.PART_SET: ((_W, _W), (_W, _R), (_R, _R), (_D, _D)),
    EventType.BODY_SET: ((_I, _I), (_X, _X)),
    EventType.LEASED: ((_R, _I), (_D, _I), (_G, _I), (_X, _X)),
    EventType.LEASE_EXTENDED: ((_I, _I), (_X, _X)),
    EventType.ACTIVATED: ((_I, _I),),
    EventType.ACKED: ((_I, GONE), (_X, GONE), (_I, _K)),
    EventType.RELEASED: ((_I, _R), (_X, _X)),
    EventType.RETRIED: ((_I, _D),),
    EventType.DIED: ((_I, _X), (_R, _X), (_D, _X), (_G, _X), (_W, _X), (_H, _X), (_X, _X), (_K, _X)),
    EventType.DROPPED: (
        (_I, GONE),
        (_R, GONE),
        (_D, GONE),
        (_G, GONE),
        (_W, GONE),
        (_H, GONE),
        (_X, GONE),
        (_K, GONE),
    ),
    EventType.REPROCESSED: ((_X, _R),),
    EventType.HELD: ((_R, _H), (_D, _H), (_G, _H)),
    EventType.UNHELD: ((_H, _R), (_H, _D)),
    EventType.MOVED: ((_R, _R), (_D, _D), (_G, _G), (_H, _H)),
    EventType.RETARGETED: ((_R, _R), (_D, _D)),
    EventType.RESCHEDULED: ((_D, _D),),
    EventType.QUARANTINED: ((_X, _X),),
}
_ALLOWED: Final = frozenset((event, *step) for event, steps in TRANSITIONS.items() for step in steps)


class IllegalTransition(PostroomError):
    """An event that does not fit the state of its message. Nothing was changed."""


def check_transition(before: State | None, event: EventType, after: State | None) -> None:
    """Raise ``IllegalTransition`` unless the table allows ``event`` to lead from ``before`` to ``after``."""
    if (event, before, after) not in _ALLOWED:
        raise IllegalTransition(f"{event} cannot lead from {before or 'gone'} to {after or 'gone'}")


def removes(event: Event) -> bool:
    """Whether an event is the end of its message: it is not stored after it."""
    type_ = event["type"]
    return type_ == EventType.DROPPED or (type_ == EventType.ACKED and "keep" not in event)


def states_before(event: EventType) -> list[State | None]:
    """The states in which a message may be before an event, the usual one first."""
    return list(dict.fromkeys(before for before, _ in TRANSITIONS[event]))


def attempts_left(policy: Policy, own_limit: int, attempt: int) -> int:
    """How many deliveries may follow number ``attempt``, by the message's ``own_limit``; if that is 0, by the policy's
    (where 0 acts as 1)."""
    left = (own_limit or policy.retry_limit or 1) - attempt
    return left if left > 0 else 0


def backoff_ms(policy: Policy, attempt: int, chance: float = 0.0) -> int:
    """Milliseconds to wait after failed delivery number ``attempt`` (from 1), less the part of the policy's jitter that
    ``chance`` (0 to 1) takes off.

    exponential min(initial * 2^(attempt-1), longest), linear min(initial * attempt, longest), fixed initial: the
    formulas of the C++ system.
    """
    attempt = max(1, attempt)
    if policy.backoff == "fixed":
        delay = policy.initial_delay_ms
    elif policy.backoff == "linear":
        delay = min(policy.initial_delay_ms * attempt, policy.max_delay_ms)
    else:
        delay = min(policy.initial_delay_ms << min(attempt - 1, 62), policy.max_delay_ms)
    return round(delay * (1 - policy.jitter * chance))
