"""A store in memory: for tests, and as the plainest reading of the contract. Its checkpoint is never durable: the whole
journal is retained and replayed at each start."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from copy import deepcopy
from typing import Any, ClassVar

from postroom_common.protocol import State

from ..model.observer import Participant
from ..model.records import Entry, QueueRecord
from .base import ENDED, EXPIRING, TIMED, Bodies, BodyFiles, Cursor, Disk, Due, Facts, Pages, Several, Store
from .book import QueueBook
from .errors import StoreError
from .recovery import Audit, Recovery
from .undoable import Undoable

_Ready = tuple[int, int, str]  # -priority, turn, key: sorts in the order of delivery
_Hint = tuple[int, int, str]  # time, seq, key


class MemoryFacts(Facts):
    """The key-values of a store, which are ``undoable``."""

    def __init__(self, undoable: Undoable[Any]) -> None:
        self._undoable = undoable

    def get(self, name: str) -> Any:
        return deepcopy(self._undoable.values.get(name))

    def put(self, name: str, value: Any) -> None:
        if value is None:
            self._undoable.remove(name)
        else:
            self._undoable.set(name, value)

    def names(self, prefix: str, after: str, limit: int) -> list[str]:
        return sorted(name for name in self._undoable.values if name.startswith(prefix) and name > after)[:limit]


class MemoryStore(Store, Due, Pages, Bodies):
    """Dictionaries and heaps. Heap entries are hints: one that no longer fits its message is skipped."""

    name: ClassVar[str] = "memory"

    def __init__(self) -> None:
        self._entries: Undoable[Entry] = Undoable(self._entry_changed)
        self._envelopes: Undoable[bytes] = Undoable()
        facts: Undoable[Any] = Undoable()
        self._book = QueueBook()
        self._participants: list[Participant] = [self._entries, self._envelopes, facts, self._book]
        self._ready: dict[tuple[str, str], list[_Ready]] = {}
        self._due: list[_Hint] = []
        self._leases: list[_Hint] = []
        self._expiries: list[_Hint] = []
        self._same_key: dict[tuple[str, str], set[str]] = {}  # messages by queue and ordering key
        self._applied_before = 0
        self.several, self.facts, self.body_files = Several(self), MemoryFacts(facts), BodyFiles()
        self.bodies = self.due = self.pages = self
        self.disk, self.recovery, self.audit = Disk(), Recovery(), Audit(self)

    def open(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""

    def begin(self) -> None:
        self._applied_before = self.applied

    def commit(self) -> None:
        self._applied_before = self.applied
        for one in self._participants:
            one.commit()
        self.logs.commit()

    def rollback(self) -> None:
        for one in self._participants:
            one.rollback()
        self.logs.rollback()
        self.applied = self.folding = self._applied_before

    # --- messages -------------------------------------------------------------------------------------------------

    def get(self, key: str) -> Entry | None:
        return self._entries.values.get(key)

    def envelope(self, key: str) -> bytes:
        try:
            return self._envelopes.values[key]
        except KeyError:
            raise StoreError(f"no body for {key}") from None

    def insert(self, entry: Entry, envelope: bytes) -> None:
        self._book.count(entry.queue, None, entry.state, entry.size)
        self._envelopes.set(entry.key, envelope)
        self._entries.set(entry.key, entry)

    def update(self, entry: Entry, before: State, source: str | None = None) -> None:
        self._book.count_change(entry, before, source)
        self._entries.set(entry.key, entry)

    def replace(self, entry: Entry, envelope: bytes) -> None:
        self._envelopes.set(entry.key, envelope)
        self.update(entry, entry.state)

    def delete(self, entry: Entry, before: State) -> None:
        self._book.count(entry.queue, before, None, entry.size)
        self._envelopes.remove(entry.key)
        self._entries.remove(entry.key)

    def _entry_changed(self, key: str, before: Entry | None, entry: Entry | None) -> None:
        if entry:
            self._hint(entry)
        for one in (before, entry):
            if one and one.order_key:
                self._update_turns(one)

    def _hint(self, entry: Entry) -> None:
        """Add hints for a message in its present state."""
        hint = (entry.seq, entry.key)
        if entry.state is State.READY:
            heap = self._ready.setdefault((entry.queue, entry.target), [])
            heapq.heappush(heap, (-entry.priority, entry.position, entry.key))
        elif entry.state in TIMED:
            heapq.heappush(self._due, (entry.due, *hint))
        if entry.lease_until:
            heapq.heappush(self._leases, (entry.lease_until, *hint))
        if entry.next_expiry and entry.state in EXPIRING:
            heapq.heappush(self._expiries, (entry.next_expiry, *hint))

    def _update_turns(self, changed: Entry) -> None:
        """A message with an ordering key has changed: note whose turn it is now."""
        name = (changed.queue, changed.order_key)
        same = self._same_key.setdefault(name, set())
        entry = self._entries.values.get(changed.key)
        if entry and (entry.queue, entry.order_key) == name and entry.state not in ENDED:
            same.add(changed.key)
        else:
            same.discard(changed.key)
        first = min((self._entries.values[key] for key in same), key=lambda e: e.seq, default=None)
        if first is None:
            del self._same_key[name]
        elif first.state is State.READY:
            self._hint(first)

    def _is_next(self, entry: Entry) -> bool:
        """Whether no other message of its ordering key goes before it."""
        if not entry.order_key:
            return True
        same = [self._entries.values[key] for key in self._same_key[entry.queue, entry.order_key]]
        return all(one.seq >= entry.seq and one.state is not State.INFLIGHT for one in same)

    def next_ready(self, queue: str, consumer: str) -> Entry | None:
        heads = [self._head(queue, target) for target in {"", consumer}]
        best = min((head for head in heads if head), default=None)
        return self._entries.values[best[2]] if best else None

    def _head(self, queue: str, target: str) -> _Ready | None:
        heap = self._ready.get((queue, target))
        while heap:
            entry = self._entries.values.get(heap[0][2])
            fits = entry and entry.state is State.READY and (entry.queue, entry.target) == (queue, target)
            if entry and fits and (-entry.priority, entry.position) == heap[0][:2] and self._is_next(entry):
                return heap[0]
            heapq.heappop(heap)  # one that waits for its turn is added when it comes
        return None

    def promote(self, now: int, limit: int) -> list[str]:
        queues: list[str] = []
        while len(queues) < limit and self._due and self._due[0][0] <= now:
            due, _, key = heapq.heappop(self._due)
            entry = self._entries.values.get(key)
            if entry and entry.state in TIMED and entry.due == due:
                ready = entry.copy()
                ready.state = State.READY
                self.update(ready, entry.state)
                queues.append(entry.queue)
        return queues

    def ended_leases(self, now: int, limit: int) -> list[Entry]:
        return self._over(self._leases, now, limit, lambda entry: entry.lease_until)

    def expiring(self, now: int, limit: int) -> list[Entry]:
        return self._over(self._expiries, now, limit, lambda entry: entry.next_expiry if entry.state in EXPIRING else 0)

    def _over(self, heap: list[_Hint], now: int, limit: int, end: Callable[[Entry], int]) -> list[Entry]:
        """The messages of a heap whose time has come."""
        found: dict[str, Entry] = {}  # a time that was set twice has two hints
        while len(found) < limit and heap and heap[0][0] <= now:
            until, _, key = heapq.heappop(heap)
            entry = self._entries.values.get(key)
            if entry and end(entry) == until:
                found[key] = entry
        for entry in found.values():  # looking changes nothing: the caller may not get to all of them
            heapq.heappush(heap, (end(entry), entry.seq, entry.key))
        return list(found.values())

    def next_time(self) -> int | None:
        return min((heap[0][0] for heap in (self._due, self._leases, self._expiries) if heap), default=None)

    def scan(self, queue: str, state: State, after: Cursor, limit: int) -> tuple[list[Entry], Cursor]:
        all_there = (e for e in self._entries.values.values() if e.state is state and queue in ("", e.queue))
        found = [(self._place_of(e), e) for e in all_there]
        page = sorted((one for one in found if one[0] > after), key=lambda one: one[0])[: limit + 1]
        return [e for _, e in page[:limit]], page[limit - 1][0] if len(page) > limit else ()

    def leases(self, queue: str, after: Cursor, limit: int) -> tuple[list[Entry], Cursor]:
        leased = (e for e in self._entries.values.values() if e.lease_until and queue in ("", e.queue))
        found = sorted((e.lease_until, e.seq, e.key) for e in leased if (e.lease_until, e.seq) > after)
        following = found[limit - 1][:2] if len(found) > limit else ()
        return [self._entries.values[key] for _, _, key in found[:limit]], following

    def dead(self, queue: str, after: tuple[int, int], limit: int) -> list[Entry]:
        found = [e for e in self._entries.values.values() if e.queue == queue and e.state is State.DEAD]
        found.sort(key=lambda e: (e.dead_at, e.seq))
        return [e for e in found if (e.dead_at, e.seq) > after][:limit]

    def entries(self, after: str, limit: int) -> list[Entry]:
        return [self._entries.values[key] for key in sorted(key for key in self._entries.values if key > after)[:limit]]

    def _place_of(self, entry: Entry) -> Cursor:
        """The place of an entry among those of its state."""
        match entry.state:
            case State.READY:
                return (not self._is_next(entry), entry.target, -entry.priority, entry.position)
            case State.DELAYED | State.GATHERING:
                return (entry.due, entry.seq)
            case State.INFLIGHT:
                return (entry.lease_until, entry.seq)
            case State.DEAD | State.DONE:
                return (entry.dead_at, entry.seq)
            case State.HELD | State.DRAFTING:
                return (entry.seq,)

    def oldest_ready(self, queue: str, consumer: str | None = None) -> Entry | None:
        ready = (e for e in self._entries.values.values() if e.queue == queue and e.state is State.READY)
        if consumer is not None:
            ready = (e for e in ready if e.target in ("", consumer) and self._is_next(e))
        return min(ready, key=lambda e: e.position, default=None)

    def queue(self, name: str) -> QueueRecord | None:
        return self._book.values.get(name)

    def queue_for_update(self, name: str) -> QueueRecord:
        return self._book.touch(name)

    def add_queue(self, record: QueueRecord) -> None:
        self._book.set(record.name, record)

    def delete_queue(self, name: str) -> None:
        self._book.remove(name)

    def queue_names(self, after: str, limit: int) -> list[str]:
        return sorted(name for name in self._book.values if name > after)[:limit]

    def queues(self, after: str, limit: int) -> list[QueueRecord]:
        return [self._book.values[name] for name in self.queue_names(after, limit)]
