"""apply: turns events into operations on the store. State changes in no other way.

The fold decides nothing: every number is in the event. An event at or below ``store.applied`` was applied before and is
skipped, so a replay may start anywhere before the end. The files of logs have an ``applied`` of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from postroom_common.events import COUNTED_TYPES, Event, EventType
from postroom_common.protocol import ReasonCode

from ..model.facts import FACT_DAMAGE, FACT_LOSSES, with_damage, with_loss
from ..model.observer import UNOBSERVED, Observers
from ..stores.base import Store
from ..stores.errors import NotStored, StoreError
from .fold_logs import append_to_files, append_to_record, fold_into_files
from .fold_messages import OF_MESSAGES
from .fold_queues import OF_QUEUES, note_claim, note_name, queue_of


def apply(event: Event, store: Store) -> None:
    """Fold one event into the store's open transaction.

    Raises ``NotStored`` or ``IllegalTransition`` before anything changes, and ``StoreError``; the caller must then roll
    the transaction back.
    """
    _apply([event], store, UNOBSERVED)


def apply_new(events: list[Event], store: Store, observers: Observers) -> None:
    """Fold new events, whose ids follow each other, and show ``observers`` the changes. Those of one type about
    messages of one queue, or records of one log, are folded together. Raises as ``apply``, but some may have changed
    the store."""
    at, count = 0, len(events)
    while at < count:
        first, end = events[at], at + 1
        type_ = first["type"]
        if type_ in _TOGETHER:
            queue = first["queue"]
            while end < count and events[end]["type"] == type_ and events[end]["queue"] == queue:
                end += 1
        _apply(events if end - at == count else events[at:end], store, observers)
        at = end


def _apply(events: list[Event], store: Store, observers: Observers) -> None:
    """Fold events of one type about messages of one queue or records of one log, or a single event of any type."""
    event = events[0]
    event_id, type_ = event["id"], event["type"]
    if event_id != store.applied + 1:
        if event_id <= store.applied:
            fold_into_files(event, store.logs)  # which may be behind the store
            return
        if "unused" not in event:  # record the gap: nobody can say what these events changed
            store.facts.put(FACT_LOSSES, with_loss(store.facts.get(FACT_LOSSES) or [], store.applied + 1, event_id - 1))
    of_messages = OF_MESSAGES.get(type_)
    if of_messages:
        store.folding = event_id
        recovery = store.recovery
        if not (recovery.replaying and recovery.already_applied(event)):
            of_messages(events, store, observers)
        _count(events, type_, store)
    elif type_ == EventType.APPENDED:
        store.folding = event_id
        if not (store.recovery.replaying and store.recovery.already_applied(event)):
            append_to_record(events, store)
        append_to_files(events, store.logs)
    elif type_ in OF_QUEUES:
        store.folding = event_id
        if not (store.recovery.replaying and store.recovery.already_applied(event)):
            OF_QUEUES[type_](event, store)
        fold_into_files(event, store.logs)
        if "claim" in event:
            note_claim(event, store)
    elif "queue" in event:  # written by a newer version, and about something that this version stores
        raise StoreError(f"event {event_id} is of type {type_!r}, unknown to this postroomd: upgrade it")
    store.applied = event_id + len(events) - 1
    for call in observers.by_type.get(type_, ()):
        for event in events:
            call(event)


def apply_without_message(event: Event, store: Store) -> None:
    """Fold everything about an event except its message, which is lost: the totals of the queue, and a claim that lasts
    longer than the message. Raises ``StoreError``."""
    claim = event.get("claim")
    if type(claim) is dict and not claim.get("untilEngineMs"):
        event = {name: value for name, value in event.items() if name != "claim"}
    if event["type"] in OF_MESSAGES:
        _count([event], event["type"], store)
    elif "claim" in event:
        note_claim(event, store)
    store.applied = event["id"]


def _count(events: Sequence[Event], type_: str, store: Store) -> None:
    """Count events about messages in the totals of their queue, and note their claims and names."""
    event = events[-1]
    try:
        record = store.queue_for_update(event["queue"])
    except NotStored:
        record = queue_of(event, store)
    counted = kept = 0
    for one in events:
        if "keep" in one and type_ == EventType.ACKED:
            kept += 1
        if "claim" in one:
            note_claim(one, store)
        if "name" in one:
            note_name(one, store)
        if "ofDead" not in one:  # consuming a dead letter does not count as a delivery
            counted += 1
    total = _TOTALS.get(type_)
    if not total:
        return
    record.used = event["engineMs"]
    if not counted:
        return
    totals = record.totals
    totals[total] = totals.get(total, 0) + counted
    if kept:
        record.count_kept(total, kept)
    if "failure" in event:
        reason = event["failure"]["reasonCode"]
        if type_ == EventType.DIED:
            record.deaths = record.deaths.with_one(event["engineMs"], event["wallMs"])
            if reason == ReasonCode.BODY_LOST:
                damage = store.facts.get(FACT_DAMAGE) or []
                store.facts.put(FACT_DAMAGE, with_damage(damage, "the body of a message is lost", 1, [event["key"]]))
        if reason == ReasonCode.MESSAGE_EXPIRED:
            record.total("expired")
        if reason == ReasonCode.ABANDONED:
            record.total("abandoned")
            if type_ == EventType.DIED:
                record.count_kept("abandoned")


#: Types of which several events are folded together.
_TOGETHER: Final = frozenset({EventType.PUBLISHED, EventType.LEASED, EventType.ACKED, EventType.APPENDED})
#: The name in a queue's totals by type of event.
_TOTALS: Final[dict[str, str]] = {type_: type_.value for type_ in COUNTED_TYPES}
