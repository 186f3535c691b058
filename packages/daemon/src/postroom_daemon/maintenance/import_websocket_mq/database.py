"""Read the database of WebSocket MQ's server (BlackGlory/mq 0.7): queues, messages and their slots."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Final

from postroom_common.websocket_mq import MqState

from ...stores.sqlite.database import translated
from ..foreign_data import ImportRefused, Unusable, UnusableRow, shown_row, text_of

#: The version of the tables, as the server records it in the database.
_VERSION: Final = 1
_TABLES: Final = {"mq_queue", "mq_message", "mq_message_slot"}
_QUEUE: Final = (
    "id", "uniq", "drafting_timeout", "ordered_timeout", "active_timeout", "concurrency", "behavior_when_completed",
    "behavior_when_abandoned", "completed", "abandoned",
)  # fmt: skip
_MESSAGE: Final = ("queue_id", "id", "priority", "hash", "state", "state_updated_at")
_SLOT: Final = ("queue_id", "message_id", "name", "value")


@dataclass(frozen=True, slots=True)
class MqQueue:
    """A queue: its configuration as clients give it, and how many outcomes the server has counted that it did not
    keep. ``row`` is its row, for people."""

    id: str
    config: dict[str, Any]
    tally: dict[str, int]
    row: bytes


@dataclass(frozen=True, slots=True)
class MqMessage:
    """A message. ``priority`` is None, an integer, or what a client gave instead; ``hash`` is "" without one; ``since``
    is when it came into its state (Unix ms); ``slots`` have names and values as JSON, None for one that is not set."""

    queue: str
    id: str
    priority: Any
    hash: str
    state: MqState
    since: int
    slots: list[tuple[str, bytes | None]]
    columns: tuple[Any, ...]

    @property
    def row(self) -> bytes:
        """The row and its slots, for people."""
        return _shown_message(self.columns, self.slots)


class MqDatabase:
    """A copy of the database, which SQLite opens as after a crash. Methods raise ``StoreError`` for what it cannot
    read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.text_factory = bytes

    def check(self) -> None:
        """Raise ``ImportRefused`` unless it is a sound database of the server."""
        try:
            tables = {row[0].decode() for row in self._db.execute("SELECT name FROM sqlite_master")}
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            problem = self._db.execute("PRAGMA quick_check(1)").fetchone()[0].decode()
        except sqlite3.DatabaseError as error:
            tables, version, problem = _TABLES, _VERSION, str(error)
        if not tables >= _TABLES:
            raise ImportRefused("it is no database of WebSocket MQ: it has no tables of queues, messages and slots")
        if version != _VERSION:
            text = f"its tables have version {version}; known is version {_VERSION}, of WebSocket MQ 0.7"
            raise ImportRefused(text)
        if problem != "ok":
            raise ImportRefused(
                f"SQLite finds it damaged ({problem}): repair it first, `sqlite3 OLD .recover | sqlite3 NEW`"
            )

    def close(self) -> None:
        """Close it."""
        self._db.close()

    def oldest(self) -> int | None:
        """When the oldest message came into its state (Unix ms)."""
        numbers = "typeof(state_updated_at) IN ('integer', 'real') AND state_updated_at BETWEEN 1 AND 1e15"
        oldest = self._rows(f"SELECT min(state_updated_at) FROM mq_message WHERE {numbers}")[0][0]
        return None if oldest is None else int(oldest)

    def queues(self) -> Iterator[MqQueue | UnusableRow]:
        """All queues."""
        kept = "SELECT count(*) FROM mq_message m WHERE m.queue_id = q.id AND m.state ="
        columns = f"{', '.join(_QUEUE)}, ({kept} {MqState.COMPLETED:d}), ({kept} {MqState.ABANDONED:d})"
        for *row, completed, abandoned in self._rows(f"SELECT {columns} FROM mq_queue q ORDER BY rowid"):
            shown, values = shown_row(_QUEUE, row), dict(zip(_QUEUE, row, strict=True))
            config = {
                "unique": bool(values["uniq"]),
                "draftingTimeout": values["drafting_timeout"],
                "orderedTimeout": values["ordered_timeout"],
                "activeTimeout": values["active_timeout"],
                "concurrency": values["concurrency"],
                "behaviorWhenCompleted": values["behavior_when_completed"],
                "behaviorWhenAbandoned": values["behavior_when_abandoned"],
            }
            counted = {"completed": _count(values["completed"], completed)}
            counted["abandoned"] = _count(values["abandoned"], abandoned)
            try:
                yield MqQueue(text_of(values["id"], "id"), config, counted, shown)
            except Unusable as problem:
                yield UnusableRow(str(problem), shown, is_message=False)

    def messages(self) -> Iterator[MqMessage | UnusableRow]:
        """All messages, in the order in which the server would deliver those of one priority; behind them slots without
        a message."""
        order = "SELECT rowid FROM mq_message ORDER BY state_updated_at, rowid"
        rowids = array("q", (row[0] for row in self._rows(order)))
        one = f"SELECT {', '.join(_MESSAGE)} FROM mq_message WHERE rowid = ?"
        of_it = "m.queue_id = s.queue_id AND m.id = s.message_id"
        joined = f"mq_message m JOIN mq_message_slot s ON {of_it}"
        slots_of = f"SELECT s.name, s.value FROM {joined} WHERE m.rowid = ? ORDER BY s.rowid"
        for rowid in rowids:
            (row,), slots = self._rows(one, rowid), self._rows(slots_of, rowid)
            try:
                yield _message(row, slots)
            except Unusable as problem:
                yield UnusableRow(str(problem), _shown_message(row, slots))
        orphan = f"NOT EXISTS (SELECT 1 FROM mq_message m WHERE {of_it})"
        for row in self._rows(f"SELECT {', '.join(_SLOT)} FROM mq_message_slot s WHERE {orphan}"):
            yield UnusableRow("a slot without a message", shown_row(_SLOT, row), is_message=False)

    def _rows(self, sql: str, *parameters: Any) -> list[Any]:
        try:
            return self._db.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise translated(error, self._path) from error


def _message(columns: tuple[Any, ...], slots: list[Any]) -> MqMessage:
    """Raises ``Unusable``."""
    row = dict(zip(_MESSAGE, columns, strict=True))
    since, state = row["state_updated_at"], row["state"]
    if type(since) not in (int, float) or not isfinite(since):
        raise Unusable("state_updated_at is no number")
    if state not in list(MqState):
        raise Unusable(f"unknown state {_shown(state)!r}")
    named = [(text_of(name, "the name of a slot"), _value(value)) for name, value in slots]
    digest = row["hash"]
    return MqMessage(
        queue=text_of(row["queue_id"], "queue_id"),
        id=text_of(row["id"], "id"),
        priority=row["priority"],
        hash="" if digest is None else text_of(digest, "hash"),
        state=MqState(state),
        since=int(since),
        slots=named,
        columns=columns,
    )


def _value(value: Any) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    raise Unusable("the value of a slot is no text")


def _shown_message(row: tuple[Any, ...], slots: Iterable[tuple[Any, Any]]) -> bytes:
    return shown_row((*_MESSAGE, "slots"), (*row, [[_shown(name), _shown(value)] for name, value in slots]))


def _shown(value: Any) -> Any:
    """A value as JSON can show it."""
    return value.decode(errors="backslashreplace") if type(value) is bytes else value


def _count(counted: Any, kept: int) -> int:
    """How many of the outcomes that the server has counted are no longer there as messages."""
    return max(0, counted - kept) if type(counted) is int else 0
