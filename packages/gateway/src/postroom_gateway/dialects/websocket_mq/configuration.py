"""The configuration of a queue as WebSocket MQ's clients give it, and as the daemon's policy keeps it.

How the two correspond is in ``postroom_common.websocket_mq``, because an import of the server's data needs it, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from postroom_common import websocket_mq
from postroom_common.websocket_mq import CREATE_WITH, KEPT, is_blocked, whole

from .errors import wrong_argument

__all__ = ["CREATE_WITH", "from_policy", "is_blocked", "to_policy", "unblocked", "whole"]

#: ``Number.MAX_SAFE_INTEGER``.
_FOR_EVER_MS: Final = 2**53 - 1


def to_policy(config: Any) -> dict[str, Any]:
    """The policy of a configuration. Raises ``RpcError`` (AssertionError)."""
    try:
        return websocket_mq.to_policy(config)
    except websocket_mq.WrongQueueConfig as error:
        raise wrong_argument(str(error)) from None


def from_policy(policy: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration that a policy means, also one that other clients or an operator have set."""
    return {
        "unique": policy["deduplication"]["mode"] != "off" and policy["deduplication"]["content"],
        "draftingTimeout": _shown_ms(policy["draftingSec"]),
        "orderedTimeout": _shown_ms(policy["orderedSec"]),
        "activeTimeout": _shown_ms(policy["visibilityTimeoutSec"]),
        "concurrency": 0 if is_blocked(policy) else policy["limits"]["inflight"] or None,
        "behaviorWhenCompleted": KEPT.index(policy["done"]["keep"]),
        "behaviorWhenAbandoned": KEPT.index(policy["abandon"]["keep"]),
    }


def unblocked(policy: Mapping[str, Any]) -> dict[str, Any]:
    """The policy for a queue whose concurrency was 0 or below."""
    return {**policy, "limits": {"inflightPerConsumer": 0, **policy["limits"]}}


def _shown_ms(seconds: float) -> int:
    return round(seconds * 1000) or _FOR_EVER_MS
