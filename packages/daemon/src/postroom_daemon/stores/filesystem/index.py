"""The index of the filesystem store, in memory: where each message's file is, who comes next, and whose turn it is
among messages that share an ordering key. All of it is derived from the files' names.

Most of it is hints: one that no longer fits its message is skipped by whoever meets it, and dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from postroom_common.protocol import State

from ...model.records import Entry
from ..base import ENDED, EXPIRING
from .lanes import Lane, Look
from .places import Listing, Places
from .sorted_keys import Sorted

Hint = tuple[int, int, str]  # time, seq, key
LAST: Final = "\U0010ffff"
"""Sorts behind every key."""
Part = tuple[str, int]  # target, negative priority


def lapse_of(entry: Entry) -> int:
    """When a message that waits expires or loses its target, if it does; else 0."""
    return entry.next_expiry if entry.state in EXPIRING else 0


def shares(entry: Entry, queue: str, part: Part) -> bool:
    """Whether a message is ready, has an ordering key, and belongs to a part of a queue."""
    fits = entry.state is State.READY and entry.order_key != ""
    return fits and entry.queue == queue and (entry.target, -entry.priority) == part


class _SameKey:
    """The messages of a queue with one ordering key: hints in publish order, and keys of those that may be in flight.
    ``called`` is the message whose turn it is, once that was reported."""

    def __init__(self) -> None:
        self.hints: Sorted[tuple[int, str]] = Sorted()
        self.leased: set[str] = set()
        self.called = ""


class Turns:
    """Whose turn it is among messages of a queue that share an ordering key: that of the first published one whose
    work has not ended, while none of them is in flight. ``call`` is given each ready message whose turn has come."""

    def __init__(self, look: Look, call: Callable[[Entry], None]) -> None:
        self._look = look
        self._call = call
        self._keys: dict[tuple[str, str], _SameKey] = {}  # by queue and ordering key

    def add(self, entry: Entry) -> None:
        """A message with an ordering key is there; ``update`` must follow."""
        name = (entry.queue, entry.order_key)
        if entry.state not in ENDED:
            same = self._keys.setdefault(name, _SameKey())
            same.hints.add((entry.seq, entry.key))
            if entry.state is State.INFLIGHT:
                same.leased.add(entry.key)

    def update(self, queue: str, order_key: str, changed: str = "") -> None:
        """A message with this ordering key has changed: see whose turn it is."""
        name = (queue, order_key)
        same = self._keys.get(name)
        if same is None:
            return
        first = self._first(name, same)
        if first is None:
            del self._keys[name]
        elif first.state is not State.READY or self._is_leased(name, same):
            same.called = ""
        elif same.called != first.key or changed in ("", first.key):
            same.called = first.key
            self._call(first)

    def update_all(self) -> None:
        """See whose turn it is for every ordering key."""
        for name in list(self._keys):
            self.update(*name)

    def is_next(self, entry: Entry) -> bool:
        """Whether it is the turn of a message, as far as its ordering key goes."""
        name = (entry.queue, entry.order_key)
        same = self._keys.get(name) if entry.order_key else None
        if same is None:
            return True
        first = self._first(name, same)
        return (first is None or first.key == entry.key) and not self._is_leased(name, same)

    def _first(self, name: tuple[str, str], same: _SameKey) -> Entry | None:
        while hint := same.hints.first():
            entry = self._look(hint[1])
            if entry and entry.state not in ENDED and (entry.queue, entry.order_key) == name:
                return entry
            same.hints.discard(hint)
        return None

    def _is_leased(self, name: tuple[str, str], same: _SameKey) -> bool:
        for key in list(same.leased):
            entry = self._look(key)
            if entry and entry.state is State.INFLIGHT and (entry.queue, entry.order_key) == name:
                return True
            same.leased.discard(key)
        return False


class Index:
    """``places`` has each message's file: its path inside its queue's directory. ``look`` returns the entry of a key,
    as the open transaction sees it; ``ready_folder`` is the folder of ready messages."""

    def __init__(self, ready_folder: str, look: Look) -> None:
        self.look = look
        self.places = Places(ready_folder)
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.places.clear()
        self.due: Sorted[Hint] = Sorted()
        self.leases: Sorted[Hint] = Sorted()
        self.lapses: Sorted[Hint] = Sorted()
        self.turns = Turns(self.look, self._call)
        #: Ready messages by queue and target.
        self.lanes: dict[str, dict[str, Lane]] = {}
        #: Ready messages with an ordering key, whether or not it is their turn, by queue and part.
        self.sharing: dict[str, dict[Part, Sorted[tuple[int, str]]]] = {}
        #: The messages that are dead, done, on hold or drafts, by state and queue.
        self.others: dict[tuple[State, str], Sorted[Hint]] = {}
        self._listing: Listing | None = None  # while pages of all keys are read

    def lane(self, queue: str, target: str) -> Lane:
        """The lane of a queue's messages for a target ('' for anyone's), made if it is missing."""
        lanes = self.lanes.setdefault(queue, {})
        lane = lanes.get(target)
        if lane is None:
            lane = lanes[target] = Lane(queue, target, self.places, self.look, self.turns.is_next)
        return lane

    def _call(self, entry: Entry) -> None:
        self.lane(entry.queue, entry.target).call(entry.priority, entry.seq, entry.key)

    def keys(self, after: str, without_plain: bool = False) -> Iterator[str]:
        """All keys behind ``after`` in order, as they stood when their first page was asked for; or those of the
        messages that were not plainly ready then."""
        if not after or self._listing is None:
            self._listing = self.places.listing()
        yield from self._listing.behind(after, without_plain)
        self._listing = None

    # --- keeping up -----------------------------------------------------------------------------------------------

    def add(self, entry: Entry) -> None:
        """Note where a message belongs in its present state."""
        self.add_at_start(entry)
        if entry.order_key:
            self.turns.update(entry.queue, entry.order_key, entry.key)

    def add_at_start(self, entry: Entry) -> None:
        """As ``add``, before ``complete``."""
        match entry.state:
            case State.READY if entry.order_key:
                parts = self.sharing.setdefault(entry.queue, {})
                parts.setdefault((entry.target, -entry.priority), Sorted()).add((entry.seq, entry.key))
            case State.READY if entry.returned_seq:
                self.lane(entry.queue, entry.target).call(entry.priority, entry.returned_seq, entry.key)
            case State.READY:
                self.lane(entry.queue, entry.target).add(entry.priority, entry.seq, entry.key)
            case State.DELAYED | State.GATHERING:
                self.due.add((entry.due, entry.seq, entry.key))
            case State.DEAD | State.DONE:
                self._add_other(entry, entry.dead_at)
            case State.HELD | State.DRAFTING:
                self._add_other(entry, entry.seq)
        if entry.lease_until or entry.state is State.INFLIGHT:
            self.leases.add((entry.lease_until, entry.seq, entry.key))
        if lapse_of(entry):
            self.lapses.add((entry.next_expiry, entry.seq, entry.key))
        if entry.order_key:
            self.turns.add(entry)

    def _add_other(self, entry: Entry, time: int) -> None:
        self.others.setdefault((entry.state, entry.queue), Sorted()).add((time, entry.seq, entry.key))

    def take(self, entry: Entry, queue: str) -> None:
        """A message was ready in a queue, and has changed."""
        if entry.order_key:
            hints = self.sharing.get(queue, {}).get((entry.target, -entry.priority))
            if hints:
                hints.discard((entry.seq, entry.key))
        lane = self.lanes.get(queue, {}).get(entry.target)
        if lane:
            lane.take(entry.priority, entry.position, entry.key)

    def complete(self) -> None:
        """The start has added everything, and ``look`` works: put in order what depends on it."""
        self.turns.update_all()

    # --- who comes next -------------------------------------------------------------------------------------------

    def next_ready(self, queue: str, consumer: str) -> Entry | None:
        """The message to deliver next to a consumer."""
        heads = [self._head(queue, target) for target in {"", consumer}]
        return min((head for head in heads if head), key=lambda e: (-e.priority, e.position), default=None)

    def _head(self, queue: str, target: str) -> Entry | None:
        lane = self.lanes.get(queue, {}).get(target)
        head = lane.head() if lane else None
        if lane and not head:
            del self.lanes[queue][target]  # there may be a target for each request that ever waited for an answer
        return head
