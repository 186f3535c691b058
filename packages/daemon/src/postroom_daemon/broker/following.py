"""What a follower does with the groups of its leader: the same journal lines, the same fold."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from postroom_common.errors import DamagedRecord, PostroomError
from postroom_common.events import Event, EventType, decode_event

from ..engine.fold import apply_new
from ..journal.journal import JournalRefused
from ..model.lifecycle import IllegalTransition
from ..platform.clock import Now
from ..stores.errors import StoreDamaged, StoreError, StoreFull
from .broker import Broker, MustRecover
from .engine_state import EngineState
from .idempotency import key_of_event

#: What the first event of a segment may be.
_BEGINS: Final = frozenset({EventType.CLOCK_MARKED, EventType.EPOCH_STARTED})


class CannotFollow(PostroomError):
    """A group does not continue this journal, or cannot be folded here; nothing was changed."""


def apply_group(broker: Broker, lines: list[bytes]) -> None:
    """Append a group of the leader to the journal, sync it, and fold it. The journal may have the beginning of it: the
    backup of a leader at work ends between two requests of a group.

    Raises ``CannotFollow``; ``JournalRefused`` or ``StoreFull`` if the disk takes nothing; and as ``run_group``.
    """
    state = broker.state
    store, journal = state.store, state.journal
    events = _read(lines, state)
    lines = lines[-len(events) :]
    last = events[-1]
    if last["engineMs"] > state.clock.now().engine:
        state.clock.resume(None, Now(last["engineMs"], last["wallMs"]))
    store.begin()
    try:
        apply_new(events, store, state.observers)
        if journal.segment is None or (journal.wants_roll() and events[0]["type"] in _BEGINS):
            journal.roll()
        broker.make_space(events, sum(map(len, lines)))
        places = journal.append(lines, last["id"])
    except StoreDamaged:
        raise
    except (JournalRefused, StoreFull):
        _roll_back(state)
        raise
    except (StoreError, IllegalTransition) as error:
        _roll_back(state)
        raise CannotFollow(f"event {events[0]['id']} or one of its group cannot be folded: {error}") from error
    journal.sync()
    try:
        store.commit()
    except StoreDamaged:
        raise
    except StoreError as error:
        raise MustRecover(f"{error}; the journal has the group") from error
    _remember(state, events, places)
    broker.end_uncertainty()
    state.vitals.count_group(0, events, state.clock.now())


def _roll_back(state: EngineState) -> None:
    state.store.rollback()
    for participant in reversed(state.participants):
        participant.rollback()


def _read(lines: list[bytes], state: EngineState) -> list[Event]:
    """The events of the lines that the journal does not have. Raises ``CannotFollow`` unless they are a group that
    continues the journal."""
    try:
        events = [decode_event(line) for line in lines]
    except DamagedRecord as error:
        raise CannotFollow(f"a group that is damaged: {error}") from error
    if not events:
        raise CannotFollow("a group without events")
    first, last, expected = events[0], events[-1], state.journal.last_id + 1
    there = expected - first["id"]  # how many of them the journal has
    dense = all(after["id"] == before["id"] + 1 for before, after in pairwise(events))
    is_whole = dense and last["id"] == last["grp"] and last.get("gn", 1) == len(events)
    if not (is_whole and 0 <= there < len(events)):
        raise CannotFollow(f"events {first['id']} to {last['id']} are no group that goes on with event {expected}")
    if first["epoch"] < state.epoch:
        raise CannotFollow(f"event {first['id']} is of epoch {first['epoch']}, and this journal of {state.epoch}")
    roots = {event["root"] for event in events if "root" in event}
    if state.root_id and roots - {state.root_id}:
        raise CannotFollow(f"a group of root {', '.join(roots)}, and this is {state.root_id}")
    if there and state.journal.event(expected - 1) != events[there - 1]:
        raise CannotFollow(f"event {expected - 1} of this node is another one: this node must be seeded")
    return events[there:]


def _remember(state: EngineState, events: list[Event], places: list[int]) -> None:
    """What the broker remembers of a group that it has made durable."""
    begin, known = 0, dict[bytes, int]()
    for at, event in enumerate(events):
        if event["id"] == event["req"]:
            key = key_of_event(event)
            if key:
                known[key] = places[begin]
            begin = at + 1
        if event["type"] == EventType.EPOCH_STARTED:
            state.root_id, state.epoch = event["root"], event["epoch"]
            state.journal.end_mark.close()
            state.journal.end_mark.open(state.root_id, state.epoch, events[-1]["id"])
    if known:
        state.idempotency.remember(known)
    state.is_draining = state.context = None
    for commit in state.commits:
        commit()
