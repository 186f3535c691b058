"""Which policy is in force for a queue: defaults, under the configuration's, under what was set at run time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from postroom_common.errors import CommandError
from postroom_common.policy import Layer, Policy
from postroom_common.protocol import ErrorCode

from .records import QueueRecord
from .validation_rules import MessageRules
from .validation_schema import JsonSchema

Check = MessageRules | JsonSchema
#: Schemas that are kept ready.
_SCHEMAS_LIMIT: Final = 256


class Policies:
    """The configured layers, and a cache of what they come to. ``rules`` are the message schemas of queues, in the form
    of the C++ system."""

    def __init__(
        self, defaults: Layer, configured: Mapping[str, Layer], rules: Mapping[str, dict[str, Any]] | None = None
    ) -> None:
        self._defaults = defaults
        self._configured = configured
        layers = (defaults, *configured.values())
        self.dlq_names = frozenset(layer["dlq.queue"] for layer in layers if layer.get("dlq.queue"))
        """Names that the configuration gives to dead letters: no queue may have one of them."""
        self._cache: dict[str, tuple[Layer, Policy]] = {}
        self._rules = {queue: MessageRules(schema) for queue, schema in (rules or {}).items()}
        self._schemas: dict[int, tuple[dict[str, Any], JsonSchema]] = {}

    def effective(self, queue: str, record: QueueRecord | None) -> Policy:
        """The policy of ``queue``, whether or not it is in the configuration or exists."""
        override = record.override if record else {}
        cached = self._cache.get(queue)
        if cached and cached[0] is override:
            return cached[1]
        policy = self.resulting(queue, override)
        if record:  # names that nobody made are not remembered: anyone may ask for any number of them
            self._cache[queue] = (override, policy)
        return policy

    def resulting(self, queue: str, override: Layer) -> Policy:
        """What ``override``, set at run time, comes to."""
        return Policy.from_layers(self._defaults, self._configured.get(queue, {}), override)

    def checks(self, queue: str, policy: Policy) -> list[Check]:
        """What the bodies of a queue's messages must pass. Raises ``CommandError`` for a schema that cannot be used:
        another version took it."""
        rules = self._rules.get(queue)
        checks: list[Check] = [rules] if rules else []
        if policy.schema:
            try:
                checks.append(self._compiled(policy.schema))
            except ValueError as error:
                text = f"the schema of queue {queue!r} cannot be used: {error}"
                raise CommandError(ErrorCode.VALIDATION_FAILED, text) from None
        return checks

    def _compiled(self, schema: dict[str, Any]) -> JsonSchema:
        """A schema, ready to be used. It is known again as the object that it is: comparing costs more than using."""
        known = self._schemas.get(id(schema))
        if known is None:
            if len(self._schemas) >= _SCHEMAS_LIMIT:
                del self._schemas[next(iter(self._schemas))]
            known = self._schemas[id(schema)] = (schema, JsonSchema(schema))
        return known[1]


def override_to_wire(layer: Layer) -> dict[str, Any]:
    """A layer in the nested shape of the configuration file."""
    tree: dict[str, Any] = {}
    for path, value in layer.items():
        group, _, name = path.rpartition(".")
        (tree.setdefault(group, {}) if group else tree)[name] = value
    return tree
