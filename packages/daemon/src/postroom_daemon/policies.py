"""Which policy is in force for a queue: defaults, under the configuration's, under what was set at run time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from postroom_common.policy import Layer, Policy

from .records import QueueRecord


class Policies:
    """The configured layers, and a cache of what they come to."""

    def __init__(self, defaults: Layer, configured: Mapping[str, Layer]) -> None:
        self._defaults = defaults
        self._configured = configured
        layers = (defaults, *configured.values())
        self.dlq_names = frozenset(layer["dlq.queue"] for layer in layers if layer.get("dlq.queue"))
        """Names that the configuration gives to dead letters: no queue may have one of them."""
        self._cache: dict[str, tuple[Layer, Policy]] = {}

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


def override_to_wire(layer: Layer) -> dict[str, Any]:
    """A layer in the nested shape of the configuration file."""
    tree: dict[str, Any] = {}
    for path, value in layer.items():
        group, _, name = path.rpartition(".")
        (tree.setdefault(group, {}) if group else tree)[name] = value
    return tree
