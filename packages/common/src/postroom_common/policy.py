"""Queue policies: how layers override each other, and what a policy says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .errors import ConfigurationError
from .policy_keys import POLICY_KEYS
from .protocol import PIPE_TARGETS_LIMIT, queue_name_problem
from .settings import flatten

_BY_PATH: Final = {key.key: key for key in POLICY_KEYS}

#: A layer: the keys that it sets, by dotted path.
Layer = dict[str, Any]


def read_layer(policy: Mapping[str, Any], where: str, warn: Callable[[str], None]) -> Layer:
    """Check a policy's JSON object, and flatten it to a layer.

    ``where`` names the object in error texts. Out-of-range values are corrected and reported to ``warn``.
    Raises ``ConfigurationError`` for an unknown key or a wrong type, naming the key and the expected type.
    """
    layer: Layer = {}
    for path, value in flatten(policy, _BY_PATH, f"{where}.").items():
        layer[path] = _BY_PATH[path].check(value, f"{where}.{path}", warn)
    problem = queue_name_problem(layer.get("dlq.queue") or "unset")
    if problem:
        raise ConfigurationError(f"{where}.dlq.queue: {problem}")
    targets = layer.get("pipe.to", [])
    if len(targets) > PIPE_TARGETS_LIMIT or len(targets) != len({*map(str, targets)}):
        raise ConfigurationError(f"{where}.pipe.to: expected at most {PIPE_TARGETS_LIMIT} different names")
    for target in targets:
        problem = queue_name_problem(target) if type(target) is str else "must be a string"
        if problem:
            raise ConfigurationError(f"{where}.pipe.to: a name {problem}")
    return layer


def without_nulls(policy: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """A policy's JSON object without its null keys, and the dotted paths of these. A null group means all its keys."""
    rest: dict[str, Any] = {}
    nulls: set[str] = set()

    def walk(node: Mapping[str, Any], prefix: str, into: dict[str, Any]) -> None:
        for name, value in node.items():
            key = prefix + name
            meant = [path for path in _BY_PATH if value is None and f"{path}.".startswith(f"{key}.")]
            if meant:
                nulls.update(meant)
            elif type(value) is dict and key not in _BY_PATH:
                walk(value, f"{key}.", into.setdefault(name, {}))
            else:
                into[name] = value

    walk(policy, "", rest)
    return rest, nulls


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy in force for a queue. Times are in milliseconds."""

    visibility_ms: int
    retry_limit: int
    backoff: str
    initial_delay_ms: int
    max_delay_ms: int
    jitter: float
    same_reason_limit: int
    return_to: str
    nack_counts: bool
    dlq_enabled: bool
    dlq_queue: str
    retention_days: float
    dlq_max_messages: int
    gather_ms: int
    ordered_ms: int
    done_keep: str
    done_retention_days: float
    done_max_messages: int
    abandon_keep: str
    draft_ms: int
    ttl_ms: int
    ttl_action: str
    target_fallback_ms: int
    oldest_every: int
    max_messages: int
    max_bytes: int
    max_message_bytes: int
    max_inflight: int
    max_inflight_per_consumer: int
    publish_per_sec: float
    overflow: str
    deduplication: str
    deduplication_ms: int
    deduplicate_content: bool
    schema: dict[str, Any]
    on_invalid: str
    measured: bool
    expire_after_idle_ms: int
    kind: str
    log_retention_ms: int
    log_retention_bytes: int
    log_keep_unread: bool
    log_segment_bytes: int
    log_expire_at_ms: int
    pipe_to: list[str]

    @classmethod
    def from_layers(cls, *layers: Layer) -> Policy:
        """The policy from the defaults and ``layers``; later layers override earlier ones.

        Initial and maximum delay are swapped if the initial one is larger, as in the C++ system.
        """
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
            jitter=flat["retry.jitter"],
            same_reason_limit=flat["retry.sameReasonLimit"],
            return_to=flat["retry.returnTo"],
            nack_counts=flat["retry.nackCounts"],
            dlq_max_messages=flat["dlq.maxMessages"],
            gather_ms=_or_never(flat["gatherWindowSec"]),
            ordered_ms=_or_never(flat["orderedSec"]),
            done_keep=flat["done.keep"],
            done_retention_days=flat["done.retentionDays"],
            done_max_messages=flat["done.maxMessages"],
            abandon_keep=flat["abandon.keep"],
            draft_ms=_or_never(flat["draftingSec"]),
            ttl_ms=_or_never(flat["ttlSec"]),
            ttl_action=flat["ttlAction"],
            target_fallback_ms=_or_never(flat["targetFallbackSec"]),
            oldest_every=flat["priority.oldestEvery"],
            max_messages=flat["limits.messages"],
            max_bytes=flat["limits.bytes"],
            max_message_bytes=flat["limits.messageBytes"],
            max_inflight=flat["limits.inflight"],
            max_inflight_per_consumer=flat["limits.inflightPerConsumer"],
            publish_per_sec=flat["limits.publishPerSec"],
            overflow=flat["limits.overflow"],
            deduplication=flat["deduplication.mode"],
            deduplication_ms=_milliseconds(flat["deduplication.windowSec"]),
            deduplicate_content=flat["deduplication.content"],
            schema=flat["validation.schema"],
            on_invalid=flat["validation.onFailure"],
            measured=flat["statistics.enabled"],
            expire_after_idle_ms=_or_never(flat["expireAfterIdleSec"]),
            kind=flat["kind"],
            log_retention_ms=_or_never(flat["log.retentionHours"] * 3600),
            log_retention_bytes=flat["log.retentionBytes"],
            log_keep_unread=flat["log.keepUnread"],
            log_segment_bytes=flat["log.segmentBytes"],
            log_expire_at_ms=flat["log.expireAtMs"],
            pipe_to=flat["pipe.to"],
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
                "jitter": self.jitter,
                "sameReasonLimit": self.same_reason_limit,
                "returnTo": self.return_to,
                "nackCounts": self.nack_counts,
            },
            "dlq": {
                "enabled": self.dlq_enabled,
                "queue": self.dlq_queue,
                "retentionDays": self.retention_days,
                "maxMessages": self.dlq_max_messages,
            },
            "gatherWindowSec": _seconds(self.gather_ms),
            "orderedSec": _seconds(self.ordered_ms),
            "done": {
                "keep": self.done_keep,
                "retentionDays": self.done_retention_days,
                "maxMessages": self.done_max_messages,
            },
            "abandon": {"keep": self.abandon_keep},
            "draftingSec": _seconds(self.draft_ms),
            "ttlSec": _seconds(self.ttl_ms),
            "ttlAction": self.ttl_action,
            "targetFallbackSec": _seconds(self.target_fallback_ms),
            "priority": {"oldestEvery": self.oldest_every},
            "limits": {
                "messages": self.max_messages,
                "bytes": self.max_bytes,
                "messageBytes": self.max_message_bytes,
                "inflight": self.max_inflight,
                "inflightPerConsumer": self.max_inflight_per_consumer,
                "publishPerSec": self.publish_per_sec,
                "overflow": self.overflow,
            },
            "deduplication": {
                "mode": self.deduplication,
                "windowSec": _seconds(self.deduplication_ms),
                "content": self.deduplicate_content,
            },
            "validation": {"schema": self.schema, "onFailure": self.on_invalid},
            "statistics": {"enabled": self.measured},
            "expireAfterIdleSec": _seconds(self.expire_after_idle_ms),
            "kind": self.kind,
            "log": {
                "retentionHours": _hours(self.log_retention_ms),
                "retentionBytes": self.log_retention_bytes,
                "keepUnread": self.log_keep_unread,
                "segmentBytes": self.log_segment_bytes,
                "expireAtMs": self.log_expire_at_ms,
            },
            "pipe": {"to": self.pipe_to},
        }


def explained(layers: Sequence[tuple[dict[str, str], Layer]]) -> dict[str, dict[str, Any]]:
    """For each key the ``value`` in force, and the origin of the layer that set it. ``layers`` are pairs of origin and
    layer. The origin of keys that no layer sets is the layer ``default``."""
    from_: dict[str, dict[str, str]] = {key.key: {"layer": "default"} for key in POLICY_KEYS}
    stated: Layer = {key.key: key.default for key in POLICY_KEYS}
    for origin, layer in layers:
        stated |= layer
        from_ |= dict.fromkeys(layer, origin)
    initial, longest = "retry.initialDelaySec", "retry.maxDelaySec"
    if stated[initial] > stated[longest]:
        from_[initial], from_[longest] = from_[longest], from_[initial]
    tree = Policy.from_layers(stated).to_wire()
    return {path: {"value": value_at(tree, path), **origin} for path, origin in from_.items()}


def value_at(tree: dict[str, Any], path: str) -> Any:
    """The value at a dotted path of a policy in the shape of the configuration file."""
    group, _, name = path.rpartition(".")
    return (tree[group] if group else tree)[name]


def dlq_name(queue: str, policy: Policy) -> str:
    """The dead-letter address of a queue."""
    return policy.dlq_queue or f"{queue}.dlq"


def _or_never(seconds: float) -> int:
    """Seconds as milliseconds; 0, which means never, stays 0."""
    return _milliseconds(seconds) if seconds else 0


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _hours(milliseconds: int) -> float:
    whole, rest = divmod(milliseconds, 3600 * 1000)
    return milliseconds / (3600 * 1000) if rest else whole


def _seconds(milliseconds: int) -> float:
    whole, rest = divmod(milliseconds, 1000)
    return milliseconds / 1000 if rest else whole
