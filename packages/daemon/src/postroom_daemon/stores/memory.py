"""A store in memory: for tests, and the plainest reading of the contract. Its checkpoint is never durable, so the whole
journal is kept and replayed at each start."""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Callable
from copy import copy, deepcopy
from pathlib import Path
from typing import Any, ClassVar

from postroom_common.protocol import State

from ..records import Entry, QueueRecord
from .base import Store, StoreError
from .book import QueueBook

_Ready = tuple[int, int, str]  # -priority, seq, key: sorts in the order of delivery
_Hint = tuple[int, int, str]  # time, seq, key


class MemoryStore(Store):
    """Dictionaries and heaps. Heap entries are hints: one that no longer fits its message is passed over."""

    name: ClassVar[str] = "memory"

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._envelopes: dict[str, bytes] = {}
        self._ready: dict[tuple[str, str], list[_Ready]] = {}
        self._due: list[_Hint] = []
        self._leases: list[_Hint] = []
        self._facts: dict[str, Any] = {}
        self._names: list[str] = []
        self._book = QueueBook()
        self._undo: list[Callable[[], object]] = []
        self._applied_before = 0

    def open(self) -> None:
        """Nothing to do."""

    def files(self) -> list[Path]:
        return []

    def close(self) -> None:
        """Nothing to do."""

    def probe(self) -> None:
        """Memory answers."""

    def begin(self) -> None:
        self._applied_before = self.applied

    def commit(self) -> None:
        self._undo.clear()
        self._book.commit()
        self._applied_before = self.applied

    def rollback(self) -> None:
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        self._book.rollback()
        self._names = [name for name in self._names if name in self._book.records]
        self.applied = self._applied_before

    def checkpoint(self) -> int:
        return 0

    def get(self, key: str) -> Entry | None:
        entry = self._entries.get(key)
        return copy(entry) if entry else None

    def envelope(self, key: str) -> bytes:
        try:
            return self._envelopes[key]
        except KeyError:
            raise StoreError(f"no body for {key}") from None

    def insert(self, entry: Entry, envelope: bytes) -> None:
        self._book.move(entry.queue, None, entry.state)
        self._envelopes[entry.key] = envelope
        self._undo.append(lambda: self._envelopes.pop(entry.key))
        self._place(entry.key, copy(entry))

    def update(self, entry: Entry, before: State) -> None:
        self._book.move(entry.queue, before, entry.state)
        self._place(entry.key, copy(entry))

    def delete(self, entry: Entry, before: State) -> None:
        self._book.move(entry.queue, before, None)
        envelope = self._envelopes.pop(entry.key)
        self._undo.append(lambda: self._envelopes.update({entry.key: envelope}))
        self._place(entry.key, None)

    def _place(self, key: str, entry: Entry | None) -> None:
        before = self._entries.get(key)
        self._undo.append(lambda: self._set(key, before))
        self._set(key, entry)

    def _set(self, key: str, entry: Entry | None) -> None:
        if entry is None:
            self._entries.pop(key, None)
            return
        self._entries[key] = entry
        if entry.state is State.READY:
            heap = self._ready.setdefault((entry.queue, entry.target), [])
            heapq.heappush(heap, (-entry.priority, entry.seq, key))
        elif entry.state is State.DELAYED:
            heapq.heappush(self._due, (entry.due, entry.seq, key))
        elif entry.state is State.INFLIGHT:
            heapq.heappush(self._leases, (entry.lease_until, entry.seq, key))

    def next_ready(self, queue: str, consumer: str) -> Entry | None:
        heads = [self._head(queue, target) for target in {"", consumer}]
        best = min((head for head in heads if head), default=None)
        return copy(self._entries[best[2]]) if best else None

    def _head(self, queue: str, target: str) -> _Ready | None:
        heap = self._ready.get((queue, target))
        while heap:
            entry = self._entries.get(heap[0][2])
            if entry and entry.state is State.READY and (-entry.priority, entry.seq) == heap[0][:2]:
                return heap[0]
            heapq.heappop(heap)
        return None

    def promote(self, now: int, limit: int) -> list[str]:
        queues: list[str] = []
        while len(queues) < limit and self._due and self._due[0][0] <= now:
            due, _, key = heapq.heappop(self._due)
            entry = self._entries.get(key)
            if entry and entry.state is State.DELAYED and entry.due == due:
                ready = copy(entry)
                ready.state = State.READY
                self.update(ready, State.DELAYED)
                queues.append(entry.queue)
        return queues

    def expired(self, now: int, limit: int) -> list[Entry]:
        found: dict[str, Entry] = {}  # a lease that was set twice to the same end has two hints
        while len(found) < limit and self._leases and self._leases[0][0] <= now:
            until, _, key = heapq.heappop(self._leases)
            entry = self._entries.get(key)
            if entry and entry.state is State.INFLIGHT and entry.lease_until == until:
                found[key] = copy(entry)
        for entry in found.values():  # looking changes nothing: the caller may not get to all of them
            heapq.heappush(self._leases, (entry.lease_until, entry.seq, entry.key))
        return list(found.values())

    def next_due(self) -> int | None:
        return min((heap[0][0] for heap in (self._due, self._leases) if heap), default=None)

    def dead(self, queue: str, after: tuple[int, int], limit: int) -> list[Entry]:
        found = [e for e in self._entries.values() if e.queue == queue and e.state is State.DEAD]
        found.sort(key=lambda e: (e.dead_at, e.seq))
        return [copy(e) for e in found if (e.dead_at, e.seq) > after][:limit]

    def entries(self, after: str, limit: int) -> list[Entry]:
        return [copy(self._entries[key]) for key in sorted(key for key in self._entries if key > after)[:limit]]

    def oldest_ready(self, queue: str) -> Entry | None:
        ready = (e for e in self._entries.values() if e.queue == queue and e.state is State.READY)
        return min(ready, key=lambda e: e.seq, default=None)

    def queue(self, name: str) -> QueueRecord | None:
        return self._book.records.get(name)

    def touch_queue(self, name: str) -> QueueRecord:
        return self._book.touch(name)

    def add_queue(self, record: QueueRecord) -> None:
        insort(self._names, record.name)
        self._book.put(record)

    def queue_names(self, after: str, limit: int) -> list[str]:
        return [name for name in self._names if name > after][:limit]

    def fact(self, name: str) -> Any:
        return deepcopy(self._facts.get(name))

    def put_fact(self, name: str, value: Any) -> None:
        before = self._facts.get(name)
        self._undo.append(lambda: self._set_fact(name, before))
        self._set_fact(name, value)

    def _set_fact(self, name: str, value: Any) -> None:
        if value is None:
            self._facts.pop(name, None)
        else:
            self._facts[name] = value
