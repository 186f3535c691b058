"""The transactions of the SQLite store: groups that share one, and the records of queues that it keeps."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Final

import orjson

from postroom_common.protocol import State

from ...model.records import QueueRecord
from ..base import StoreDamaged, StoreError
from ..book import QueueBook
from . import file as sqlite_file
from .database import SqliteDatabase
from .errors import translated

log = logging.getLogger(__name__)

#: Groups that share a transaction of the database. The journal has them all, so fewer commits cost nothing but a longer
#: replay, and save most of what is written: a page is written once for all of them.
GROUPS_LIMIT: Final = 64
#: Rows that such a transaction changes, about: the log cannot be folded before its end.
ROWS_LIMIT: Final = 4000
#: Records of queues that are kept in memory: there may be any number of queues.
RECORDS_LIMIT: Final = 4096
#: The prefix of the ``kv`` keys of queue records.
_QUEUE_KEY = "queue:"


class SqliteGroups(SqliteDatabase):
    """The part of the store that begins, keeps and takes back; see ``SqliteStore``."""

    def __init__(self, path: Path, kv: str, msg: str, synchronous: str, busy_ms: int) -> None:
        super().__init__(path, kv, msg, synchronous, busy_ms)
        self._book = QueueBook()
        self._applied_before = 0
        self._in_group = False
        self._groups = 0  # kept, and not committed yet
        self._changes_before = self._changes_at_begin = 0
        self._changed: set[str] = set()  # queues whose records these groups have changed

    def open(self) -> None:
        self._book = QueueBook()
        self._in_group, self._groups, self._changes_before = False, 0, 0
        self._waiting.forget()
        self._changed.clear()
        self._open_database()

    def _set_up(self) -> None:
        super()._set_up()
        self.applied = self._applied_before = self.get_kv("applied") or 0

    def close(self) -> None:
        try:
            if not self._in_group:
                self.flush()
        except (StoreError, sqlite3.ProgrammingError) as error:  # it may be closed already
            log.warning("%s; the journal has what the store has not", error)
        self._db.close()

    def begin(self) -> None:
        self._check_kept()
        self._applied_before = self.applied
        if not self._db.in_transaction:
            self._execute("BEGIN IMMEDIATE")
        self._execute("SAVEPOINT one_group")
        self._in_group, self._changes_at_begin = True, self._db.total_changes

    def commit(self) -> None:
        self._execute("RELEASE one_group")
        self._in_group = False
        self._changed.update(record.name for record in self._book.changed())
        self._applied_before = self.applied
        self._book.commit()
        self._groups += self._db.total_changes > self._changes_at_begin
        if self._groups >= GROUPS_LIMIT or self._db.total_changes - self._changes_before > ROWS_LIMIT:
            self.flush()
        self._book.forget_oldest(RECORDS_LIMIT, self._changed)

    def flush_pending(self) -> None:
        if self._waiting:
            self._write_waiting()

    def flush(self) -> None:
        """Commit the groups that are kept since the last time: a process that is killed before folds them anew."""
        self._check_kept()
        if not self._db.in_transaction:
            return
        for name in self._changed & self._book.records.keys():  # one may have been deleted since
            self._put(_QUEUE_KEY + name, orjson.dumps(self._book.records[name].to_json()).decode(), "queue")
        self.put_kv("applied", self.applied)
        self._execute("COMMIT")
        self._groups, self._changes_before = 0, self._db.total_changes
        self._changed.clear()

    def _check_kept(self) -> None:
        """Raise ``StoreError`` if kept groups are gone: after some errors, that of a commit among them, SQLite rolls
        back all of its transaction. Nothing may then be built on what ``applied`` says."""
        if self._groups and not self._db.in_transaction:
            raise StoreError(f"{self._path}: groups that had been kept are taken back; the store must be opened anew")

    def rollback(self) -> None:
        began, self._in_group = self._in_group, False
        self._waiting.forget()
        try:
            if began and self._db.in_transaction:
                self._db.execute("ROLLBACK TO one_group")
                self._db.execute("RELEASE one_group")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                raise translated(error, self._path) from error
        self._check_kept()
        self._book.rollback()
        self.applied = self._applied_before

    def checkpoint(self) -> int:
        self.flush()
        if sqlite_file.is_alone(self._db):
            busy, _, _ = self._row("PRAGMA wal_checkpoint(TRUNCATE)")
            return 0 if busy else self.applied
        _, pages, folded = self._row("PRAGMA wal_checkpoint(PASSIVE)")  # waits for nobody
        self._try_alone()
        return self.applied if pages == folded else 0

    def tidy(self) -> None:
        self.flush()
        try:
            sqlite_file.give_back(self._db)
        except sqlite3.Error as error:
            failure = translated(error, self._path)
            if isinstance(failure, StoreDamaged):
                raise failure from error
            log.warning("space is not given back: %s", failure)

    # --- queues -----------------------------------------------------------------------------------------------

    def queue(self, name: str) -> QueueRecord | None:
        record = self._book.records.get(name)
        if record is None:
            value = self._value(_QUEUE_KEY + name)
            if value is not None:
                record = self._book.records[name] = QueueRecord.from_json(orjson.loads(value))
        return record

    def add_queue(self, record: QueueRecord) -> None:
        self._book.put(record)
        # The row is written now, so that queue_names sees it; the commit writes the final counters.
        self._put(_QUEUE_KEY + record.name, orjson.dumps(record.to_json()).decode(), "queue")

    def delete_queue(self, name: str) -> None:
        if self.queue(name) is not None:
            self._book.remove(name)
            self._execute(self._sql.delete_value, (_QUEUE_KEY + name,))

    def queue_for_update(self, name: str) -> QueueRecord:
        if name not in self._book.records:
            self.queue(name)
        return self._book.touch(name)

    def _count(self, queue: str, before: State | None, after: State | None, size: int) -> None:
        if queue not in self._book.records:
            self.queue(queue)
        self._book.move(queue, before, after, size)

    def queue_names(self, after: str, limit: int) -> list[str]:
        rows = self._rows(self._sql.queue_keys, (_QUEUE_KEY + after, limit))
        return [row[0][len(_QUEUE_KEY) :] for row in rows]
