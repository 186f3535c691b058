"""What a configuration file says of queues: of one by its name, of many by a pattern of their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from postroom_common.policy import Layer

from .schema import Pattern


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """What the file says of one queue: the keys of its policy that are set, and its message schema."""

    policy: Layer
    schema: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class PatternConfig:
    """What the file says of all queues whose whole name matches ``pattern``; ``text`` is the pattern as it stands."""

    text: str
    pattern: Pattern
    policy: Layer
    schema: dict[str, Any] | None = None


def first_match(patterns: Sequence[PatternConfig], queue: str) -> PatternConfig | None:
    """The first that matches ``queue``, in the order of the file."""
    for one in patterns:
        if one.pattern.matches_whole(queue):
            return one
    return None
