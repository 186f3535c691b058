"""The configuration of a queue as WebSocket MQ's clients give it, and as the daemon's policy keeps it.

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
from math import isfinite
from typing import Any, Final

from postroom_common.protocol import DELAY_MS_LIMIT, RETRY_LIMIT_LIMIT, VISIBILITY_MS_LIMIT

from .errors import wrong_argument

#: ``Number.MAX_SAFE_INTEGER``.
_FOR_EVER_MS: Final = 2**53 - 1
#: The limit for each consumer of a queue whose concurrency is 0: none that counts, and so none that an operator has
#: set. The queue's own limit is 1 meanwhile, because deliveries are resumed before the new limit is set.
_BLOCKED: Final = 2**53
_LARGEST: Final = 2**31 - 1
#: What is kept of a message, by the number of the behaviour: nothing, all slots removed, the message removed.
_KEPT: Final = ("message", "none", "headers")
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


def to_policy(config: Any) -> dict[str, Any]:
    """The policy of a configuration. Raises ``RpcError`` (AssertionError)."""
    if type(config) is not dict:
        raise wrong_argument("The config must be an object.")
    drafting_ms, ordered_ms, active_ms = (
        _timeout_ms(config, name) for name in ("draftingTimeout", "orderedTimeout", "activeTimeout")
    )
    unique = config.get("unique")
    if type(unique) is not bool:
        raise wrong_argument("The unique must be a boolean.")
    return {
        "deduplication": {"mode": "while-present" if unique else "off", "content": unique},
        "draftingSec": drafting_ms / 1000 if drafting_ms <= DELAY_MS_LIMIT else 0,
        "orderedSec": min(ordered_ms, VISIBILITY_MS_LIMIT) / 1000,
        "visibilityTimeoutSec": min(active_ms, VISIBILITY_MS_LIMIT) / 1000,
        "limits": _limits(config.get("concurrency")),
        "done": {"keep": _kept(config, "behaviorWhenCompleted")},
        "abandon": {"keep": _kept(config, "behaviorWhenAbandoned")},
    }


def from_policy(policy: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration that a policy means, also one that other clients or an operator have set."""
    return {
        "unique": policy["deduplication"]["mode"] != "off" and policy["deduplication"]["content"],
        "draftingTimeout": _shown_ms(policy["draftingSec"]),
        "orderedTimeout": _shown_ms(policy["orderedSec"]),
        "activeTimeout": _shown_ms(policy["visibilityTimeoutSec"]),
        "concurrency": 0 if is_blocked(policy) else policy["limits"]["inflight"] or None,
        "behaviorWhenCompleted": _KEPT.index(policy["done"]["keep"]),
        "behaviorWhenAbandoned": _KEPT.index(policy["abandon"]["keep"]),
    }


def unblocked(policy: Mapping[str, Any]) -> dict[str, Any]:
    """The policy for a queue whose concurrency was 0 or below."""
    return {**policy, "limits": {"inflightPerConsumer": 0, **policy["limits"]}}


def is_blocked(policy: Mapping[str, Any]) -> bool:
    """Whether the policy is that of a queue whose concurrency is 0 or below, which therefore is paused."""
    return bool(policy["limits"].get("inflightPerConsumer") == _BLOCKED)


def _timeout_ms(config: Mapping[str, Any], name: str) -> int:
    """A time in milliseconds, at least 1."""
    value: Any = config.get(name)
    if type(value) not in (int, float) or not isfinite(value) or value <= 0:
        raise wrong_argument(f"The {name} must be greater than zero.")
    number: float = value
    return max(1, round(number))


def _limits(concurrency: Any) -> dict[str, int]:
    if concurrency is None:
        return {"inflight": 0}
    number = whole(concurrency)
    if number is None:
        raise wrong_argument("The concurrency must be an integer or null.")
    if number <= 0:
        return {"inflight": 1, "inflightPerConsumer": _BLOCKED}
    return {"inflight": min(number, _LARGEST)}


def _kept(config: Mapping[str, Any], name: str) -> str:
    number = whole(config.get(name))
    if number is None or not 0 <= number < len(_KEPT):
        raise wrong_argument(f"The {name} must be 0, 1 or 2.")
    return _KEPT[number]


def whole(value: Any) -> int | None:
    """A number of JSON as an integer; None if it is none. ``5.0`` is 5, as in JavaScript."""
    if type(value) is float and value.is_integer():
        return int(value)
    return value if type(value) is int else None


def _shown_ms(seconds: float) -> int:
    return round(seconds * 1000) or _FOR_EVER_MS
