"""What a verb is given and what it comes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from .access import Principal
from .clock import Now
from .ids import Ids
from .policies import Policies
from .stores.base import Store

Draft = dict[str, Any]
"""An event that has no id yet: its type and the fields of its type."""


class Vitals(Protocol):
    """What the daemon knows of itself: the answers to health and metrics, and whether there is room to publish."""

    def health(self, store: Store, now: Now) -> dict[str, Any]: ...

    def metrics(self, store: Store, now: Now) -> dict[str, Any]: ...

    def room_to_publish(self) -> bool: ...


@dataclass(slots=True)
class Decision:
    """What a command comes to: events (the answer is built from the last of them), or ``data`` for one that changes
    nothing, or a wish to wait until ``wait_until`` (engine ms) for a message."""

    drafts: list[Draft] = field(default_factory=list)
    data: dict[str, Any] | None = None
    wait_until: int | None = None


@dataclass(slots=True)
class Context:
    """What a verb may look at."""

    store: Store
    now: Now
    who: Principal
    policies: Policies
    vitals: Vitals
    ids: Ids
