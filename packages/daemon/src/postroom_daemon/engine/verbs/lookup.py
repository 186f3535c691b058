"""Lookups that several commands need: queues and messages by name, bodies, and the event of an answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from postroom_common.body import Message, decode_message
from postroom_common.errors import CommandError
from postroom_common.policy import Policy
from postroom_common.protocol import ErrorCode, State, birthplace

from ...model.facts import name_fact
from ...model.records import ORDERED, Entry, QueueRecord
from ...policy.access_rules import Verb
from ...stores.errors import BodyLost, BodyUnread
from ..context import Context, Unfolded
from ..fields import Fields

#: States that are newer than the published vectors.
_LATER: Final = (State.GATHERING, State.DRAFTING, State.DONE)
#: The phase of a lease behind ``ordered``.
_ACTIVE: Final = "active"
#: What ``ifState`` may name.
_CONDITIONS: Final = (*State, ORDERED, _ACTIVE)


def existing_queue(context: Context, name: str, verb: Verb | None) -> QueueRecord:
    """The record of a queue in which the user has a permission. Raises ``CommandError`` (ERR_FORBIDDEN,
    ERR_QUEUE_NOT_FOUND)."""
    context.require(verb, name)
    record = context.store.queue(name)
    if record is None:
        raise CommandError(ErrorCode.QUEUE_NOT_FOUND, f"there is no queue {name!r}")
    return record


def message_at(context: Context, key: str, verb: Verb) -> Entry | None:
    """A message in any state in a queue in which the user has a permission; None if it does not exist. Raises
    ``CommandError`` (ERR_FORBIDDEN), for a missing message by the queue in its key, so that nobody can tell the cases
    apart."""
    entry = find_message(context, key)
    if verb not in context.access.free:
        context.require(verb, entry.queue if entry else birthplace(key))
    return entry


def find_message(context: Context, key: str) -> Entry | None:
    """The message with a key, which may have the message's name in place of its id (``named_key``); None if it does not
    exist. Raises ``Unfolded`` if a message that was found by its name is about to change."""
    entry = context.store.get(key)
    if entry is None:
        real = context.store.facts.get(name_fact(key))
        if real in context.unfolded_keys:
            raise Unfolded(f"{real} changes")
        entry = context.store.get(real) if real else None
    return entry


def policy_of(context: Context, queue: str) -> Policy:
    """The policy in force for a queue."""
    return context.policies.effective(queue, context.store.queue(queue))


def existing_message(context: Context, key: str, verb: Verb) -> Entry:
    """The message with a key, like ``message_at``. Raises ``CommandError`` (ERR_MESSAGE_NOT_FOUND, ERR_FORBIDDEN)."""
    entry = message_at(context, key, verb)
    if entry is None:
        raise CommandError(ErrorCode.MESSAGE_NOT_FOUND, f"no message has the key {key!r}")
    return entry


def named_states(states: Iterable[State]) -> str:
    """States for the text of an error. The published vectors have these texts, without the states that came later."""
    return ", ".join(state for state in states if state not in _LATER)


def check_state(entry: Entry, wanted: str) -> None:
    """Raise ``CommandError`` unless a message is in the ``wanted`` state, or in that phase of its lease ("": any):
    ERR_BAD_STATE, and ERR_INVALID_REQUEST for what is neither."""
    if wanted and wanted not in _CONDITIONS:
        raise CommandError(ErrorCode.INVALID_REQUEST, f"ifState must be one of {', '.join(_CONDITIONS)}")
    phase = (entry.phase or _ACTIVE) if entry.state is State.INFLIGHT else ""
    if wanted not in ("", entry.state, phase):
        raise CommandError(ErrorCode.BAD_STATE, f"{entry.key} is {phase or entry.state}, and not {wanted}")


def check_payload_as(fields: Fields) -> None:
    """Raise ``CommandError`` for an unknown form of a delivery."""
    if fields["payloadAs"] not in ("text", "value", "none"):
        raise CommandError(ErrorCode.INVALID_REQUEST, "payloadAs must be text, value or none")


def message_of(context: Context, entry: Entry) -> Message | None:
    """The body and headers of a message; None if they are lost or cannot be read."""
    try:
        return decode_message(context.store.bodies.message(entry))
    except (BodyLost, BodyUnread):
        return None


def as_of(context: Context) -> dict[str, Any]:
    """The event and the engine time to which an answer refers."""
    return {"asOfEvent": context.store.applied, "engineNowMs": context.now.engine}
