"""The SQLite schema: the tables of the C++ system (``kv``, ``msg_index``) with its key names, extended.

The format is kept in ``PRAGMA user_version``. To change it: raise ``VERSION``, add the step from the version before to
``STEPS``, and a test that opens a database written by the version before.

- 1: the first.
- 2: ``crc`` in both tables, a checksum of the row, null in rows of format 1; ``as_of`` in ``msg_index``, the last event
  that a row shows. New databases are made with ``auto_vacuum = INCREMENTAL``, older ones become so once they are small.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = 2

#: In ``{msg}``, ``created_at`` is Unix ms, every other time engine ms. A priority may be null, which sorts below all.
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
        crc INTEGER)""",
    """CREATE INDEX IF NOT EXISTS {msg}_pick ON {msg}
        (queue, target_consumer_id, priority DESC, seq) WHERE state = 'ready'""",
    "CREATE INDEX IF NOT EXISTS {msg}_lease ON {msg} (lease_until) WHERE state = 'inflight'",
    "CREATE INDEX IF NOT EXISTS {msg}_delayed ON {msg} (available_at) WHERE state = 'delayed'",
    "CREATE INDEX IF NOT EXISTS {msg}_dead ON {msg} (queue, dlq_at, seq) WHERE state = 'dead'",
    "CREATE INDEX IF NOT EXISTS {kv}_queues ON {kv} (key) WHERE value_type = 'queue'",
)

#: By version, what makes the next one of it. Adding a column with a constant default touches no row, however many.
STEPS: Final = {
    1: (
        "ALTER TABLE {kv} ADD COLUMN crc INTEGER",
        "ALTER TABLE {msg} ADD COLUMN as_of INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE {msg} ADD COLUMN crc INTEGER",
    ),
}
#: The columns of the tables as they are declared, for a reader of their raw records.
KV_COLUMNS: Final = ("key", "value", "value_type", "created_at", "updated_at", "expires_at", "crc")
MSG_COLUMNS: Final = (
    "queue", "state", "priority", "available_at", "lease_until", "attempt", "dlq_reason", "dlq_at",
    "target_consumer_id", "message_key", "seq", "created_at", "created_engine", "lease_id", "consumer_id", "leased_at",
    "failures", "phase", "as_of", "crc",
)  # fmt: skip
