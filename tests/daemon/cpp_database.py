"""Writes databases as the C++ system does: its three makes of tables, its values, and the faults that it leaves."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

KV = """
CREATE TABLE kv (key TEXT PRIMARY KEY, value TEXT NOT NULL, value_type TEXT NOT NULL, created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL, expires_at INTEGER);
CREATE INDEX idx_kv_type ON kv(value_type);
CREATE INDEX idx_kv_expires ON kv(expires_at) WHERE expires_at IS NOT NULL;
"""
MAKES = {
    "as shipped": """
CREATE TABLE msg_index (queue TEXT NOT NULL, state TEXT NOT NULL, priority INTEGER NOT NULL DEFAULT 0,
    available_at INTEGER NOT NULL, lease_until INTEGER, attempt INTEGER NOT NULL DEFAULT 0, dlq_reason TEXT,
    dlq_at INTEGER, target_consumer_id TEXT NOT NULL DEFAULT '',
    message_key TEXT NOT NULL REFERENCES kv(key) ON DELETE CASCADE, PRIMARY KEY (message_key));
CREATE INDEX idx_msg_ready ON msg_index(queue, state, available_at, priority DESC);
CREATE INDEX idx_msg_lease ON msg_index(state, lease_until) WHERE state = 'inflight';
CREATE INDEX idx_msg_delayed ON msg_index(state, available_at) WHERE state = 'delayed';
CREATE INDEX idx_msg_dlq ON msg_index(queue, state) WHERE state = 'dlq';
CREATE INDEX idx_msg_target ON msg_index(queue, state, target_consumer_id, available_at) WHERE state = 'ready';
""",
    "without a primary key": """
CREATE TABLE msg_index (queue TEXT NOT NULL, state TEXT NOT NULL, priority INTEGER NOT NULL DEFAULT 0,
    available_at INTEGER NOT NULL, lease_until INTEGER, attempt INTEGER NOT NULL DEFAULT 0, dlq_reason TEXT,
    dlq_at INTEGER, target_consumer_id TEXT NOT NULL DEFAULT '', message_key TEXT NOT NULL,
    FOREIGN KEY (message_key) REFERENCES kv(key) ON DELETE CASCADE);
CREATE INDEX idx_msg_queue_state ON msg_index(queue, state, available_at);
""",
    "older": """
CREATE TABLE msg_index (queue TEXT NOT NULL, state TEXT NOT NULL, priority INTEGER NOT NULL DEFAULT 0,
    available_at INTEGER NOT NULL, lease_until INTEGER, attempt INTEGER NOT NULL DEFAULT 0,
    message_key TEXT NOT NULL REFERENCES kv(key) ON DELETE CASCADE, PRIMARY KEY (message_key));
CREATE INDEX idx_msg_ready ON msg_index(queue, state, available_at, priority DESC);
""",
}


class CppDatabase:
    """A database that is being written; ``now`` is the wall time (Unix ms) of its daemon."""

    def __init__(self, path: Path, now: int, make: str = "as shipped") -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.executescript(KV + MAKES[make])
        self.now = now
        self._make = make

    def message(self, name: str, state: str = "ready", queue: str = "telemetry", **row: Any) -> str:
        """Write a message as ``enqueue`` and the moves after it do. Its key. ``value`` replaces what stands in kv,
        ``body=False`` leaves it out."""
        key = row.get("key", f"msg:{queue}:{name}")
        created = row.get("created", self.now)
        value = {
            "messageId": name,
            "queue": queue,
            "payload": row.get("payload", f'{{"name":"{name}"}}'),
            "attributes": row.get("attributes", "{}"),
            "priority": row.get("priority", 0),
            "attempt": 0,
            "createdAt": created,
        }
        if row.get("body", True):
            text = row.get("value", json.dumps(value))
            self.db.execute(
                "INSERT OR REPLACE INTO kv VALUES (?, ?, 'message', ?, ?, NULL)", (key, text, created, created)
            )
        columns = {
            "queue": queue,
            "state": state,
            "priority": row.get("priority", 0),
            "available_at": row.get("available", created),
            "lease_until": row.get("until"),
            "attempt": row.get("attempt", 0),
            "message_key": key,
        }
        if self._make != "older":
            columns |= {
                "dlq_reason": row.get("reason"),
                "dlq_at": row.get("died"),
                "target_consumer_id": row.get("target", ""),
            }
        marks = ", ".join("?" * len(columns))
        self.db.execute(f"INSERT INTO msg_index ({', '.join(columns)}) VALUES ({marks})", list(columns.values()))
        return str(key)

    def policy(self, queue: str, **policy: Any) -> None:
        self.db.execute(
            "INSERT INTO kv VALUES (?, ?, 'policy', ?, ?, NULL)",
            (f"policy:{queue}", json.dumps(policy), self.now, self.now),
        )

    def close(self) -> None:
        self.db.close()
