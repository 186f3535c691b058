"""The states of messages of WebSocket MQ (BlackGlory/mq), and the configuration of a queue of it as a policy.

====================== ============================== ================================================================
WebSocket MQ           policy                         values that the other side does not have
====================== ============================== ================================================================
unique                 ``deduplication``
draftingTimeout        ``draftingSec``                more than 366 days: for ever, shown as the largest exact integer
orderedTimeout         ``orderedSec``                 at most 7 days; a queue without the phase shows it likewise
activeTimeout          ``visibilityTimeoutSec``       at most 7 days
concurrency            ``limits.inflight``            0 and below: deliveries are paused, shown as 0; see ``_BLOCKED``
behaviorWhenCompleted  ``done.keep``
behaviorWhenAbandoned  ``abandon.keep``
====================== ============================== ================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from math import isfinite
from typing import Any, Final

from .errors import PostroomError
from .protocol import DELAY_MS_LIMIT, RETRY_LIMIT_LIMIT, VISIBILITY_MS_LIMIT


class MqState(IntEnum):
    """The states of a message, with their numbers."""

    DRAFTING = 0
    WAITING = 1
    ORDERED = 2
    ACTIVE = 3
    FAILED = 4
    COMPLETED = 5
    ABANDONED = 6


#: The limit for each consumer of a queue whose concurrency is 0: none that counts, and so none that an operator has
#: set. The queue's own limit is 1 meanwhile, because deliveries are resumed before the new limit is set.
_BLOCKED: Final = 2**53
_LARGEST: Final = 2**31 - 1
#: What is kept of a message, by the number of the behaviour: nothing, all slots removed, the message removed.
KEPT: Final = ("message", "none", "headers")
_SHORTEST_S: Final = 0.001
_DAYS_LIMIT: Final = 36500

#: The policy of a queue that these clients create, beside its configuration: a lease that ends returns the message at
#: once, behind what waits, as often as it takes; nothing expires.
CREATE_WITH: Final[Mapping[str, Any]] = {
    "retry": {
        "limit": RETRY_LIMIT_LIMIT,
        "backoff": "fixed",
        "initialDelaySec": _SHORTEST_S,
        "maxDelaySec": _SHORTEST_S,
        "returnTo": "end",
    },
    "dlq": {"retentionDays": _DAYS_LIMIT},
}


class WrongQueueConfig(PostroomError):
    """A configuration that is none; the text says which value is wrong."""


def to_policy(config: Any) -> dict[str, Any]:
    """The policy of a configuration. Raises ``WrongQueueConfig``."""
    if type(config) is not dict:
        raise WrongQueueConfig("The config must be an object.")
    drafting_ms, ordered_ms, active_ms = (
        _timeout_ms(config, name) for name in ("draftingTimeout", "orderedTimeout", "activeTimeout")
    )
    unique = config.get("unique")
    if type(unique) is not bool:
        raise WrongQueueConfig("The unique must be a boolean.")
    return {
        "deduplication": {"mode": "while-present" if unique else "off", "content": unique},
        "draftingSec": drafting_ms / 1000 if drafting_ms <= DELAY_MS_LIMIT else 0,
        "orderedSec": min(ordered_ms, VISIBILITY_MS_LIMIT) / 1000,
        "visibilityTimeoutSec": min(active_ms, VISIBILITY_MS_LIMIT) / 1000,
        "limits": _limits(config.get("concurrency")),
        "done": {"keep": _kept(config, "behaviorWhenCompleted")},
        "abandon": {"keep": _kept(config, "behaviorWhenAbandoned")},
    }


def is_blocked(policy: Mapping[str, Any]) -> bool:
    """Whether the policy is that of a queue whose concurrency is 0 or below, which therefore is paused."""
    return bool(policy["limits"].get("inflightPerConsumer") == _BLOCKED)


def _timeout_ms(config: Mapping[str, Any], name: str) -> int:
    """A time in milliseconds, at least 1."""
    value: Any = config.get(name)
    if type(value) not in (int, float) or not isfinite(value) or value <= 0:
        raise WrongQueueConfig(f"The {name} must be greater than zero.")
    number: float = value
    return max(1, round(number))


def _limits(concurrency: Any) -> dict[str, int]:
    if concurrency is None:
        return {"inflight": 0}
    number = whole(concurrency)
    if number is None:
        raise WrongQueueConfig("The concurrency must be an integer or null.")
    if number <= 0:
        return {"inflight": 1, "inflightPerConsumer": _BLOCKED}
    return {"inflight": min(number, _LARGEST)}


def _kept(config: Mapping[str, Any], name: str) -> str:
    number = whole(config.get(name))
    if number is None or not 0 <= number < len(KEPT):
        raise WrongQueueConfig(f"The {name} must be 0, 1 or 2.")
    return KEPT[number]


def whole(value: Any) -> int | None:
    """A number of JSON as an integer; None if it is none. ``5.0`` is 5, as in JavaScript."""
    if type(value) is float and value.is_integer():
        return int(value)
    return value if type(value) is int else None
