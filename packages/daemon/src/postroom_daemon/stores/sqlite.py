"""The SQLite store: WAL, synchronous=NORMAL, one writer. What a power cut takes back, the journal redoes.

Every hot question is one index probe. Bodies lie in ``kv`` under ``msg:{queue}:{id}``, states in ``msg_index``; queue
records and single facts are ``kv`` rows of their own types.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import orjson

from postroom_common.protocol import State

from ..records import Entry, QueueRecord
from . import sqlite_schema
from .base import Store, StoreBusy, StoreDamaged, StoreError, StoreFull
from .book import QueueBook

_COLUMNS = (
    "message_key, queue, state, priority, seq, created_at, created_engine, target_consumer_id, attempt, available_at,"
    " lease_id, consumer_id, lease_until, leased_at, dlq_at, failures, phase"
)
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
        self._synchronous = synchronous
        self._busy_ms = busy_ms
        self._book = QueueBook()
        self._group: dict[str, Entry] = {}  # entries that this transaction has seen: no second SELECT for them
        self._due_hint: int | None = None  # no delayed message or lease is due before this
        self._applied_before = 0

    # --- life -------------------------------------------------------------------------------------------------

    def files(self) -> list[Path]:
        return [self._path.with_name(self._path.name + suffix) for suffix in ("", "-wal", "-shm")]

    def open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            self._db = sqlite3.connect(
                self._path, timeout=self._busy_ms / 1000, isolation_level=None, cached_statements=64
            )
        except sqlite3.Error as error:
            raise _translated(error, self._path) from error
        try:
            self._set_up()
        except sqlite3.Error as error:
            self._db.close()
            raise _translated(error, self._path) from error
        except StoreError:
            self._db.close()
            raise

    def _set_up(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(f"PRAGMA synchronous = {self._synchronous}")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > sqlite_schema.VERSION:
            raise StoreError(
                f"{self._path}: format {version} is newer than this version of postroomd knows"
                f" ({sqlite_schema.VERSION}): upgrade postroomd"
            )
        if version == 0 and self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StoreError(f"{self._path}: a database of another program or of the C++ system; name a new file")
        self._db.execute("BEGIN IMMEDIATE")
        for statement in sqlite_schema.STATEMENTS:
            self._db.execute(statement.format(**self._tables))
        self._db.execute(f"PRAGMA user_version = {sqlite_schema.VERSION}")
        self._db.execute("COMMIT")
        self._prepare()
        if self.name == SqliteStore.name and self.fact(PAYLOADS_FACT):
            raise StoreError(f"{self._path}: the store of backend hybrid, whose bodies lie in files: use that backend")
        self.applied = self.fact("applied") or 0
        self._due_hint = self._first_due()

    def _execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        try:
            self._db.execute(sql, parameters)
        except sqlite3.Error as error:
            raise _translated(error) from error

    def _row(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        try:
            return self._db.execute(sql, parameters).fetchone()
        except sqlite3.Error as error:
            raise _translated(error) from error

    def _rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        try:
            return self._db.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise _translated(error) from error

    def _prepare(self) -> None:
        kv, msg = self._tables["kv"], self._tables["msg"]
        select = f"SELECT {_COLUMNS} FROM {msg}"
        marks = ", ".join("?" * 17)
        self._get = f"{select} WHERE message_key = ?"
        self._page = f"{select} WHERE message_key > ? ORDER BY message_key LIMIT ?"
        self._insert = f"INSERT INTO {msg} ({_COLUMNS}) VALUES ({marks})"
        self._update = (
            f"UPDATE {msg} SET state = ?, attempt = ?, available_at = ?, lease_id = ?, consumer_id = ?,"
            " lease_until = ?, leased_at = ?, dlq_at = ?, failures = ?, phase = ? WHERE message_key = ?"
        )
        self._delete = f"DELETE FROM {msg} WHERE message_key = ?"
        self._pick = (
            f"{select} WHERE state = 'ready' AND queue = ? AND target_consumer_id = ?"
            " ORDER BY priority DESC, seq LIMIT 1"
        )
        self._expired = f"{select} WHERE state = 'inflight' AND lease_until <= ? ORDER BY lease_until, rowid LIMIT ?"
        self._delayed = (
            f"SELECT message_key, queue FROM {msg} WHERE state = 'delayed' AND available_at <= ?"
            " ORDER BY available_at, rowid LIMIT ?"
        )
        self._promote = f"UPDATE {msg} SET state = 'ready' WHERE message_key = ?"
        self._dead = (
            f"{select} WHERE state = 'dead' AND queue = ? AND (dlq_at, seq) > (?, ?) ORDER BY dlq_at, seq LIMIT ?"
        )
        self._first_delayed = f"SELECT available_at FROM {msg} WHERE state = 'delayed' ORDER BY available_at LIMIT 1"
        self._first_lease = f"SELECT lease_until FROM {msg} WHERE state = 'inflight' ORDER BY lease_until LIMIT 1"
        self._next_priority = (
            f"{select} WHERE state = 'ready' AND queue = ? AND target_consumer_id = ? AND priority < ?"
            " ORDER BY priority DESC, seq LIMIT 1"
        )
        self._next_target = (
            f"{select} WHERE state = 'ready' AND queue = ? AND target_consumer_id > ?"
            " ORDER BY target_consumer_id, priority DESC, seq LIMIT 1"
        )
        self._get_value = f"SELECT value FROM {kv} WHERE key = ?"
        self._put_value = (
            f"INSERT INTO {kv} (key, value, value_type, created_at, updated_at) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at"
        )
        self._add_value = f"INSERT INTO {kv} (key, value, value_type, created_at, updated_at) VALUES (?, ?, ?, ?, ?)"
        self._delete_value = f"DELETE FROM {kv} WHERE key = ?"
        self._queue_keys = f"SELECT key FROM {kv} WHERE value_type = 'queue' AND key > ? ORDER BY key LIMIT ?"

    def close(self) -> None:
        self._db.close()

    def begin(self) -> None:
        self._applied_before = self.applied
        self._execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        for record in self._book.changed():
            self._put(_QUEUE_KEY + record.name, orjson.dumps(record.to_json()).decode(), "queue")
        if self.applied != self._applied_before:
            self.put_fact("applied", self.applied)
        self._execute("COMMIT")
        self._applied_before = self.applied
        self._book.commit()
        self._group.clear()

    def rollback(self) -> None:
        if self._db.in_transaction:  # after some errors SQLite has rolled back already
            self._execute("ROLLBACK")
        self._book.rollback()
        self._group.clear()
        self.applied = self._applied_before
        self._due_hint = self._first_due()

    def checkpoint(self) -> int:
        busy, _, _ = self._row("PRAGMA wal_checkpoint(TRUNCATE)")
        return 0 if busy else self.applied

    def probe(self) -> None:
        self.fact("applied")

    # --- messages ---------------------------------------------------------------------------------------------

    def get(self, key: str) -> Entry | None:
        known = self._group.get(key)
        if known is not None:
            return known
        return self._one(self._get, (key,))

    def _one(self, sql: str, parameters: Sequence[Any]) -> Entry | None:
        row = self._row(sql, parameters)
        return self._remember(row) if row else None

    def _remember(self, row: Sequence[Any]) -> Entry:
        known = self._group.get(row[0])
        if known is None:
            known = Entry(
                row[0], row[1], State(row[2]), row[3], row[4], row[5], row[6], row[7], row[8], row[9], row[10],
                row[11], row[12] or 0, row[13], row[14] or 0, row[15], row[16],
            )  # fmt: skip
            self._group[row[0]] = known
        return known

    def envelope(self, key: str) -> bytes:
        row = self._row(self._get_value, (key,))
        if row is None:
            raise StoreError(f"no body for {key}")
        return str(row[0]).encode()

    def insert(self, entry: Entry, envelope: bytes) -> None:
        self._add(entry, envelope.decode(), "message")

    def _add(self, entry: Entry, value: str, value_type: str) -> None:
        e = entry
        self._count(e.queue, None, e.state)  # first: it may refuse
        self._execute(self._add_value, (e.key, value, value_type, e.created_wall, e.created_wall))
        self._execute(
            self._insert,
            (
                e.key, e.queue, e.state, e.priority, e.seq, e.created_wall, e.created, e.target, e.attempt, e.due,
                e.lease_id, e.consumer_id, e.lease_until or None, e.leased_at,
                e.dead_at if e.state is State.DEAD else None, e.failures, e.phase,
            ),
        )  # fmt: skip
        self._group[e.key] = e
        self._hint(e)

    def update(self, entry: Entry, before: State) -> None:
        e = entry
        self._execute(
            self._update,
            (
                e.state, e.attempt, e.due, e.lease_id, e.consumer_id, e.lease_until or None, e.leased_at,
                e.dead_at if e.state is State.DEAD else None, e.failures, e.phase, e.key,
            ),
        )  # fmt: skip
        self._count(e.queue, before, e.state)
        self._group[e.key] = e
        self._hint(e)

    def delete(self, entry: Entry, before: State) -> None:
        self._execute(self._delete, (entry.key,))
        self._execute(self._delete_value, (entry.key,))
        self._count(entry.queue, before, None)
        self._group.pop(entry.key, None)

    def next_ready(self, queue: str, consumer: str) -> Entry | None:
        record = self.queue(queue)
        if record is None or not record.counts[State.READY]:
            return None
        anyone = self._one(self._pick, (queue, ""))
        mine = self._one(self._pick, (queue, consumer)) if consumer else None
        if anyone is None or mine is None:
            return anyone or mine
        return min(anyone, mine, key=lambda e: (-e.priority, e.seq))

    def promote(self, now: int, limit: int) -> list[str]:
        if self._due_hint is None or now < self._due_hint:
            return []
        rows = self._rows(self._delayed, (now, limit))
        for key, queue in rows:
            self._execute(self._promote, (key,))
            self._count(queue, State.DELAYED, State.READY)
            known = self._group.get(key)
            if known:
                known.state = State.READY
        return [queue for _, queue in rows]

    def expired(self, now: int, limit: int) -> list[Entry]:
        if self._due_hint is None or now < self._due_hint:
            return []
        rows = self._rows(self._expired, (now, limit))
        return [self._remember(row) for row in rows]

    def next_due(self) -> int | None:
        if self._due_hint is not None:
            self._due_hint = self._first_due()
        return self._due_hint

    def _first_due(self) -> int | None:
        firsts = [self._row(sql) for sql in (self._first_delayed, self._first_lease)]
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
        rows = self._rows(self._dead, (queue, *after, limit))
        return [self._remember(row) for row in rows]

    def entries(self, after: str, limit: int) -> list[Entry]:
        return [self._remember(row) for row in self._rows(self._page, (after, limit))]

    def oldest_ready(self, queue: str) -> Entry | None:
        # The pick index is grouped by target and priority, and the head of each group is its oldest: one or two probes
        # visit a group.
        oldest: Entry | None = None
        target, below = "", 2**63 - 1
        for _ in range(_CLASSES_LIMIT):
            head = self._one(self._next_priority, (queue, target, below)) or self._one(
                self._next_target, (queue, target)
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
            row = self._row(self._get_value, (_QUEUE_KEY + name,))
            if row:
                record = self._book.records[name] = QueueRecord.from_json(orjson.loads(row[0]))
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
        rows = self._rows(self._queue_keys, (_QUEUE_KEY + after, limit))
        return [row[0][len(_QUEUE_KEY) :] for row in rows]

    def fact(self, name: str) -> Any:
        row = self._row(self._get_value, (_FACT_KEY + name,))
        return orjson.loads(row[0]) if row else None

    def put_fact(self, name: str, value: Any) -> None:
        if value is None:
            self._execute(self._delete_value, (_FACT_KEY + name,))
            return
        self._put(_FACT_KEY + name, orjson.dumps(value).decode(), "fact")

    def _put(self, key: str, value: str, kind: str) -> None:
        self._execute(self._put_value, (key, value, kind, 0, 0))


def _translated(error: sqlite3.Error, name: object = "SQLite") -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    kinds = {
        sqlite3.SQLITE_FULL: StoreFull,
        sqlite3.SQLITE_BUSY: StoreBusy,
        sqlite3.SQLITE_CORRUPT: StoreDamaged,
        sqlite3.SQLITE_NOTADB: StoreDamaged,
    }
    return kinds.get(code, StoreError)(f"{name}: {error}")
