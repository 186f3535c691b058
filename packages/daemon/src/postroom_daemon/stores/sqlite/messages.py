"""Messages of the SQLite store: what changes them, in memory, and which of them come next."""

from __future__ import annotations

from collections import deque
from heapq import merge
from itertools import islice
from typing import Final

from postroom_common.protocol import State

from ...model.records import Entry
from ..base import Several, Store
from ..errors import StoreDamaged
from .bodies import SqliteBodies
from .changes import MESSAGE
from .database import Database
from .entry_cache import EntryCache
from .pages import SqliteDue, Turns
from .ready import Head, ReadyHeads
from .records import SqliteBook
from .references import ReferencedBodies, reference_of, reference_value
from .rows import changes_of, row_of, value_crc
from .unwritten import Unwritten

#: No messages. Never change it.
_NONE: Final[deque[Entry]] = deque()
#: Used for every message, and slow to look up in their class.
_READY, _DELAYED = State.READY, State.DELAYED


class SqliteMessages(Several):
    """The messages of ``store``: ``ready`` are those that come next, ``turns`` says whose turn it is."""

    def __init__(
        self,
        store: Store,
        db: Database,
        unwritten: Unwritten,
        read: EntryCache,
        book: SqliteBook,
        bodies: SqliteBodies,
        due: SqliteDue,
        referenced: ReferencedBodies | None,
    ) -> None:
        super().__init__(store)
        self.ready = ReadyHeads()
        self.turns = Turns(db)
        self._db = db
        self._unwritten = unwritten
        self._group, self._earlier, self._space = unwritten.group, unwritten.earlier, unwritten.space
        self._read = read
        self._entries = read.values
        self._book = book
        self._bodies = bodies
        self._due = due
        self._referenced = referenced

    def insert(self, entries: list[Entry], envelopes: list[bytes], kind: str = MESSAGE) -> None:
        """See ``Several``. A row of another ``kind`` has not the body, but what refers to it."""
        self._count_new(entries)  # first: it may refuse
        group, earlier, as_of = self._group, self._earlier, self._store.folding
        bodies, changed, is_any_gone = group.bodies, group.entries, bool(group.removed or earlier.removed)
        referenced = self._referenced if kind == MESSAGE else None
        ready: list[Entry] = []
        for entry, envelope in zip(entries, envelopes, strict=True):
            key = entry.key
            if is_any_gone and (key in group.removed or key in earlier.removed):
                self._unwritten.write()
            row = referenced.new_row(entry, envelope) if referenced else (envelope, kind, entry.created_wall)
            bodies[key] = row
            changed[key] = (entry, as_of)
            as_of += 1
            group.bytes += len(row[0])
            if entry.state is _READY:
                ready.append(entry)
        self._store.folding = as_of - 1
        if ready:
            self.ready.add(ready)
        self._note(entries)

    def _count_new(self, entries: list[Entry]) -> None:
        state, size = entries[0].state, 0
        for entry in entries:
            if entry.state is not state:
                break
            size += entry.size
        else:
            self._book.count(entries[0].queue, None, state, size, len(entries))
            return
        for entry in entries:
            self._book.count(entry.queue, None, entry.state, entry.size)

    def update(self, entries: list[Entry], before: State) -> None:
        changed, read, as_of = self._group.entries, self._entries, self._store.folding
        queue, after, size = entries[0].queue, entries[0].state, 0
        for entry in entries:
            key = entry.key
            changed[key] = (entry, as_of)
            as_of += 1
            read.pop(key, None)
            size += entry.size
        self._store.folding = as_of - 1
        if before is _READY:
            if after is _READY:  # their positions may be other ones
                self.ready.forget(queue)
            else:
                self.ready.remove(entries)
        elif after is _READY:
            self.ready.add(entries)
        if before is not after:
            self._book.count(queue, before, after, size, len(entries))
        self._note(entries)

    def replace(self, entry: Entry, envelope: bytes) -> None:
        """See ``Store.replace``."""
        key = entry.key
        before = self._store.get(key)
        if self._referenced and before:
            self._referenced.removing(before)
        self._group.replace(key, envelope)
        self._bodies.forget(key)
        self.update([entry], entry.state)

    def move(self, entry: Entry, source: str, before: State) -> None:
        """See ``Store.update``, for a message that has left its queue."""
        self._unwritten.write()
        changes = changes_of(row_of(entry, self._store.folding))
        self._db.change_row(self._db.sql.move, [entry.queue, *changes, entry.key])
        self._group.entries[entry.key] = (entry, self._store.folding)
        self._entries.pop(entry.key, None)
        self.ready.forget(source)
        self.ready.forget(entry.queue)
        self._space.touch(source, entry.seq)
        self._book.count(source, before, None, entry.size)
        self._book.count(entry.queue, None, entry.state, entry.size)
        if entry.order_key:
            self.turns.update(source, entry.order_key)
        self._note([entry])
        if self._referenced:
            self._note_birth(entry, source, self._referenced.kind)

    def _note_birth(self, entry: Entry, source: str, kind: str) -> None:
        """A message with a body in a file has moved: what refers to that is to say in which queue it was born."""
        row = self._bodies.row(entry.key)
        reference = reference_of(entry.key, *row) if row and row[1] == kind else None
        if reference:
            value = reference_value(reference.moved(source, entry.queue))
            values = (value.decode(), value_crc(entry.key, value, kind), entry.key)
            self._db.execute(self._db.sql.set_value, values)

    def _note(self, entries: list[Entry]) -> None:
        """What follows from a change of messages of one queue. Raises ``StoreError`` for a time that SQLite cannot
        store: it must be refused before the journal has it."""
        self._group.queues.add(entries[0].queue)
        self._space.touch_several(entries)
        noted: tuple[int, int, int, int] | None = None
        for entry in entries:
            if entry.lease_until or entry.due or entry.expires or entry.fallback or entry.state is _DELAYED:
                times = (entry.lease_until, entry.due, entry.expires, entry.fallback)
                if times != noted:
                    noted = times
                    self._due.note(entry)
            if entry.order_key:
                self.ready.forget(entry.queue)
                self.turns.update(entry.queue, entry.order_key)

    def delete(self, entries: list[Entry], before: State) -> None:
        queue, size = entries[0].queue, 0
        group, earlier_bodies = self._group, self._earlier.bodies
        bodies, changed, removed = group.bodies, group.entries, group.removed
        read, referenced = self._entries, self._referenced
        cached, ahead = self._bodies.cached, self._bodies.ahead
        if before is _READY:
            self.ready.remove(entries)
        for entry in entries:
            key = entry.key
            if referenced:
                referenced.removing(entry)
            if key in bodies:
                group.remove(key)
            else:
                removed[key] = None
                changed.pop(key, None)
                if group.replaced:
                    group.replaced.pop(key, None)
                if key not in earlier_bodies:
                    self._space.free(entry.size)
                    read.pop(key, None)
            cached.pop(key, None)
            ahead.pop(key, None)
            size += entry.size
            if entry.order_key:
                self.ready.forget(queue)
                self.turns.update(queue, entry.order_key)
        self._space.touch_several(entries)
        group.queues.add(queue)
        self._book.count(queue, before, None, size, len(entries))

    def first_ready(self, queue: str, consumer: str) -> Entry | None:
        """See ``Store.next_ready``."""
        anyone, mine = self._heads(queue, consumer, 1)
        if anyone and mine:
            return min(anyone[0], mine[0], key=_delivery_order)
        if anyone:
            self._bodies.read_ahead(anyone)
        return anyone[0] if anyone else mine[0] if mine else None

    def next_ready(self, queue: str, consumer: str, limit: int) -> list[Entry]:
        if limit == 1:
            entry = self.first_ready(queue, consumer)
            return [entry] if entry else []
        anyone, mine = self._heads(queue, consumer, limit)
        entries = [*islice(merge(anyone, mine, key=_delivery_order) if anyone and mine else anyone or mine, limit)]
        if len(entries) > 1:
            self._bodies.read_several(entries)
            read, group, earlier = self._entries, self._group.entries, self._earlier.entries
            for entry in entries:  # whoever asks is about to get each by its key
                key = entry.key
                if key not in read and key not in group and key not in earlier:
                    self._read.remember(key, entry)
        return entries

    def _heads(self, queue: str, consumer: str, wanted: int) -> tuple[deque[Entry], deque[Entry]]:
        """The ready messages for anyone and those for a consumer that come next: at least ``wanted`` of each, if there
        are so many."""
        record = self._store.queue(queue)
        if record is None or not record.counts[_READY]:
            return _NONE, _NONE
        head = self._head(queue, "", wanted)
        anyone, mine = head.entries, _NONE
        if consumer and not (head.is_all and len(anyone) == record.counts[_READY]):
            mine = self._head(queue, consumer, wanted).entries
        if not anyone and not mine and not self._store.pages.scan(queue, _READY, (), 1)[0]:  # for others, or in turn
            raise StoreDamaged(f"{self._db.path}: queue {queue!r} counts ready messages, its index has none")
        return anyone, mine

    def next_of(self, queue: str, target: str, count: int) -> list[Entry]:
        """The next ready messages of a target, at most ``count``."""
        return [*islice(self._head(queue, target, count).entries, count)]

    def _head(self, queue: str, target: str, wanted: int = 1) -> Head:
        """The ready messages of a target that come next: at least ``wanted``, if there are so many."""
        head = self.ready.head(queue, target)
        if len(head.entries) < wanted and not head.is_all:
            count = max(wanted, head.next_count())
            is_written = queue not in self._group.queues and queue not in self._earlier.queues
            ask = self._db.rows_of if is_written else self._db.rows
            rows = ask(self._db.sql.pick, (queue, 0, target, count))
            self.ready.fill(head, self._read.several_of(rows, _READY), is_all=len(rows) < count)
        return head


def _delivery_order(entry: Entry) -> tuple[int, int]:
    """What ready messages are delivered in the order of."""
    return -entry.priority, entry.position
