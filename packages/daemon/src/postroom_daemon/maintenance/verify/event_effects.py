"""What single events tell of a message, a queue or a claim by themselves, whatever came before them."""

from __future__ import annotations

from typing import Final

from postroom_common.events import Event, EventType
from postroom_common.protocol import State

from ...model.lifecycle import states_before
from ...model.records import claim_fact

_LEASE: Final = frozenset({"lease_id", "consumer_id", "holder_uid", "lease_until", "leased_at"})
_STATE: Final = frozenset({"state"})
#: What an event tells of a message, and with ``dueEngineMs`` when it is due. That it is leased does not tell its state:
#: a dead letter stays dead.
_TELLS: Final[dict[str, frozenset[str]]] = {
    EventType.LEASED: _LEASE | {"attempt"},
    EventType.LEASE_EXTENDED: frozenset({"lease_until"}),
    EventType.RELEASED: _STATE | _LEASE | {"attempt"},
    EventType.RETRIED: _STATE | _LEASE,
    EventType.DIED: _STATE | _LEASE | {"dead_at", "reason", "phase"},
    EventType.REPROCESSED: _STATE | _LEASE | {"attempt", "dead_at", "expires", "reason", "phase"},
    EventType.HELD: _STATE,
    EventType.UNHELD: _STATE,
    EventType.QUARANTINED: _STATE | {"phase"},
    EventType.RETARGETED: frozenset({"target", "fallback"}),
    EventType.RESCHEDULED: _STATE,
    EventType.MOVED: frozenset({"expires", "claim"}),
}
#: What an event tells of a queue.
QUEUE_TELLS: Final = {
    EventType.QUEUE_CREATED: "created",
    EventType.POLICY_SET: "override",
    EventType.PAUSED: "",
    EventType.RESUMED: "",
}


def told_of_message(event: Event) -> frozenset[str]:
    """The changing facts of its message that an event tells."""
    due = frozenset({"due"}) if "dueEngineMs" in event else frozenset()
    return _TELLS.get(event["type"], frozenset()) | due


def states_possible(event: Event) -> list[State | None]:
    """The states in which an event may have found its message, the usual one first."""
    if event["type"] == EventType.RELEASED:  # it says of what it is the end
        return [State.DEAD if event.get("state") == State.DEAD else State.INFLIGHT]
    return states_before(EventType(event["type"]))


def claims_ended(event: Event) -> list[str]:
    """The facts of the claims that an event ends."""
    if event["type"] == EventType.CLAIMS_ENDED:
        return [claim_fact(queue, claim) for queue, claim in event["claims"]]
    claim = event.get("claim")
    return [claim_fact(event["queue"], claim)] if type(claim) is str else []
