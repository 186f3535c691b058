"""Read a database of the C++ system: its messages and policies, and the rows that cannot be used.

Its tables are ``kv`` and ``msg_index`` without our columns. There are three versions of them: with and without a
primary key in ``msg_index``, and an older one without the columns of dead letters and targets. The hybrid backend
stores a body in a file, whose path is in ``kv``.
"""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from ...stores.sqlite.database import translated

#: Columns that the older tables lack, and their defaults.
_LATER: Final = {"dlq_reason": "NULL", "dlq_at": "NULL", "target_consumer_id": "''"}
_STATES: Final = frozenset({"ready", "inflight", "delayed", "dlq"})


@dataclass(frozen=True, slots=True)
class CppMessage:
    """A message as the C++ system stored it. Times are Unix milliseconds; 0: none."""

    key: str
    queue: str
    state: str
    priority: int
    available_at: int
    lease_until: int
    attempt: int
    dlq_reason: str
    dlq_at: int
    target: str
    created_at: int
    payload: str
    attributes: str


@dataclass(frozen=True, slots=True)
class UnusableRow:
    """A row that cannot be used: why, and the row as JSON bytes."""

    reason: str
    row: bytes


class _Unusable(Exception):
    """Why a row cannot be used."""


class CppDatabase:
    """A database that is locked against the C++ daemon and read. Only its write-ahead log is folded in; nothing else
    changes. Relative paths of bodies are relative to ``directory``."""

    def __init__(self, path: Path, kv: str, msg: str, directory: Path) -> None:
        self._path = path
        self._kv = kv
        self._msg = msg
        self._directory = directory

    def open(self) -> None:
        """Raises ``StoreError``: ``StoreBusy`` while another process has it open."""
        self._db = sqlite3.connect(self._path, timeout=1, isolation_level=None)
        try:
            # Without a log, the file alone is the database. This fails while another process has it open.
            self._db.execute("PRAGMA journal_mode = DELETE")
            self._db.execute("BEGIN EXCLUSIVE")
            self._db.text_factory = bytes
            self._columns = {row[1].decode() for row in self._db.execute(f"PRAGMA table_info({self._msg})")}
        except sqlite3.Error as error:
            self._db.close()
            raise translated(error, self._path) from error

    def close(self) -> None:
        """Close it; others may open it then."""
        self._db.close()

    def oldest(self) -> int | None:
        """When the oldest message was published (Unix ms)."""
        row = self._rows(f"SELECT min(created_at) FROM {self._kv} WHERE typeof(created_at) = 'integer'")[0]
        return row[0] if type(row[0]) is int else None

    def policies(self) -> Iterator[tuple[str, dict[str, Any]] | UnusableRow]:
        """The policies by queue, as JSON objects."""
        for row in self._rows(f"SELECT key, value FROM {self._kv} WHERE value_type = 'policy' ORDER BY key"):
            try:
                key, value = _text(row[0], "key"), _json(row[1])
                prefix, _, queue = key.partition(":")
                if prefix != "policy":
                    raise _Unusable("the key of a policy must be policy:<queue>")
                yield queue, value
            except _Unusable as problem:
                yield UnusableRow(str(problem), _shown(("key", "value"), row))

    def messages(self) -> Iterator[CppMessage | UnusableRow]:
        """All messages in the order of publishing; those of one millisecond in the order of their rows."""
        kv, msg = self._kv, self._msg
        order = f"SELECT m.rowid FROM {msg} m LEFT JOIN {kv} k ON k.key = m.message_key ORDER BY k.created_at, m.rowid"
        rowids = array("q", (row[0] for row in self._rows(order)))
        copies = {
            row[0]: False
            for row in self._rows(f"SELECT message_key FROM {msg} GROUP BY message_key HAVING count(*) > 1")
        }
        names = ["message_key", "queue", "state", "priority", "available_at", "lease_until", "attempt"]
        columns = [f"m.{name}" for name in names]
        for name, default in _LATER.items():
            names.append(name)
            columns.append(f"m.{name}" if name in self._columns else default)
        names += ["created_at", "updated_at", "value"]
        columns += ["k.created_at", "k.updated_at", "k.value"]
        select = f"SELECT {', '.join(columns)} FROM {msg} m LEFT JOIN {kv} k ON k.key = m.message_key WHERE m.rowid = ?"
        for rowid in rowids:
            (row,) = self._rows(select, rowid)
            try:
                if copies.get(row[0]):
                    raise _Unusable("another row of the same message comes before it")
                if row[0] in copies:
                    copies[row[0]] = True
                yield self._message(dict(zip(names, row, strict=True)))
            except _Unusable as problem:
                yield UnusableRow(str(problem), _shown(names, row))
        yield from self._orphans()

    def _orphans(self) -> Iterator[UnusableRow]:
        """Rows of ``kv`` that belong to no message: no consumer could ever get them."""
        names = ("key", "value", "value_type", "created_at", "updated_at")
        select = (
            f"SELECT {', '.join(names)} FROM {self._kv} WHERE value_type NOT IN ('message', 'policy') OR"
            f" (value_type = 'message' AND key NOT IN (SELECT message_key FROM {self._msg}))"
        )
        for row in self._rows(select):
            is_body = row[2] == b"message"
            yield UnusableRow(
                "a body without a row in the index" if is_body else "of an unknown type", _shown(names, row)
            )

    def _message(self, row: dict[str, Any]) -> CppMessage:
        key, queue, state = (_text(row[name], name) for name in ("message_key", "queue", "state"))
        if not key.startswith("msg:"):
            raise _Unusable("the key of a message must begin with msg:")
        if state not in _STATES:
            raise _Unusable(f"unknown state {state!r}")
        if row["value"] is None:
            raise _Unusable("its body is missing")
        value = self._content(_json(row["value"]))
        payload, attributes = value.get("payload"), value.get("attributes", "{}")
        if type(payload) is not str or type(attributes) is not str:
            raise _Unusable("its payload or its attributes are no text")
        died = value.get("dlqAt")
        return CppMessage(
            key=key,
            queue=queue,
            state=state,
            priority=_number(row["priority"], "priority"),
            available_at=_number(row["available_at"], "available_at"),
            lease_until=_number(row["lease_until"], "lease_until"),
            attempt=max(0, _number(row["attempt"], "attempt")),
            dlq_reason=_reason(row["dlq_reason"], value),
            dlq_at=_number(row["dlq_at"], "dlq_at")
            or (died if type(died) is int else 0)
            or _number(row["updated_at"], "updated_at"),
            target=_text(row["target_consumer_id"], "target_consumer_id"),
            created_at=_number(row["created_at"], "created_at"),
            payload=payload,
            attributes=attributes,
        )

    def _content(self, value: dict[str, Any]) -> dict[str, Any]:
        """The value of a message with its body, which may be in a file."""
        if "payload" not in value and type(value.get("payloadPath")) is str:
            return value | self._file(Path(value["payloadPath"]))
        return value

    def _file(self, path: Path) -> dict[str, Any]:
        """The content of a file of the hybrid backend; after a crash it may still be in the former state's folder."""
        beside = [path.parent.parent / folder / path.name for folder in ("active", "dlq")]
        for candidate in dict.fromkeys((path, *beside)):
            try:
                return _json((self._directory / candidate).read_bytes())
            except OSError:
                continue
        raise _Unusable(f"its body's file {path} is not there")

    def _rows(self, sql: str, *parameters: Any) -> list[Any]:
        try:
            return self._db.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise translated(error, self._path) from error


def _reason(column: Any, value: dict[str, Any]) -> str:
    """Why a message died: in a column, in older tables only in the value."""
    if type(column) is bytes and column:
        return column.decode(errors="replace")
    reason = value.get("dlqReason")
    return reason if type(reason) is str else ""


def _text(value: Any, name: str) -> str:
    if type(value) is bytes:
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    raise _Unusable(f"{name} is no text")


def _number(value: Any, name: str) -> int:
    if value is None:
        return 0
    if type(value) is not int:
        raise _Unusable(f"{name} is no integer")
    return value


def _json(value: Any) -> dict[str, Any]:
    try:
        tree = orjson.loads(value)
    except (TypeError, ValueError):
        tree = None
    if type(tree) is not dict:
        raise _Unusable("its value is no JSON object")
    return tree


def _shown(names: Any, row: Any) -> bytes:
    """A row as JSON; bytes that are not UTF-8 in hex."""
    shown: dict[str, Any] = {}
    for name, value in zip(names, row, strict=True):
        if type(value) is bytes:
            try:
                shown[name] = value.decode()
            except UnicodeDecodeError:
                shown[name] = {"hex": value.hex()}
        else:
            shown[name] = value
    return json.dumps(shown, ensure_ascii=True).encode()
