"""Which policy is in force for a queue: five layers, each over the one before it.

The built-in defaults, ``policyDefaults``, the first entry of the configuration whose pattern matches the queue's name,
the entry with exactly its name, and what was set at run time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from postroom_common.errors import CommandError
from postroom_common.policy import Layer, Policy, explained
from postroom_common.protocol import ErrorCode

from ..model.records import QueueRecord
from .queue_config import PatternConfig, QueueConfig, first_match
from .schema import JsonSchema
from .schema_rules import MessageRules

Check = MessageRules | JsonSchema
T = TypeVar("T")
#: Schemas that are kept ready.
_SCHEMAS_LIMIT: Final = 256
#: Queues of which is remembered what was found out: there may be any number of queues, and anyone may ask for names
#: that are none.
_QUEUES_LIMIT: Final = 4096


@dataclass(frozen=True, slots=True)
class _Configured:
    """What is configured for all queues, for those of one pattern, or for one. Each layer has where it comes from."""

    layers: tuple[tuple[dict[str, str], Layer], ...]
    policy: Policy
    rules: MessageRules | None


class Policies:
    """The configured layers, and a bounded cache of what they come to: queues that were given nothing at run time
    share one policy for each pattern."""

    def __init__(
        self, defaults: Layer, queues: Mapping[str, QueueConfig], patterns: Sequence[PatternConfig] = ()
    ) -> None:
        self._queues, self._patterns = queues, patterns
        layers = [defaults, *(one.policy for one in queues.values()), *(one.policy for one in patterns)]
        self.dlq_names = frozenset(layer["dlq.queue"] for layer in layers if layer.get("dlq.queue"))
        """Names that the configuration gives to dead letters: no queue may have one of them."""
        self._general = _configured((({"layer": "policyDefaults"}, defaults),), None)
        self._of_pattern = {one.text: self._over(self._general, "pattern", one.text, one) for one in patterns}
        self._of_name: dict[str, _Configured] = {}
        self._matched: dict[str, _Configured] = {}
        self._overridden: dict[str, tuple[Layer, Policy]] = {}
        self._schemas: dict[int, tuple[dict[str, Any], JsonSchema]] = {}

    def effective(self, queue: str, record: QueueRecord | None) -> Policy:
        """The policy of ``queue``, whether or not it is in the configuration or exists."""
        override = record.override if record else {}
        if not override:
            return self._configured(queue).policy
        cached = self._overridden.get(queue)
        if cached and cached[0] is override:
            return cached[1]
        policy = self.resulting(queue, override)
        _remember(self._overridden, queue, (override, policy))
        return policy

    def resulting(self, queue: str, override: Layer) -> Policy:
        """What ``override``, set at run time, comes to."""
        return Policy.from_layers(*(layer for _, layer in self._configured(queue).layers), override)

    def explain(self, queue: str, override: Layer) -> dict[str, dict[str, Any]]:
        """Of each key: its value in force, and the ``layer`` that it comes from, with the ``pattern`` or ``name``."""
        return explained((*self._configured(queue).layers, ({"layer": "override"}, override)))

    def has_checks(self, queue: str, policy: Policy) -> bool:
        """Whether there is anything that bodies must pass."""
        return bool(policy.schema) or self._configured(queue).rules is not None

    def checks(self, queue: str, policy: Policy) -> list[Check]:
        """What the bodies of a queue's messages must pass. Raises ``CommandError`` for a schema that cannot be used:
        another version took it."""
        rules = self._configured(queue).rules
        checks: list[Check] = [rules] if rules else []
        if policy.schema:
            try:
                checks.append(self._compiled(policy.schema))
            except ValueError as error:
                text = f"the schema of queue {queue!r} cannot be used: {error}"
                raise CommandError(ErrorCode.VALIDATION_FAILED, text) from None
        return checks

    def _configured(self, queue: str) -> _Configured:
        if queue in self._queues:
            known = self._of_name.get(queue)
            if known is None:
                under = self._by_pattern(queue)
                known = self._of_name[queue] = self._over(under, "name", queue, self._queues[queue])
            return known
        if not self._patterns:
            return self._general
        known = self._matched.get(queue)
        if known is None:
            known = self._by_pattern(queue)
            _remember(self._matched, queue, known)
        return known

    def _by_pattern(self, queue: str) -> _Configured:
        found = first_match(self._patterns, queue)
        return self._of_pattern[found.text] if found else self._general

    @staticmethod
    def _over(under: _Configured, layer: str, word: str, entry: QueueConfig | PatternConfig) -> _Configured:
        rules = under.rules if entry.schema is None else MessageRules(entry.schema)
        return _configured((*under.layers, ({"layer": layer, layer: word}, entry.policy)), rules)

    def _compiled(self, schema: dict[str, Any]) -> JsonSchema:
        """A schema, ready to be used. It is known again as the object that it is: comparing costs more than using."""
        known = self._schemas.get(id(schema))
        if known is None:
            if len(self._schemas) >= _SCHEMAS_LIMIT:
                del self._schemas[next(iter(self._schemas))]
            known = self._schemas[id(schema)] = (schema, JsonSchema(schema))
        return known[1]


def _configured(layers: tuple[tuple[dict[str, str], Layer], ...], rules: MessageRules | None) -> _Configured:
    return _Configured(layers, Policy.from_layers(*(layer for _, layer in layers)), rules)


def _remember(cache: dict[str, T], queue: str, value: T) -> None:
    """Put it into the cache, where the oldest gives way."""
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
