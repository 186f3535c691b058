"""apply: turns an event into operations on the store. State changes in no other way.

The fold decides nothing: every number is in the event. An event at or below ``store.applied`` was applied before and is
skipped, so a replay may start anywhere before the end.
"""

from __future__ import annotations

from typing import Final

from postroom_common.events import COUNTED_TYPES, Event, EventType
from postroom_common.protocol import ReasonCode

from ..model.observer import UNOBSERVED, Observer
from ..model.records import FACT_DAMAGE, FACT_LOSSES, with_damage, with_loss
from ..stores.base import Store, StoreError
from .fold_messages import OF_MESSAGES
from .fold_queues import OF_QUEUES, note_claim, queue_of


def apply(event: Event, store: Store, observer: Observer = UNOBSERVED) -> None:
    """Fold one event into the store's open transaction, and show ``observer`` the changes.

    Raises ``NotStored`` or ``IllegalTransition`` before anything changes, and ``StoreError``; the caller must then roll
    the transaction back.
    """
    if event["id"] <= store.applied:
        return
    if event["id"] > store.applied + 1:  # record the gap: nobody can say what these events changed
        store.put_kv(FACT_LOSSES, with_loss(store.get_kv(FACT_LOSSES) or [], store.applied + 1, event["id"] - 1))
    type_ = event["type"]
    of_message, of_queue = OF_MESSAGES.get(type_), OF_QUEUES.get(type_)
    if of_message or of_queue:
        store.folding = event["id"]
        if not (store.recovery.replaying and store.recovery.already_applied(event)):
            if of_message:
                of_message(event, store, observer)
            elif of_queue:
                of_queue(event, store)
        _count_and_claim(event, store)
    elif "queue" in event:  # written by a newer version, and about something that this version stores
        raise StoreError(f"event {event['id']} is of type {event['type']!r}, unknown to this postroomd: upgrade it")
    store.applied = event["id"]
    observer.folded(event)


def apply_without_message(event: Event, store: Store) -> None:
    """Fold everything about an event except its message, which is lost: the totals of the queue, and a claim that lasts
    longer than the message. Raises ``StoreError``."""
    claim = event.get("claim")
    if type(claim) is dict and not claim.get("untilEngineMs"):
        event = {name: value for name, value in event.items() if name != "claim"}
    _count_and_claim(event, store)
    store.applied = event["id"]


def _count_and_claim(event: Event, store: Store) -> None:
    if "claim" in event:
        note_claim(event, store)
    total = _TOTALS.get(event["type"])
    if event.get("ofDead"):  # consuming a dead letter does not count as a delivery
        queue_of(event, store).used = event["engineMs"]
    elif total:
        _count(event, total, store)


def _count(event: Event, total: str, store: Store) -> None:
    """Count an event in the totals of its queue."""
    record = queue_of(event, store)
    record.total(total)
    reason = event["failure"]["reasonCode"] if "failure" in event else ""
    if event["type"] == EventType.DIED:
        record.deaths = record.deaths.with_one(event["engineMs"], event["wallMs"])
        if reason == ReasonCode.BODY_LOST:
            damage = store.get_kv(FACT_DAMAGE) or []
            store.put_kv(FACT_DAMAGE, with_damage(damage, "the body of a message is lost", 1, [event["key"]]))
    if reason == ReasonCode.MESSAGE_EXPIRED:
        record.total("expired")
    record.used = event["engineMs"]


#: The name in a queue's totals by type of event.
_TOTALS: Final[dict[str, str]] = {type_: type_.value for type_ in COUNTED_TYPES}
