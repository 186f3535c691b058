"""The statements of the SQLite store, made once for its tables. Each that is asked often is a search of an index."""

from __future__ import annotations

from .rows import CHANGING, COLUMNS

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
        ready = f"{select} WHERE state = 'ready' AND queue = ? AND blocked = ?"
        by_turn = "ORDER BY target_consumer_id, priority DESC, seq LIMIT ?"
        self.pick = f"{ready} AND target_consumer_id = ? ORDER BY priority DESC, seq LIMIT ?"
        self.next_priority = f"{ready} AND target_consumer_id = ? AND priority < ? ORDER BY priority DESC, seq LIMIT 1"
        self.next_target = f"{ready} AND target_consumer_id > ? ORDER BY target_consumer_id, priority DESC, seq LIMIT 1"
        self.ready = f"{ready} {by_turn}"
        self.ready_behind = (
            f"{ready} AND target_consumer_id = ? AND priority = ? AND seq > ? ORDER BY seq LIMIT ?",
            f"{ready} AND target_consumer_id = ? AND priority < ? ORDER BY priority DESC, seq LIMIT ?",
            f"{ready} AND target_consumer_id > ? {by_turn}",
        )
        self.expired = f"{select} WHERE lease_until <= ? ORDER BY lease_until, seq LIMIT ?"
        leased = f"{select} WHERE lease_until IS NOT NULL"
        self.leased = f"{leased} AND (lease_until, seq) > (?, ?) ORDER BY lease_until, seq LIMIT ?"
        delayed = f"{select} WHERE state = 'delayed'"
        self.due = f"{delayed} AND available_at <= ? ORDER BY available_at, seq LIMIT ?"
        self.delayed = f"{delayed} AND (available_at, seq) > (?, ?) ORDER BY available_at, seq LIMIT ?"
        self.held = f"{select} WHERE state = 'held' AND queue = ? AND seq > ? ORDER BY seq LIMIT ?"
        self.next = (
            f"SELECT seq, message_key FROM {msg} WHERE state = 'ready' AND queue = ? AND blocked = 0"
            " AND target_consumer_id = ? ORDER BY priority DESC, seq LIMIT ?"
        )
        self.dead = (
            f"{select} WHERE state = 'dead' AND queue = ? AND (dlq_at, seq) > (?, ?) ORDER BY dlq_at, seq LIMIT ?"
        )
        self.lapsing = f"{select} WHERE lapse_at > 0 AND lapse_at <= ? ORDER BY lapse_at, seq LIMIT ?"
        self.first_delayed = f"SELECT available_at FROM {msg} WHERE state = 'delayed' ORDER BY available_at LIMIT 1"
        self.first_lease = f"SELECT lease_until FROM {msg} WHERE lease_until > 0 ORDER BY lease_until LIMIT 1"
        self.first_lapse = f"SELECT lapse_at FROM {msg} WHERE lapse_at > 0 ORDER BY lapse_at LIMIT 1"
        self.relocate = f"UPDATE {msg} SET queue = ?, {changes} WHERE message_key = ?"
        line = f"FROM {msg} WHERE queue = ? AND order_key = ? AND order_key != '' AND state != 'dead'"
        self.line_head = f"SELECT message_key, state {line} ORDER BY seq LIMIT 1"
        self.line_first = f"SELECT message_key, state {line} AND blocked = 0"
        self.lines = f"SELECT DISTINCT queue, order_key FROM {msg} WHERE order_key != '' AND state != 'dead'"
        self.block = f"UPDATE {msg} SET blocked = ? WHERE message_key = ?"
        self.get_value = f"SELECT value, value_type, crc FROM {kv} WHERE key = ?"
        self.add_value = (
            f"INSERT INTO {kv} (key, value, value_type, created_at, updated_at, crc) VALUES (?, ?, ?, ?, ?, ?)"
        )
        self.put_value = self.add_value + (
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at,"
            " crc = excluded.crc"
        )
        self.set_value = f"UPDATE {kv} SET value = ?, crc = ? WHERE key = ?"
        self.delete_value = f"DELETE FROM {kv} WHERE key = ?"
        self.fact_keys = f"SELECT key FROM {kv} WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"
        self.queue_keys = f"SELECT key FROM {kv} WHERE value_type = 'queue' AND key > ? ORDER BY key LIMIT ?"
