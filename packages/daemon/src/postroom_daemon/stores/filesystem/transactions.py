"""What a transaction of the filesystem store sees and changes: messages, queues and single facts, in memory until the
commit brings each message's file to its entry."""

from __future__ import annotations

import logging
from bisect import bisect_right, insort
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from postroom_common.protocol import State

from ...model.records import HISTORY, Entry, QueueRecord
from ...platform.files import Files
from ...platform.quarantine import Quarantine
from ..base import (
    LEASED,
    Bodies,
    BodyLost,
    BodyUnread,
    Cursor,
    Disk,
    Due,
    Pages,
    Recovery,
    Store,
    StoreError,
    store_error,
)
from ..book import QueueBook
from .facts import Facts
from .files import MessageFiles
from .found import Numbers
from .index import Index
from .names import READY
from .replay import Replay
from .tree import Tree

log = logging.getLogger(__name__)

#: What a message may take of the disk whose file is written to: a block of it, and one of a directory; and one whose
#: file gets another name only.
_FILE_BYTES: Final = 8192
_NAME_BYTES: Final = 512
#: Characters of an entry's texts that have room in a name, whatever else stands there.
_SHORT_TEXTS: Final = 60


class Transactions(Store, Due, Pages, Disk, Recovery):
    """A filesystem store without its life: see ``FilesystemStore``."""

    def __init__(
        self, root: Path, files: Files, quarantine: Quarantine, folders: Mapping[str, str], meta: str = "meta"
    ) -> None:
        self._quarantine = quarantine
        self._meta = meta
        self._ready_folder = folders[READY]
        self._tree = Tree(files, root, folders)
        self.due = self.pages = self.disk = self.recovery = self
        self.bodies = Bodies()
        self._reset()

    def _reset(self) -> None:
        self._index = Index(self._ready_folder)
        self._files = MessageFiles(self._tree, self._index, self._quarantine, self._meta)
        self._book = QueueBook()
        self._queues: list[str] = []
        self._facts = Facts({})
        self._replay: Replay | None = None  # while the journal is folded after opening
        self.applied = self._applied_before = 0
        self._failed = False
        # What the open transaction has changed and looked at:
        self._changed: dict[str, Entry | None] = {}
        self._seen: dict[str, Entry] = {}
        self._bodies: dict[str, bytes] = {}  # of new messages, and of those to be written anew
        self._histories: dict[str, list[Any] | None] = {}
        self._queues_changed = False
        self._deleted: set[str] = set()  # queues whose directories are to go
        self._lines: set[tuple[str, str]] = set()  # queues and ordering keys of which messages have changed

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Errors of the operating system as those of the contract."""
        try:
            yield
        except OSError as error:
            raise self._error(error) from error

    def _error(self, error: OSError) -> StoreError:
        return store_error(error, self._tree.root)

    def begin(self) -> None:
        self._applied_before = self.applied

    def space_needed(self, events: int) -> int:
        written = sum(entry is not None and self._is_written(entry) for entry in self._changed.values())
        return written * _FILE_BYTES + (len(self._changed) - written) * _NAME_BYTES

    def _is_written(self, entry: Entry) -> bool:
        """Whether a change may need more of its file than another name."""
        texts = (entry.consumer_id, entry.target, entry.order_key, entry.claim)
        long = sum(map(len, texts)) > _SHORT_TEXTS
        return bool(long or entry.failures or entry.phase or entry.key in self._bodies)

    def commit(self) -> None:
        self._failed = True
        try:
            for key, entry in self._changed.items():
                if entry is None:
                    self._files.finish(key, self.applied)
                else:
                    self._files.write(entry, self.applied, self._history(key), self._bodies.get(key))
        except OSError as error:
            raise self._error(error) from error
        self._failed = False
        self._applied_before = self.applied
        self._book.commit()
        self._end()

    def rollback(self) -> None:
        if self._failed:
            raise StoreError(f"{self._tree.root}: a commit has failed half-way; the store must be opened anew")
        self._facts.rollback()
        self._book.rollback()
        if self._queues_changed:
            self._queues = sorted(self._book.values)
        self.applied = self._applied_before
        touched, lines = list(self._changed), list(self._lines)
        self._end()
        for key in touched:  # what was dropped from the index as no longer fitting, fits again
            entry = self.get(key)
            if entry:
                self._index.add(entry, self.get)
        for line in lines:
            self._index.lines.see(line, self.get)
        self._end()

    def _end(self) -> None:
        for kept in (self._changed, self._seen, self._bodies, self._histories):
            kept.clear()
        self._facts.end()
        self._lines.clear()
        self._queues_changed = False
        self._files.end()

    # --- messages ------------------------------------------------------------------------------------------------

    def get(self, key: str) -> Entry | None:
        known = self._seen.get(key)
        if known is None and key not in self._changed and key in self._index.places:
            known = self._seen[key] = self._entry(key)
        return known

    def _entry(self, key: str) -> Entry:
        try:
            return self._replay.entry(key) if self._replay else self._files.entry(key)
        except OSError as error:
            raise self._error(error) from error

    def envelope(self, key: str) -> bytes:
        new = self._bodies.get(key) or (self._replay and self._replay.bodies.get(key))
        if new:
            return new
        if self._changed.get(key, ...) is None or key not in self._index.places:
            raise StoreError(f"no body for {key}")
        try:
            return self._files.envelope(key)
        except OSError as error:
            raise self._error(error) from error

    def insert(self, entry: Entry, envelope: bytes) -> None:
        self._book.count(entry.queue, None, entry.state, entry.size)
        self._files.born(entry)
        self._bodies[entry.key] = envelope
        self._note(entry)

    def update(self, entry: Entry, before: State) -> None:
        self._book.count(entry.queue, before, entry.state, entry.size)
        self._take(entry, entry.queue, before)
        self._note(entry)

    def move(self, entry: Entry, source: str, before: State) -> None:
        self._book.count(source, before, None, entry.size)
        self._book.count(entry.queue, None, entry.state, entry.size)
        self._take(entry, source, before)
        self._note(entry)
        self._see_line(source, entry.order_key)

    def delete(self, entry: Entry, before: State) -> None:
        self._book.count(entry.queue, before, None, entry.size)
        self._take(entry, entry.queue, before)
        self._changed[entry.key] = None
        self._seen.pop(entry.key, None)
        self._bodies.pop(entry.key, None)
        if self._replay:
            self._replay.healed.pop(entry.key, None)
        self._see_line(entry.queue, entry.order_key)

    def _note(self, entry: Entry) -> None:
        replay = self._replay
        if replay and replay.healed.pop(entry.key, None):
            try:
                self._bodies[entry.key] = self.envelope(entry.key)  # what is torn is written anew, not added to
            except (BodyLost, BodyUnread) as error:
                log.error("%s", error)
            replay.bodies.pop(entry.key, None)
            if entry.key in replay.histories:
                self._histories.setdefault(entry.key, replay.histories.pop(entry.key))
        self._changed[entry.key] = self._seen[entry.key] = entry
        if entry.order_key:
            self._lines.add((entry.queue, entry.order_key))
        self._index.add(entry, self.get)

    def _take(self, entry: Entry, queue: str, before: State) -> None:
        if before is State.READY:
            self._index.take(entry, queue)

    def _see_line(self, queue: str, order_key: str) -> None:
        """A message with an ordering key has left a queue."""
        if order_key:
            self._lines.add((queue, order_key))
            self._index.lines.see((queue, order_key), self.get)

    def next_ready(self, queue: str, consumer: str) -> Entry | None:
        return self._index.next_ready(queue, consumer, self.get)

    def promote(self, now: int, limit: int) -> list[str]:
        queues: list[str] = []
        while len(queues) < limit and (entry := self._index.pop_due(now, self.get)):
            entry.state = State.READY
            self.update(entry, State.DELAYED)
            queues.append(entry.queue)
        return queues

    def ended_leases(self, now: int, limit: int) -> list[Entry]:
        return self._index.ended_leases(now, limit, self.get)

    def expiring(self, now: int, limit: int) -> list[Entry]:
        return self._index.expiring(now, limit, self.get)

    def next_time(self) -> int | None:
        return self._index.next_time()

    def scan(self, queue: str, state: State, after: Cursor, limit: int) -> tuple[list[Entry], Cursor]:
        return self._index.scan(queue, state, after, limit, self.get)

    def leases(self, queue: str, after: Cursor, limit: int) -> tuple[list[Entry], Cursor]:
        return self._index.leases_of(queue, LEASED, after, limit, self.get)

    def dead(self, queue: str, after: tuple[int, int], limit: int) -> list[Entry]:
        return self._index.dead(queue, after, limit, self.get)

    def entries(self, after: str, limit: int) -> list[Entry]:
        found: list[Entry] = []
        for key in self._index.keys(after) if limit > 0 else ():
            known = self._seen.get(key)
            if known is None and key not in self._changed and key in self._index.places:
                known = self._entry(key)  # not remembered: there may be very many
            if known:
                found.append(known)
            if len(found) == limit:
                break
        return found

    def oldest_ready(self, queue: str, consumer: str | None = None) -> Entry | None:
        return self._index.oldest_ready(queue, consumer, self.get)

    def oldest(self, queue: str, limit: int) -> list[Entry]:
        return self._index.oldest(queue, limit, self.get)

    # --- queues and single facts ---------------------------------------------------------------------------------

    def queue(self, name: str) -> QueueRecord | None:
        return self._book.values.get(name)

    def queue_for_update(self, name: str) -> QueueRecord:
        return self._book.touch(name)

    def add_queue(self, record: QueueRecord) -> None:
        self._know(record)

    def _know(self, record: QueueRecord) -> None:
        """Take a queue's record into the book, its counters as the files are."""
        if self._replay:
            numbers = self._replay.found.numbers.get(record.name, Numbers())
            record.counts.update(dict.fromkeys(record.counts, 0) | numbers.counts)
            record.bytes, record.reasons = numbers.bytes, numbers.reasons.copy()
        self._book.set(record.name, record)
        insort(self._queues, record.name)
        self._queues_changed = True

    def delete_queue(self, name: str) -> None:
        record = self._book.values.get(name)
        if record is None:
            return
        if self._replay:  # what is still counted is of a later queue of this name, and of files that are further
            self._replay.found.numbers[name] = Numbers(record.counts.copy(), record.bytes, record.reasons.copy())
        self._book.remove(name)
        self._queues.remove(name)
        self._queues_changed = True
        self._deleted.add(name)

    def queue_names(self, after: str, limit: int) -> list[str]:
        at = bisect_right(self._queues, after)
        return self._queues[at : at + limit]

    def get_kv(self, name: str) -> Any:
        if name.startswith(HISTORY):
            return deepcopy(self._history(name.removeprefix(HISTORY)))
        return self._facts.get(name)

    def put_kv(self, name: str, value: Any) -> None:
        if name.startswith(HISTORY):  # it belongs into the message's file, so that both change at once
            key = name.removeprefix(HISTORY)
            self._histories[key] = deepcopy(value)
            entry = self.get(key)
            if entry:
                self._note(entry)
            return
        self._facts.put(name, value)

    def kv_names(self, prefix: str, after: str, limit: int) -> list[str]:
        return self._facts.names(prefix, after, limit)

    def _history(self, key: str) -> list[Any] | None:
        if key in self._histories:
            return self._histories[key]
        if self._replay and key in self._replay.histories:
            return self._replay.histories[key]
        return self._files.history(key) if self.get(key) else None
