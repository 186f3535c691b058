"""The SQLite store: WAL, synchronous=NORMAL, one writer. What a power cut takes back, the journal redoes.

Every hot question is one index probe. Bodies lie in ``kv`` under ``msg:{queue}:{id}``, states in ``msg_index``; queue
records and single facts are ``kv`` rows of their own types. Each row is closed by a checksum: a body that has changed
is lost, any other row that has changed is a damaged store.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import orjson

from postroom_common.events import Event
from postroom_common.protocol import State

from ..records import Entry, QueueRecord
from . import sqlite_file, sqlite_salvage, sqlite_schema
from .base import BodyLost, Store, StoreBusy, StoreDamaged, StoreError
from .book import QueueBook
from .sqlite_errors import translated
from .sqlite_rows import Row, changes_of, entry_of, row_holds, row_of, value_crc, value_holds
from .sqlite_salvage import SALVAGE_FACT, Refold
from .sqlite_statements import Statements

log = logging.getLogger(__name__)

#: Groups that share a transaction of the database. The journal has them all, so fewer commits cost nothing but a longer
#: replay, and save most of what is written: a page is written once for all of them.
GROUPS_LIMIT: Final = 64
#: Rows that such a transaction changes, about: the log cannot be folded before its end.
ROWS_LIMIT: Final = 4000
#: Prefixes of the ``kv`` keys that are no messages.
_QUEUE_KEY = "queue:"
_FACT_KEY = "fact:"
#: The fact that bodies lie in files: whoever does not know of them must not use the database.
PAYLOADS_FACT: Final = "payloads"
#: Priorities and targets that ``oldest_ready`` looks at before it settles for the oldest among them.
_CLASSES_LIMIT = 256


class SqliteStore(Store):
    """See the module. ``busy_ms`` is how long another process that reads the database may hold us up."""

    name: ClassVar[str] = "sqlite"

    def __init__(
        self, path: Path, kv: str = "kv", msg: str = "msg_index", synchronous: str = "NORMAL", busy_ms: int = 5000
    ) -> None:
        self._path = path
        self._tables = {"kv": kv, "msg": msg}
        self._sql = Statements(kv, msg)
        self._synchronous = synchronous
        self._busy_ms = busy_ms
        self._book = QueueBook()
        self._group: dict[str, Entry] = {}  # entries that this transaction has seen: no second SELECT for them
        self._due_hint: int | None = None  # no delayed message or lease is due before this
        self._applied_before = 0
        self._in_group = False
        self._groups = 0  # kept, and not committed yet
        self._changes_before = self._changes_at_begin = 0
        self._changed: set[str] = set()  # queues whose records these groups have changed
        self._refold: Refold | None = None  # while the journal is folded onto salvaged rows
        self._event = 0  # that is being folded: what the rows it changes will show
        self._read: tuple[str, bytes] = ("", b"")  # the body that was read last

    # --- life -------------------------------------------------------------------------------------------------

    def files(self) -> list[Path]:
        return [self._path.with_name(self._path.name + suffix) for suffix in ("", "-wal", "-shm")]

    def open(self) -> None:
        self._book = QueueBook()
        self._in_group, self._groups, self._changes_before = False, 0, 0
        self._changed.clear()
        self._forget_group()
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in self.files():
            if path.exists() and not path.is_file():
                raise StoreDamaged(f"{path}: a directory or special file, where the database should be")
        sqlite_file.adopt(self._salvaged, self._path)
        try:
            self._db = sqlite_file.connect(self._path, self._synchronous, self._busy_ms)
        except sqlite3.Error as error:
            raise translated(error, self._path) from error
        try:
            self._set_up()
        except sqlite3.Error as error:
            self._db.close()
            raise translated(error, self._path) from error
        except StoreError:
            self._db.close()
            raise

    def _set_up(self) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > sqlite_schema.VERSION:
            raise StoreError(
                f"{self._path}: format {version} is newer than this version of postroomd knows"
                f" ({sqlite_schema.VERSION}): upgrade postroomd"
            )
        if version == 0 and self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StoreError(
                f"{self._path}: a database of another program, which is left as it is: let sqlite.dbPath name a new"
                " file"
            )
        self._db.execute("BEGIN IMMEDIATE")
        for step in range(version or sqlite_schema.VERSION, sqlite_schema.VERSION):
            for statement in sqlite_schema.STEPS[step]:
                self._db.execute(statement.format(**self._tables))
        for statement in sqlite_schema.STATEMENTS:
            self._db.execute(statement.format(**self._tables))
        self._db.execute(f"PRAGMA user_version = {sqlite_schema.VERSION}")
        self._db.execute("COMMIT")
        if self.name == SqliteStore.name and self.fact(PAYLOADS_FACT):
            raise StoreError(f"{self._path}: the store of backend hybrid, whose bodies lie in files: use that backend")
        self.applied = self._applied_before = self.fact("applied") or 0
        self._due_hint = self._first_due()
        salvaged = self.fact(SALVAGE_FACT)
        self._refold = Refold(salvaged["upTo"], self._tables, self._rows) if salvaged else None

    def _execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        try:
            self._db.execute(sql, parameters)
        except sqlite3.Error as error:
            raise translated(error, self._path) from error

    def _change_row(self, sql: str, parameters: list[Any]) -> None:
        """Change the row of a message that was read, whose key is the last of ``parameters``. That it is not found by
        its key is damage: unchanged, it would be delivered for ever."""
        try:
            changed = self._db.execute(sql, parameters).rowcount
        except sqlite3.Error as error:
            raise translated(error, self._path) from error
        if changed != 1:
            raise StoreDamaged(f"{self._path}: the row of {parameters[-1]} is not found by its key")

    def _row(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        try:
            return self._db.execute(sql, parameters).fetchone()
        except sqlite3.Error as error:
            raise translated(error, self._path) from error

    def _rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        try:
            return self._db.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise translated(error, self._path) from error

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
        self._forget_group()
        self._groups += self._db.total_changes > self._changes_at_begin
        if self._groups >= GROUPS_LIMIT or self._db.total_changes - self._changes_before > ROWS_LIMIT:
            self.flush()

    def flush(self) -> None:
        """Commit the groups that are kept since the last time: a process that is killed before folds them anew."""
        self._check_kept()
        if not self._db.in_transaction:
            return
        for name in self._changed:
            self._put(_QUEUE_KEY + name, orjson.dumps(self._book.records[name].to_json()).decode(), "queue")
        self.put_fact("applied", self.applied)
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
        try:
            if began and self._db.in_transaction:
                self._db.execute("ROLLBACK TO one_group")
                self._db.execute("RELEASE one_group")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                raise translated(error, self._path) from error
        self._check_kept()
        self._book.rollback()
        self._forget_group()
        self.applied = self._applied_before
        self._due_hint = 0  # unknown: whoever asks next looks

    def _forget_group(self) -> None:
        self._group.clear()
        self._read = ("", b"")

    # --- a damaged database -----------------------------------------------------------------------------------

    @property
    def _salvaged(self) -> Path:
        return self._path.with_name(self._path.name + ".salvaged")

    def salvage(self, first_id: int | None) -> None:
        kv, msg = self._tables["kv"], self._tables["msg"]
        for path in (self._salvaged, self._salvaged.with_name(self._salvaged.name + "-wal")):
            path.unlink(missing_ok=True)
        made = SqliteStore(self._salvaged, kv, msg, self._synchronous, self._busy_ms)
        made.open()
        try:
            made._execute("BEGIN IMMEDIATE")
            database, wal, _ = self.files()
            found = sqlite_salvage.salvage(database, wal, made._db, self._tables, first_id)
            made._execute("COMMIT")
            made.checkpoint()
        except sqlite3.Error as error:
            raise translated(error, self._path) from error
        except OSError as error:
            raise StoreError(f"{self._path}: {error}") from error
        finally:
            made.close()
        log.error("%s: %s; the rest is folded from the journal", self._path, found)

    def reflects(self, event: Event) -> bool:
        self._event = event["id"]
        return self._refold is not None and self._refold.passes(event, self)

    def caught_up(self, clean: bool) -> list[str]:
        refold = self._refold
        if refold:
            self.begin()
            self._event = self.applied = max(self.applied, refold.up_to)
            refold.finish(self)
            self.commit()
            self._refold = None
        return []

    def checkpoint(self) -> int:
        self.flush()
        if sqlite_file.is_alone(self._db):
            busy, _, _ = self._row("PRAGMA wal_checkpoint(TRUNCATE)")
            return 0 if busy else self.applied
        _, pages, folded = self._row("PRAGMA wal_checkpoint(PASSIVE)")  # waits for nobody
        self._try_alone()
        return self.applied if pages == folded else 0

    def _try_alone(self) -> None:
        """Open the database anew: whoever held it may have let go."""
        self._db.close()
        try:
            self._db = sqlite_file.connect(self._path, self._synchronous, self._busy_ms)
        except sqlite3.Error as error:
            raise translated(error, self._path) from error

    def tidy(self) -> None:
        self.flush()
        try:
            sqlite_file.give_back(self._db)
        except sqlite3.Error as error:
            failure = translated(error, self._path)
            if isinstance(failure, StoreDamaged):
                raise failure from error
            log.warning("space is not given back: %s", failure)

    def probe(self) -> None:
        self.fact("applied")
        size = sqlite_file.wal_bytes(self._path)
        if size > sqlite_file.WAL_ALARM_BYTES:
            raise StoreBusy(
                f"{self._path}-wal has grown to {size} bytes: another process reads in the database; end it"
            )

    # --- messages ---------------------------------------------------------------------------------------------

    def get(self, key: str) -> Entry | None:
        known = self._group.get(key)
        if known is not None:
            return known
        return self._one(self._sql.get, (key,))

    def _one(self, sql: str, parameters: Sequence[Any]) -> Entry | None:
        row = self._row(sql, parameters)
        return self._remember(row) if row else None

    def _remember(self, row: Row) -> Entry:
        known = self._group.get(row[0])
        if known is None:
            known = self._group[row[0]] = self._entry(row)
        return known

    def _entry(self, row: Row) -> Entry:
        try:
            if row_holds(row):
                return entry_of(row)
        except (TypeError, ValueError):
            pass
        raise StoreDamaged(f"{self._path}: the row of {str(row[0])[:300]} has changed on the disk")

    def envelope(self, key: str) -> bytes:
        if self._read[0] == key:
            return self._read[1]
        row = self._row(self._sql.get_value, (key,))
        if row is None:
            if self.get(key) is None:
                raise StoreError(f"no body for {key}")
            raise BodyLost(key, f"it is not in {self._path}")
        if not value_holds(key, *row):
            raise BodyLost(key, f"it has changed in {self._path}")
        body = str(row[0]).encode()
        self._read = (key, body)
        return body

    def check_body(self, key: str) -> None:
        self.envelope(key)

    def insert(self, entry: Entry, envelope: bytes) -> None:
        self._add(entry, envelope.decode(), "message")

    def _add(self, entry: Entry, value: str, value_type: str) -> None:
        e = entry
        self._count(e.queue, None, e.state)  # first: it may refuse
        crc = value_crc(e.key, value, value_type)
        self._execute(self._sql.add_value, (e.key, value, value_type, e.created_wall, e.created_wall, crc))
        self._execute(self._sql.insert, row_of(e, self._event))
        self._group[e.key] = e
        self._hint(e)

    def update(self, entry: Entry, before: State) -> None:
        self._change_row(self._sql.update, [*changes_of(row_of(entry, self._event)), entry.key])
        self._count(entry.queue, before, entry.state)
        self._group[entry.key] = entry
        self._hint(entry)

    def delete(self, entry: Entry, before: State) -> None:
        self._change_row(self._sql.delete, [entry.key])
        self._execute(self._sql.delete_value, (entry.key,))
        self._count(entry.queue, before, None)
        self._group.pop(entry.key, None)
        if self._read[0] == entry.key:
            self._read = ("", b"")

    def next_ready(self, queue: str, consumer: str) -> Entry | None:
        record = self.queue(queue)
        if record is None or not record.counts[State.READY]:
            return None
        anyone = self._one(self._sql.pick, (queue, ""))
        mine = self._one(self._sql.pick, (queue, consumer)) if consumer else None
        found = [self._checked(entry, State.READY) for entry in (anyone, mine) if entry]
        if not found and self._one(self._sql.next_target, (queue, "")) is None:  # nor for anybody else
            raise StoreDamaged(f"{self._path}: queue {queue!r} counts ready messages, its index has none")
        return min(found, key=lambda e: (-e.priority, e.seq), default=None)

    def _checked(self, entry: Entry, state: State) -> Entry:
        """An entry that an index has told to be in a state. Raises ``StoreDamaged`` if it is not: the index would give
        it again and again."""
        if entry.state is not state:
            raise StoreDamaged(f"{self._path}: an index has {entry.key} as {state}, its row as {entry.state}")
        return entry

    def promote(self, now: int, limit: int) -> list[str]:
        if self._due_hint is None or now < self._due_hint:
            return []
        rows = self._rows(self._sql.delayed, (now, limit))
        for row in rows:
            entry = self._remember(row)
            entry.state = State.READY
            self._execute(
                self._sql.update, [*changes_of(row_of(entry, row[-2])), entry.key]
            )  # no event: as of the same
            self._count(entry.queue, State.DELAYED, State.READY)
        return [row[1] for row in rows]

    def expired(self, now: int, limit: int) -> list[Entry]:
        if self._due_hint is None or now < self._due_hint:
            return []
        rows = self._rows(self._sql.expired, (now, limit))
        return [self._checked(self._remember(row), State.INFLIGHT) for row in rows]

    def next_due(self) -> int | None:
        if self._due_hint is not None:
            self._due_hint = self._first_due()
        return self._due_hint

    def _first_due(self) -> int | None:
        firsts = [self._row(sql) for sql in (self._sql.first_delayed, self._sql.first_lease)]
        return min((row[0] for row in firsts if row), default=None)

    def _hint(self, entry: Entry) -> None:
        if entry.state is State.DELAYED:
            due = entry.due
        elif entry.state is State.INFLIGHT:
            due = entry.lease_until
        else:
            return
        if self._due_hint is None or due < self._due_hint:
            self._due_hint = due

    def dead(self, queue: str, after: tuple[int, int], limit: int) -> list[Entry]:
        rows = self._rows(self._sql.dead, (queue, *after, limit))
        return [self._remember(row) for row in rows]

    def entries(self, after: str, limit: int) -> list[Entry]:
        return [self._remember(row) for row in self._rows(self._sql.page, (after, limit))]

    def oldest_ready(self, queue: str) -> Entry | None:
        # The pick index is grouped by target and priority, and the head of each group is its oldest: one or two probes
        # visit a group.
        oldest: Entry | None = None
        target, below = "", 2**63 - 1
        for _ in range(_CLASSES_LIMIT):
            head = self._one(self._sql.next_priority, (queue, target, below)) or self._one(
                self._sql.next_target, (queue, target)
            )
            if head is None:
                break
            if oldest is None or head.seq < oldest.seq:
                oldest = head
            target, below = head.target, head.priority
        return oldest

    # --- queues and single facts ------------------------------------------------------------------------------

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

    def touch_queue(self, name: str) -> QueueRecord:
        self.queue(name)
        return self._book.touch(name)

    def _count(self, queue: str, before: State | None, after: State | None) -> None:
        if queue not in self._book.records:
            self.queue(queue)
        self._book.move(queue, before, after)

    def queue_names(self, after: str, limit: int) -> list[str]:
        rows = self._rows(self._sql.queue_keys, (_QUEUE_KEY + after, limit))
        return [row[0][len(_QUEUE_KEY) :] for row in rows]

    def fact(self, name: str) -> Any:
        value = self._value(_FACT_KEY + name)
        return None if value is None else orjson.loads(value)

    def _value(self, key: str) -> str | None:
        """The value of a row that is no message. Raises ``StoreDamaged`` when it is not what was written."""
        row = self._row(self._sql.get_value, (key,))
        if row is None:
            return None
        if not value_holds(key, *row):
            raise StoreDamaged(f"{self._path}: the row {key[:300]} has changed on the disk")
        return str(row[0])

    def put_fact(self, name: str, value: Any) -> None:
        if value is None:
            self._execute(self._sql.delete_value, (_FACT_KEY + name,))
            return
        self._put(_FACT_KEY + name, orjson.dumps(value).decode(), "fact")

    def _put(self, key: str, value: str, kind: str) -> None:
        self._execute(self._sql.put_value, (key, value, kind, 0, 0, value_crc(key, value, kind)))
