"""What a store keeps of a message and of a queue. Times are engine milliseconds unless a name says ``wall``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from postroom_common.events import Event
from postroom_common.policy import Layer
from postroom_common.protocol import HISTORY_LIMIT, State


@dataclass(slots=True)
class Entry:
    """The changing facts of one message. Its body is stored beside it and never changes.

    ``seq`` is the id of its published event: publish order. ``due`` is when a delayed message becomes ready,
    ``failures`` the JSON text of its failed attempts (a list, newest last, "" for none).
    """

    key: str
    queue: str
    state: State
    priority: int
    seq: int
    created_wall: int
    created: int
    target: str = ""
    attempt: int = 0
    due: int = 0
    lease_id: str = ""
    consumer_id: str = ""
    lease_until: int = 0
    leased_at: int = 0
    dead_at: int = 0
    failures: str = ""
    phase: str = ""


def failures_of(entry: Entry) -> list[dict[str, Any]]:
    """The failed attempts that an entry remembers, newest last."""
    failures: list[dict[str, Any]] = orjson.loads(entry.failures) if entry.failures else []
    return failures


def with_failure(entry: Entry, event: Event) -> str:
    """An entry's ``failures`` with that of an event added."""
    failure = event["failure"] | {"failedAtMs": event["wallMs"]}
    return orjson.dumps([*failures_of(entry), failure][-HISTORY_LIMIT:]).decode()


def no_counts() -> dict[str, int]:
    """Counters of an empty queue, by state."""
    return {state.value: 0 for state in State}


@dataclass(slots=True)
class QueueRecord:
    """A queue: counters by state, totals of what ever happened, pauses, and the policy set at run time."""

    name: str
    kind: str = "queue"
    created_wall: int = 0
    expires_at: int = 0
    publish_paused: bool = False
    consume_paused: bool = False
    override: Layer = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=no_counts)
    totals: dict[str, int] = field(default_factory=dict)

    def total(self, name: str) -> None:
        """Count one more of ``name`` in the totals."""
        self.totals[name] = self.totals.get(name, 0) + 1

    def to_json(self) -> dict[str, Any]:
        """The record as stored."""
        return {
            "name": self.name,
            "kind": self.kind,
            "createdMs": self.created_wall,
            "expiresAt": self.expires_at,
            "publishPaused": self.publish_paused,
            "consumePaused": self.consume_paused,
            "override": self.override,
            "counts": self.counts,
            "totals": self.totals,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> QueueRecord:
        """Read what ``to_json`` made. Raises ``KeyError`` for anything else."""
        return cls(
            name=data["name"],
            kind=data["kind"],
            created_wall=data["createdMs"],
            expires_at=data["expiresAt"],
            publish_paused=data["publishPaused"],
            consume_paused=data["consumePaused"],
            override=data["override"],
            counts=no_counts() | data["counts"],
            totals=data["totals"],
        )
