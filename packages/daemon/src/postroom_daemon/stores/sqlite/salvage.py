"""A damaged database: its intact rows are copied into a new one, onto which the journal's events are then folded.

Every row records its last event, so an event that a salvaged row already shows is skipped, whatever the journal still
has. What is in no intact row comes back from the journal, as far back as that reaches.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from postroom_common.body import draft_of
from postroom_common.events import Event, EventType, raw_json
from postroom_common.protocol import State

from ...model.facts import FACT_CLOCK, Loss, history_fact, part_fact, with_failure
from ...model.lifecycle import removes
from ...model.records import NO_DEATHS, Entry, QueueRecord, no_counts
from ..base import ENDED, Store
from ..errors import StoreError
from ..gathering import note_gathering_message, put_part
from ..recovery import Recovery
from .database import Database, translated
from .pages import Turns
from .raw_pages import RawPages
from .references import ReferencedBodies
from .rows import COLUMNS, SIZE, Row, as_of, entry_of, row_holds, row_of, value_crc, value_holds
from .schema import KV_COLUMNS, MSG_COLUMNS

log = logging.getLogger(__name__)

#: The fact that stays until the journal is folded onto the salvaged rows: up to which event they have come, what totals
#: and how many messages their queues had then, and where the journal begins.
SALVAGE_KV: Final = "salvage"
#: A table with bodies whose row in the index is lost, until the journal shows what became of their messages.
ORPHANS: Final = "salvaged_bodies"
_KINDS: Final = frozenset({"message", "payload", "queue", "fact"})
_MSG_AT: Final = [MSG_COLUMNS.index(name) for name in (*COLUMNS, "crc")]
#: Columns that every make of the tables has.
_KV_LEAST, _MSG_LEAST = 6, 18
#: What the others of ``msg_index`` are in a row that was written before there were any, in the order of declaration.
_MSG_DEFAULTS: Final = (0, None, None, "", 0, "", 0, None)

Tables = Mapping[str, str]


def salvage(database: Path, wal: Path, into: sqlite3.Connection, tables: Tables, first_id: int | None) -> str:
    """Copy every intact row of a damaged database into a new one, in the transaction that is open in it. Returns what
    was found, in words.

    ``first_id`` is the first event that the journal still has. Raises ``sqlite3.Error``, ``OSError``.
    """
    pages = RawPages(database, wal)
    try:
        damaged_rows = _copy_index(pages, into, tables["msg"]) + _copy_values(pages, into, tables)
        damaged = pages.damaged
    finally:
        pages.close()
    _settle(into, tables, first_id)
    kept = into.execute(f"SELECT count(*) FROM {tables['msg']}").fetchone()[0]
    orphans = into.execute(f"SELECT count(*) FROM {ORPHANS}").fetchone()[0]
    return (
        f"{kept} messages salvaged, {orphans} bodies without their state; {damaged} pages or rows cannot be read,"
        f" {damaged_rows} rows have changed"
    )


def _copy_index(pages: RawPages, into: sqlite3.Connection, msg: str) -> int:
    marks = ", ".join("?" * (len(COLUMNS) + 1))
    newer = ", ".join(f"{name} = excluded.{name}" for name in (*COLUMNS, "crc"))
    insert = (
        f"INSERT INTO {msg} ({', '.join(COLUMNS)}, crc) VALUES ({marks})"
        f" ON CONFLICT (message_key) DO UPDATE SET {newer} WHERE excluded.as_of > {msg}.as_of"
    )
    damaged = 0
    for values in pages.rows():
        if len(values) >= _MSG_LEAST:
            padded = values + _MSG_DEFAULTS[len(values) - _MSG_LEAST :]
            row = tuple(padded[place] for place in _MSG_AT)
            if _is_entry(row):
                into.execute(insert, row)
            else:
                damaged += 1
    return damaged


def _is_entry(row: Row) -> bool:
    try:
        entry = entry_of(row)
        # What has no checksum is at least of the right kinds.
        written = row_of(entry, as_of(row))[:-1]
        summed = len(written) if row[SIZE] is not None else SIZE
        return row_holds(row) and written[:summed] == row[:summed] and entry.key.startswith("msg:")
    except (AttributeError, TypeError, ValueError):
        return False


def _copy_values(pages: RawPages, into: sqlite3.Connection, tables: Tables) -> int:
    kv, msg = tables["kv"], tables["msg"]
    into.execute(f"CREATE TABLE {ORPHANS} (key TEXT PRIMARY KEY, value TEXT, value_type TEXT, created_at INTEGER)")
    insert = f"INSERT OR IGNORE INTO {kv} ({', '.join(KV_COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?)"
    damaged = 0
    for values in pages.rows():
        if not (_KV_LEAST <= len(values) <= len(KV_COLUMNS)):
            continue
        row = values if len(values) == len(KV_COLUMNS) else (*values, None)
        key, value, kind, crc = row[0], row[1], row[2], row[-1]
        if not (type(key) is str and type(value) is str and kind in _KINDS):
            continue
        if not value_holds(key, value, kind, crc) or not _is_value(value, kind):
            damaged += 1
        elif kind in ("queue", "fact") or into.execute(f"SELECT 1 FROM {msg} WHERE message_key = ?", (key,)).fetchone():
            into.execute(insert, row)
        else:
            into.execute(f"INSERT OR IGNORE INTO {ORPHANS} VALUES (?, ?, ?, ?)", (key, value, kind, row[3]))
    return damaged


def _is_value(value: str, kind: str) -> bool:
    try:
        tree = orjson.loads(value)
        if kind == "queue":
            QueueRecord.from_json(tree)
    except (KeyError, TypeError, ValueError):
        return False
    return True


def _settle(into: sqlite3.Connection, tables: Tables, first_id: int | None) -> None:
    """Make queues, counters and facts fit the rows that are there."""
    kv, msg = tables["kv"], tables["msg"]

    def put(key: str, value: Any, kind: str) -> None:
        text = orjson.dumps(value).decode()
        row = (key, text, kind, 0, 0, None, value_crc(key, text.encode(), kind))
        into.execute(f"INSERT OR REPLACE INTO {kv} ({', '.join(KV_COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    counts: dict[str, dict[str, int]] = {}
    sizes: Counter[str] = Counter()
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    grouped = f"SELECT queue, state, count(*), sum(size) FROM {msg} GROUP BY queue, state"
    for queue, state, count, size in into.execute(grouped):
        counts.setdefault(queue, no_counts())[state] = count
        if state not in ENDED:
            sizes[queue] += size or 0
    for queue, extra in into.execute(f"SELECT queue, extra FROM {msg} WHERE state = 'dead' AND extra != ''"):
        reason = orjson.loads(extra)[0]
        if reason:
            reasons[queue][reason] += 1
    totals = {}
    expected = {}
    records = {}
    for (value,) in into.execute(f"SELECT value FROM {kv} WHERE value_type = 'queue'"):
        record = QueueRecord.from_json(orjson.loads(value))
        records[record.name] = record
        totals[record.name] = record.totals
        record.deaths = NO_DEATHS  # those that the journal still has are counted again
        expected[record.name] = sum(record.counts.values())
    for name in counts.keys() - records.keys():
        log.error("queue %r has lost its record: pauses and policy are those that the journal still has", name)
        records[name] = QueueRecord(name)
    for record in records.values():
        record.counts = counts.get(record.name, no_counts())
        record.bytes, record.reasons = sizes[record.name], dict(reasons[record.name])
        put(f"queue:{record.name}", record.to_json(), "queue")
    row = into.execute(f"SELECT value FROM {kv} WHERE key = 'fact:applied'").fetchone()
    newest = into.execute(f"SELECT max(as_of) FROM {msg}").fetchone()[0] or 0
    up_to = max(int(row[0]) if row else 0, newest)
    into.execute(f"UPDATE {msg} SET as_of = ? WHERE crc IS NULL", (up_to,))
    put("fact:applied", up_to if first_id is None else min(up_to, first_id - 1), "fact")
    salvaged = {
        "upTo": up_to,
        "totals": totals,
        "expected": expected,
        "missing": 0,
        "recordsLost": bool(counts.keys() - expected.keys()),
        "journalFrom": up_to + 1 if first_id is None else first_id,
    }
    put(f"fact:{SALVAGE_KV}", salvaged, "fact")
    if into.execute(f"SELECT 1 FROM {kv} WHERE value_type = 'payload' LIMIT 1").fetchone():
        put("fact:payloads", True, "fact")


class SqliteRecovery(Recovery):
    """Salvages a damaged database, and folds the journal onto salvaged rows. ``store`` is that of ``db``."""

    def __init__(self, store: Store, db: Database, turns: Turns, referenced: ReferencedBodies | None) -> None:
        self._store = store
        self._referenced = referenced
        self._db = db
        self._turns = turns
        self._refold: Refold | None = None
        self._losses: list[Loss] = []

    def losses(self) -> list[Loss]:
        return self._losses

    def opened(self) -> None:
        """The database is open; its rows may have been salvaged."""
        self._losses = []
        salvaged = self._store.facts.get(SALVAGE_KV)
        self._refold = Refold(salvaged["upTo"], self._db, self._store) if salvaged else None
        self.replaying = self._refold is not None

    def salvage(self, first_id: int | None) -> None:
        db = self._db
        for path in (db.salvaged, db.salvaged.with_name(db.salvaged.name + "-wal")):
            path.unlink(missing_ok=True)
        new = Database(db.salvaged, db.tables["kv"], db.tables["msg"], db.synchronous, db.busy_ms)
        new.open()
        try:
            new.execute("BEGIN IMMEDIATE")
            database, wal, _ = db.files()
            found = salvage(database, wal, new.connection, db.tables, first_id)
            new.execute("COMMIT")
            new.fold_log()
        except sqlite3.Error as error:
            raise translated(error, db.path) from error
        except OSError as error:
            raise StoreError(f"{db.path}: {error}") from error
        finally:
            new.close()
        log.error("%s: %s; the rest is folded from the journal", db.path, found)

    def already_applied(self, event: Event) -> bool:
        return self._refold is not None and self._refold.skips(event)

    def finish_replay(self, clean: bool) -> list[str]:
        store, refold = self._store, self._refold
        if self._referenced:
            self._referenced.replayed()
        if refold:
            store.begin()
            journal_ends = store.applied
            store.folding = store.applied = max(journal_ends, refold.up_to)
            self._losses = refold.finish(journal_ends)
            self._turns.update_all()
            store.commit()
            self._refold, self.replaying = None, False
        if self._referenced and not clean:
            self._referenced.recovered()
        return []


#: Events that bring a part of a message.
_OF_PARTS: Final = (EventType.PART_APPENDED, EventType.PART_SET)


class Refold:
    """The journal is being folded onto salvaged rows. ``up_to`` is the last event that they show."""

    def __init__(self, up_to: int, db: Database, store: Store) -> None:
        self.up_to = up_to
        self._store = store
        self._rows = db.rows
        tables = db.tables
        self._as_of = f"SELECT as_of FROM {tables['msg']} WHERE message_key = ?"
        self._body = f"SELECT 1 FROM {tables['kv']} WHERE key = ?"
        self._add_body = (
            f"INSERT OR REPLACE INTO {tables['kv']} (key, value, value_type, created_at, updated_at, crc)"
            " VALUES (?, ?, ?, ?, ?, ?)"
        )
        self._orphans = (
            f"SELECT key, value, value_type, created_at FROM {ORPHANS} WHERE NOT EXISTS"
            f" (SELECT 1 FROM {tables['msg']} WHERE message_key = key) ORDER BY created_at, key"
        )
        self._healed: set[str] = set()  # messages whose bodies were not in a row
        self._lost: set[str] = set()  # messages without a row and without their publication
        self._without_history: set[str] = set()  # messages whose failed attempts are no longer in a row

    def skips(self, event: Event) -> bool:
        """Whether an event is to be skipped: its change is there already, or its message is lost."""
        if event["id"] > self.up_to:
            self._reach()
            return False
        type_, key = event["type"], event.get("key")
        if key is None:
            return type_ == EventType.QUEUE_CREATED and self._has_queue(event)
        found = self._rows(self._as_of, (key,))
        if not found:
            return self._is_lost(event, key)
        if event["id"] > found[0][0]:
            return False
        has_body = type_ == EventType.PUBLISHED or "message" in event
        if has_body and (key in self._healed or not self._rows(self._body, (key,))):
            self._heal(event)
            self._healed.add(key)
        if "failure" in event:
            self._heal_history(event)
        if "gathering" in event:
            note_gathering_message(event, self._store)
        if type_ in _OF_PARTS:
            self._heal_part(event)
        return True

    def _has_queue(self, event: Event) -> bool:
        """Whether there is a record of the queue that an event created. One that was lost gets what the event says."""
        record = self._store.queue(event["queue"])
        if record is not None and not record.created_wall:
            record = self._store.queue_for_update(event["queue"])
            record.kind, record.created_wall = event["kind"], event["wallMs"]
            record.expires_at = event.get("expiresAtEngineMs", 0)
        return record is not None

    def _heal_history(self, event: Event) -> None:
        """The row of a message is there and that of its failed attempts is not; the journal has them."""
        key, entry = event["key"], self._store.get(event["key"])
        known = self._store.facts.get(history_fact(key))
        if entry and entry.failures and (known is None or key in self._without_history):
            self._without_history.add(key)
            self._store.facts.put(history_fact(key), with_failure(known or [], event)[-entry.failures :])

    def _heal_part(self, event: Event) -> None:
        """The row of a message is there, and that of one of its parts may not be."""
        key, number, store = event["key"], event["part"], self._store
        entry = store.get(key)
        if entry and number <= entry.parts and store.facts.get(part_fact(key, number)) is None:
            put_part(event, store)

    def _is_lost(self, event: Event, key: str) -> bool:
        if event["type"] == EventType.PUBLISHED:
            return False
        if removes(event):
            self._lost.discard(key)
            self._rows(f"DELETE FROM {ORPHANS} WHERE key = ?", (key,))
        else:
            self._lost.add(key)
        return True

    def _heal(self, event: Event) -> None:
        """The row is there and its body is not; the journal has it."""
        if "message" in event:
            value, kind = raw_json(event["message"]).decode(), "message"
        else:
            value, kind = orjson.dumps(event["body"]).decode(), "payload"
        key, wall = event["key"], event["wallMs"]
        self._rows(self._add_body, (key, value, kind, wall, wall, value_crc(key, value.encode(), kind)))

    def _reach(self) -> None:
        """All events that the salvaged rows show are counted: set the queues' totals to those of before. How
        many messages are missing?"""
        store = self._store
        salvaged = store.facts.get(SALVAGE_KV)
        if not salvaged["totals"]:
            return
        missing = 0
        for queue, totals in salvaged["totals"].items():
            record = store.queue_for_update(queue)
            record.totals = totals
            missing += max(0, salvaged["expected"][queue] - sum(record.counts.values()))
        store.facts.put(SALVAGE_KV, {**salvaged, "totals": {}, "missing": missing})

    def finish(self, journal_ends: int) -> list[Loss]:
        """The journal is folded up to its last event, ``journal_ends``: bodies that no event mentioned become messages
        again. Returns what is lost, or may be: what the salvaged rows show cannot be compared with events that the
        journal no longer has."""
        self._reach()
        store = self._store
        salvaged = store.facts.get(SALVAGE_KV)
        orphans = self._rows(self._orphans, ())
        readmitted = [key for key, *rest in orphans if _readmit(store, key, *rest)]
        self._rows(f"DROP TABLE {ORPHANS}", ())
        store.facts.put(SALVAGE_KV, None)
        known = sorted((self._lost | {row[0] for row in orphans}) - set(readmitted))
        lost = max(salvaged["missing"] - len(readmitted), len(known))
        before = [(1, salvaged["journalFrom"] - 1)] if salvaged["journalFrom"] > 1 else []
        losses = []
        if readmitted:
            losses.append(Loss("messages have lost their state in a damaged database, and are ready again", readmitted))
        if lost:
            losses.append(Loss(f"{lost} messages are lost with the rows of the database that held them", known, before))
        elif salvaged["recordsLost"] and before:
            losses.append(Loss("the record of a queue is lost: pauses, policy and totals are incomplete", (), before))
        if journal_ends < self.up_to:
            text = "the journal has lost its end, and the database was damaged: it may lack changes of these events"
            losses.append(Loss(text, (), [(journal_ends + 1, self.up_to)]))
        return losses


def _readmit(store: Store, key: str, value: str, kind: str, created_wall: int) -> bool:
    """Make a message ready again of which only the body is left. Returns whether that is possible: a body in a file
    cannot be located without its row."""
    queue = key[4:].rpartition(":")[0]
    if kind != "message" or not queue:
        return False
    mark = store.facts.get(FACT_CLOCK) or {"engineMs": 0, "wallMs": created_wall}
    created = max(0, mark["engineMs"] - max(0, mark["wallMs"] - created_wall))
    if store.queue(queue) is None:
        store.add_queue(QueueRecord(queue))
    entry = Entry(key, queue, State.READY, 0, 0, created_wall, created)
    entry.parts = len(draft_of(value.encode()).get("parts", ()))
    entry.unset = sum(store.facts.get(part_fact(key, number)) is None for number in range(1, entry.parts + 1))
    if entry.unset:
        entry.state = State.DRAFTING
    store.insert(entry, value.encode())
    return True
