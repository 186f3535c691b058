"""The database of the SQLite store: opened and set up, asked and changed, its errors those of the contract.

Rows of ``kv`` that are no messages are read and written here: each is closed by a checksum, and one that has changed is
a damaged store.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from ..base import Audit, Bodies, Disk, Due, Pages, Recovery, Store, StoreBusy, StoreDamaged, StoreError
from . import file as sqlite_file
from . import schema as sqlite_schema
from .errors import translated
from .rows import value_crc, value_holds
from .statements import Statements
from .waiting import Waiting

#: The prefix of the ``kv`` keys of single facts.
_FACT_KEY = "fact:"


class SqliteDatabase(Store, Due, Pages, Disk, Recovery):
    """The part of the store that knows files, schema and statements; see ``SqliteStore``."""

    def __init__(self, path: Path, kv: str, msg: str, synchronous: str, busy_ms: int) -> None:
        self._path = path
        self._tables = {"kv": kv, "msg": msg}
        self._sql = Statements(kv, msg)
        self._waiting = Waiting(self._sql)
        self._synchronous = synchronous
        self._busy_ms = busy_ms
        self.due = self.pages = self.disk = self.recovery = self
        self.bodies, self.audit = Bodies(), Audit(self)

    def files(self) -> list[Path]:
        return [self._path.with_name(self._path.name + suffix) for suffix in ("", "-wal", "-shm")]

    def _open_database(self) -> None:
        """Open it, which is made if it is missing. Raises as ``open``."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in self.files():
            if path.exists() and not path.is_file():
                raise StoreDamaged(f"{path}: a directory or special file, where the database should be")
        sqlite_file.adopt(self._salvaged, self._path)
        self._connect()
        try:
            self._set_up()
        except sqlite3.Error as error:
            self._db.close()
            raise translated(error, self._path) from error
        except StoreError:
            self._db.close()
            raise

    def _connect(self) -> None:
        try:
            self._db = sqlite_file.connect(self._path, self._synchronous, self._busy_ms)
        except sqlite3.Error as error:
            raise translated(error, self._path) from error

    def _set_up(self) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > sqlite_schema.VERSION:
            raise StoreError(
                f"{self._path}: format {version} is newer than this version of postroomd knows"
                f" ({sqlite_schema.VERSION}): upgrade postroomd"
            )
        if version == 0 and self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StoreError(
                f"{self._path}: a database of another program, which is left as it is: let sqlite.dbPath name a new"
                " file"
            )
        self._db.execute("BEGIN IMMEDIATE")
        for step in range(version or sqlite_schema.VERSION, sqlite_schema.VERSION):
            for statement in sqlite_schema.STEPS[step]:
                self._db.execute(statement.format(**self._tables))
        for statement in sqlite_schema.STATEMENTS:
            self._db.execute(statement.format(**self._tables))
        self._db.execute(f"PRAGMA user_version = {sqlite_schema.VERSION}")
        self._db.execute("COMMIT")

    @property
    def _salvaged(self) -> Path:
        """Where a salvaged database waits to take the place of the damaged one."""
        return self._path.with_name(self._path.name + ".salvaged")

    def _write_waiting(self) -> None:
        """Write what waits: before anything is asked or changed otherwise."""
        try:
            self._waiting.write(self._db)
        except sqlite3.Error as error:
            raise translated(error, self._path) from error

    def _execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        if self._waiting:
            self._write_waiting()
        try:
            self._db.execute(sql, parameters)
        except sqlite3.Error as error:
            raise translated(error, self._path) from error

    def _change_row(self, sql: str, parameters: list[Any]) -> None:
        """Change the row of a message that was read, whose key is the last of ``parameters``. That it is not found by
        its key is damage: unchanged, it would be delivered for ever."""
        if self._waiting:
            self._write_waiting()
        try:
            changed = self._db.execute(sql, parameters).rowcount
        except sqlite3.Error as error:
            raise translated(error, self._path) from error
        if changed != 1:
            raise StoreDamaged(f"{self._path}: the row of {parameters[-1]} is not found by its key")

    def _row(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        if self._waiting:
            self._write_waiting()
        return self._row_as_it_is(sql, parameters)

    def _row_of(self, sql: str, key: str) -> Any:
        """The row of a message, whatever waits of others."""
        if self._waiting and self._waiting.concerns(key):
            self._write_waiting()
        return self._row_as_it_is(sql, (key,))

    def _row_as_it_is(self, sql: str, parameters: Sequence[Any]) -> Any:
        try:
            return self._db.execute(sql, parameters).fetchone()
        except sqlite3.Error as error:
            raise translated(error, self._path) from error

    def _rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        if self._waiting:
            self._write_waiting()
        try:
            return self._db.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise translated(error, self._path) from error

    def _try_alone(self) -> None:
        """Open the database anew: whoever held it may have let go."""
        self._db.close()
        self._connect()

    def probe(self) -> None:
        self.get_kv("applied")
        size = sqlite_file.wal_bytes(self._path)
        if size > sqlite_file.WAL_ALARM_BYTES:
            raise StoreBusy(
                f"{self._path}-wal has grown to {size} bytes: another process reads in the database; end it"
            )

    # --- values that are no messages --------------------------------------------------------------------------

    def get_kv(self, name: str) -> Any:
        value = self._value(_FACT_KEY + name)
        return None if value is None else orjson.loads(value)

    def _value(self, key: str) -> str | None:
        """The value of a row that is no message. Raises ``StoreDamaged`` when it is not what was written."""
        row = self._row_as_it_is(self._sql.get_value, (key,))  # no message: nothing of it waits
        if row is None:
            return None
        if not value_holds(key, *row):
            raise StoreDamaged(f"{self._path}: the row {key[:300]} has changed on the disk")
        return str(row[0])

    def put_kv(self, name: str, value: Any) -> None:
        if value is None:
            self._execute(self._sql.delete_value, (_FACT_KEY + name,))
            return
        self._put(_FACT_KEY + name, orjson.dumps(value).decode(), "fact")

    def _put(self, key: str, value: str, kind: str) -> None:
        self._execute(self._sql.put_value, (key, value, kind, 0, 0, value_crc(key, value, kind)))

    def kv_names(self, prefix: str, after: str, limit: int) -> list[str]:
        begin = prefix if after < prefix else after + "\0"  # the least text behind it
        whole = _FACT_KEY + prefix
        end = whole[:-1] + chr(ord(whole[-1]) + 1)  # the least text behind all that begin so
        rows = self._rows(self._sql.fact_keys, (_FACT_KEY + begin, end, limit))
        return [row[0][len(_FACT_KEY) :] for row in rows]
