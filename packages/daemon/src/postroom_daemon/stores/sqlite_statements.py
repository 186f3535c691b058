"""The statements of the SQLite store, made once for its tables. Each that is asked often is a search of an index."""

from __future__ import annotations

from .sqlite_rows import CHANGING, COLUMNS

_COLUMNS = ", ".join((*COLUMNS, "crc"))


class Statements:
    """``kv`` and ``msg`` are the names of the tables."""

    def __init__(self, kv: str, msg: str) -> None:
        select = f"SELECT {_COLUMNS} FROM {msg}"
        marks = ", ".join("?" * (len(COLUMNS) + 1))
        self.get = f"{select} WHERE message_key = ?"
        self.page = f"{select} WHERE message_key > ? ORDER BY message_key LIMIT ?"
        self.insert = f"INSERT INTO {msg} ({_COLUMNS}) VALUES ({marks})"
        changes = ", ".join(f"{name} = ?" for name in CHANGING)
        self.update = f"UPDATE {msg} SET {changes} WHERE message_key = ?"
        self.delete = f"DELETE FROM {msg} WHERE message_key = ?"
        self.pick = (
            f"{select} WHERE state = 'ready' AND queue = ? AND target_consumer_id = ?"
            " ORDER BY priority DESC, seq LIMIT 1"
        )
        self.next = (
            f"SELECT seq, message_key FROM {msg} WHERE state = 'ready' AND queue = ? AND target_consumer_id = ?"
            " ORDER BY priority DESC, seq LIMIT ?"
        )
        self.expired = f"{select} WHERE state = 'inflight' AND lease_until <= ? ORDER BY lease_until, rowid LIMIT ?"
        self.delayed = f"{select} WHERE state = 'delayed' AND available_at <= ? ORDER BY available_at, rowid LIMIT ?"
        self.dead = (
            f"{select} WHERE state = 'dead' AND queue = ? AND (dlq_at, seq) > (?, ?) ORDER BY dlq_at, seq LIMIT ?"
        )
        self.first_delayed = f"SELECT available_at FROM {msg} WHERE state = 'delayed' ORDER BY available_at LIMIT 1"
        self.first_lease = f"SELECT lease_until FROM {msg} WHERE state = 'inflight' ORDER BY lease_until LIMIT 1"
        self.next_priority = (
            f"{select} WHERE state = 'ready' AND queue = ? AND target_consumer_id = ? AND priority < ?"
            " ORDER BY priority DESC, seq LIMIT 1"
        )
        self.next_target = (
            f"{select} WHERE state = 'ready' AND queue = ? AND target_consumer_id > ?"
            " ORDER BY target_consumer_id, priority DESC, seq LIMIT 1"
        )
        self.get_value = f"SELECT value, value_type, crc FROM {kv} WHERE key = ?"
        self.add_value = (
            f"INSERT INTO {kv} (key, value, value_type, created_at, updated_at, crc) VALUES (?, ?, ?, ?, ?, ?)"
        )
        self.put_value = self.add_value + (
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at,"
            " crc = excluded.crc"
        )
        self.delete_value = f"DELETE FROM {kv} WHERE key = ?"
        self.queue_keys = f"SELECT key FROM {kv} WHERE value_type = 'queue' AND key > ? ORDER BY key LIMIT ?"
