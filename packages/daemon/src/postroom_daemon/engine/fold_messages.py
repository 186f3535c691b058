"""The fold of events about single messages. See ``fold``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from postroom_common.events import COMMON_FIELDS, Event, EventType, raw_json
from postroom_common.protocol import State

from ..model.lifecycle import check_transition
from ..model.observer import Observers
from ..model.principal import stored_account
from ..model.records import ORDERED, BodyReference, Entry, QueueRecord, history_fact, part_fact, with_failure
from ..stores.base import ENDED, Store
from ..stores.errors import NotStored
from ..stores.gathering import note_gathering_message, put_part
from .fold_queues import end_claim, queue_of

#: Used for every message, and slow to look up in their classes.
_PUBLISHED, _LEASED = EventType.PUBLISHED, EventType.LEASED
_READY, _DELAYED, _GATHERING = State.READY, State.DELAYED, State.GATHERING
_INFLIGHT, _DEAD, _DONE = State.INFLIGHT, State.DEAD, State.DONE
#: Number of fields of the event of a message without options: those of every event, ``queue``, ``key`` and the body;
#: and ``by``, if it is the last event of a request.
_PLAIN_FIELDS: Final = len(COMMON_FIELDS) + 3


def _published(event: Event, store: Store, observers: Observers) -> None:
    engine = event["engineMs"]
    entry = Entry(event["key"], event["queue"], _READY, 0, event["id"], event["wallMs"], engine)
    if len(event) > _PLAIN_FIELDS + ("by" in event):
        _set_options(entry, event)
        check_transition(None, _PUBLISHED, entry.state)
    try:
        _insert(entry, event, store)
    except NotStored:  # nothing was changed
        queue_of(event, store)
        _insert(entry, event, store)
    observers.published(entry)
    if entry.state is _GATHERING:
        note_gathering_message(event, store)


def _part_appended(event: Event, store: Store, observers: Observers) -> None:
    entry, before = _move(event, store, observers, None, stays=True)
    size = put_part(event, store)
    entry.parts = event["part"]
    entry.size += size
    store.queue_for_update(entry.queue).bytes += size
    store.update(entry, before)
    observers.grown(entry, size)


def _insert(entry: Entry, event: Event, store: Store) -> None:
    """Store a new message with its body. Raises ``NotStored`` if its queue does not exist."""
    if "message" in event:
        envelope = raw_json(event["message"])
        entry.size = len(envelope)
        store.insert(entry, envelope)
    else:
        reference = BodyReference.from_json(event["body"])
        entry.size = reference.length
        store.bodies.insert(entry, reference)


def _set_options(entry: Entry, event: Event) -> None:
    """Set the optional fields of a new message."""
    entry.due = event.get("dueEngineMs", 0)
    if entry.due > entry.created:
        entry.state = _GATHERING if "gathering" in event else _DELAYED
    entry.priority = event.get("priority", 0)
    entry.target = event.get("target", "")
    entry.expires = event.get("expiresEngineMs", 0)
    entry.fallback = event.get("fallbackEngineMs", 0)
    entry.due_wall = event.get("deliverAtMs", 0)
    entry.order_key = event.get("orderingKey", "")
    entry.claim = _claim_while_present(event)
    entry.publisher_uid = str(event.get("publisher", ""))
    entry.retry_limit = event.get("retryLimit", 0)


def _leased(event: Event, store: Store, observers: Observers) -> None:
    entry = _stored(event, store).copy()
    before = entry.state
    if before is not _DEAD:  # a leased dead letter stays dead
        entry.state = _INFLIGHT
    check_transition(before, _LEASED, entry.state)
    entry.lease_id = event["lease"]
    entry.consumer_id = event["consumer"]
    entry.holder_uid = stored_account(event)
    entry.lease_until = event["untilEngineMs"]
    entry.leased_at = event["engineMs"]
    entry.attempt = event["attempt"]
    if "phase" in event:
        entry.phase = event["phase"]
    store.update(entry, before)
    if entry.state is _INFLIGHT:
        observers.leased(entry)


def _extended(event: Event, store: Store, observers: Observers) -> None:
    entry, before = _move(event, store, observers, None, stays=True)
    entry.lease_until = event["untilEngineMs"]
    store.update(entry, before)


def _activated(event: Event, store: Store, observers: Observers) -> None:
    entry, before = _move(event, store, observers, None, stays=True)
    if entry.phase:
        observers.activated(entry)
    entry.phase = ""
    entry.attempt = event["attempt"]
    entry.lease_until = event["untilEngineMs"]
    store.update(entry, before)


def _kept(event: Event, store: Store, observers: Observers) -> None:
    entry, before = _move(event, store, observers, _DONE)
    entry.dead_at = event["engineMs"]
    _end_lease(entry)
    _keep(entry, event, before, store, observers)
    store.update(entry, before)


def _keep(entry: Entry, event: Event, before: State, store: Store, observers: Observers) -> None:
    """Remove what its event does not keep of a message: the parts of its body, if it keeps only headers."""
    if event["keep"] != "headers":
        return
    size = 0
    for number in range(1, entry.parts + 1):
        name = part_fact(entry.key, number)
        part = store.get_kv(name)
        if part is not None:
            size += len(raw_json(part))
            store.put_kv(name, None)
    entry.parts = 0
    entry.size -= size
    if before not in ENDED:
        store.queue_for_update(entry.queue).bytes -= size
    observers.grown(entry, -size)


def _ended(event: Event, store: Store, observers: Observers) -> None:
    if "keep" in event:
        _kept(event, store, observers)
        return
    entry = _stored(event, store)
    before = _step(entry, event, observers, None)
    if before is _DEAD:
        _count_reason(entry, -1, store)
    store.delete(entry, before)
    observers.removed(entry)
    if entry.failures:
        store.put_kv(history_fact(entry.key), None)
    for number in range(1, entry.parts + 1):
        store.put_kv(part_fact(entry.key, number), None)


def _released(event: Event, store: Store, observers: Observers) -> None:
    entry, before = _move(event, store, observers, State.DEAD if event.get("state") == State.DEAD else State.READY)
    entry.attempt = event["attempt"]
    if "returnTo" in event:  # the end; else it returns to its place
        entry.returned_seq = event["id"]
    if entry.phase == ORDERED:
        entry.phase = ""
    _end_lease(entry)
    store.update(entry, before)


def _retried(event: Event, store: Store, observers: Observers) -> None:
    entry, before = _move(event, store, observers, State.DELAYED)
    entry.due = event["dueEngineMs"]
    entry.attempt = event.get("attempt", entry.attempt)
    if "returnTo" in event:
        entry.returned_seq = event["id"]
    _fail(entry, event, store)
    store.update(entry, before)


def _died(event: Event, store: Store, observers: Observers) -> None:
    entry, before = _move(event, store, observers, State.DEAD)
    if before is _DEAD:
        _count_reason(entry, -1, store)
    entry.dead_at = event["engineMs"]
    entry.reason = str(event["failure"]["reasonCode"])
    entry.phase = event.get("phase", "")
    _fail(entry, event, store)
    _count_reason(entry, 1, store)
    if "keep" in event:
        _keep(entry, event, before, store, observers)
    store.update(entry, before)


def _reprocessed(event: Event, store: Store, observers: Observers) -> None:
    entry, before = _move(event, store, observers, State.READY)
    _count_reason(entry, -1, store)
    entry.attempt = 0
    entry.dead_at = 0
    entry.expires = event.get("expiresEngineMs", 0)
    entry.reason = entry.phase = ""
    if "returnTo" in event:
        entry.returned_seq = event["id"]
    _end_lease(entry)
    _place(entry, event, before, store)


def _held(event: Event, store: Store, observers: Observers) -> None:
    entry, before = _move(event, store, observers, State.HELD)
    store.update(entry, before)


def _unheld(event: Event, store: Store, observers: Observers) -> None:
    entry, before = _move(event, store, observers, State.DELAYED if "dueEngineMs" in event else State.READY)
    entry.due = event.get("dueEngineMs", entry.due)
    store.update(entry, before)


def _moved(event: Event, store: Store, observers: Observers) -> None:
    entry, before = _move(event, store, observers, None, stays=True)
    entry.expires = event.get("expiresEngineMs", 0)
    _place(entry, event, before, store)


def _place(entry: Entry, event: Event, before: State, store: Store) -> None:
    """Update an entry, and move it to another queue if its event names one."""
    target = event.get("to", entry.queue)
    if target == entry.queue:
        store.update(entry, before)
        return
    if store.queue(target) is None:
        store.add_queue(QueueRecord(name=target, created_wall=event["wallMs"]))
    source, entry.queue = entry.queue, target
    if entry.claim:  # the claim belongs to the queue that the message leaves, and moving makes no new one
        end_claim(source, entry.claim, entry.key, store)
        entry.claim = ""
    store.move(entry, source, before)
    store.queue_for_update(target).used = event["engineMs"]


def _retargeted(event: Event, store: Store, observers: Observers) -> None:
    entry, before = _move(event, store, observers, None, stays=True)
    entry.target = ""
    entry.fallback = 0
    store.update(entry, before)


def _rescheduled(event: Event, store: Store, observers: Observers) -> None:
    entry, before = _move(event, store, observers, None, stays=True)
    entry.due = event["dueEngineMs"]
    store.update(entry, before)


def _quarantined(event: Event, store: Store, observers: Observers) -> None:
    entry, before = _move(event, store, observers, State.DEAD)
    entry.phase = event["phase"]
    store.update(entry, before)


def _claim_while_present(event: Event) -> str:
    """The claim of an event that ends with the message; '' if there is none."""
    claim = event.get("claim")
    return claim["name"] if claim and not claim.get("untilEngineMs") else ""


def _stored(event: Event, store: Store) -> Entry:
    """The message of an event, for reading only. Raises ``NotStored``."""
    entry = store.get(event["key"])
    if entry is None:
        raise NotStored(f"event {event['id']} names {event['key']}, which is not stored")
    return entry


def _move(
    event: Event, store: Store, observers: Observers, after: State | None, stays: bool = False
) -> tuple[Entry, State]:
    """The message of an event, to be changed, in its new state (unchanged if it ``stays``), and its previous state."""
    entry = _stored(event, store).copy()
    return entry, _step(entry, event, observers, entry.state if stays else after)


def _step(entry: Entry, event: Event, observers: Observers, after: State | None) -> State:
    """Set the new state of the message of an event; None: it is about to be removed. Returns the previous one."""
    before = entry.state
    check_transition(before, event["type"], after)
    if before is _INFLIGHT and after is not _INFLIGHT:
        observers.lease_ended(entry)
    if after is not None:
        entry.state = after
    return before


def _count_reason(entry: Entry, by: int, store: Store) -> None:
    """Change the number of its queue's dead letters with this reason."""
    reasons = store.queue_for_update(entry.queue).reasons
    reasons[entry.reason] = reasons.get(entry.reason, 0) + by
    if reasons[entry.reason] <= 0:
        del reasons[entry.reason]


def _end_lease(entry: Entry) -> None:
    entry.lease_id = entry.consumer_id = entry.holder_uid = ""
    entry.lease_until = entry.leased_at = 0


def _fail(entry: Entry, event: Event, store: Store) -> None:
    """Add the failure of an attempt to the history, and end the lease."""
    history = store.get_kv(history_fact(entry.key)) or [] if entry.failures else []
    history = with_failure(history, event)
    store.put_kv(history_fact(entry.key), history)
    entry.failures = len(history)
    _end_lease(entry)


#: The fold of each type of event about a message.
OF_MESSAGES: Final[dict[str, Callable[[Event, Store, Observers], None]]] = {
    EventType.PUBLISHED: _published,
    EventType.PART_APPENDED: _part_appended,
    EventType.LEASED: _leased,
    EventType.LEASE_EXTENDED: _extended,
    EventType.ACTIVATED: _activated,
    EventType.ACKED: _ended,
    EventType.RELEASED: _released,
    EventType.RETRIED: _retried,
    EventType.DIED: _died,
    EventType.DROPPED: _ended,
    EventType.REPROCESSED: _reprocessed,
    EventType.HELD: _held,
    EventType.UNHELD: _unheld,
    EventType.MOVED: _moved,
    EventType.RETARGETED: _retargeted,
    EventType.RESCHEDULED: _rescheduled,
    EventType.QUARANTINED: _quarantined,
}
