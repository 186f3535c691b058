"""What the filesystem store keeps in memory: where each message's file is, and which message comes next.

No message's body or facts: these are read from the file's name, and from the file, when they are asked for. The hints
of what comes next may no longer fit their message: such a one is passed over, and dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import nsmallest
from itertools import chain, islice
from typing import Any

from postroom_common.protocol import State

from ...model.records import Entry
from ..base import Cursor
from .hints import LAST, LOOKS, Hint, page_of, those_over
from .lanes import Lane, Look
from .lines import Lines
from .places import Listing, Places
from .sorted_keys import Sorted


class Index:
    """``places`` has each message's file: its path inside its queue's directory."""

    def __init__(self, ready_folder: str) -> None:
        self.places = Places(ready_folder)
        self.due: Sorted[Hint] = Sorted()
        self.leases: Sorted[Hint] = Sorted()
        self.lapses: Sorted[Hint] = Sorted()
        self.lines = Lines(self._call)
        self._lanes: dict[str, dict[str, Lane]] = {}
        self._sharing: dict[str, dict[tuple[str, int], Sorted[tuple[int, str]]]] = {}  # by queue; target, -priority
        self._dead: dict[str, Sorted[Hint]] = {}
        self._held: dict[str, Sorted[Hint]] = {}
        self._listing: Listing | None = None  # while pages of all keys are read

    def lane(self, queue: str, target: str) -> Lane:
        """The lane of a queue's messages for a target ('' for anyone's), made if it is missing."""
        lanes = self._lanes.setdefault(queue, {})
        lane = lanes.get(target)
        if lane is None:
            lane = lanes[target] = Lane(queue, target, self.places, self._may_go)
        return lane

    def sharing(self, entry: Entry) -> Sorted[tuple[int, str]]:
        """The ready messages with an ordering key, of a queue, target and priority, whether or not it is their turn."""
        return self._sharing.setdefault(entry.queue, {}).setdefault((entry.target, -entry.priority), Sorted())

    def dead_of(self, queue: str) -> Sorted[Hint]:
        """The dead letters of a queue."""
        return self._dead.setdefault(queue, Sorted())

    def held_of(self, queue: str) -> Sorted[Hint]:
        """The messages of a queue that are held."""
        return self._held.setdefault(queue, Sorted())

    def _call(self, entry: Entry) -> None:
        self.lane(entry.queue, entry.target).call(entry.priority, entry.seq, entry.key)

    def _may_go(self, entry: Entry, look: Look) -> bool:
        return not entry.order_key or self.lines.may_go(entry, look)

    def keys(self, after: str) -> Iterator[str]:
        """All keys behind ``after`` in order, as they stood when their first page was asked for."""
        if not after or self._listing is None:
            self._listing = self.places.listing()
        yield from self._listing.behind(after)
        self._listing = None

    # --- keeping up -------------------------------------------------------------------------------------------

    def add(self, entry: Entry, look: Look) -> None:
        """Note where a message belongs in its present state."""
        match entry.state:
            case State.READY if entry.order_key:
                self.sharing(entry).add((entry.seq, entry.key))
            case State.READY:
                self.lane(entry.queue, entry.target).add(entry.priority, entry.seq, entry.key)
            case State.DELAYED:
                self.due.add((entry.due, entry.seq, entry.key))
            case State.DEAD:
                self.dead_of(entry.queue).add((entry.dead_at, entry.seq, entry.key))
            case State.HELD:
                self.held_of(entry.queue).add((entry.seq, entry.seq, entry.key))
        if entry.lease_until or entry.state is State.INFLIGHT:
            self.leases.add((entry.lease_until, entry.seq, entry.key))
        if _lapse(entry):
            self.lapses.add((entry.lapse, entry.seq, entry.key))
        if entry.order_key:
            self.lines.note(entry, look)

    def take(self, entry: Entry, queue: str) -> None:
        """A message was ready in a queue, and has changed."""
        if entry.order_key:
            hints = self._sharing.get(queue, {}).get((entry.target, -entry.priority))
            if hints:
                hints.discard((entry.seq, entry.key))
        lane = self._lanes.get(queue, {}).get(entry.target)
        if lane:
            lane.take(entry.priority, entry.seq, entry.key)

    def sort(self, is_ready: Callable[[str], Entry | None]) -> None:
        """Put in order what was added unsorted. ``is_ready`` gives a message that is, of those with ordering keys."""
        self.lines.sort()
        for key in self.lines.firsts():
            first = is_ready(key)
            if first:
                self.lane(first.queue, first.target).add_unsorted(first.priority, first.seq, key)
        parts = (*self._dead.values(), *self._held.values())
        for hints in (self.due, self.leases, self.lapses, *parts):
            hints.sort()
        for sharing in self._sharing.values():
            for one in sharing.values():
                one.sort()
        for lanes in self._lanes.values():
            for lane in lanes.values():
                lane.sort()

    # --- who comes next ---------------------------------------------------------------------------------------

    def next_ready(self, queue: str, consumer: str, look: Look) -> Entry | None:
        """The message to deliver next to a consumer."""
        heads = [self._head(queue, target, look) for target in {"", consumer}]
        return min((head for head in heads if head), key=lambda e: (-e.priority, e.seq), default=None)

    def _head(self, queue: str, target: str, look: Look) -> Entry | None:
        lane = self._lanes.get(queue, {}).get(target)
        head = lane.head(look) if lane else None
        if lane and not head:
            del self._lanes[queue][target]  # there may be a target for each request that ever waited for an answer
        return head

    def oldest_ready(self, queue: str, consumer: str | None, look: Look) -> Entry | None:
        """The ready message that was published first; see ``Store.oldest_ready``."""
        lanes = self._lanes.get(queue, {})
        wanted = lanes if consumer is None else {"", consumer} & lanes.keys()
        heads = [lanes[target].oldest(look) for target in wanted]
        if consumer is None:  # whether or not it is their turn
            heads += (self._first_sharing(queue, name, look) for name in list(self._sharing.get(queue, {})))
        return min((head for head in heads if head), key=lambda e: e.seq, default=None)

    def _first_sharing(self, queue: str, name: tuple[str, int], look: Look) -> Entry | None:
        hints = self._sharing[queue][name]
        while hint := hints.first():
            entry = look(hint[1])
            if entry and _shares(entry, queue, name):
                return entry
            hints.discard(hint)
        del self._sharing[queue][name]
        return None

    def oldest(self, queue: str, limit: int, look: Look) -> list[Entry]:
        """Ready messages in publish order; see ``Store.oldest``."""
        found: list[Entry] = []
        for part in self._parts(queue, look):
            found = nsmallest(limit, chain(found, islice(part, limit)), key=lambda entry: entry.seq)
        return found

    def _parts(self, queue: str, look: Look) -> Iterator[Iterator[Entry]]:
        """Ready messages by target and priority, each part in publish order, to be looked at one after the other."""
        for lane in self._lanes.get(queue, {}).values():
            for priority in lane.priorities():
                yield (e for e in lane.line(priority, -1, look) if lane.has(e) and not e.order_key)
        for name, hints in self._sharing.get(queue, {}).items():
            yield (e for _, key in hints if (e := look(key)) and _shares(e, queue, name))

    def ended_leases(self, now: int, limit: int, look: Look) -> list[Entry]:
        """Messages whose lease is over. Looking changes nothing: the caller may not get to all of them."""
        return those_over(self.leases, now, limit, look, lambda entry: entry.lease_until)

    def expiring(self, now: int, limit: int, look: Look) -> list[Entry]:
        """Messages to which something happens while they wait. Looking changes nothing."""
        return those_over(self.lapses, now, limit, look, _lapse)

    def pop_due(self, now: int, look: Look) -> Entry | None:
        """The next delayed message that is due, taken out."""
        while (hint := self.due.first()) and hint[0] <= now:
            self.due.discard(hint)
            entry = look(hint[2])
            if entry and entry.state is State.DELAYED and entry.due == hint[0]:
                return entry
        return None

    def next_time(self) -> int | None:
        """When there may be something due or over."""
        firsts = [hints.first() for hints in (self.due, self.leases, self.lapses)]
        return min((first[0] for first in firsts if first), default=None)

    # --- pages ------------------------------------------------------------------------------------------------

    def dead(self, queue: str, after: tuple[int, int], limit: int, look: Look) -> list[Entry]:
        """A page of a queue's dead letters."""
        found: list[Entry] = []
        stale: list[Hint] = []
        hints = self._dead.get(queue, Sorted())
        for hint in hints.behind((*after, LAST)):
            entry = look(hint[2])
            if entry and (entry.queue, entry.state, entry.dead_at) == (queue, State.DEAD, hint[0]):
                found.append(entry)
                if len(found) == limit:
                    break
            else:
                stale.append(hint)
        for hint in stale:
            hints.discard(hint)
        return found

    def scan(self, queue: str, state: State, after: Cursor, limit: int, look: Look) -> tuple[list[Entry], Cursor]:
        """A page of messages in a state; see ``Store.scan``."""
        match state:
            case State.READY:
                return self._scan_ready(queue, after, limit, look)
            case State.DELAYED:
                return page_of(self.due, queue, (state,), after, limit, look, lambda entry: entry.due)
            case State.INFLIGHT:
                return self.leases_of(queue, (state,), after, limit, look)
            case State.DEAD:
                hints = self._dead.get(queue, Sorted())
                return page_of(hints, queue, (state,), after, limit, look, lambda entry: entry.dead_at)
            case State.HELD:
                hints = self._held.get(queue, Sorted())
                return page_of(hints, queue, (state,), after, limit, look, lambda entry: entry.seq)

    def leases_of(
        self, queue: str, states: Sequence[State], after: Cursor, limit: int, look: Look
    ) -> tuple[list[Entry], Cursor]:
        """A page of what is leased and in one of ``states``; see ``Store.leases``."""
        return page_of(self.leases, queue, states, after, limit, look, lambda entry: entry.lease_until)

    def _scan_ready(self, queue: str, after: Cursor, limit: int, look: Look) -> tuple[list[Entry], Cursor]:
        found: list[Entry] = []
        place: Any = ()
        for looked, (place, entry, fits) in enumerate(self._ready_behind(queue, after, look), 1):
            if fits:
                found.append(entry)
            if len(found) == limit or looked == limit * LOOKS:
                return found, place
        return found, ()

    def _ready_behind(self, queue: str, after: Any, look: Look) -> Iterator[tuple[Cursor, Entry, bool]]:
        """The ready messages of a queue behind a place, each with its own, and others that no longer are."""
        waits, target, order, seq = after or (0, "", -(2**63), -1)
        for name in sorted(self._lanes.get(queue, {})) if not waits else ():
            lane = self._lanes[queue][name]
            if name >= target:
                begin = (order, seq) if name == target else (-(2**63), -1)
                for at, entry in lane.behind(*begin, look):
                    yield (0, name, at, entry.seq), entry, lane.has(entry) and self._may_go(entry, look)
        first = (target, order, seq) if waits else ("", -(2**63), -1)
        for part, hints in sorted(self._sharing.get(queue, {}).items(), key=lambda item: item[0]):
            if part >= first[:2]:
                for number, key in hints.behind((first[2] if part == first[:2] else -1, LAST)):
                    entry_or_none = look(key)
                    if entry_or_none:
                        fits = _shares(entry_or_none, queue, part) and not self._may_go(entry_or_none, look)
                        yield (1, *part, number), entry_or_none, fits


def _lapse(entry: Entry) -> int:
    return entry.lapse if entry.state in (State.READY, State.DELAYED) else 0


def _shares(entry: Entry, queue: str, part: tuple[str, int]) -> bool:
    fits = entry.state is State.READY and entry.order_key != ""
    return fits and entry.queue == queue and (entry.target, -entry.priority) == part
