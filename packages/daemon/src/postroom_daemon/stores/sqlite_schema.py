"""The SQLite schema: the tables of the C++ system (``kv``, ``msg_index``) with its key names, extended.

Version 1, kept in ``PRAGMA user_version``. To change it: raise ``VERSION``, add a migration step from the version
before, and a test that opens a database written by the version before.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = 1

#: In ``{msg}``, ``created_at`` is Unix ms, every other time engine ms. A priority may be null, which sorts below all.
#: ``{kv}`` and ``{msg}`` are the table names of the configuration, checked there to be plain identifiers.
STATEMENTS: Final = (
    """CREATE TABLE IF NOT EXISTS {kv} (
        key TEXT PRIMARY KEY,
        value TEXT NOT NULL,
        value_type TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        expires_at INTEGER)""",
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
        phase TEXT NOT NULL DEFAULT '')""",
    """CREATE INDEX IF NOT EXISTS {msg}_pick ON {msg}
        (queue, target_consumer_id, priority DESC, seq) WHERE state = 'ready'""",
    "CREATE INDEX IF NOT EXISTS {msg}_lease ON {msg} (lease_until) WHERE state = 'inflight'",
    "CREATE INDEX IF NOT EXISTS {msg}_delayed ON {msg} (available_at) WHERE state = 'delayed'",
    "CREATE INDEX IF NOT EXISTS {msg}_dead ON {msg} (queue, dlq_at, seq) WHERE state = 'dead'",
    "CREATE INDEX IF NOT EXISTS {kv}_queues ON {kv} (key) WHERE value_type = 'queue'",
)
