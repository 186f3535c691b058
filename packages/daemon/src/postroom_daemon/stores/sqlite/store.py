"""The SQLite store: messages, queue records and key-values in one database, beside the journal.

A group only changes memory. The database is written for many groups at once, in one transaction, when somebody asks a
question that only it can answer, or when enough has changed. The journal has it all, so a crash costs no more than a
longer replay; a message that was published and acknowledged meanwhile never touches the database.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import deque
from collections.abc import Callable
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final

import orjson

from postroom_common.protocol import State

from ...model.observer import Participant
from ...model.records import Entry, QueueRecord
from ..base import Bodies, Store
from ..book import QueueBook
from ..errors import NotStored, StoreDamaged, StoreError
from ..recovery import Audit
from .body_cache import BodyCache
from .changes import MESSAGE
from .database import Database
from .disk import SqliteDisk
from .entry_cache import EntryCache
from .pages import KV_KEY, QUEUE_KEY, SqliteDue, SqlitePages, Turns
from .ready import Head, ReadyHeads
from .references import ReferencedBodies, reference_of, reference_value
from .rows import changes_of, row_of, value_crc
from .salvage import SqliteRecovery
from .unwritten import Unwritten

log = logging.getLogger(__name__)

#: The key-value of a database some of whose bodies are in files.
PAYLOADS_KV: Final = "payloads"
#: Queue records that are cached: there may be any number of queues.
RECORDS_LIMIT = 4096
#: Key-values that are cached, and how long (characters) they may be: histories of failures are long, and rarely read.
_VALUES_LIMIT: Final = 1024
_VALUE_LENGTH: Final = 4096
#: No messages. Never change it.
_NONE: Final[deque[Entry]] = deque()
#: Used for every message, and slow to look up in their class.
_READY, _DELAYED = State.READY, State.DELAYED


class SqliteStore(Store):
    """``kv`` and ``msg`` are the names of the tables, ``busy_ms`` is how long to wait for another process that has the
    database open. ``referenced`` are the bodies outside of it, if there are any."""

    name: ClassVar[str] = "sqlite"
    #: Called with each key-value that is stored, if somebody keeps books on them.
    on_put_kv: Callable[[str, Any], None] | None = None

    def __init__(
        self,
        path: Path,
        kv: str = "kv",
        msg: str = "msg_index",
        synchronous: str = "NORMAL",
        busy_ms: int = 5000,
        referenced: ReferencedBodies | None = None,
    ) -> None:
        self.db = Database(path, kv, msg, synchronous, busy_ms)
        self.book = QueueBook()
        self.ready = ReadyHeads()
        self._read = EntryCache(path)
        self._entries = self._read.values
        self._unwritten = Unwritten(self.db, self._read)
        self._group, self._earlier = self._unwritten.group, self._unwritten.earlier
        self._space = self._unwritten.space
        self.db.before_query = self._unwritten.write
        self._values: dict[str, str | None] = {}  # key-values as the database has them
        self._turns = Turns(self.db)
        self._due = SqliteDue(self.db, self._read.of, self.update)
        self._referenced = referenced
        self.body_cache = BodyCache(self.db, self._unwritten, referenced, self.get)
        self._participants: list[Participant] = [self.book, self._due]
        if referenced:
            self._participants.append(referenced)
        self._applied_before = self._applied_stored = 0
        self._changed: set[str] = set()  # queues whose records the groups that wait have changed
        self.due = self._due
        self.pages: SqlitePages = SqlitePages(self.db, self._read.of)
        self.bodies = referenced or Bodies()
        self.disk = SqliteDisk(self, self.db, self._unwritten, referenced)
        self.recovery = self._recovery = SqliteRecovery(self, self.db, self._turns, referenced)
        self.audit = Audit(self)

    # --- life -----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        self.book.clear()
        self._forget_reads()
        self._changed.clear()
        self.db.open()
        self._unwritten.opened()
        try:
            self.applied = self._applied_before = self._applied_stored = self.get_kv("applied") or 0
            if self._referenced is None and self.get_kv(PAYLOADS_KV):
                path = self.db.path
                raise StoreError(f"{path}: the store of backend hybrid, whose bodies lie in files: use that backend")
            self._due.refresh()
            self._recovery.opened()
        except StoreError:
            self.db.close()
            raise
        if self._referenced:
            try:
                self._referenced.open()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        try:
            if not self._unwritten.in_group:
                self.flush()
        except (StoreError, sqlite3.ProgrammingError) as error:  # it may be closed already
            log.warning("%s; the journal has what the store has not", error)
        self.db.close()
        if self._referenced:
            self._referenced.close()

    # --- transactions ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._unwritten.begin()
        self._applied_before = self.applied

    def commit(self) -> None:
        self._unwritten.commit(self.applied != self._applied_before)
        self._applied_before = self.applied
        if self.book.before:
            self._changed.update(self.book.before)
        if self.body_cache.cached:
            self.body_cache.clear()
        for one in self._participants:
            one.commit()
        if self._unwritten.is_much:
            self.flush()
        if len(self.book.values) > RECORDS_LIMIT:
            self.book.forget_oldest(RECORDS_LIMIT, self._changed)

    def rollback(self) -> None:
        self._forget_reads()
        for one in self._participants:
            one.rollback()
        self.applied = self.folding = self._applied_before
        self._unwritten.rollback()

    def flush(self) -> None:
        """Commit the changes of all groups since the last time; a process that is killed before folds them again."""
        unwritten = self._unwritten
        if not unwritten.is_anything:
            return
        unwritten.begin_transaction()
        if self._referenced:
            self._referenced.flush()
        for name in self._changed & self.book.values.keys():  # one may have been deleted since
            self._put_record(self.book.values[name])
        if self.applied != self._applied_stored:
            self.put_kv("applied", self.applied)
        unwritten.commit_transaction()
        if self._referenced:
            self._referenced.flushed()
        self._applied_stored = self.applied
        self._changed.clear()

    def _forget_reads(self) -> None:
        self._entries.clear()
        self._values.clear()
        self.body_cache.forget_all()
        self.ready.clear()

    # --- messages -------------------------------------------------------------------------------------------------

    def get(self, key: str) -> Entry | None:
        group, earlier = self._group, self._earlier
        changed = group.entries.get(key)
        if changed:
            return changed[0]
        if key in group.removed:
            return None
        changed = earlier.entries.get(key)
        if changed:
            return changed[0]
        if key in earlier.removed:
            return None
        entry = self._entries.get(key)
        if entry is None:
            row = self.db.row_of(self.db.sql.get, (key,))
            entry = self._read.of(row) if row else None
        return entry

    def envelope(self, key: str) -> bytes:
        new = self._earlier.bodies.get(key)
        if new is not None and new[1] == MESSAGE and key not in self._group.removed and key not in self._group.replaced:
            return new[0]
        body = self.body_cache.cached.get(key)
        return self.body_cache.read(key) if body is None else body

    def insert(self, entry: Entry, envelope: bytes, kind: str = MESSAGE) -> None:
        """See ``Store``. A row of another ``kind`` has not the body, but what refers to it."""
        self.insert_several([entry], [envelope], kind)

    def insert_several(self, entries: list[Entry], envelopes: list[bytes], kind: str = MESSAGE) -> None:
        """See ``Store``, and ``insert``."""
        self._count_new(entries)  # first: it may refuse
        group, earlier, as_of = self._group, self._earlier, self.folding
        bodies, changed, is_any_gone = group.bodies, group.entries, bool(group.removed or earlier.removed)
        ready: list[Entry] = []
        for entry, envelope in zip(entries, envelopes, strict=True):
            key = entry.key
            if is_any_gone and (key in group.removed or key in earlier.removed):
                self._unwritten.write()
            bodies[key] = (envelope, kind, entry.created_wall)
            changed[key] = (entry, as_of)
            as_of += 1
            group.bytes += len(envelope)
            if entry.state is _READY:
                ready.append(entry)
        self.folding = as_of - 1
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
            self._count(entries[0].queue, None, state, size, len(entries))
            return
        for entry in entries:
            self._count(entry.queue, None, entry.state, entry.size)

    def update(self, entry: Entry, before: State) -> None:
        self.update_several([entry], before)

    def update_several(self, entries: list[Entry], before: State) -> None:
        changed, read, as_of = self._group.entries, self._entries, self.folding
        queue, after, size = entries[0].queue, entries[0].state, 0
        for entry in entries:
            key = entry.key
            changed[key] = (entry, as_of)
            as_of += 1
            read.pop(key, None)
            size += entry.size
        self.folding = as_of - 1
        if before is _READY:
            if after is _READY:  # their positions may be other ones
                self.ready.forget(queue)
            else:
                self.ready.remove(entries)
        elif after is _READY:
            self.ready.add(entries)
        if before is not after:
            self._count(queue, before, after, size, len(entries))
        self._note(entries)

    def replace(self, entry: Entry, envelope: bytes) -> None:
        key = entry.key
        before = self.get(key)
        if self._referenced and before:
            self._referenced.removing(before)
        self._group.replace(key, envelope)
        self.body_cache.forget(key)
        self.update(entry, entry.state)

    def move(self, entry: Entry, source: str, before: State) -> None:
        self._unwritten.write()
        changes = changes_of(row_of(entry, self.folding))
        self.db.change_row(self.db.sql.move, [entry.queue, *changes, entry.key])
        self._group.entries[entry.key] = (entry, self.folding)
        self._entries.pop(entry.key, None)
        self.ready.forget(source)
        self.ready.forget(entry.queue)
        self._space.touch(source, entry.seq)
        self._count(source, before, None, entry.size)
        self._count(entry.queue, None, entry.state, entry.size)
        if entry.order_key:
            self._turns.update(source, entry.order_key)
        self._note([entry])
        if self._referenced:
            self._note_birth(entry, source, self._referenced.kind)

    def _note_birth(self, entry: Entry, source: str, kind: str) -> None:
        """A message with a body in a file has moved: what refers to that is to say in which queue it was born."""
        row = self.body_cache.row(entry.key)
        reference = reference_of(entry.key, *row) if row and row[1] == kind else None
        if reference:
            value = reference_value(reference.moved(source, entry.queue))
            values = (value.decode(), value_crc(entry.key, value, kind), entry.key)
            self.db.execute(self.db.sql.set_value, values)

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
                self._turns.update(entry.queue, entry.order_key)

    def delete(self, entry: Entry, before: State) -> None:
        self.delete_several([entry], before)

    def delete_several(self, entries: list[Entry], before: State) -> None:
        queue, size = entries[0].queue, 0
        group, earlier_bodies = self._group, self._earlier.bodies
        bodies, changed, removed = group.bodies, group.entries, group.removed
        read, body_cache, referenced = self._entries, self.body_cache, self._referenced
        cached, ahead = body_cache.cached, body_cache.ahead
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
                self._turns.update(queue, entry.order_key)
        self._space.touch_several(entries)
        group.queues.add(queue)
        self._count(queue, before, None, size, len(entries))

    def next_ready(self, queue: str, consumer: str) -> Entry | None:
        anyone, mine = self._heads(queue, consumer, 1)
        if anyone and mine:
            return min(anyone[0], mine[0], key=_delivery_order)
        if anyone:
            self.body_cache.read_ahead(anyone)
        return anyone[0] if anyone else mine[0] if mine else None

    def next_several(self, queue: str, consumer: str, limit: int) -> list[Entry]:
        if limit == 1:
            entry = self.next_ready(queue, consumer)
            return [entry] if entry else []
        anyone, mine = self._heads(queue, consumer, limit)
        entries = [*islice(merge(anyone, mine, key=_delivery_order) if anyone and mine else anyone or mine, limit)]
        if len(entries) > 1:
            self.body_cache.read_several(entries)
            read, group, earlier = self._entries, self._group.entries, self._earlier.entries
            for entry in entries:  # whoever asks is about to get each by its key
                key = entry.key
                if key not in read and key not in group and key not in earlier:
                    self._read.remember(key, entry)
        return entries

    def _heads(self, queue: str, consumer: str, wanted: int) -> tuple[deque[Entry], deque[Entry]]:
        """The ready messages for anyone and those for a consumer that come next: at least ``wanted`` of each, if there
        are so many."""
        record = self.queue(queue)
        if record is None or not record.counts[_READY]:
            return _NONE, _NONE
        head = self._head(queue, "", wanted)
        anyone, mine = head.entries, _NONE
        if consumer and not (head.is_all and len(anyone) == record.counts[_READY]):
            mine = self._head(queue, consumer, wanted).entries
        if not anyone and not mine and not self.pages.scan(queue, _READY, (), 1)[0]:  # for others, or in turn
            raise StoreDamaged(f"{self.db.path}: queue {queue!r} counts ready messages, its index has none")
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
            ask = self.db.rows_of if is_written else self.db.rows
            rows = ask(self.db.sql.pick, (queue, 0, target, count))
            self.ready.fill(head, self._read.several_of(rows, _READY), is_all=len(rows) < count)
        return head

    # --- queues and key-values ------------------------------------------------------------------------------------

    def queue(self, name: str) -> QueueRecord | None:
        record = self.book.values.get(name)
        if record is None:
            value = self._value(QUEUE_KEY + name)
            if value is not None:
                record = self.book.values[name] = QueueRecord.from_json(orjson.loads(value))
        return record

    def queues(self, after: str, limit: int) -> list[QueueRecord]:
        values = self.book.values
        return [
            values.get(name) or QueueRecord.from_json(orjson.loads(value))
            for name, value in self.pages.queue_values(after, limit)
        ]

    def queue_for_update(self, name: str) -> QueueRecord:
        book = self.book
        record = book.values.get(name)
        if record is None:
            self.queue(name)
        elif name in book.before:
            return record
        return book.touch(name)

    def add_queue(self, record: QueueRecord) -> None:
        self.book.set(record.name, record)
        self._put_record(record)  # now, for Pages.queue_names; flush writes the final counters

    def _put_record(self, record: QueueRecord) -> None:
        self._put_value(QUEUE_KEY + record.name, (orjson.dumps(record.to_json()), "queue"))

    def delete_queue(self, name: str) -> None:
        if self.queue(name) is not None:
            self.book.remove(name)
            self._put_value(QUEUE_KEY + name, None)

    def _count(self, queue: str, before: State | None, after: State | None, size: int, messages: int = 1) -> None:
        try:
            self.book.count(queue, before, after, size, messages)
        except NotStored:  # nothing was counted
            if self.queue(queue) is None:
                raise
            self.book.count(queue, before, after, size, messages)

    def get_kv(self, name: str) -> Any:
        value = self._value(KV_KEY + name)
        return None if value is None else orjson.loads(value)

    def put_kv(self, name: str, value: Any) -> None:
        self._put_value(KV_KEY + name, None if value is None else (orjson.dumps(value), "fact"))
        if self.on_put_kv:
            self.on_put_kv(name, value)

    def _value(self, key: str) -> str | bytes | None:
        for changes in (self._group, self._earlier):
            if key in changes.values:
                changed = changes.values[key]
                return changed[0] if changed else None
        if key in self._values:
            return self._values[key]
        if len(self._values) >= _VALUES_LIMIT:
            self._values.clear()
        value = self.db.value(key)
        if value is None or len(value) <= _VALUE_LENGTH:
            self._values[key] = value
        return value

    def _put_value(self, key: str, value: tuple[bytes, str] | None) -> None:
        changes = self._group if self._unwritten.in_group else self._earlier
        changes.values[key] = value
        if value:
            changes.bytes += len(value[0])
        self._values.pop(key, None)


def _delivery_order(entry: Entry) -> tuple[int, int]:
    """What ready messages are delivered in the order of."""
    return -entry.priority, entry.position
