"""The SQLite store: WAL, synchronous=NORMAL, one writer. What a power cut takes back, the journal redoes.

Every hot question is one index probe. Bodies lie in ``kv`` under ``msg:{queue}:{id}``, states in ``msg_index``; queue
records and single facts are ``kv`` rows of their own types. Each row is closed by a checksum: a body that has changed
is lost, any other row that has changed is a damaged store.
"""

from __future__ import annotations

import logging
import sqlite3
from heapq import nsmallest
from pathlib import Path
from typing import ClassVar, Final

import orjson

from postroom_common.events import Event
from postroom_common.protocol import State

from ...model.records import BodyReference, Entry
from ..base import LEASED, BodyLost, Cursor, StoreDamaged, StoreError
from . import order as sqlite_order
from . import salvage as sqlite_salvage
from .ahead import Ahead
from .errors import translated
from .groups import SqliteGroups
from .known import Known
from .room import Room
from .rows import as_of, changes_of, row_of, value_crc, value_holds
from .salvage import SALVAGE_FACT, Refold

log = logging.getLogger(__name__)

#: The fact that bodies lie in files: whoever does not know of them must not use the database.
PAYLOADS_FACT: Final = "payloads"


class SqliteStore(SqliteGroups):
    """See the module. ``busy_ms`` is how long another process that reads the database may hold us up."""

    name: ClassVar[str] = "sqlite"

    def __init__(
        self, path: Path, kv: str = "kv", msg: str = "msg_index", synchronous: str = "NORMAL", busy_ms: int = 5000
    ) -> None:
        super().__init__(path, kv, msg, synchronous, busy_ms)
        self._room = Room()
        self._known = Known(path)
        self._ahead = Ahead(self._sql, self._known)
        self._due_hint: int | None = None  # no delayed message or lease is due before this
        self._refold: Refold | None = None  # while the journal is folded onto salvaged rows

    # --- life -------------------------------------------------------------------------------------------------

    def open(self) -> None:
        self._room.keep()
        self._known.clear()
        self._ahead.clear()
        super().open()

    def _set_up(self) -> None:
        super()._set_up()
        if self.name == SqliteStore.name and self.get_kv(PAYLOADS_FACT):
            raise StoreError(f"{self._path}: the store of backend hybrid, whose bodies lie in files: use that backend")
        self._due_hint = self._first_due()
        salvaged = self.get_kv(SALVAGE_FACT)
        self._refold = Refold(salvaged["upTo"], self._tables, self._rows) if salvaged else None
        self.replaying = self._refold is not None

    def commit(self) -> None:
        self._room.keep()
        self._known.keep()
        self._ahead.clear()
        super().commit()

    def rollback(self) -> None:
        super().rollback()
        self._room.keep()
        self._known.take_back()
        self._ahead.clear()
        self._due_hint = 0  # unknown: whoever asks next looks

    def space_needed(self, events: int) -> int:
        return self._room.needed()

    def flush(self) -> None:
        super().flush()
        self._room.clear()

    # --- a damaged database -----------------------------------------------------------------------------------

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

    def already_applied(self, event: Event) -> bool:
        return self._refold is not None and self._refold.passes(event, self)

    def finish_replay(self, clean: bool) -> list[str]:
        refold = self._refold
        if refold:
            self.begin()
            self.folding = self.applied = max(self.applied, refold.up_to)
            refold.finish(self)
            for queue, order_key in self._rows(self._sql.lines):
                self._line_up(queue, order_key)
            self.commit()
            self._refold, self.replaying = None, False
        return []

    # --- messages ---------------------------------------------------------------------------------------------

    def get(self, key: str) -> Entry | None:
        known = self._known.entry(key)
        if known is not None:
            return known
        row = self._row_of(self._sql.get, key)
        return self._known.entry_of(row) if row else None

    def envelope(self, key: str) -> bytes:
        known = self._known.body(key)
        if known is not None:
            return known
        row = self._row_of(self._sql.get_value, key)
        if row is None:
            if self.get(key) is None:
                raise StoreError(f"no body for {key}")
            raise BodyLost(key, f"it is not in {self._path}")
        if not value_holds(key, *row):
            raise BodyLost(key, f"it has changed in {self._path}")
        body = str(row[0]).encode()
        self._known.note_body(key, body)
        return body

    def insert(self, entry: Entry, envelope: bytes) -> None:
        self._add(entry, envelope.decode(), "message")

    def _add(self, entry: Entry, value: str, value_type: str) -> None:
        e = entry
        self._room.add(entry.size)
        self._count(e.queue, None, e.state, e.size)  # first: it may refuse
        if self._waiting.holds_back(e.key):
            self._write_waiting()
        crc = value_crc(e.key, value, value_type)
        body = (e.key, value, value_type, e.created_wall, e.created_wall, crc)
        self._waiting.add(body, row_of(e, self.folding))
        self._ahead.clear()
        self._settle_in(e)

    def update(self, entry: Entry, before: State) -> None:
        self._waiting.change([*changes_of(row_of(entry, self.folding)), entry.key])
        if before is not State.READY or entry.state is not State.INFLIGHT:
            self._ahead.clear()
        self._count(entry.queue, before, entry.state, entry.size)
        self._settle_in(entry)

    def move(self, entry: Entry, source: str, before: State) -> None:
        self._ahead.clear()
        self._change_row(self._sql.relocate, [entry.queue, *changes_of(row_of(entry, self.folding)), entry.key])
        self._count(source, before, None, entry.size)
        self._count(entry.queue, None, entry.state, entry.size)
        self._line_up(source, entry.order_key)
        self._settle_in(entry)

    def _note_birth(self, entry: Entry, source: str, kind: str) -> None:
        """A message has moved whose body is in a file: what refers to that, a value of ``kind``, is to tell where."""
        row = self._row(self._sql.get_value, (entry.key,))
        if row is None or row[1] != kind or not value_holds(entry.key, *row):
            return
        try:
            reference = BodyReference.from_json(orjson.loads(row[0])).moved(source, entry.queue)
        except (AttributeError, KeyError, TypeError, ValueError):  # it has changed on the disk: its body is lost
            return
        value = orjson.dumps(reference.to_json()).decode()
        self._execute(self._sql.set_value, (value, value_crc(entry.key, value, kind), entry.key))

    def _settle_in(self, entry: Entry) -> None:
        """What follows from a row that was written."""
        self._room.touch(entry.seq)
        self._known.note(entry)
        self._hint(entry)
        self._line_up(entry.queue, entry.order_key)

    def _line_up(self, queue: str, order_key: str) -> None:
        """After a change of a message with an ordering key: see whose turn it is."""
        if order_key:
            self._ahead.clear()
            for blocked, key in sqlite_order.turns(self._rows, self._sql, queue, order_key):
                self._execute(self._sql.block, (blocked, key))

    def delete(self, entry: Entry, before: State) -> None:
        self._waiting.remove(entry.key)
        if before is State.READY:
            self._ahead.clear()
        self._room.free(entry.seq, entry.size)
        self._count(entry.queue, before, None, entry.size)
        self._line_up(entry.queue, entry.order_key)
        self._known.forget(entry.key)

    def next_ready(self, queue: str, consumer: str) -> Entry | None:
        record = self.queue(queue)
        if record is None or not record.counts[State.READY]:
            return None
        anyone = self._ahead.first(self._rows, queue, "")
        mine = self._ahead.first(self._rows, queue, consumer) if consumer else None
        found = [self._checked(entry, State.READY) for entry in (anyone, mine) if entry]
        if not found and not self.scan(queue, State.READY, (), 1)[0]:  # nor for anybody else, nor in turn
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
        rows = self._rows(self._sql.due, (now, limit))
        for row in rows:
            entry = self._known.entry_of(row)
            entry.state = State.READY
            self._ahead.clear()
            changes = changes_of(row_of(entry, as_of(row)))  # no event: as of the same
            self._execute(self._sql.update, [*changes, entry.key])
            self._count(entry.queue, State.DELAYED, State.READY, entry.size)
            self._line_up(entry.queue, entry.order_key)
        return [row[1] for row in rows]

    def ended_leases(self, now: int, limit: int) -> list[Entry]:
        return self._over(self._sql.expired, now, limit, (State.INFLIGHT, State.DEAD))

    def expiring(self, now: int, limit: int) -> list[Entry]:
        return self._over(self._sql.lapsing, now, limit, (State.READY, State.DELAYED))

    def _over(self, sql: str, now: int, limit: int, states: tuple[State, State]) -> list[Entry]:
        """What an index has as over by ``now``."""
        if self._due_hint is None or now < self._due_hint:
            return []
        found = [self._known.entry_of(row) for row in self._rows(sql, (now, limit))]
        return [entry if entry.state is states[1] else self._checked(entry, states[0]) for entry in found]

    def next_time(self) -> int | None:
        if self._due_hint is not None:
            self._due_hint = self._first_due()
        return self._due_hint

    def _first_due(self) -> int | None:
        firsts = [self._row(sql) for sql in (self._sql.first_delayed, self._sql.first_lease, self._sql.first_lapse)]
        return min((row[0] for row in firsts if row), default=None)

    def _hint(self, entry: Entry) -> None:
        if not (entry.lease_until or entry.due or entry.expires or entry.fallback or entry.state is State.DELAYED):
            return
        times = [entry.lease_until] if entry.lease_until else []
        if entry.state is State.DELAYED:
            times.append(entry.due)
        if entry.lapse and (entry.state is State.READY or entry.state is State.DELAYED):
            times.append(entry.lapse)
        if times and (self._due_hint is None or min(times) < self._due_hint):
            self._due_hint = min(times)

    def scan(self, queue: str, state: State, after: Cursor, limit: int) -> tuple[list[Entry], Cursor]:
        rows, cursor = sqlite_order.page(self._rows, self._sql, queue, state, after, limit)
        return [self._known.entry_of(row) for row in rows], cursor

    def leases(self, queue: str, after: Cursor, limit: int) -> tuple[list[Entry], Cursor]:
        rows, cursor = sqlite_order.leases(self._rows, self._sql, queue, LEASED, after, limit)
        return [self._known.entry_of(row) for row in rows], cursor

    def dead(self, queue: str, after: tuple[int, int], limit: int) -> list[Entry]:
        rows = self._rows(self._sql.dead, (queue, *after, limit))
        return [self._known.entry_of(row) for row in rows]

    def entries(self, after: str, limit: int) -> list[Entry]:
        return [self._known.entry_of(row) for row in self._rows(self._sql.page, (after, limit))]

    def oldest_ready(self, queue: str, consumer: str | None = None) -> Entry | None:
        if consumer is None:
            heads = [head for blocked in (0, 1) for head in self._heads(queue, blocked, "", everybody=True)]
        else:
            heads = [head for target in {"", consumer} for head in self._heads(queue, 0, target, everybody=False)]
        return min(heads, key=lambda e: e.seq, default=None)

    def oldest(self, queue: str, limit: int) -> list[Entry]:
        found: list[Entry] = []
        for blocked in (0, 1):
            for head in self._heads(queue, blocked, "", everybody=True):
                rows = self._rows(self._sql.ready_behind[0], (queue, blocked, head.target, head.priority, -1, limit))
                found = nsmallest(limit, found + [self._known.entry_of(row) for row in rows], key=lambda e: e.seq)
        return found

    def _heads(self, queue: str, blocked: int, target: str, everybody: bool) -> list[Entry]:
        """The oldest of each priority of a target, or of all targets from that one on."""
        rows = sqlite_order.heads(self._row, self._sql, queue, blocked, target, everybody)
        return [self._known.entry_of(row) for row in rows]
