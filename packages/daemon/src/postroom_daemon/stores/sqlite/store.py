"""The SQLite store: messages, queue records and key-values in one database, beside the journal.

Its commits are cheap because they are few: up to ``GROUPS_LIMIT`` groups share one transaction of the database. The
journal has them all, so a crash costs no more than a longer replay.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final

import orjson

from postroom_common.protocol import State

from ...model.observer import Participant
from ...model.records import Entry, QueueRecord
from ..base import Audit, Bodies, BodyLost, Disk, Store, StoreDamaged, StoreError
from ..book import QueueBook
from .caches import EntryCache, ReadyRows, SpaceEstimate
from .database import Database, translated
from .pages import KV_KEY, QUEUE_KEY, SqliteDue, SqlitePages, Turns, checked
from .references import ReferencedBodies, reference_of, reference_value
from .rows import changes_of, row_of, value_crc, value_holds
from .salvage import SqliteRecovery

log = logging.getLogger(__name__)

#: The key-value of a database some of whose bodies are in files.
PAYLOADS_KV: Final = "payloads"
#: Groups that share a transaction of the database: a page is written once for all of them.
GROUPS_LIMIT: Final = 64
#: Rows that such a transaction changes, about: the write-ahead log cannot be folded before its end.
ROWS_LIMIT: Final = 4000
#: Queue records that are cached: there may be any number of queues.
RECORDS_LIMIT: Final = 4096


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
        self.entries = EntryCache(path)
        self.book = QueueBook()
        self._ready = ReadyRows(self.db.sql, self.entries)
        self._space = SpaceEstimate()
        self._turns = Turns(self.db)
        self._due = SqliteDue(self.db, self.entries, self)
        self._referenced = referenced
        self._participants: list[Participant] = [self.book, self._space, self.entries, self._ready, self._due]
        if referenced:
            self._participants.append(referenced)
        self._in_group = False
        self._groups = 0  # written, and not committed yet
        self._changes_before = self._changes_at_begin = 0
        self._changed: set[str] = set()  # queues whose records these groups have changed
        self._applied_before = 0
        self.due, self.pages = self._due, SqlitePages(self.db, self.entries)
        self.bodies = referenced or Bodies()
        self.disk = SqliteDisk(self, self._space, referenced)
        self.recovery = self._recovery = SqliteRecovery(self, self.db, self._turns, referenced)
        self.audit = Audit(self)

    # --- life -----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        self.book.clear()
        self.entries.clear()
        self._ready.clear()
        self._space.commit()
        self._in_group, self._groups, self._changes_before = False, 0, 0
        self._changed.clear()
        self.db.open()
        try:
            self.applied = self._applied_before = self.get_kv("applied") or 0
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
            if not self._in_group:
                self.flush()
        except (StoreError, sqlite3.ProgrammingError) as error:  # it may be closed already
            log.warning("%s; the journal has what the store has not", error)
        self.db.close()
        if self._referenced:
            self._referenced.close()

    # --- transactions ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._check_written()
        self._applied_before = self.applied
        if not self.db.connection.in_transaction:
            self.db.execute("BEGIN IMMEDIATE")
        self.db.execute("SAVEPOINT one_group")
        self._in_group, self._changes_at_begin = True, self.db.connection.total_changes
        for one in self._participants:
            one.begin()

    def flush_pending(self) -> None:
        if self.db.pending:
            self.db.write_pending()

    def commit(self) -> None:
        if self._referenced:
            self._referenced.flush()
        self.db.execute("RELEASE one_group")
        self._in_group = False
        self._changed.update(self.book.changed())
        self._applied_before = self.applied
        changes = self.db.connection.total_changes
        self._groups += changes > self._changes_at_begin
        for one in self._participants:
            one.commit()
        if self._groups >= GROUPS_LIMIT or changes - self._changes_before > ROWS_LIMIT:
            self.flush()
        self.book.forget_oldest(RECORDS_LIMIT, self._changed)

    def rollback(self) -> None:
        began, self._in_group = self._in_group, False
        self.db.pending.rollback()
        for one in self._participants:
            one.rollback()
        self.applied = self.folding = self._applied_before
        connection = self.db.connection
        try:
            if began and connection.in_transaction:
                connection.execute("ROLLBACK TO one_group")
                connection.execute("RELEASE one_group")
        except sqlite3.Error as error:
            if connection.in_transaction:
                raise translated(error, self.db.path) from error
        self._check_written()

    def flush(self) -> None:
        """Commit the groups written since the last time; after a kill before this, the next start folds them again."""
        self._check_written()
        if not self.db.connection.in_transaction:
            return
        for name in self._changed & self.book.values.keys():  # one may have been deleted since
            self._put_record(self.book.values[name])
        self.put_kv("applied", self.applied)
        self.db.execute("COMMIT")
        self._groups, self._changes_before = 0, self.db.connection.total_changes
        self._changed.clear()
        self._space.clear()

    def _check_written(self) -> None:
        """Raise ``StoreError`` if written groups are gone: after some errors, also of a commit, SQLite rolls back its
        whole transaction. Nothing may then rely on ``applied``."""
        if self._groups and not self.db.connection.in_transaction:
            raise StoreError(
                f"{self.db.path}: groups that had been written are rolled back; the store must be reopened"
            )

    # --- messages -------------------------------------------------------------------------------------------------

    def get(self, key: str) -> Entry | None:
        cached = self.entries.entry(key)
        if cached is not None:
            return cached
        row = self.db.row_of(self.db.sql.get, key)
        return self.entries.entry_of(row) if row else None

    def envelope(self, key: str) -> bytes:
        cached = self.entries.body(key)
        if cached is not None:
            return cached
        row = self.db.row_of(self.db.sql.get_value, key)
        if row is None:
            if self.get(key) is None:
                raise StoreError(f"no body for {key}")
            raise BodyLost(key, f"it is not in {self.db.path}")
        if self._referenced and row[1] == self._referenced.kind:
            body = self._referenced.read(key, row)
        elif value_holds(key, *row):
            body = str(row[0]).encode()
        else:
            raise BodyLost(key, f"it has changed in {self.db.path}")
        self.entries.put_body(key, body)
        return body

    def insert(self, entry: Entry, envelope: bytes) -> None:
        self.insert_value(entry, envelope.decode(), "message")

    def insert_value(self, entry: Entry, value: str, kind: str) -> None:
        """Store a new message with a row of ``kind`` in ``kv``: its body, or what refers to it."""
        e = entry
        self._space.add(entry.size)
        self._count(e.queue, None, e.state, e.size)  # first: it may refuse
        if self.db.pending.must_flush(e.key):
            self.db.write_pending()
        crc = value_crc(e.key, value, kind)
        body = (e.key, value, kind, e.created_wall, e.created_wall, crc)
        self.db.pending.add(body, row_of(e, self.folding))
        self._ready.clear()
        self._note(e)

    def update(self, entry: Entry, before: State) -> None:
        self.db.pending.change([*changes_of(row_of(entry, self.folding)), entry.key])
        if before is not State.READY or entry.state is not State.INFLIGHT:
            self._ready.clear()
        self._count(entry.queue, before, entry.state, entry.size)
        self._note(entry)

    def move(self, entry: Entry, source: str, before: State) -> None:
        self._ready.clear()
        row = [entry.queue, *changes_of(row_of(entry, self.folding)), entry.key]
        self.db.change_row(self.db.sql.move, row)
        self._count(source, before, None, entry.size)
        self._count(entry.queue, None, entry.state, entry.size)
        if entry.order_key:
            self._turns.update(source, entry.order_key)
        self._note(entry)
        if self._referenced:
            self._note_birth(entry, source, self._referenced.kind)

    def _note_birth(self, entry: Entry, source: str, kind: str) -> None:
        """A message with a body in a file has moved: what refers to that is to say in which queue it was born."""
        row = self.db.row(self.db.sql.get_value, (entry.key,))
        reference = reference_of(entry.key, *row) if row and row[1] == kind else None
        if reference:
            value = reference_value(reference.moved(source, entry.queue))
            self.db.execute(self.db.sql.set_value, (value, value_crc(entry.key, value, kind), entry.key))

    def _note(self, entry: Entry) -> None:
        """What follows from a row that was written."""
        self._space.touch(entry.seq)
        self.entries.put(entry)
        self._due.note(entry)
        if entry.order_key:
            self._ready.clear()
            self._turns.update(entry.queue, entry.order_key)

    def delete(self, entry: Entry, before: State) -> None:
        if self._referenced:
            self._referenced.removing(entry)
        self.db.pending.remove(entry.key)
        if before is State.READY:
            self._ready.clear()
        self._space.free(entry.seq, entry.size)
        self._count(entry.queue, before, None, entry.size)
        if entry.order_key:
            self._ready.clear()
            self._turns.update(entry.queue, entry.order_key)
        self.entries.remove(entry.key)

    def next_ready(self, queue: str, consumer: str) -> Entry | None:
        record = self.queue(queue)
        if record is None or not record.counts[State.READY]:
            return None
        anyone = self._ready.first(self.db.rows, queue, "")
        mine = self._ready.first(self.db.rows, queue, consumer) if consumer else None
        found = [checked(entry, State.READY, self.db) for entry in (anyone, mine) if entry]
        if not found and not self.pages.scan(queue, State.READY, (), 1)[0]:  # nor for anybody else, nor in turn
            raise StoreDamaged(f"{self.db.path}: queue {queue!r} counts ready messages, its index has none")
        return min(found, key=lambda e: (-e.priority, e.seq), default=None)

    # --- queues and key-values ------------------------------------------------------------------------------------

    def queue(self, name: str) -> QueueRecord | None:
        record = self.book.values.get(name)
        if record is None:
            value = self.db.value(QUEUE_KEY + name)
            if value is not None:
                record = self.book.values[name] = QueueRecord.from_json(orjson.loads(value))
        return record

    def queue_for_update(self, name: str) -> QueueRecord:
        if name not in self.book.values:
            self.queue(name)
        return self.book.touch(name)

    def add_queue(self, record: QueueRecord) -> None:
        self.book.set(record.name, record)
        self._put_record(record)  # now, for Pages.queue_names; flush writes the final counters

    def _put_record(self, record: QueueRecord) -> None:
        self.db.put_value(QUEUE_KEY + record.name, orjson.dumps(record.to_json()).decode(), "queue")

    def delete_queue(self, name: str) -> None:
        if self.queue(name) is not None:
            self.book.remove(name)
            self.db.execute(self.db.sql.delete_value, (QUEUE_KEY + name,))

    def _count(self, queue: str, before: State | None, after: State | None, size: int) -> None:
        if queue not in self.book.values:
            self.queue(queue)
        self.book.count(queue, before, after, size)

    def get_kv(self, name: str) -> Any:
        value = self.db.value(KV_KEY + name)
        return None if value is None else orjson.loads(value)

    def put_kv(self, name: str, value: Any) -> None:
        if value is None:
            self.db.execute(self.db.sql.delete_value, (KV_KEY + name,))
        else:
            self.db.put_value(KV_KEY + name, orjson.dumps(value).decode(), "fact")
        if self.on_put_kv:
            self.on_put_kv(name, value)


class SqliteDisk(Disk):
    """The database file of a store, and what it refers to."""

    def __init__(self, store: SqliteStore, space: SpaceEstimate, referenced: ReferencedBodies | None) -> None:
        self._store = store
        self._referenced = referenced
        self._db = store.db
        self._space = space

    def files(self) -> list[Path]:
        return self._db.files()

    def probe(self) -> None:
        self._db.probe()
        if self._referenced:
            self._referenced.probe()

    def space_needed(self, events: int) -> int:
        return self._space.needed()

    def checkpoint(self) -> int:
        if self._referenced:
            self._referenced.sync()
        self._store.flush()
        durable = self._store.applied if self._db.fold_log() else 0
        if self._referenced:
            self._referenced.checkpointed()
        return durable

    def tidy(self) -> None:
        self._store.flush()
        try:
            self._db.give_back()
        except StoreDamaged:
            raise
        except StoreError as error:
            log.warning("space is not returned: %s", error)
