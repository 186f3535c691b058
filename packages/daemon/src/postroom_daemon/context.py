"""What a verb is given and what it comes to."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from .access import Principal
from .clock import Now
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


def message_id(wall_ms: int) -> str:
    """A version 7 UUID (RFC 9562): sorted by time, so that indexes grow at one end; 74 random bits."""
    stamp = (wall_ms & 0xFFFFFFFFFFFF).to_bytes(6, "big").hex()
    noise = os.urandom(10).hex()
    variant = "89ab"[int(noise[3], 16) & 3]
    return f"{stamp[:8]}-{stamp[8:]}-7{noise[:3]}-{variant}{noise[4:7]}-{noise[7:19]}"


def lease_id() -> str:
    """A version 4 UUID: a receipt that nobody can guess."""
    noise = os.urandom(16).hex()
    variant = "89ab"[int(noise[16], 16) & 3]
    return f"{noise[:8]}-{noise[8:12]}-4{noise[13:16]}-{variant}{noise[17:20]}-{noise[20:]}"


@dataclass(slots=True)
class Context:
    """What a verb may look at."""

    store: Store
    now: Now
    who: Principal
    policies: Policies
    vitals: Vitals
    new_message_id: Callable[[int], str] = message_id
    new_lease_id: Callable[[], str] = lease_id
