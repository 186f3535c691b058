"""Read a database of the C++ system: its messages and policies, and the rows that cannot be used.

Its tables are ``kv`` and ``msg_index`` without our columns. There are three versions of them: with and without a
primary key in ``msg_index``, and an older one without the columns of dead letters and targets. The hybrid backend
stores a body in a file, whose path is in ``kv``.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ...stores.sqlite.database import translated
from ..foreign_data import Unusable, UnusableRow, shown_row, text_of
from .rows import (
    CppMessage,
    body_of,
    headers_of,
    number_of,
    object_of,
    reason_of,
)

#: Columns that the older tables lack, and their defaults.
_LATER: Final = {"dlq_reason": "NULL", "dlq_at": "NULL", "target_consumer_id": "''"}
_STATES: Final = frozenset({"ready", "inflight", "delayed", "dlq"})
#: The directory of bodies in that of the C++ daemon's data, which no setting of it could change.
_PAYLOADS: Final = "payloads"


class CppDatabase:
    """A database that is locked against the C++ daemon and read. Only its write-ahead log is folded in; nothing else
    changes. ``bodies`` are the directories in which files with bodies may be, each instead of ``data/payloads``."""

    def __init__(self, path: Path, kv: str, msg: str, bodies: tuple[Path, ...]) -> None:
        self._path = path
        self._kv = kv
        self._msg = msg
        self._bodies = bodies

    @property
    def shown_bodies(self) -> str:
        """The directories in which files with bodies may be, for people."""
        return ", ".join(map(str, self._bodies))

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
                key, value = text_of(row[0], "key"), object_of(row[1])
                prefix, _, queue = key.partition(":")
                if prefix != "policy":
                    raise Unusable("the key of a policy must be policy:<queue>")
                yield queue, value
            except Unusable as problem:
                yield UnusableRow(str(problem), shown_row(("key", "value"), row), is_message=False)

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
                    reason = "another row of the same message comes before it"
                    yield UnusableRow(reason, shown_row(names, row), is_message=False)
                    continue
                if row[0] in copies:
                    copies[row[0]] = True
                yield self._message(dict(zip(names, row, strict=True)))
            except Unusable as problem:
                yield UnusableRow(str(problem), shown_row(names, row))
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
            reason = "a body without a row in the index" if is_body else "of an unknown type"
            yield UnusableRow(reason, shown_row(names, row), is_message=False)

    def _message(self, row: dict[str, Any]) -> CppMessage:
        key, queue, state = (text_of(row[name], name) for name in ("message_key", "queue", "state"))
        if not key.startswith("msg:"):
            raise Unusable("the key of a message must begin with msg:")
        if state not in _STATES:
            raise Unusable(f"unknown state {state!r}")
        if row["value"] is None:
            raise Unusable("its body is missing")
        value, source = self._content(row["value"])
        payload, attributes = body_of(value, source)
        died = value.get("dlqAt")
        return CppMessage(
            key=key,
            queue=queue,
            state=state,
            priority=number_of(row["priority"], "priority"),
            available_at=number_of(row["available_at"], "available_at"),
            lease_until=number_of(row["lease_until"], "lease_until"),
            attempt=max(0, number_of(row["attempt"], "attempt")),
            dlq_reason=reason_of(row["dlq_reason"]) or reason_of(value.get("dlqReason")),
            dlq_at=number_of(row["dlq_at"], "dlq_at")
            or (died if type(died) is int else 0)
            or number_of(row["updated_at"], "updated_at"),
            target=text_of(row["target_consumer_id"], "target_consumer_id"),
            created_at=number_of(row["created_at"], "created_at"),
            payload=payload,
            attributes=attributes,
            headers=headers_of(value),
        )

    def _content(self, source: bytes) -> tuple[dict[str, Any], bytes]:
        """The value of a message with its body, which may be in a file, and the text in which the body stands."""
        value = object_of(source)
        if "payload" in value or type(value.get("payloadPath")) is not str:
            return value, source
        path = Path(value["payloadPath"])
        for candidate in self._candidates(path):
            try:
                content = candidate.read_bytes()
            except (OSError, ValueError):
                continue
            return value | object_of(content), content
        raise Unusable(f"its body's file {path} is not there")

    def _candidates(self, path: Path) -> dict[Path, None]:
        """Where the file of a body may be: the path was relative to the C++ daemon's working directory, and after a
        crash the file may still be in the former state's directory."""
        parts = path.parts
        inside = parts[parts.index(_PAYLOADS) + 1 :] if _PAYLOADS in parts[:-1] else parts[-3:]
        places = [path] if path.is_absolute() else []
        places += [directory.joinpath(*inside) for directory in self._bodies]
        return dict.fromkeys(
            place
            for one in places
            for place in (one, *(one.parent.parent / folder / one.name for folder in ("active", "dlq")))
        )

    def _rows(self, sql: str, *parameters: Any) -> list[Any]:
        try:
            return self._db.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise translated(error, self._path) from error
