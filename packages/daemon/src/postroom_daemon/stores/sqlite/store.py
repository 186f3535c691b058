"""The SQLite store: messages, queue records and key-values in one database, beside the journal.

A group only changes memory. The database is written for many groups at once, in one transaction, when somebody asks a
question that only it can answer, or when enough has changed. The journal has it all, so a crash costs no more than a
longer replay; a message that was published and acknowledged meanwhile never touches the database.
"""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import ClassVar, Final

from postroom_common.protocol import State

from ...model.observer import Participant
from ...model.records import Entry, QueueRecord
from ..base import BodyFiles, Store
from ..errors import StoreError
from ..recovery import Audit
from .bodies import SqliteBodies
from .database import Database
from .disk import SqliteDisk
from .entry_cache import EntryCache
from .facts import SqliteFacts
from .messages import SqliteMessages
from .pages import SqliteDue, SqlitePages
from .records import SqliteBook
from .references import ReferencedBodies
from .salvage import SqliteRecovery
from .unwritten import Unwritten

log = logging.getLogger(__name__)

#: The key-value of a database some of whose bodies are in files.
PAYLOADS_KV: Final = "payloads"


class SqliteStore(Store):
    """``kv`` and ``msg`` are the names of the tables, ``busy_ms`` is how long to wait for another process that has the
    database open. ``referenced`` are the bodies outside of it, if there are any."""

    name: ClassVar[str] = "sqlite"

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
        self._read = EntryCache(path)
        self._entries = self._read.values
        self._unwritten = Unwritten(self.db, self._read)
        self._group, self._earlier = self._unwritten.group, self._unwritten.earlier
        self.db.before_query = self._unwritten.write
        self._referenced = referenced
        self.facts: SqliteFacts = SqliteFacts(self.db, self._unwritten)
        self.book = SqliteBook(self.facts)
        self.bodies: SqliteBodies = SqliteBodies(self.db, self._unwritten, referenced, self.get, self.facts)
        self.body_files = referenced or BodyFiles()
        self.pages = SqlitePages(self.db, self._read.of, self.book)
        self.due = self._due = SqliteDue(self.db, self._read.of, self.update)
        self.several: SqliteMessages = SqliteMessages(
            self, self.db, self._unwritten, self._read, self.book, self.bodies, self._due, referenced
        )
        self.disk = SqliteDisk(self, self.flush, self.db, self._unwritten, referenced)
        self.recovery = self._recovery = SqliteRecovery(self, self.db, self.several.turns, referenced)
        self.audit = Audit(self)
        self._participants: list[Participant] = [self.book, self._due]
        if referenced:
            self._participants.append(referenced)
        self._applied_before = self._applied_stored = 0

    # --- life -----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        self.book.clear()
        self._forget_reads()
        self.db.open()
        self._unwritten.opened()
        try:
            self.applied = self._applied_before = self._applied_stored = self.facts.get("applied") or 0
            if self._referenced is None and self.facts.get(PAYLOADS_KV):
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
        if self.bodies.cached:
            self.bodies.clear()
        for one in self._participants:
            one.commit()
        self.logs.commit()
        if self._unwritten.is_much:
            self.flush()
        self.book.trim()

    def rollback(self) -> None:
        self._forget_reads()
        for one in self._participants:
            one.rollback()
        self.logs.rollback()
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
        self.book.flush()
        if self.applied != self._applied_stored:
            self.facts.put("applied", self.applied)
        unwritten.commit_transaction()
        if self._referenced:
            self._referenced.flushed()
        self.book.flushed()
        self._applied_stored = self.applied

    def _forget_reads(self) -> None:
        self._entries.clear()
        self.facts.forget_all()
        self.bodies.forget_all()
        self.several.ready.clear()

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

    def insert(self, entry: Entry, envelope: bytes) -> None:
        self.several.insert([entry], [envelope])

    def update(self, entry: Entry, before: State, source: str | None = None) -> None:
        if source is None:
            self.several.update([entry], before)
        else:
            self.several.move(entry, source, before)

    def replace(self, entry: Entry, envelope: bytes) -> None:
        self.several.replace(entry, envelope)

    def delete(self, entry: Entry, before: State) -> None:
        self.several.delete([entry], before)

    def next_ready(self, queue: str, consumer: str) -> Entry | None:
        return self.several.first_ready(queue, consumer)

    # --- queues ---------------------------------------------------------------------------------------------------

    def queue(self, name: str) -> QueueRecord | None:
        return self.book.values.get(name) or self.book.read(name)

    def queue_for_update(self, name: str) -> QueueRecord:
        book = self.book
        record = book.values.get(name)
        if record is None:
            book.read(name)
        elif name in book.before:
            return record
        return book.touch(name)

    def add_queue(self, record: QueueRecord) -> None:
        self.book.add(record)

    def delete_queue(self, name: str) -> None:
        self.book.delete(name)
