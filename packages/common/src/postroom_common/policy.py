"""Queue policies: the keys, their defaults, and how one layer is laid over another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .errors import ConfigurationError

BACKOFFS: Final = ("exponential", "linear", "fixed")


@dataclass(frozen=True, slots=True)
class PolicyKey:
    """One key of a policy, named by its dotted path in the JSON."""

    path: str
    expected: str
    default: Any
    help: str
    fits: Callable[[Any], bool]
    #: False when the value is out of range: the default replaces it, with a warning.
    in_range: Callable[[Any], bool]
    #: What an out-of-range value becomes.
    corrected: Any


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_integer(value: Any) -> bool:
    return type(value) is int


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_flag(value: Any) -> bool:
    return type(value) is bool


def _positive(value: Any) -> bool:
    return bool(value > 0)


def _not_negative(value: Any) -> bool:
    return bool(value >= 0)


def _anything(value: Any) -> bool:
    return True


def _known_backoff(value: Any) -> bool:
    return value in BACKOFFS


#: The keys of the C++ system with its defaults and its corrections.
POLICY_KEYS: Final = (
    PolicyKey("visibilityTimeoutSec", "number", 30, "length of a lease, seconds", _is_number, _positive, 30),
    PolicyKey("retry.limit", "integer", 5, "deliveries before the message dies (0 acts as 1)", _is_integer, _not_negative, 0),
    PolicyKey("retry.backoff", "string", "exponential", "exponential, linear or fixed", _is_text, _known_backoff, "exponential"),
    PolicyKey("retry.initialDelaySec", "number", 1, "first delay before a retry, seconds", _is_number, _positive, 1),
    PolicyKey("retry.maxDelaySec", "number", 60, "longest delay before a retry, seconds", _is_number, _positive, 60),
    PolicyKey("dlq.enabled", "boolean", True, "keep dead messages; false: drop them, counted", _is_flag, _anything, True),
    PolicyKey("dlq.queue", "string", "", "name that addresses the dead letters; <queue>.dlq if empty", _is_text, _anything, ""),
    PolicyKey("dlq.retentionDays", "number", 14, "days that dead letters are kept", _is_number, _positive, 14),
)
_BY_PATH: Final = {key.path: key for key in POLICY_KEYS}
_GROUPS: Final = {path.partition(".")[0] for path in _BY_PATH if "." in path}

#: A layer: dotted path to value, only the keys that the layer sets.
Layer = dict[str, Any]


def read_layer(policy: Mapping[str, Any], where: str, warn: Callable[[str], None]) -> Layer:
    """Check a policy's JSON object and flatten it.

    ``where`` names it in texts. Out-of-range values are corrected and reported to ``warn``.
    Raises ``ConfigurationError`` for an unknown key or a wrong type, naming the key and the expected type.
    """
    layer: Layer = {}
    for path, value in _flatten(policy, where):
        key = _BY_PATH.get(path)
        if key is None:
            known = ", ".join(_BY_PATH)
            raise ConfigurationError(f"{where}.{path}: unknown key; known are {known}")
        if not key.fits(value):
            raise ConfigurationError(f"{where}.{path}: expected {key.expected}, got {value!r}")
        if not key.in_range(value):
            warn(f"{where}.{path}: {value!r} is out of range, using {key.corrected!r}")
            value = key.corrected
        layer[path] = value
    return layer


def _flatten(policy: Mapping[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    for name, value in policy.items():
        if name not in _GROUPS:
            yield name, value
        elif type(value) is not dict:
            raise ConfigurationError(f"{where}.{name}: expected object, got {value!r}")
        else:
            for inner, item in value.items():
                yield f"{name}.{inner}", item


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
        flat = {key.path: key.default for key in POLICY_KEYS}
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
