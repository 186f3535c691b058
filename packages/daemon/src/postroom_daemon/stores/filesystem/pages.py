"""The pages of the filesystem store, and what is due at a time, read from its index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from heapq import nsmallest
from itertools import chain, islice
from typing import Any, Final

from postroom_common.protocol import State

from ...model.records import Entry, QueueRecord
from ..base import ENDED, LEASED, TIMED, Cursor, Due, Pages
from .index import LAST, Hint, Index, Part, lapse_of, shares
from .lanes import Look
from .sorted_keys import Sorted, SortedNames

#: Hints that a page looks at, for each message that it may have.
_LOOKS: Final = 4


class FilesystemDue(Due):
    """What is due in a store."""

    def __init__(self, index: Index, update: Callable[[Entry, State], None]) -> None:
        self._index = index
        self._update = update

    def promote(self, now: int, limit: int) -> list[str]:
        hints, queues = self._index.due, list[str]()
        while len(queues) < limit and (hint := hints.first()) and hint[0] <= now:
            hints.discard(hint)
            entry = self._index.look(hint[2])
            if entry and entry.state in TIMED and entry.due == hint[0]:
                ready = entry.copy()
                ready.state = State.READY
                self._update(ready, entry.state)
                queues.append(entry.queue)
        return queues

    def ended_leases(self, now: int, limit: int) -> list[Entry]:
        return self._over(self._index.leases, now, limit, lambda entry: entry.lease_until)

    def expiring(self, now: int, limit: int) -> list[Entry]:
        return self._over(self._index.lapses, now, limit, lapse_of)

    def _over(self, hints: Sorted[Hint], now: int, limit: int, time_of: Callable[[Entry], int]) -> list[Entry]:
        found: list[Entry] = []
        stale: list[Hint] = []
        for hint in hints:
            if hint[0] > now or len(found) == limit:
                break
            entry = self._index.look(hint[2])
            if entry and time_of(entry) == hint[0]:
                found.append(entry)
            else:
                stale.append(hint)
        for hint in stale:
            hints.discard(hint)
        return found

    def next_time(self) -> int | None:
        index = self._index
        firsts = [hints.first() for hints in (index.due, index.leases, index.lapses)]
        return min((first[0] for first in firsts if first), default=None)


class FilesystemPages(Pages):
    """The pages of a store."""

    def __init__(
        self,
        index: Index,
        peek: Look,
        stored_by: Callable[[str], tuple[str, int, int] | None],
        flush: Callable[[], None],
        queue: Callable[[str], QueueRecord | None],
        names_of_queues: SortedNames,
    ) -> None:
        self._index = index
        self._flush = flush  # after which all messages have files
        self._stored_by = stored_by  # who has published a message, its seq and its size
        self._peek = peek  # as ``index.look``, and the store does not remember it
        self._queue = queue
        self._names_of_queues = names_of_queues

    def scan(self, queue: str, state: State, after: Cursor, limit: int) -> tuple[list[Entry], Cursor]:
        index = self._index
        match state:
            case State.READY:
                return self._scan_ready(queue, after, limit)
            case State.DELAYED | State.GATHERING:
                return self._page(index.due, queue, (state,), after, limit, lambda entry: entry.due)
            case State.INFLIGHT:
                return self._page(index.leases, queue, (state,), after, limit, lambda entry: entry.lease_until)
        others = index.others.get((state, queue), Sorted())
        by_death = state in ENDED
        return self._page(others, queue, (state,), after, limit, lambda e: e.dead_at if by_death else e.seq)

    def leases(self, queue: str, after: Cursor, limit: int) -> tuple[list[Entry], Cursor]:
        return self._page(self._index.leases, queue, LEASED, after, limit, lambda entry: entry.lease_until)

    def dead(self, queue: str, after: tuple[int, int], limit: int) -> list[Entry]:
        found: list[Entry] = []
        page, following = self.scan(queue, State.DEAD, after, limit)
        found += page
        while following and len(found) < limit:
            page, following = self.scan(queue, State.DEAD, following, limit - len(found))
            found += page
        return found

    def _page(
        self,
        hints: Sorted[Hint],
        queue: str,
        states: Sequence[State],
        after: Any,
        limit: int,
        time_of: Callable[[Entry], int],
    ) -> tuple[list[Entry], Cursor]:
        """A page of the messages of a queue ('': of all) in some states. ``time_of`` is what the hints were made of."""
        found: list[Entry] = []
        stale: list[Hint] = []
        end: Cursor = ()
        for looked, hint in enumerate(hints.behind((*after, LAST) if after else ()), 1):
            entry = self._index.look(hint[2])
            if entry is None or time_of(entry) != hint[0]:
                stale.append(hint)
            elif entry.state in states and queue in ("", entry.queue):
                found.append(entry)
            if len(found) == limit or looked == limit * _LOOKS:
                end = hint[:2]
                break
        for hint in stale:
            hints.discard(hint)
        return found, end

    def _scan_ready(self, queue: str, after: Cursor, limit: int) -> tuple[list[Entry], Cursor]:
        found: list[Entry] = []
        for looked, (place, entry, fits) in enumerate(self._ready_behind(queue, after), 1):
            if fits:
                found.append(entry)
            if len(found) == limit or looked == limit * _LOOKS:
                return found, place
        return found, ()

    def _ready_behind(self, queue: str, after: Any) -> Iterator[tuple[Cursor, Entry, bool]]:
        """The ready messages of a queue behind a place, each with its own, and others that no longer are."""
        index, is_next = self._index, self._index.turns.is_next
        waits, target, order, seq = after or (0, "", -(2**63), -1)
        for name in sorted(index.lanes.get(queue, {})) if not waits else ():
            lane = index.lanes[queue][name]
            if name >= target:
                begin = (order, seq) if name == target else (-(2**63), -1)
                for at, entry in lane.behind(*begin):
                    yield (0, name, at, entry.position), entry, lane.has(entry) and is_next(entry)
        first = (target, order, seq) if waits else ("", -(2**63), -1)
        for part, hints in sorted(index.sharing.get(queue, {}).items(), key=lambda item: item[0]):
            if part >= first[:2]:
                for number, key in hints.behind((first[2] if part == first[:2] else -1, LAST)):
                    shared = self._index.look(key)
                    if shared:
                        yield (1, *part, number), shared, shares(shared, queue, part) and not is_next(shared)

    def entries(self, after: str, limit: int) -> list[Entry]:
        self._flush()
        found: list[Entry] = []
        for key in self._index.keys(after) if limit > 0 else ():
            entry = self._peek(key)
            if entry:
                found.append(entry)
            if len(found) == limit:
                break
        return found

    def stored_bytes(self, after: str, until: int, limit: int) -> tuple[Counter[str], str]:
        self._flush()
        stored, seen = Counter[str](), 0
        for key in self._index.keys(after, without_plain=True):  # the name of a plain one has no publisher
            message = self._stored_by(key)
            if message:
                publisher, seq, size = message
                if publisher and seq <= until:
                    stored[publisher] += size
                seen += 1
            if seen == limit:
                return stored, key
        return stored, ""

    def oldest_ready(self, queue: str, consumer: str | None = None) -> Entry | None:
        index = self._index
        lanes = index.lanes.get(queue, {})
        wanted = lanes if consumer is None else {"", consumer} & lanes.keys()
        heads = [lanes[target].oldest() for target in wanted]
        if consumer is None:  # whether or not it is their turn
            heads += (self._first_sharing(queue, part) for part in list(index.sharing.get(queue, {})))
        return min((head for head in heads if head), key=lambda e: e.position, default=None)

    def _first_sharing(self, queue: str, part: Part) -> Entry | None:
        sharing = self._index.sharing[queue]
        while hint := sharing[part].first():
            entry = self._index.look(hint[1])
            if entry and shares(entry, queue, part):
                return entry
            sharing[part].discard(hint)
        del sharing[part]
        return None

    def oldest(self, queue: str, limit: int) -> list[Entry]:
        oldest: list[Entry] = []
        for part in self._parts(queue):
            oldest = nsmallest(limit, chain(oldest, islice(part, limit)), key=lambda entry: entry.position)
        return oldest

    def _parts(self, queue: str) -> Iterator[Iterator[Entry]]:
        """Ready messages by target and priority, each part in publish order, to be looked at one after the other."""
        look, index = self._index.look, self._index
        for lane in index.lanes.get(queue, {}).values():
            for priority in lane.priorities():
                yield (e for e in lane.run(priority, -1) if lane.has(e) and not e.order_key)
        for part, hints in index.sharing.get(queue, {}).items():
            yield (e for _, key in hints if (e := look(key)) and shares(e, queue, part))

    def queue_names(self, after: str, limit: int) -> list[str]:
        return self._names_of_queues.page("", after, limit)

    def queues(self, after: str, limit: int) -> list[QueueRecord]:
        return [record for name in self.queue_names(after, limit) if (record := self._queue(name))]
