"""Writes databases as the server of WebSocket MQ (BlackGlory/mq 0.7) does: its tables, its values, and what is beside a
database when the server is killed."""

from __future__ import annotations

import json
import sqlite3
from hashlib import sha256
from pathlib import Path
from typing import Any

TABLES = """
CREATE TABLE mq_additional_behavior (name VARCHAR(255) NOT NULL, value INTEGER NOT NULL UNIQUE);
INSERT INTO mq_additional_behavior VALUES ('none', 0), ('remove message', 1), ('remove all slots', 2);
CREATE TABLE mq_queue (id VARCHAR(255) NOT NULL UNIQUE, uniq BOOLEAN NOT NULL, drafting_timeout INTEGER NOT NULL,
    ordered_timeout INTEGER NOT NULL, active_timeout INTEGER NOT NULL, concurrency INTEGER,
    behavior_when_completed INTEGER NOT NULL, behavior_when_abandoned INTEGER NOT NULL,
    drafting INTEGER NOT NULL DEFAULT 0, waiting INTEGER NOT NULL DEFAULT 0, ordered INTEGER NOT NULL DEFAULT 0,
    active INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0, completed INTEGER NOT NULL DEFAULT 0,
    abandoned INTEGER NOT NULL DEFAULT 0,
    FOREIGN KEY (behavior_when_completed) REFERENCES mq_additional_behavior(value),
    FOREIGN KEY (behavior_when_abandoned) REFERENCES mq_additional_behavior(value));
CREATE TABLE mq_message_state (name VARCHAR(255) NOT NULL, value INTEGER NOT NULL UNIQUE);
INSERT INTO mq_message_state VALUES ('drafting', 0), ('waiting', 1), ('ordered', 2), ('active', 3), ('failed', 4),
    ('completed', 5), ('abandoned', 6);
CREATE TABLE mq_message (queue_id VARCHAR(255) NOT NULL, id VARCHAR(255) NOT NULL, priority INTEGER, hash VARCHAR(255),
    state INTEGER NOT NULL, state_updated_at DATETIME NOT NULL, UNIQUE (queue_id, id),
    FOREIGN KEY (queue_id) REFERENCES mq_queue(id) ON DELETE CASCADE,
    FOREIGN KEY (state) REFERENCES mq_message_state(value));
CREATE INDEX idx_mq_message_queue_id_state_priority_state_updated_at
    ON mq_message(queue_id, state, priority DESC, state_updated_at ASC);
CREATE INDEX idx_mq_message_queue_id_state_state_updated_at ON mq_message(queue_id, state, state_updated_at);
CREATE INDEX idx_mq_message_queue_id_id_hash ON mq_message(queue_id, id, hash);
CREATE TABLE mq_message_slot (queue_id VARCHAR(255) NOT NULL, message_id VARCHAR(255) NOT NULL,
    name VARCHAR(255) NOT NULL, value TEXT, UNIQUE (queue_id, message_id, name),
    FOREIGN KEY (queue_id, message_id) REFERENCES mq_message(queue_id, id) ON DELETE CASCADE);
PRAGMA user_version = 1;
"""
STATES = ("drafting", "waiting", "ordered", "active", "failed", "completed", "abandoned")
MINUTE = 60_000


class MqDatabase:
    """A database that is being written; ``now`` is the wall time (Unix ms) of its server. Keys need not fit, so that
    tests can write what the server never would."""

    def __init__(self, path: Path, now: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.now = now
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.executescript(TABLES)
        self._names = iter(range(10**6))

    def queue(self, name: str = "jobs", **changes: Any) -> str:
        """Create a queue, with other values than the usual ones in some columns."""
        columns = {
            "id": name, "uniq": 0, "drafting_timeout": MINUTE, "ordered_timeout": MINUTE, "active_timeout": MINUTE,
            "concurrency": None, "behavior_when_completed": 0, "behavior_when_abandoned": 0, **changes,
        }  # fmt: skip
        marks = ", ".join("?" * len(columns))
        self.db.execute(f"INSERT INTO mq_queue ({', '.join(columns)}) VALUES ({marks})", (*columns.values(),))
        return name

    def message(self, state: str = "waiting", queue: str = "jobs", age: int = 0, **row: Any) -> str:
        """Write a message that came into its state ``age`` ms ago, and count it. ``slots`` are values that are encoded;
        None as JSON text (``texts``) is a slot that is not set. Returns its id."""
        message_id = row.get("id", f"message-{next(self._names):02}")
        texts: dict[str, Any] = row.get("texts", {})
        if "texts" not in row:
            given = row.get("slots", {"slot": "value"})
            texts = {name: json.dumps(value, separators=(",", ":")) for name, value in given.items()}
        values = (
            queue, message_id, row.get("priority"), row.get("hash"), row.get("number", STATES.index(state)),
            row.get("since", self.now - age),
        )  # fmt: skip
        self.db.execute("INSERT INTO mq_message VALUES (?, ?, ?, ?, ?, ?)", values)
        for name, text in texts.items():
            self.db.execute("INSERT INTO mq_message_slot VALUES (?, ?, ?, ?)", (queue, message_id, name, text))
        self.db.execute(f"UPDATE mq_queue SET {state} = {state} + 1 WHERE id = ?", (queue,))
        return str(message_id)

    def close(self) -> Path:
        """Close it as the server does at a stop."""
        self.db.close()
        return self.path

    def killed(self, suffix: str) -> Path:
        """What a kill leaves: the files as they are now, in another directory. ``suffix``: the file that must be beside
        the database."""
        target = self.path.parent / "killed" / self.path.name
        target.parent.mkdir()
        for end in ("", suffix):
            target.with_name(target.name + end).write_bytes(self.path.with_name(self.path.name + end).read_bytes())
        self.db.close()
        return target


def hash_of(slots: dict[str, Any]) -> str:
    """The hash by which a unique queue finds a message with the same slots."""
    texts = {name: json.dumps(value, separators=(",", ":"), sort_keys=True) for name, value in slots.items()}
    return sha256(json.dumps(texts, separators=(",", ":"), sort_keys=True).encode()).hexdigest()
