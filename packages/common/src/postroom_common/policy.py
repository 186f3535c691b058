"""Queue policies: the keys, their defaults, and how one layer is laid over another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .errors import ConfigurationError
from .protocol import DELAY_MS_LIMIT, VISIBILITY_MS_LIMIT, queue_name_problem
from .settings import Setting, flatten

BACKOFFS: Final = ("exponential", "linear", "fixed")

_SHORTEST_S: Final = 0.001
_LONGEST_LEASE_S: Final = VISIBILITY_MS_LIMIT // 1000
_LONGEST_DELAY_S: Final = DELAY_MS_LIMIT // 1000

#: The keys of the C++ system with its defaults and its corrections; the upper bounds are ours.
POLICY_KEYS: Final = (
    Setting("visibilityTimeoutSec", float, 30, "length of a lease, seconds", _SHORTEST_S, _LONGEST_LEASE_S),
    Setting("retry.limit", int, 5, "deliveries before the message dies (0 acts as 1)", 0, 2**31 - 1, below=0),
    Setting("retry.backoff", str, "exponential", "how the delay grows", choices=BACKOFFS, corrected=None),
    Setting("retry.initialDelaySec", float, 1, "first delay before a retry, seconds", _SHORTEST_S, _LONGEST_DELAY_S),
    Setting("retry.maxDelaySec", float, 60, "longest delay before a retry, seconds", _SHORTEST_S, _LONGEST_DELAY_S),
    Setting("dlq.enabled", bool, True, "keep dead messages; false: drop them, counted"),
    Setting("dlq.queue", str, "", "name that addresses the dead letters; `<queue>.dlq` if empty"),
    Setting(
        "dlq.retentionDays",
        float,
        14,
        "days that dead letters are kept (not enforced yet)",
        _SHORTEST_S,
        36500,
    ),
)
_BY_PATH: Final = {key.key: key for key in POLICY_KEYS}

#: A layer: dotted path to value, only the keys that the layer sets.
Layer = dict[str, Any]


def read_layer(policy: Mapping[str, Any], where: str, warn: Callable[[str], None]) -> Layer:
    """Check a policy's JSON object and flatten it.

    ``where`` names it in texts. Out-of-range values are corrected and reported to ``warn``.
    Raises ``ConfigurationError`` for an unknown key or a wrong type, naming the key and the expected type.
    """
    layer: Layer = {}
    for path, value in flatten(policy, _BY_PATH, f"{where}.").items():
        layer[path] = _BY_PATH[path].check(value, f"{where}.{path}", warn)
    problem = queue_name_problem(layer.get("dlq.queue") or "unset")
    if problem:
        raise ConfigurationError(f"{where}.dlq.queue: {problem}")
    return layer


@dataclass(frozen=True, slots=True)
class Policy:
    """A queue's effective policy; times in milliseconds."""

    visibility_ms: int
    retry_limit: int
    backoff: str
    initial_delay_ms: int
    max_delay_ms: int
    dlq_enabled: bool
    dlq_queue: str
    retention_days: float

    @classmethod
    def from_layers(cls, *layers: Layer) -> Policy:
        """Lay ``layers`` over the defaults, later ones over earlier. Initial and maximum delay are swapped if they
        stand the wrong way round, as in the C++ system."""
        flat = {key.key: key.default for key in POLICY_KEYS}
        for layer in layers:
            flat.update(layer)
        initial = _milliseconds(flat["retry.initialDelaySec"])
        longest = _milliseconds(flat["retry.maxDelaySec"])
        return cls(
            visibility_ms=_milliseconds(flat["visibilityTimeoutSec"]),
            retry_limit=flat["retry.limit"],
            backoff=flat["retry.backoff"],
            initial_delay_ms=min(initial, longest),
            max_delay_ms=max(initial, longest),
            dlq_enabled=flat["dlq.enabled"],
            dlq_queue=flat["dlq.queue"],
            retention_days=flat["dlq.retentionDays"],
        )

    def to_wire(self) -> dict[str, Any]:
        """The policy in the shape of the configuration file."""
        return {
            "visibilityTimeoutSec": _seconds(self.visibility_ms),
            "retry": {
                "limit": self.retry_limit,
                "backoff": self.backoff,
                "initialDelaySec": _seconds(self.initial_delay_ms),
                "maxDelaySec": _seconds(self.max_delay_ms),
            },
            "dlq": {
                "enabled": self.dlq_enabled,
                "queue": self.dlq_queue,
                "retentionDays": self.retention_days,
            },
        }


def dlq_name(queue: str, policy: Policy) -> str:
    """The name that addresses a queue's dead letters."""
    return policy.dlq_queue or f"{queue}.dlq"


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _seconds(milliseconds: int) -> float:
    whole, rest = divmod(milliseconds, 1000)
    return milliseconds / 1000 if rest else whole
