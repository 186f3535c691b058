"""apply: an event, turned into store primitives. The only way in which state ever changes.

It decides nothing: every number stands in the event. An event at or below ``store.applied`` has been applied and is
passed over, so replay may begin anywhere before the end.
"""

from __future__ import annotations

from collections.abc import Callable

from postroom_common.events import Event, EventType, raw_json
from postroom_common.protocol import State

from .lifecycle import check_transition
from .records import (
    FACT_CLOCK,
    FACT_EPOCH,
    FACT_LOSSES,
    BodyReference,
    Entry,
    QueueRecord,
    dlq_fact,
    history_fact,
    with_failure,
    with_loss,
)
from .stores.base import NotStored, Store, StoreError


def apply(event: Event, store: Store) -> None:
    """Fold one event into the store's open transaction.

    Raises ``NotStored`` or ``IllegalTransition`` before anything is changed, and ``StoreError``: the transaction must
    then be rolled back.
    """
    if event["id"] <= store.applied:
        return
    if event["id"] > store.applied + 1:  # nobody knows what they said: it is kept in mind that they are lacking
        store.put_fact(FACT_LOSSES, with_loss(store.fact(FACT_LOSSES) or [], store.applied + 1, event["id"] - 1))
    type_ = event["type"]
    handler = _HANDLERS.get(type_)
    if handler:
        if not store.reflects(event):
            handler(event, store)
        total = _TOTALS.get(type_)
        if total:
            _queue(event, store).total(total)
    elif "queue" in event:  # from a newer version, and about something that this version keeps
        raise StoreError(f"event {event['id']} is of type {event['type']!r}, unknown to this postroomd: upgrade it")
    store.applied = event["id"]


def _created(event: Event, store: Store) -> None:
    store.add_queue(
        QueueRecord(
            name=event["queue"],
            kind=event["kind"],
            created_wall=event["wallMs"],
            expires_at=event.get("expiresAtEngineMs", 0),
        )
    )


def _policy_set(event: Event, store: Store) -> None:
    _queue(event, store).override = event["override"]
    if event["override"].get("dlq.queue"):
        store.put_fact(dlq_fact(event["override"]["dlq.queue"]), event["queue"])


def _paused(event: Event, store: Store) -> None:
    record = _queue(event, store)
    paused = event["type"] == EventType.PAUSED
    if event["operation"] == "publish":
        record.publish_paused = paused
    else:
        record.consume_paused = paused


def _published(event: Event, store: Store) -> None:
    due = event.get("dueEngineMs", 0)
    entry = Entry(
        key=event["key"],
        queue=event["queue"],
        state=State.DELAYED if due > event["engineMs"] else State.READY,
        priority=event.get("priority", 0),
        seq=event["id"],
        created_wall=event["wallMs"],
        created=event["engineMs"],
        target=event.get("target", ""),
        due=due,
    )
    check_transition(None, EventType.PUBLISHED, entry.state)
    _queue(event, store)
    if "message" in event:
        store.insert(entry, raw_json(event["message"]))
    else:
        store.insert_kept(entry, BodyReference.from_json(event["body"]))


def _leased(event: Event, store: Store) -> None:
    entry, before = _move(event, store, State.INFLIGHT)
    entry.lease_id = event["lease"]
    entry.consumer_id = event["consumer"]
    entry.lease_until = event["untilEngineMs"]
    entry.leased_at = event["engineMs"]
    entry.attempt = event["attempt"]
    store.update(entry, before)


def _extended(event: Event, store: Store) -> None:
    entry, before = _move(event, store, State.INFLIGHT)
    entry.lease_until = event["untilEngineMs"]
    store.update(entry, before)


def _acked(event: Event, store: Store) -> None:
    entry, before = _move(event, store, None)
    _forget(entry, before, store)


def _released(event: Event, store: Store) -> None:
    entry, before = _move(event, store, State.READY)
    entry.attempt = event["attempt"]
    _end_lease(entry)
    store.update(entry, before)


def _retried(event: Event, store: Store) -> None:
    entry, before = _move(event, store, State.DELAYED)
    entry.due = event["dueEngineMs"]
    _fail(entry, event, store)
    store.update(entry, before)


def _died(event: Event, store: Store) -> None:
    entry, before = _move(event, store, State.DEAD)
    entry.dead_at = event["engineMs"]
    _fail(entry, event, store)
    store.update(entry, before)


def _dropped(event: Event, store: Store) -> None:
    entry, before = _move(event, store, None)
    _forget(entry, before, store)


def _reprocessed(event: Event, store: Store) -> None:
    entry, before = _move(event, store, State.READY)
    entry.attempt = 0
    entry.dead_at = 0
    store.update(entry, before)


def _marked(event: Event, store: Store) -> None:
    store.put_fact(FACT_CLOCK, {name: event[name] for name in ("bootId", "bootMs", "engineMs", "wallMs")})


def _epoch(event: Event, store: Store) -> None:
    store.put_fact(FACT_EPOCH, {"epoch": event["epoch"], "root": event["root"]})


def _loss_accepted(event: Event, store: Store) -> None:
    store.put_fact(FACT_LOSSES, None)


def _move(event: Event, store: Store, after: State | None) -> tuple[Entry, State]:
    """The message of an event, already in its new state, and the state it had."""
    entry = store.get(event["key"])
    if entry is None:
        raise NotStored(f"event {event['id']} names {event['key']}, which is not stored")
    before = entry.state
    check_transition(before, event["type"], after)
    if after is not None:
        entry.state = after
    return entry, before


def _queue(event: Event, store: Store) -> QueueRecord:
    """The record of an event's queue, to be changed. If the event that made it was lost to damage, this one does: what
    came after it is not to be lost as well."""
    if store.queue(event["queue"]) is None:
        store.add_queue(QueueRecord(name=event["queue"], created_wall=event["wallMs"]))
    return store.touch_queue(event["queue"])


def _end_lease(entry: Entry) -> None:
    entry.lease_id = entry.consumer_id = ""
    entry.lease_until = entry.leased_at = 0


def _fail(entry: Entry, event: Event, store: Store) -> None:
    """Add an attempt's failure to the history, and end its lease."""
    history = store.fact(history_fact(entry.key)) or [] if entry.failures else []
    history = with_failure(history, event)
    store.put_fact(history_fact(entry.key), history)
    entry.failures = len(history)
    _end_lease(entry)


def _forget(entry: Entry, before: State, store: Store) -> None:
    """The end of a message."""
    store.delete(entry, before)
    if entry.failures:
        store.put_fact(history_fact(entry.key), None)


#: What is counted in a queue's totals, and under which name.
_TOTALS: dict[str, str] = {
    type_: type_.value
    for type_ in (
        EventType.PUBLISHED,
        EventType.LEASED,
        EventType.ACKED,
        EventType.RELEASED,
        EventType.RETRIED,
        EventType.DIED,
        EventType.DROPPED,
        EventType.REPROCESSED,
    )
}

_HANDLERS: dict[str, Callable[[Event, Store], None]] = {
    EventType.EPOCH_STARTED: _epoch,
    EventType.CLOCK_MARKED: _marked,
    EventType.LOSS_ACCEPTED: _loss_accepted,
    EventType.QUEUE_CREATED: _created,
    EventType.POLICY_SET: _policy_set,
    EventType.PAUSED: _paused,
    EventType.RESUMED: _paused,
    EventType.PUBLISHED: _published,
    EventType.LEASED: _leased,
    EventType.LEASE_EXTENDED: _extended,
    EventType.ACKED: _acked,
    EventType.RELEASED: _released,
    EventType.RETRIED: _retried,
    EventType.DIED: _died,
    EventType.DROPPED: _dropped,
    EventType.REPROCESSED: _reprocessed,
}
