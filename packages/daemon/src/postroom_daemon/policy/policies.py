"""The policy in force for a queue, which comes from seven layers. A later layer overrides an earlier one: the built-in
defaults, ``policyDefaults``, the first entry of the configuration whose pattern matches the queue's name, the entry
with exactly its name, what came with the request that created the queue, the first policy pattern set at run time that
matches, and what was set for the queue at run time."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from postroom_common.errors import CommandError
from postroom_common.events import Event, EventType
from postroom_common.policy import Layer, Policy, explained
from postroom_common.protocol import ErrorCode

from ..model.observer import Observer
from ..model.records import NO_LAYER, QueueRecord
from .schema import JsonSchema, NamePattern, Pattern
from .schema_rules import MessageRules

log = logging.getLogger(__name__)

Check = MessageRules | JsonSchema
T = TypeVar("T")
#: Maximum number of compiled schemas in the cache.
_SCHEMAS_LIMIT: Final = 256
#: Maximum number of queues in a cache: there may be any number of queues, and clients may name queues that do not
#: exist.
_QUEUES_LIMIT: Final = 4096


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """The configuration of one queue: the keys of its policy that are set, and its message schema."""

    policy: Layer
    schema: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class PatternConfig:
    """The configuration of all queues whose whole name matches ``pattern``; ``text`` is the pattern as it was
    written."""

    text: str
    pattern: Pattern
    policy: Layer
    schema: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class PolicyPattern:
    """A policy, set at run time, of all queues in whose name ``pattern`` is found."""

    pattern: NamePattern
    policy: Layer


def compiled_policy_patterns(stored: Sequence[dict[str, Any]]) -> tuple[PolicyPattern, ...]:
    """Policy patterns as they are stored: each with ``pattern`` and ``policy``, a layer. One that cannot be compiled,
    which another version accepted, is left out and logged."""
    patterns = []
    for one in stored:
        try:
            patterns.append(PolicyPattern(NamePattern(one["pattern"]), one["policy"]))
        except ValueError as error:
            log.error("a policy pattern is ignored: %s", error)
    return tuple(patterns)


def first_match(patterns: Sequence[PatternConfig], queue: str) -> PatternConfig | None:
    """The first pattern that matches ``queue``, in the order of the file; None if none does."""
    for one in patterns:
        if one.pattern.matches_whole(queue):
            return one
    return None


@dataclass(frozen=True, slots=True)
class _Configured:
    """The configuration of all queues, of those of one pattern, or of one queue. Each layer has its origin."""

    layers: tuple[tuple[dict[str, str], Layer], ...]
    applied: tuple[Policy, bool]
    rules: MessageRules | None


class Policies:
    """The configured layers, and bounded caches of the resulting policies. Queues without an override share one policy
    for each pattern."""

    def __init__(
        self, defaults: Layer, queues: Mapping[str, QueueConfig], patterns: Sequence[PatternConfig] = ()
    ) -> None:
        self._queues, self._patterns = queues, patterns
        layers = [defaults, *(one.policy for one in queues.values()), *(one.policy for one in patterns)]
        self._configured_dlq_names = _dlq_names(layers)
        self.dlq_names = self._configured_dlq_names
        """The dead-letter addresses of the configuration and of the policy patterns: no queue may have one of these
        names."""
        self._general = _configured((({"layer": "policyDefaults"}, defaults),), None)
        self._of_pattern = {one.text: self._over(self._general, "pattern", one.text, one) for one in patterns}
        self._is_configured = bool(queues or patterns)
        self._of_name: dict[str, _Configured] = {}
        self._matched: dict[str, _Configured] = {}
        self._schemas: dict[int, tuple[dict[str, Any], JsonSchema]] = {}
        self.use_policy_patterns(())

    def use_policy_patterns(self, patterns: Sequence[PolicyPattern]) -> None:
        """Apply other policy patterns. Never call this while a request is decided."""
        self.policy_patterns = patterns
        self.dlq_names = self._configured_dlq_names | _dlq_names([one.policy for one in patterns])
        self._is_uniform = not (self._is_configured or patterns)
        self._in_force: dict[str, _Configured] = {}
        self._over_patterns: dict[tuple[int, int], _Configured] = {}
        self._own: dict[str, tuple[Layer, Layer, tuple[Policy, bool]]] = {}

    def names(self, queue: str) -> bool:
        """Whether the configuration names a queue; a pattern does not."""
        return queue in self._queues

    def configured_keys(self, queue: str) -> frozenset[str]:
        """The keys that the configuration sets for a queue, by whichever layer."""
        return frozenset(path for _, layer in self._configured(queue).layers for path in layer)

    def effective(self, queue: str, record: QueueRecord | None) -> Policy:
        """The policy of ``queue``, which need neither be configured nor exist."""
        return self.applied(queue, record)[0]

    def applied(self, queue: str, record: QueueRecord | None) -> tuple[Policy, bool]:
        """As ``effective``, and whether that lets ``queue`` accept every message."""
        if record is None or not (record.override or record.created_with):
            return self._general.applied if self._is_uniform else self._without_own(queue).applied
        created, override = record.created_with, record.override
        cached = self._own.get(queue)
        if cached and cached[0] is created and cached[1] is override:
            return cached[2]
        policy = self.resulting(queue, override, created)
        applied = (policy, _accepts_anything(policy, self._configured(queue).rules))
        _cache(self._own, queue, (created, override, applied))
        return applied

    def resulting(self, queue: str, override: Layer, created: Layer = NO_LAYER) -> Policy:
        """The policy of ``queue``, which was created with the layer ``created``, with ``override`` as its layer set at
        run time."""
        return Policy.from_layers(*(layer for _, layer in self._layers(queue, override, created)))

    def explain(self, queue: str, override: Layer, created: Layer = NO_LAYER) -> dict[str, dict[str, Any]]:
        """The value in force of each key, and the ``layer`` that it comes from, with its ``pattern`` or ``name``."""
        return explained(self._layers(queue, override, created))

    def checks(self, queue: str, policy: Policy) -> list[Check]:
        """The validators of a queue's bodies. Raises ``CommandError`` for an unusable schema, which another version
        accepted."""
        rules = self._configured(queue).rules
        checks: list[Check] = [rules] if rules else []
        if policy.schema:
            try:
                checks.append(self._compiled(policy.schema))
            except ValueError as error:
                text = f"the schema of queue {queue!r} cannot be used: {error}"
                raise CommandError(ErrorCode.VALIDATION_FAILED, text) from None
        return checks

    def _layers(self, queue: str, override: Layer, created: Layer) -> tuple[tuple[dict[str, str], Layer], ...]:
        match = self._policy_pattern(queue)
        by_pattern = [_origin_and_layer(self.policy_patterns[match])] if match is not None else []
        own = ({"layer": "created"}, created), *by_pattern, ({"layer": "override"}, override)
        return (*self._configured(queue).layers, *own)

    def _policy_pattern(self, queue: str) -> int | None:
        """The index of the first policy pattern that matches; None if none does."""
        return next((at for at, one in enumerate(self.policy_patterns) if one.pattern.matches(queue)), None)

    def _without_own(self, queue: str) -> _Configured:
        """What applies to a queue that has no layers of its own."""
        if not self.policy_patterns:
            return self._configured(queue)
        cached = self._in_force.get(queue)
        if cached is None:
            cached, match = self._configured(queue), self._policy_pattern(queue)
            if match is not None:
                base, pair = cached, (id(cached), match)
                cached = self._over_patterns.get(pair)
                if cached is None:
                    layers = (*base.layers, _origin_and_layer(self.policy_patterns[match]))
                    cached = self._over_patterns[pair] = _configured(layers, base.rules)
            _cache(self._in_force, queue, cached)
        return cached

    def _configured(self, queue: str) -> _Configured:
        if not self._is_configured:
            return self._general
        if queue in self._queues:
            cached = self._of_name.get(queue)
            if cached is None:
                base = self._by_pattern(queue)
                cached = self._of_name[queue] = self._over(base, "name", queue, self._queues[queue])
            return cached
        cached = self._matched.get(queue)
        if cached is None:
            cached = self._by_pattern(queue)
            _cache(self._matched, queue, cached)
        return cached

    def _by_pattern(self, queue: str) -> _Configured:
        match = first_match(self._patterns, queue)
        return self._of_pattern[match.text] if match else self._general

    @staticmethod
    def _over(base: _Configured, layer: str, word: str, entry: QueueConfig | PatternConfig) -> _Configured:
        rules = base.rules if entry.schema is None else MessageRules(entry.schema)
        return _configured((*base.layers, ({"layer": layer, layer: word}, entry.policy)), rules)

    def _compiled(self, schema: dict[str, Any]) -> JsonSchema:
        """The compiled schema, cached by the identity of the object: to compare schemas costs more than to use them."""
        cached = self._schemas.get(id(schema))
        if cached is None:
            if len(self._schemas) >= _SCHEMAS_LIMIT:
                del self._schemas[next(iter(self._schemas))]
            cached = self._schemas[id(schema)] = (schema, JsonSchema(schema))
        return cached[1]


class PolicyPatternsInForce(Observer):
    """Puts the policy patterns of an event in force: an observer of the fold, and a participant of transactions."""

    event_types = frozenset({EventType.POLICY_PATTERNS_SET})

    def __init__(self, policies: Policies) -> None:
        self._policies = policies
        self._before: Sequence[PolicyPattern] | None = None

    def use(self, policies: Policies) -> None:
        """Let the patterns in force be those of other policies."""
        policies.use_policy_patterns(self._policies.policy_patterns)
        self._policies = policies

    def folded(self, event: Event) -> None:
        """See ``Observer``."""
        if self._before is None:
            self._before = self._policies.policy_patterns
        self._policies.use_policy_patterns(compiled_policy_patterns(event["patterns"]))

    def commit(self) -> None:
        """See ``Participant``."""
        self._before = None

    def rollback(self) -> None:
        """See ``Participant``."""
        if self._before is not None:
            self._policies.use_policy_patterns(self._before)
            self._before = None


def _configured(layers: tuple[tuple[dict[str, str], Layer], ...], rules: MessageRules | None) -> _Configured:
    policy = Policy.from_layers(*(layer for _, layer in layers))
    return _Configured(layers, (policy, _accepts_anything(policy, rules)), rules)


def _origin_and_layer(one: PolicyPattern) -> tuple[dict[str, str], Layer]:
    return {"layer": "runtimePattern", "pattern": one.pattern.text}, one.policy


def _dlq_names(layers: Sequence[Layer]) -> frozenset[str]:
    return frozenset(layer["dlq.queue"] for layer in layers if layer.get("dlq.queue"))


def _accepts_anything(policy: Policy, rules: MessageRules | None) -> bool:
    limited = policy.max_message_bytes or policy.publish_per_sec or policy.max_messages or policy.max_bytes
    return not (limited or policy.gather_ms) and policy.deduplication == "off" and not policy.schema and rules is None


def _cache(cache: dict[str, T], queue: str, value: T) -> None:
    """Add a value to a cache, and evict the oldest one if it is full."""
    if queue not in cache and len(cache) >= _QUEUES_LIMIT:
        del cache[next(iter(cache))]
    cache[queue] = value


def override_to_wire(layer: Layer) -> dict[str, Any]:
    """A layer in the nested shape of the configuration file."""
    tree: dict[str, Any] = {}
    for path, value in layer.items():
        group, _, name = path.rpartition(".")
        (tree.setdefault(group, {}) if group else tree)[name] = value
    return tree
