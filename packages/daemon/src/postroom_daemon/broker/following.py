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
from .broker import Broker
from .engine_state import EngineState
from .failures import MustRecover
from .idempotency import key_of_event

#: What the first event of a segment may be.
_BEGINS: Final = frozenset({EventType.CLOCK_MARKED, EventType.EPOCH_STARTED})


class CaughtUp(PostroomError):
    """The journal has again what the store shows: the root is to be opened again, which folds the rest."""


class CannotFollow(PostroomError):
    """A group does not continue this journal, or cannot be folded here; nothing was changed."""


def apply_groups(broker: Broker, groups: list[list[bytes]]) -> None:
    """Append groups of the leader to the journal, sync each, and fold them together. The journal may have the beginning
    of the first: the backup of a leader at work ends between two requests of a group.

    Raises ``CannotFollow``; ``JournalRefused`` or ``StoreFull`` if the disk takes nothing; ``CaughtUp``, and what is
    behind that group comes again; and as ``run_group``. The groups before the one that cannot be applied are applied.
    """
    if len(groups) > 1 and broker.state.root_id and not broker.role.shown_up_to:
        try:
            _apply(broker, groups)
        except (CannotFollow, JournalRefused, StoreFull):  # nothing was changed
            for lines in groups:
                _apply(broker, [lines])
    else:  # the first group of a new node says of which root the others must be
        for lines in groups:
            _apply(broker, [lines])


def _apply(broker: Broker, groups: list[list[bytes]]) -> None:
    state = broker.state
    store, journal = state.store, state.journal
    shown_up_to = broker.role.shown_up_to
    parts = _read_all(groups, state, 0 if shown_up_to else state.epoch)
    events = [event for part in parts for event in part]
    last = events[-1]
    if last["engineMs"] > state.clock.now().engine:
        state.clock.resume(None, Now(last["engineMs"], last["wallMs"]))
    places: list[int] = []
    store.begin()
    try:
        if not shown_up_to:
            apply_new(events, store, state.observers)
        broker.make_space(events, sum(len(line) for lines in groups for line in lines))
        for lines, part in zip(groups, parts, strict=True):
            if journal.segment is None or (journal.wants_roll() and part[0]["type"] in _BEGINS):
                journal.roll()
            places += journal.append(lines[-len(part) :], part[-1]["id"])
            journal.sync()  # each by itself: after a power cut, damage is cut off only in the last group
    except StoreDamaged:
        raise
    except (JournalRefused, StoreFull) as error:
        if places:
            raise MustRecover(f"{error}; the journal has a group that the store has not") from error
        _roll_back(state)
        raise
    except (StoreError, IllegalTransition) as error:
        _roll_back(state)
        raise CannotFollow(f"event {events[0]['id']} or one behind it cannot be folded: {error}") from error
    try:
        store.commit()
    except StoreDamaged:
        raise
    except StoreError as error:
        raise MustRecover(f"{error}; the journal has the groups") from error
    _remember(state, events, places)
    if shown_up_to:
        if last["id"] >= shown_up_to:
            raise CaughtUp(f"the journal has event {shown_up_to} again")
        return
    broker.end_uncertainty()
    for part in parts:
        state.vitals.count_group(0, part, state.clock.now())


def _roll_back(state: EngineState) -> None:
    state.store.rollback()
    for participant in reversed(state.participants):
        participant.rollback()


def _read_all(groups: list[list[bytes]], state: EngineState, epoch: int) -> list[list[Event]]:
    """The events of the groups that the journal does not have, by group. Raises ``CannotFollow`` unless they continue
    the journal, in this epoch or a later one."""
    parts: list[list[Event]] = []
    last_id = state.journal.last_id
    for lines in groups:
        parts.append(_read(lines, state, last_id + 1, epoch))
        last_id, epoch = parts[-1][-1]["id"], parts[-1][-1]["epoch"]
    return parts


def _read(lines: list[bytes], state: EngineState, expected: int, epoch: int) -> list[Event]:
    """The events from ``expected`` on. Raises ``CannotFollow`` unless they end a group that has ``expected``, of this
    epoch or a newer one."""
    try:
        events = [decode_event(line) for line in lines]
    except DamagedRecord as error:
        raise CannotFollow(f"a group that is damaged: {error}") from error
    if not events:
        raise CannotFollow("a group without events")
    first, last = events[0], events[-1]
    there = expected - first["id"]  # how many of them the journal has
    dense = all(after["id"] == before["id"] + 1 for before, after in pairwise(events))
    is_whole = dense and last["id"] == last["grp"] and last.get("gn", 1) == len(events)
    if not (is_whole and 0 <= there < len(events)):
        raise CannotFollow(f"events {first['id']} to {last['id']} are no group that goes on with event {expected}")
    if first["epoch"] < epoch:
        raise CannotFollow(f"event {first['id']} is of epoch {first['epoch']}, and this journal of {epoch}")
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
