"""Messages of the daemon as WebSocket MQ's clients see them."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from postroom_common.protocol import ReasonCode, State
from postroom_common.websocket_mq import MqState

from .rpc import encode, loads

#: The slot in which a message is shown that has no named parts, because it was published otherwise.
BODY_SLOT: Final = "body"
JSON_TYPE: Final = "application/json"
#: The phase of a lease that was not activated yet.
ORDERED: Final = "ordered"


#: The daemon's states of the messages that are in a state; of dead letters and leases only some.
STATES: Final[Mapping[MqState, tuple[State, ...]]] = {
    MqState.DRAFTING: (State.DRAFTING,),
    MqState.WAITING: (State.READY, State.DELAYED, State.GATHERING, State.HELD),
    MqState.ORDERED: (State.INFLIGHT,),
    MqState.ACTIVE: (State.INFLIGHT,),
    MqState.FAILED: (State.DEAD,),
    MqState.COMPLETED: (State.DONE,),
    MqState.ABANDONED: (State.DEAD,),
}
#: What selects the messages in a state among the dead letters.
FILTERS: Final[Mapping[MqState, Mapping[str, str]]] = {
    MqState.FAILED: {"notReasonCode": ReasonCode.ABANDONED},
    MqState.ABANDONED: {"reasonCode": ReasonCode.ABANDONED},
}
_SIMPLE: Final = {
    State.DRAFTING: MqState.DRAFTING,
    State.DONE: MqState.COMPLETED,
    State.READY: MqState.WAITING,
    State.DELAYED: MqState.WAITING,
    State.GATHERING: MqState.WAITING,
    State.HELD: MqState.WAITING,
}


def id_of(shown: Mapping[str, Any]) -> str:
    """The id of a message: its name if it has one, which a client gave it, or else the daemon's id."""
    return str(shown.get("name") or shown["messageId"])


def state_of(shown: Mapping[str, Any]) -> MqState:
    """The state of a message, from ``state``, ``phase`` and ``reasonCode`` of an answer of the daemon."""
    state = State(shown["state"])
    if state is State.INFLIGHT:
        return MqState.ORDERED if shown.get("phase") == ORDERED else MqState.ACTIVE
    if state is State.DEAD:
        return MqState.ABANDONED if shown.get("reasonCode") == ReasonCode.ABANDONED else MqState.FAILED
    return _SIMPLE[state]


def encode_message(state: MqState, shown: Mapping[str, Any], bodies: Sequence[bytes], lease_id: str = "") -> bytes:
    """What ``getMessage`` and ``peekMessage`` return. ``lease_id`` is shown if it is given."""
    slots = b",".join(b"%b:%b" % (orjson.dumps(name), value) for name, value in sorted(_slots(shown, bodies)))
    lease = b',"leaseId":%b' % orjson.dumps(lease_id) if lease_id else b""
    priority = orjson.dumps(shown["priority"])
    return b'{"state":%d,"priority":%b,"slots":{%b}%b}' % (state, priority, slots, lease)


def _slots(shown: Mapping[str, Any], bodies: Sequence[bytes]) -> Iterator[tuple[str, bytes]]:
    """The slots that are set, with their values as JSON."""
    if shown.get("bodyLost") or not bodies:
        return
    parts = shown.get("parts")
    if parts is None:
        if bodies[0]:  # an empty one may be all that is kept of a message
            yield BODY_SLOT, _value(shown, bodies[0])
        return
    for number, (part, body) in enumerate(zip(parts, bodies, strict=True)):
        yield part.get("name", f"{BODY_SLOT}{number}"), _value(part, body)


def _value(part: Mapping[str, Any], body: bytes) -> bytes:
    """A body as JSON: as it is if it is JSON, else as a string. Bytes that are no text are in base64."""
    encoding = part.get("encoding")
    if encoding == "json":
        return body
    if encoding != "text":
        return orjson.dumps(base64.b64encode(body).decode())
    value = loads(body) if part.get("contentType") == JSON_TYPE else None
    return orjson.dumps(body.decode()) if value is None else encode(value)
