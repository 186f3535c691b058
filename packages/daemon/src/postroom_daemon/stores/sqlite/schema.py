"""The SQLite schema, and the statements that use it.

The tables are those of the C++ system (``kv``, ``msg_index``), with its key names, extended.

The format is in ``PRAGMA user_version``. To change it: raise ``VERSION``, add the step from the version before to
``STEPS``, and a test that opens a database written by the version before.

- 1: the first.
- 2: ``crc`` in both tables, a checksum of the row, null in rows of format 1; ``as_of`` in ``msg_index``, the last event
  that a row shows. New databases are made with ``auto_vacuum = INCREMENTAL``, older ones become so once they are small.
- 3: ``size`` (null in rows of formats before), ``order_key``, ``blocked``, ``lapse_at`` and ``extra`` in ``msg_index``.
- 4: ``place`` in ``msg_index``, which most rows do not have; the index of ready messages sorts by it. Messages that
  gather parts, and drafts: their states, the indices of them, and their parts in ``kv``.
- 5: messages that are done: their state, and the index of them; they are no part of those by ordering key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from typing import Final

from ..base import TIMED
from .rows import CHANGING, COLUMNS, NEW, NEW_BOUND

VERSION: Final = 5

#: Messages of an ordering key that others of it wait for.
_IN_LINE: Final = "order_key != '' AND state != 'dead' AND state != 'done'"

#: In ``{msg}``, ``created_at`` is Unix ms, every other time engine ms. A priority may be null, which sorts below all.
#: ``blocked`` is 1 while a message waits for another of its ordering key; ``lapse_at`` is 0, or when something is to
#: happen to a message that waits; ``extra`` is '' or JSON (``sqlite_rows``); ``place`` is null, or the event that
#: returned the message to the end.
#: ``{kv}`` and ``{msg}`` are the table names of the configuration, checked there to be plain identifiers.
STATEMENTS: Final = (
    """CREATE TABLE IF NOT EXISTS {kv} (
        key TEXT PRIMARY KEY,
        value TEXT NOT NULL,
        value_type TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        expires_at INTEGER,
        crc INTEGER)""",
    """CREATE TABLE IF NOT EXISTS {msg} (
        queue TEXT NOT NULL,
        state TEXT NOT NULL,
        priority INTEGER DEFAULT 0,
        available_at INTEGER NOT NULL,
        lease_until INTEGER,
        attempt INTEGER NOT NULL DEFAULT 0,
        dlq_reason TEXT,
        dlq_at INTEGER,
        target_consumer_id TEXT NOT NULL DEFAULT '',
        message_key TEXT NOT NULL PRIMARY KEY,
        seq INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        created_engine INTEGER NOT NULL,
        lease_id TEXT NOT NULL DEFAULT '',
        consumer_id TEXT NOT NULL DEFAULT '',
        leased_at INTEGER NOT NULL DEFAULT 0,
        failures INTEGER NOT NULL DEFAULT 0,
        phase TEXT NOT NULL DEFAULT '',
        as_of INTEGER NOT NULL DEFAULT 0,
        crc INTEGER,
        size INTEGER,
        order_key TEXT NOT NULL DEFAULT '',
        lapse_at INTEGER NOT NULL DEFAULT 0,
        extra TEXT NOT NULL DEFAULT '',
        blocked INTEGER NOT NULL DEFAULT 0,
        place INTEGER)""",
    """CREATE INDEX IF NOT EXISTS {msg}_pick ON {msg}
        (queue, blocked, target_consumer_id, priority DESC, ifnull(place, seq)) WHERE state = 'ready'""",
    "CREATE INDEX IF NOT EXISTS {msg}_lease ON {msg} (lease_until, seq) WHERE lease_until IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS {msg}_delayed ON {msg} (available_at, seq) WHERE state = 'delayed'",
    "CREATE INDEX IF NOT EXISTS {msg}_gathering ON {msg} (available_at, seq) WHERE state = 'gathering'",
    "CREATE INDEX IF NOT EXISTS {msg}_held ON {msg} (queue, seq) WHERE state = 'held'",
    "CREATE INDEX IF NOT EXISTS {msg}_drafting ON {msg} (queue, seq) WHERE state = 'drafting'",
    "CREATE INDEX IF NOT EXISTS {msg}_lapse ON {msg} (lapse_at, seq) WHERE lapse_at > 0",
    f"CREATE INDEX IF NOT EXISTS {{msg}}_line ON {{msg}} (queue, order_key, seq) WHERE {_IN_LINE}",
    f"CREATE INDEX IF NOT EXISTS {{msg}}_first ON {{msg}} (queue, order_key) WHERE {_IN_LINE} AND blocked = 0",
    "CREATE INDEX IF NOT EXISTS {msg}_dead ON {msg} (queue, dlq_at, seq) WHERE state = 'dead'",
    "CREATE INDEX IF NOT EXISTS {msg}_done ON {msg} (queue, dlq_at, seq) WHERE state = 'done'",
    "CREATE INDEX IF NOT EXISTS {kv}_queues ON {kv} (key) WHERE value_type = 'queue'",
)

#: By version, what makes the next one of it. Adding a column with a constant default touches no row, however many.
STEPS: Final = {
    1: (
        "ALTER TABLE {kv} ADD COLUMN crc INTEGER",
        "ALTER TABLE {msg} ADD COLUMN as_of INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE {msg} ADD COLUMN crc INTEGER",
    ),
    2: (
        "ALTER TABLE {msg} ADD COLUMN size INTEGER",
        "ALTER TABLE {msg} ADD COLUMN order_key TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE {msg} ADD COLUMN lapse_at INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE {msg} ADD COLUMN extra TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE {msg} ADD COLUMN blocked INTEGER NOT NULL DEFAULT 0",
        "DROP INDEX IF EXISTS {msg}_pick",
        "DROP INDEX IF EXISTS {msg}_lease",
        "DROP INDEX IF EXISTS {msg}_delayed",
    ),
    3: (
        "ALTER TABLE {msg} ADD COLUMN place INTEGER",
        "DROP INDEX IF EXISTS {msg}_pick",
    ),
    4: (
        "DROP INDEX IF EXISTS {msg}_line",
        "DROP INDEX IF EXISTS {msg}_first",
    ),
}
#: The columns of the tables as they are declared, for a reader of their raw records.
KV_COLUMNS: Final = ("key", "value", "value_type", "created_at", "updated_at", "expires_at", "crc")
MSG_COLUMNS: Final = (
    "queue", "state", "priority", "available_at", "lease_until", "attempt", "dlq_reason", "dlq_at",
    "target_consumer_id", "message_key", "seq", "created_at", "created_engine", "lease_id", "consumer_id", "leased_at",
    "failures", "phase", "as_of", "crc", "size", "order_key", "lapse_at", "extra", "blocked", "place",
)  # fmt: skip

_COLUMNS = ", ".join((*COLUMNS, "crc"))
#: Parameters of one statement that inserts rows, and keys that one statement names: a row costs less than by itself.
_PARAMETERS: Final = 400
_KEYS: Final = 25


def keys_in_turn(keys: Iterable[str]) -> Iterator[list[str | None]]:
    """Keys in portions for the statements about several rows; the last one is filled up with nulls, which match no
    row."""
    rest = iter(keys)
    while portion := [*islice(rest, _KEYS)]:
        yield [*portion, *[None] * (_KEYS - len(portion))]


class Insert:
    """The statements that insert one row, and several (``rows``). ``columns`` are the names with their values in SQL;
    those in ``bound`` are parameters instead, in this order."""

    def __init__(self, table: str, columns: dict[str, str], bound: tuple[str, ...]) -> None:
        self.rows = _PARAMETERS // len(bound)
        marks = [self._marks(columns, bound, row * len(bound)) for row in range(self.rows)]
        self.one = f"INSERT INTO {table} ({', '.join(columns)}) VALUES {marks[0]}"
        self.several = ", ".join((self.one, *marks[1:]))

    @staticmethod
    def _marks(columns: dict[str, str], bound: tuple[str, ...], before: int) -> str:
        numbers = {name: f"?{before + number}" for number, name in enumerate(bound, 1)}
        values = (numbers.get(name) or numbers.get(value) or value for name, value in columns.items())
        return f"({', '.join(values)})"


def _columns(names: Iterable[str]) -> dict[str, str]:
    return dict.fromkeys(names, "")


class Statements:
    """The statements for one pair of tables, ``kv`` and ``msg``. Each that is asked often is a search of an index."""

    def __init__(self, kv: str, msg: str) -> None:
        select = f"SELECT {_COLUMNS} FROM {msg}"
        self.get = f"{select} WHERE message_key = ?"
        self.page = f"{select} WHERE message_key > ? ORDER BY message_key LIMIT ?"
        self.insert = Insert(msg, _columns((*COLUMNS, "crc")), (*COLUMNS, "crc"))
        self.insert_new = Insert(msg, {**_columns((*COLUMNS, "crc")), **NEW}, NEW_BOUND)
        changes = ", ".join(f"{name} = ?" for name in CHANGING)
        self.update = f"UPDATE {msg} SET {changes} WHERE message_key = ?"
        several = f"IN ({', '.join('?' * _KEYS)})"
        self.delete_several = f"DELETE FROM {msg} WHERE message_key {several}"
        ready = f"{select} WHERE state = 'ready' AND queue = ? AND blocked = ?"
        position = "ifnull(place, seq)"  # as in the index
        by_position = f"ORDER BY target_consumer_id, priority DESC, {position} LIMIT ?"
        of_target = f"{ready} AND target_consumer_id = ?"
        self.pick = f"{of_target} ORDER BY priority DESC, {position} LIMIT ?"
        self.next_priority = f"{of_target} AND priority < ? ORDER BY priority DESC, {position} LIMIT 1"
        self.next_target = f"{ready} AND target_consumer_id > ? {by_position.replace('?', '1')}"
        self.ready = f"{ready} {by_position}"
        self.ready_behind = (
            f"{of_target} AND priority = ? AND {position} > ? ORDER BY {position} LIMIT ?",
            f"{of_target} AND priority < ? ORDER BY priority DESC, {position} LIMIT ?",
            f"{ready} AND target_consumer_id > ? {by_position}",
        )
        self.ended_leases = f"{select} WHERE lease_until <= ? ORDER BY lease_until, seq LIMIT ?"
        leased = f"{select} WHERE lease_until IS NOT NULL"
        self.leased = f"{leased} AND (lease_until, seq) > (?, ?) ORDER BY lease_until, seq LIMIT ?"
        #: Those of ``TIMED``, in its order.
        timed = [f"{select} WHERE state = '{state}'" for state in TIMED]
        self.due = [f"{one} AND available_at <= ? ORDER BY available_at, seq LIMIT ?" for one in timed]
        self.timed = [f"{one} AND (available_at, seq) > (?, ?) ORDER BY available_at, seq LIMIT ?" for one in timed]
        self.held = f"{select} WHERE state = 'held' AND queue = ? AND seq > ? ORDER BY seq LIMIT ?"
        self.drafts = f"{select} WHERE state = 'drafting' AND queue = ? AND seq > ? ORDER BY seq LIMIT ?"
        ended = "AND queue = ? AND (dlq_at, seq) > (?, ?) ORDER BY dlq_at, seq LIMIT ?"
        self.dead = f"{select} WHERE state = 'dead' {ended}"
        self.done = f"{select} WHERE state = 'done' {ended}"
        self.expiring = f"{select} WHERE lapse_at > 0 AND lapse_at <= ? ORDER BY lapse_at, seq LIMIT ?"
        self.first_due = [
            f"SELECT available_at FROM {msg} WHERE state = '{state}' ORDER BY available_at LIMIT 1" for state in TIMED
        ]
        self.first_lease = f"SELECT lease_until FROM {msg} WHERE lease_until > 0 ORDER BY lease_until LIMIT 1"
        self.first_lapse = f"SELECT lapse_at FROM {msg} WHERE lapse_at > 0 ORDER BY lapse_at LIMIT 1"
        self.move = f"UPDATE {msg} SET queue = ?, {changes} WHERE message_key = ?"
        same_key = f"FROM {msg} WHERE queue = ? AND order_key = ? AND {_IN_LINE}"
        self.first_of_order_key = f"SELECT message_key, state {same_key} ORDER BY seq LIMIT 1"
        self.free_of_order_key = f"SELECT message_key, state {same_key} AND blocked = 0"
        self.order_keys = f"SELECT DISTINCT queue, order_key FROM {msg} WHERE {_IN_LINE}"
        self.block = f"UPDATE {msg} SET blocked = ? WHERE message_key = ?"
        self.get_value = f"SELECT value, value_type, crc FROM {kv} WHERE key = ?"
        self.get_values = f"SELECT key, value, value_type, crc FROM {kv} WHERE key {several}"
        bound = ("key", "value", "value_type", "created_at", "crc")
        self.add_value = Insert(kv, {**_columns(bound), "updated_at": "created_at"}, bound)
        self.put_value = self.add_value.one + (
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at,"
            " crc = excluded.crc"
        )
        self.replace_value = self.put_value + ", value_type = excluded.value_type"
        self.set_value = f"UPDATE {kv} SET value = ?, crc = ? WHERE key = ?"
        self.delete_value = f"DELETE FROM {kv} WHERE key = ?"
        self.delete_values = f"DELETE FROM {kv} WHERE key {several}"
        self.kv_keys = f"SELECT key FROM {kv} WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"
        self.queue_values = (
            f"SELECT key, value, value_type, crc FROM {kv} WHERE value_type = 'queue' AND key > ? ORDER BY key LIMIT ?"
        )
        self.sizes = (
            f"SELECT message_key, seq, size, extra FROM {msg} WHERE message_key > ? ORDER BY message_key LIMIT ?"
        )
        self.queue_keys = f"SELECT key FROM {kv} WHERE value_type = 'queue' AND key > ? ORDER BY key LIMIT ?"


@cache
def statements(kv: str, msg: str) -> Statements:
    """The statements for one pair of tables, made once."""
    return Statements(kv, msg)
