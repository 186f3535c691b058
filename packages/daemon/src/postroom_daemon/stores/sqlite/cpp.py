"""Reading a database of the C++ system: its messages and policies, and the rows of which nothing can be made.

Its tables are ``kv`` and ``msg_index`` without our columns; ``user_version`` is 0. There are three makes of them: with
and without a primary key in ``msg_index``, and an older one that lacks the columns of dead letters and targets. Its
hybrid backend keeps a body in a file, whose path stands in ``kv``.
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

from .errors import translated

_KV: Final = {"key", "value", "value_type", "created_at", "updated_at"}
_MSG: Final = {"queue", "state", "priority", "available_at", "lease_until", "attempt", "message_key"}
#: Columns that the older make does not have, and what counts in their place.
_LATER: Final = {"dlq_reason": "NULL", "dlq_at": "NULL", "target_consumer_id": "''"}
_STATES: Final = frozenset({"ready", "inflight", "delayed", "dlq"})


@dataclass(frozen=True, slots=True)
class CppMessage:
    """A message as it was there. Times are Unix milliseconds; 0 stands for none."""

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
class OddRow:
    """A row of which nothing can be made: why, and the row as JSON bytes."""

    reason: str
    row: bytes


class _Odd(Exception):
    """Why nothing can be made of a row."""


def is_cpp_database(path: Path, kv: str, msg: str) -> bool:
    """Whether there is a database of the C++ system at ``path``. One that cannot be read is none."""
    if not path.is_file() or not path.stat().st_size:
        return False
    try:
        db = sqlite3.connect(path, isolation_level=None)
        try:
            if db.execute("PRAGMA user_version").fetchone()[0]:
                return False
            return _columns(db, kv) >= _KV and _columns(db, msg) >= _MSG and "seq" not in _columns(db, msg)
        finally:
            db.close()
    except sqlite3.Error:
        return False


def _columns(db: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in db.execute(f"PRAGMA table_info({table})")}


class CppDatabase:
    """One that is held against the C++ daemon, and read. Nothing in it is changed, but that its log is folded in."""

    def __init__(self, path: Path, kv: str, msg: str, directory: Path) -> None:
        self._path = path
        self._kv = kv
        self._msg = msg
        self._directory = directory  # what relative paths of bodies are relative to

    def open(self) -> None:
        """Raises ``StoreError``: ``StoreBusy`` while another process has it open."""
        self._db = sqlite3.connect(self._path, timeout=1, isolation_level=None)
        try:
            # No log can be beside it then, so that the file alone is the database; and it needs nobody else to have it.
            self._db.execute("PRAGMA journal_mode = DELETE")
            self._db.execute("BEGIN EXCLUSIVE")
            self._db.text_factory = bytes
            self._later = {row[1].decode() for row in self._db.execute(f"PRAGMA table_info({self._msg})")}
        except sqlite3.Error as error:
            self._db.close()
            raise translated(error, self._path) from error

    def close(self) -> None:
        """Let go of it; others may open it then."""
        self._db.close()

    def oldest(self) -> int | None:
        """When the oldest message was published."""
        row = self._rows(f"SELECT min(created_at) FROM {self._kv} WHERE typeof(created_at) = 'integer'")[0]
        return row[0] if type(row[0]) is int else None

    def policies(self) -> Iterator[tuple[str, dict[str, Any]] | OddRow]:
        """The policies by queue, as JSON objects."""
        for row in self._rows(f"SELECT key, value FROM {self._kv} WHERE value_type = 'policy' ORDER BY key"):
            try:
                key, value = _text(row[0], "key"), _json(row[1])
                prefix, _, queue = key.partition(":")
                if prefix != "policy":
                    raise _Odd("the key of a policy must be policy:<queue>")
                yield queue, value
            except _Odd as odd:
                yield OddRow(str(odd), _shown(("key", "value"), row))

    def messages(self) -> Iterator[CppMessage | OddRow]:
        """All messages, oldest first; those of one millisecond in the order of their rows."""
        kv, msg = self._kv, self._msg
        order = f"SELECT m.rowid FROM {msg} m LEFT JOIN {kv} k ON k.key = m.message_key ORDER BY k.created_at, m.rowid"
        rowids = array("q", (row[0] for row in self._rows(order)))
        doubled = {
            row[0]: False
            for row in self._rows(f"SELECT message_key FROM {msg} GROUP BY message_key HAVING count(*) > 1")
        }
        names = ["message_key", "queue", "state", "priority", "available_at", "lease_until", "attempt"]
        columns = [f"m.{name}" for name in names]
        for name, default in _LATER.items():
            names.append(name)
            columns.append(f"m.{name}" if name in self._later else default)
        names += ["created_at", "updated_at", "value"]
        columns += ["k.created_at", "k.updated_at", "k.value"]
        select = f"SELECT {', '.join(columns)} FROM {msg} m LEFT JOIN {kv} k ON k.key = m.message_key WHERE m.rowid = ?"
        for rowid in rowids:
            (row,) = self._rows(select, rowid)
            try:
                if doubled.get(row[0]):
                    raise _Odd("another row of the same message stands before it")
                if row[0] in doubled:
                    doubled[row[0]] = True
                yield self._message(dict(zip(names, row, strict=True)))
            except _Odd as odd:
                yield OddRow(str(odd), _shown(names, row))
        yield from self._strays()

    def _strays(self) -> Iterator[OddRow]:
        """Rows of ``kv`` that belong to nothing: no consumer could ever get them."""
        names = ("key", "value", "value_type", "created_at", "updated_at")
        select = (
            f"SELECT {', '.join(names)} FROM {self._kv} WHERE value_type NOT IN ('message', 'policy') OR"
            f" (value_type = 'message' AND key NOT IN (SELECT message_key FROM {self._msg}))"
        )
        for row in self._rows(select):
            known = row[2] == b"message"
            yield OddRow("a body without a row in the index" if known else "of an unknown type", _shown(names, row))

    def _message(self, row: dict[str, Any]) -> CppMessage:
        key, queue, state = (_text(row[name], name) for name in ("message_key", "queue", "state"))
        if not key.startswith("msg:"):
            raise _Odd("the key of a message must begin with msg:")
        if state not in _STATES:
            raise _Odd(f"unknown state {state!r}")
        if row["value"] is None:
            raise _Odd("its body is missing")
        payload, attributes = self._body(_json(row["value"]))
        reason = row["dlq_reason"]
        return CppMessage(
            key=key,
            queue=queue,
            state=state,
            priority=_number(row["priority"], "priority"),
            available_at=_number(row["available_at"], "available_at"),
            lease_until=_number(row["lease_until"], "lease_until"),
            attempt=max(0, _number(row["attempt"], "attempt")),
            dlq_reason=reason.decode(errors="replace") if type(reason) is bytes else "",
            dlq_at=_number(row["dlq_at"], "dlq_at") or _number(row["updated_at"], "updated_at"),
            target=_text(row["target_consumer_id"], "target_consumer_id"),
            created_at=_number(row["created_at"], "created_at"),
            payload=payload,
            attributes=attributes,
        )

    def _body(self, value: dict[str, Any]) -> tuple[str, str]:
        if "payload" not in value and type(value.get("payloadPath")) is str:
            value = self._file(Path(value["payloadPath"]))
        payload, attributes = value.get("payload"), value.get("attributes", "{}")
        if type(payload) is not str or type(attributes) is not str:
            raise _Odd("its payload or its attributes are no text")
        return payload, attributes

    def _file(self, path: Path) -> dict[str, Any]:
        """The body in a file of the hybrid backend; a crash may have left it in the folder where it was before."""
        beside = [path.parent.parent / folder / path.name for folder in ("active", "dlq")]
        for candidate in dict.fromkeys((path, *beside)):
            try:
                return _json((self._directory / candidate).read_bytes())
            except OSError:
                continue
        raise _Odd(f"its body's file {path} is not there")

    def _rows(self, sql: str, *parameters: Any) -> list[Any]:
        try:
            return self._db.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise translated(error, self._path) from error


def _text(value: Any, name: str) -> str:
    if type(value) is bytes:
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    raise _Odd(f"{name} is no text")


def _number(value: Any, name: str) -> int:
    if value is None:
        return 0
    if type(value) is not int:
        raise _Odd(f"{name} is no integer")
    return value


def _json(value: Any) -> dict[str, Any]:
    try:
        tree = orjson.loads(value)
    except (TypeError, ValueError):
        tree = None
    if type(tree) is not dict:
        raise _Odd("its value is no JSON object")
    return tree


def _shown(names: Any, row: Any) -> bytes:
    """A row as JSON; bytes that are no text in hex."""
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
