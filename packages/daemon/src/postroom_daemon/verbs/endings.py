"""How messages end: what becomes of one that dies, is dropped, or is done."""

from __future__ import annotations

from typing import Any

from postroom_common.events import EventType
from postroom_common.protocol import ReasonCode

from ..context import Context, Draft
from ..records import Entry


def about(type_: EventType, entry: Entry) -> Draft:
    """An event about a message; its lease is named where it has one."""
    draft = {"type": type_, "queue": entry.queue, "key": entry.key}
    if entry.lease_id:
        draft["lease"] = entry.lease_id
    return draft


def gone(type_: EventType, entry: Entry) -> Draft:
    """An event after which the message is there no longer: its claim ends with it."""
    draft = about(type_, entry)
    if entry.claim:
        draft["claim"] = entry.claim
    return draft


def failure(entry: Entry, code: ReasonCode, reason: str) -> dict[str, Any]:
    """Why a message, or an attempt at it, has failed."""
    return {
        "reasonCode": code,
        "reasonMessage": reason,
        "attempt": entry.attempt,
        "consumerId": entry.consumer_id,
    }


def dropped(entry: Entry, code: ReasonCode, reason: str) -> list[Draft]:
    """The message is removed without having been worked on, which is counted."""
    return [gone(EventType.DROPPED, entry) | {"failure": failure(entry, code, reason)}]


def died(context: Context, entry: Entry, why: dict[str, Any]) -> list[Draft]:
    """The message is dead, or dropped where its queue keeps no dead letters. ``why`` is its ``failure``; the last event
    is its own."""
    policy = context.policies.effective(entry.queue, context.store.queue(entry.queue))
    if not policy.dlq_enabled:
        return [gone(EventType.DROPPED, entry) | {"failure": why}]
    return [about(EventType.DIED, entry) | {"failure": why}]
