"""The fold of events about messages. See ``fold``: events that are folded together have one type and one queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final

from postroom_common.events import COMMON_FIELDS, Event, EventType, raw_json
from postroom_common.protocol import State

from ..model.facts import history_fact, part_fact, with_failure
from ..model.lifecycle import check_transition
from ..model.observer import Observers
from ..model.principal import stored_account
from ..model.records import ORDERED, BodyReference, Entry, QueueRecord
from ..stores.base import ENDED, Store
from ..stores.errors import NotStored
from ..stores.gathering import note_gathering_message, put_part
from .fold_queues import end_claim, queue_of

#: Used for every message, and slow to look up in their classes.
_PUBLISHED, _LEASED = EventType.PUBLISHED, EventType.LEASED
_READY, _DELAYED, _GATHERING, _DRAFTING = State.READY, State.DELAYED, State.GATHERING, State.DRAFTING
_INFLIGHT, _DEAD, _DONE = State.INFLIGHT, State.DEAD, State.DONE
#: Number of fields of the event of a message without options: those of every event, ``queue``, ``key`` and the body;
#: and ``by``, if it is the last event of a request.
_PLAIN_FIELDS: Final = len(COMMON_FIELDS) + 3


def _published(events: Sequence[Event], store: Store, observers: Observers) -> None:
    entries: list[Entry] = []
    envelopes: list[bytes] = []
    for event in events:
        entry = Entry(event["key"], event["queue"], _READY, 0, event["id"], event["wallMs"], event["engineMs"])
        if len(event) > _PLAIN_FIELDS + ("by" in event):
            _set_options(entry, event)
            check_transition(None, _PUBLISHED, entry.state)
        if "message" in event:
            envelope = raw_json(event["message"])
            entry.size = len(envelope)
            envelopes.append(envelope)
        entries.append(entry)
    try:
        _insert(entries, envelopes, events, store)
    except NotStored:  # nothing was changed
        queue_of(events[0], store)
        _insert(entries, envelopes, events, store)
    observers.published(entries)
    for entry, event in zip(entries, events, strict=True):
        if entry.state is _GATHERING:
            note_gathering_message(event, store)


def _part_appended(event: Event, store: Store, observers: Observers) -> None:
    entry, before = _move(event, store, observers)
    size = put_part(event, store)
    entry.parts = event["part"]
    entry.size += size
    store.queue_for_update(entry.queue).bytes += size
    store.update(entry, before)
    observers.grown(entry, size)


def _part_set(event: Event, store: Store, observers: Observers) -> None:
    becomes_ready = "state" in event
    entry, before = _move(event, store, observers, _READY if becomes_ready else None)
    put_part(event, store)
    entry.unset = event["unset"]
    if becomes_ready:
        if "returnTo" in event:
            entry.returned_seq = event["id"]
        entry.expires = event.get("expiresEngineMs", 0)
        entry.fallback = event.get("fallbackEngineMs", 0)
    if not entry.unset:
        entry.claim = _claim_while_present(event)
    _resize(entry, event["bytes"], store, observers)
    store.update(entry, before)


def _body_set(event: Event, store: Store, observers: Observers) -> None:
    entry, _ = _move(event, store, observers)
    _resize(entry, event["bytes"], store, observers)
    store.replace(entry, raw_json(event["message"]))


def _resize(entry: Entry, size: int, store: Store, observers: Observers) -> None:
    """A message has ``size`` bytes from now on."""
    growth = size - entry.size
    entry.size = size
    if growth:
        if entry.state not in ENDED:
            store.queue_for_update(entry.queue).bytes += growth
        observers.grown(entry, growth)


def _insert(entries: list[Entry], envelopes: list[bytes], events: Sequence[Event], store: Store) -> None:
    """Store new messages with their bodies: ``envelopes`` of those whose events have them. Raises ``NotStored`` if
    their queue does not exist."""
    if len(envelopes) == len(entries):
        store.several.insert(entries, envelopes)
        return
    bodies = iter(envelopes)
    for entry, event in zip(entries, events, strict=True):
        store.folding = event["id"]
        if "message" in event:
            store.insert(entry, next(bodies))
        else:
            reference = BodyReference.from_json(event["body"])
            entry.size = reference.length
            store.body_files.insert(entry, reference)


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
    if "drafting" in event:
        entry.state = _DRAFTING
        entry.parts = entry.unset = event["drafting"]
    entry.name = event.get("name", "")


def _leased(events: Sequence[Event], store: Store, observers: Observers) -> None:
    entries: list[Entry] = []
    states: list[State] = []
    holder = ""
    uid: Any = None
    for event in events:
        if "uid" not in event or event["uid"] != uid:
            holder, uid = stored_account(event), event.get("uid")
        entry = _stored(event, store).copy()
        before = entry.state
        if before is not _DEAD:  # a leased dead letter stays dead
            entry.state = _INFLIGHT
        check_transition(before, _LEASED, entry.state)
        entry.lease_id = event["lease"]
        entry.consumer_id = event["consumer"]
        entry.holder_uid = holder
        entry.lease_until = event["untilEngineMs"]
        entry.leased_at = event["engineMs"]
        entry.attempt = event["attempt"]
        if "phase" in event:
            entry.phase = event["phase"]
        entries.append(entry)
        states.append(before)
    for before, run, first in _by_state(states, entries, events):
        store.folding = first["id"]
        store.several.update(run, before)
        if before is not _DEAD:
            observers.leased(run)


def _extended(event: Event, store: Store, observers: Observers) -> None:
    entry, before = _move(event, store, observers)
    entry.lease_until = event["untilEngineMs"]
    store.update(entry, before)


def _activated(event: Event, store: Store, observers: Observers) -> None:
    entry, before = _move(event, store, observers)
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
    _update_kept(entry, event, before, store, observers)


def _update_kept(entry: Entry, event: Event, before: State, store: Store, observers: Observers) -> None:
    """Update an entry, and remove what its event does not keep of the message: with ``message``, only that stays."""
    if "message" not in event:
        store.update(entry, before)
        return
    for number in range(1, entry.parts + 1):
        store.facts.put(part_fact(entry.key, number), None)
    entry.parts = entry.unset = 0
    growth, entry.size = event["bytes"] - entry.size, event["bytes"]
    if before not in ENDED:
        store.queue_for_update(entry.queue).bytes += growth
    observers.grown(entry, growth)
    store.update(entry, before)
    store.replace(entry, raw_json(event["message"]))


def _ended(events: Sequence[Event], store: Store, observers: Observers) -> None:
    gone = [event for event in events if "keep" not in event]
    if len(gone) < len(events):
        _fold_kept([event for event in events if "keep" in event], store, observers)
    if gone:
        _removed(gone, store, observers)
    store.folding = events[-1]["id"]


def _removed(events: Sequence[Event], store: Store, observers: Observers) -> None:
    entries: list[Entry] = []
    states: list[State] = []
    for event in events:
        entry = _stored(event, store)
        check_transition(entry.state, event["type"], None)
        entries.append(entry)
        states.append(entry.state)
    store.folding = events[-1]["id"]
    for before, run, _ in _by_state(states, entries, events):
        if before is _INFLIGHT:
            observers.lease_ended(run)
        elif before is _DEAD:
            for entry in run:
                _count_reason(entry, -1, store)
        store.several.delete(run, before)
        observers.removed(run)
    for entry in entries:
        if entry.failures:
            store.facts.put(history_fact(entry.key), None)
        if entry.parts:
            for number in range(1, entry.parts + 1):
                store.facts.put(part_fact(entry.key, number), None)


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
    _update_kept(entry, event, before, store, observers)


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
    entry, before = _move(event, store, observers)
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
    store.update(entry, before, source)
    store.queue_for_update(target).used = event["engineMs"]


def _retargeted(event: Event, store: Store, observers: Observers) -> None:
    entry, before = _move(event, store, observers)
    entry.target = ""
    entry.fallback = 0
    store.update(entry, before)


def _rescheduled(event: Event, store: Store, observers: Observers) -> None:
    entry, before = _move(event, store, observers)
    entry.due = event["dueEngineMs"]
    store.update(entry, before)


def _quarantined(event: Event, store: Store, observers: Observers) -> None:
    entry, before = _move(event, store, observers, State.DEAD)
    entry.phase = event["phase"]
    store.update(entry, before)


def _claim_while_present(event: Event) -> str:
    """The claim of an event that ends with the message; '' if there is none."""
    claim = event.get("claim")
    return claim.get("name", "") if claim and not claim.get("untilEngineMs") else ""


def _stored(event: Event, store: Store) -> Entry:
    """The message of an event, for reading only. Raises ``NotStored``."""
    entry = store.get(event["key"])
    if entry is None:
        raise NotStored(f"event {event['id']} names {event['key']}, which is not stored")
    return entry


def _move(event: Event, store: Store, observers: Observers, after: State | None = None) -> tuple[Entry, State]:
    """The message of an event, to be changed, in its new state (None: it stays as it is), and its previous state."""
    entry = _stored(event, store).copy()
    return entry, _step(entry, event, observers, after or entry.state)


def _step(entry: Entry, event: Event, observers: Observers, after: State) -> State:
    """Set the new state of the message of an event. Returns the previous one."""
    before = entry.state
    check_transition(before, event["type"], after)
    if before is _INFLIGHT and after is not _INFLIGHT:
        observers.lease_ended([entry])
    entry.state = after
    return before


def _by_state(
    states: list[State], entries: list[Entry], events: Sequence[Event]
) -> Sequence[tuple[State, list[Entry], Event]]:
    """Messages in runs of one state: the state, the messages, and the first event of the run."""
    first = states[0]
    if states.count(first) == len(states):
        return ((first, entries, events[0]),)
    runs = [(state, [*places]) for state, places in groupby(range(len(states)), states.__getitem__)]
    return [(state, [entries[place] for place in places], events[places[0]]) for state, places in runs]


def _each(fold: Callable[[Event, Store, Observers], None]) -> Callable[[Sequence[Event], Store, Observers], None]:
    """A fold of several events that folds one after the other."""

    def fold_each(events: Sequence[Event], store: Store, observers: Observers) -> None:
        for event in events:
            store.folding = event["id"]
            fold(event, store, observers)

    return fold_each


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
    history = with_failure(store.facts.history(entry), event)
    store.facts.put(history_fact(entry.key), history)
    entry.failures = len(history)
    _end_lease(entry)


_fold_kept: Final = _each(_kept)

#: The fold of each type of event about a message.
OF_MESSAGES: Final[dict[str, Callable[[Sequence[Event], Store, Observers], None]]] = {
    EventType.PUBLISHED: _published,
    EventType.PART_APPENDED: _each(_part_appended),
    EventType.PART_SET: _each(_part_set),
    EventType.BODY_SET: _each(_body_set),
    EventType.LEASED: _leased,
    EventType.LEASE_EXTENDED: _each(_extended),
    EventType.ACTIVATED: _each(_activated),
    EventType.ACKED: _ended,
    EventType.RELEASED: _each(_released),
    EventType.RETRIED: _each(_retried),
    EventType.DIED: _each(_died),
    EventType.DROPPED: _ended,
    EventType.REPROCESSED: _each(_reprocessed),
    EventType.HELD: _each(_held),
    EventType.UNHELD: _each(_unheld),
    EventType.MOVED: _each(_moved),
    EventType.RETARGETED: _each(_retargeted),
    EventType.RESCHEDULED: _each(_rescheduled),
    EventType.QUARANTINED: _each(_quarantined),
}
