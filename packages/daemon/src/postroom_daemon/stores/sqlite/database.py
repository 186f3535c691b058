"""The database file of the SQLite store: opened and set up, asked and changed; its errors are those of the contract."""

from __future__ import annotations

import logging
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from ...platform.files import FULL_ERRNOS, Files
from ..errors import StoreBusy, StoreDamaged, StoreError, StoreFull
from . import schema
from .rows import value_holds
from .schema import keys_in_turn, statements

log = logging.getLogger(__name__)

#: The write-ahead log is folded into the database when it has so many pages, and cut back to so many bytes.
_AUTOCHECKPOINT_PAGES: Final = 1000
WAL_BYTES: Final = 8 * 1024 * 1024
#: The write-ahead log is longer than it should ever be: somebody keeps it from being folded.
WAL_ALARM_BYTES: Final = 4 * WAL_BYTES
#: How long we wait for exclusive access, before we share the database with the process that has it open (s).
_EXCLUSIVE_S: Final = 0.2
#: Free pages that stay in the file for what comes next: so many, and so large a part of it (1 in ...).
_SPARE_PAGES: Final = 1024
_SPARE_PART: Final = 4
#: Pages that one step returns to the file system.
_STEP_PAGES: Final = 256
#: A database of an older make is rewritten, so that it can return space, once so few of its pages are in use.
_REWRITE_PAGES: Final = 1024


class Database:
    """One connection. Every method raises ``StoreError`` for an error of SQLite, see ``translated``.

    ``before_query`` is called before each statement whose answer depends on all rows: it must write those that are not
    written yet.
    """

    def __init__(self, path: Path, kv: str, msg: str, synchronous: str, busy_ms: int) -> None:
        self.path = path
        self.tables = {"kv": kv, "msg": msg}
        self.sql = statements(kv, msg)
        self.before_query: Callable[[], None] = _nothing_to_write
        self.synchronous = synchronous
        self.busy_ms = busy_ms

    # --- the file -------------------------------------------------------------------------------------------------

    def files(self) -> list[Path]:
        """The files of the database, existing or not."""
        return [self.path.with_name(self.path.name + suffix) for suffix in ("", "-wal", "-shm")]

    @property
    def salvaged(self) -> Path:
        """Where a salvaged database waits to take the place of the damaged one."""
        return self.path.with_name(self.path.name + ".salvaged")

    def open(self) -> None:
        """Open it; it is created if it is missing. Raises ``StoreDamaged`` if it cannot be read."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in self.files():
            if path.exists() and not path.is_file():
                raise StoreDamaged(f"{path}: a directory or special file, where the database should be")
        if self.salvaged.exists() and not self.path.exists():
            self.salvaged.rename(self.path)
            Files().sync_directory(self.path.parent)
        self.connect()
        try:
            self._set_up()
        except sqlite3.Error as error:
            self.close()
            raise self._error(error) from error
        except StoreError:
            self.close()
            raise

    def connect(self) -> None:
        """Open the connection for this process alone, so that no other can read in the database and keep its log from
        being folded. While another process has it open, it is shared."""
        try:
            try:
                self.connection = self._connect(_EXCLUSIVE_S, "EXCLUSIVE")
                return
            except sqlite3.OperationalError as locked:
                if locked.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                    raise
            self.connection = self._connect(self.busy_ms / 1000, "NORMAL")
        except sqlite3.Error as error:
            raise self._error(error) from error
        log.warning("%s: another process has it open; as long as it reads, the log beside it grows", self.path)

    def _connect(self, timeout_s: float, locking: str, must_write: bool = True) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=timeout_s, isolation_level=None, cached_statements=64)
        try:
            db.execute(f"PRAGMA locking_mode = {locking}")  # before the first look at the log: no -shm is then made
            if must_write:
                db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # for a new database; has no effect on one with tables
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA synchronous = {self.synchronous}")
            db.execute(f"PRAGMA wal_autocheckpoint = {_AUTOCHECKPOINT_PAGES}")
            db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
            db.execute("PRAGMA temp_store = MEMORY")  # statement journals of a group's changes, of a few pages
            if must_write:
                db.execute("BEGIN IMMEDIATE")
                db.execute("COMMIT")
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _set_up(self) -> None:
        db = self.connection
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > schema.VERSION:
            raise StoreError(
                f"{self.path}: format {version} is newer than this version of postroomd knows"
                f" ({schema.VERSION}): upgrade postroomd"
            )
        if version == 0 and db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StoreError(
                f"{self.path}: a database of another program, which is left as it is: let sqlite.dbPath name a new file"
            )
        db.execute("BEGIN IMMEDIATE")
        for step in range(version or schema.VERSION, schema.VERSION):
            for statement in schema.STEPS[step]:
                db.execute(statement.format(**self.tables))
        for statement in schema.STATEMENTS:
            db.execute(statement.format(**self.tables))
        db.execute(f"PRAGMA user_version = {schema.VERSION}")
        db.execute("COMMIT")

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        self.connection.close()

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open. Raises ``StoreError`` if the connection is closed: it could not be opened
        again after a checkpoint."""
        try:
            return self.connection.in_transaction
        except sqlite3.ProgrammingError as error:
            raise self._error(error) from error

    def probe(self) -> None:
        """Read from the file. Raises ``StoreBusy`` if another process keeps its log from being folded."""
        self.value("fact:applied")
        size = self.wal_bytes()
        if size > WAL_ALARM_BYTES:
            raise StoreBusy(f"{self.path}-wal has grown to {size} bytes: another process reads in the database; end it")

    def fold_log(self) -> bool:
        """Fold the write-ahead log into the database, durably, outside of a transaction. Whether all of it is."""
        if self._number("locking_mode") == "exclusive":
            busy, _, _ = self.row("PRAGMA wal_checkpoint(TRUNCATE)")
            return not busy
        _, pages, folded = self.row("PRAGMA wal_checkpoint(PASSIVE)")  # waits for nobody
        self.close()  # the other process may have closed it
        try:
            self.connect()
        except StoreBusy:  # it writes at present: each group waits for it
            self._connect_for_later()
        return bool(pages == folded)

    def _connect_for_later(self) -> None:
        try:
            self.connection = self._connect(self.busy_ms / 1000, "NORMAL", must_write=False)
        except sqlite3.Error as error:
            raise self._error(error) from error

    def wal_bytes(self) -> int:
        """The length of the write-ahead log; 0 if there is none."""
        try:
            return self.files()[1].stat().st_size
        except OSError:
            return 0

    def give_back(self) -> int:
        """Take one small step, outside of a transaction, towards a file without needless free pages. Returns how many
        it has freed; the file itself shrinks when its log is folded into it."""
        try:
            return self._give_back()
        except sqlite3.Error as error:
            raise self._error(error) from error

    def _give_back(self) -> int:
        free, pages = int(self._number("freelist_count")), int(self._number("page_count"))
        if free <= max(_SPARE_PAGES, pages // _SPARE_PART):
            return 0
        if self._number("auto_vacuum"):
            self.connection.executescript(f"PRAGMA incremental_vacuum({_STEP_PAGES})")  # execute stops after one page
        elif pages - free <= _REWRITE_PAGES:
            self.connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self.connection.execute("VACUUM")
        return free - int(self._number("freelist_count"))

    def _number(self, pragma: str) -> Any:
        return self.row_of(f"PRAGMA {pragma}", ())[0]

    # --- statements -----------------------------------------------------------------------------------------------

    def _error(self, error: sqlite3.Error) -> StoreError:
        return translated(error, self.path)

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Change something, once all rows are written."""
        self.before_query()
        self.command(sql, parameters)

    def command(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Execute a statement that depends on no row which may be unwritten."""
        try:
            self.connection.execute(sql, parameters)
        except sqlite3.Error as error:
            raise self._error(error) from error

    def change_row(self, sql: str, parameters: list[Any]) -> None:
        """Change the row of a message that was read, whose key is the last of ``parameters``. Raises ``StoreDamaged``
        if there is no such row: unchanged, it would be delivered for ever."""
        self.before_query()
        try:
            changed = self.connection.execute(sql, parameters).rowcount
        except sqlite3.Error as error:
            raise self._error(error) from error
        if changed != 1:
            raise StoreDamaged(f"{self.path}: the row of {parameters[-1]} is not found by its key")

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """The first row of an answer, or None, once all rows are written."""
        self.before_query()
        return self.row_of(sql, parameters)

    def row_of(self, sql: str, parameters: Sequence[Any]) -> Any:
        """The row with a key, or None; only for a key that is not among the changes yet to be written."""
        try:
            return self.connection.execute(sql, parameters).fetchone()
        except sqlite3.Error as error:
            raise self._error(error) from error

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """All rows of an answer, once all rows are written."""
        self.before_query()
        return self.rows_of(sql, parameters)

    def rows_of(self, sql: str, parameters: Sequence[Any]) -> list[Any]:
        """All rows of an answer that no change which is yet to be written concerns."""
        try:
            return self.connection.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise self._error(error) from error

    def values_of(self, keys: Iterable[str]) -> list[Any]:
        """The rows of ``kv`` with these keys, the key first, in any order; see ``row_of``."""
        rows: list[Any] = []
        try:
            for portion in keys_in_turn(keys):
                rows += self.connection.execute(self.sql.get_values, portion).fetchall()
        except sqlite3.Error as error:
            raise self._error(error) from error
        return rows

    def value(self, key: str) -> str | None:
        """The value of a row of ``kv`` that is not a message, and not yet to be written. Raises ``StoreDamaged`` if it
        has changed on the disk: it is not what its checksum says."""
        row = self.row_of(self.sql.get_value, (key,))
        return None if row is None else self.checked_value(key, *row)

    def checked_value(self, key: str, value: str, kind: str, crc: int | None) -> str:
        """The value of a row of ``kv``. Raises ``StoreDamaged`` if it is not what its checksum says."""
        if not value_holds(key, value, kind, crc):
            raise StoreDamaged(f"{self.path}: the row {key[:300]} has changed on the disk")
        return value


def _nothing_to_write() -> None:
    """For a connection without a store."""


# --- errors ---------------------------------------------------------------------------------------------------------

_BUSY: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
#: Keys are unique: a row that breaks a constraint meets one that should not be there.
_DAMAGED: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT}
#: Damage that SQLite reports without a code of its own.
_DAMAGE_TEXTS: Final = ("Could not decode to UTF-8", "no such column", "no such table", "has no column named")
#: What to do about errors whose own text does not say it.
_ADVICE: Final = {
    sqlite3.SQLITE_READONLY: "the database or its directory cannot be written: look at owner, mode and mount",
    sqlite3.SQLITE_CANTOPEN: "the database cannot be opened: look at owner, mode and mount of it and its directory",
    sqlite3.SQLITE_IOERR: "the disk refused it",
}
#: As much as SQLite writes at once: a page and the header of its frame, and some.
_PROBE_BYTES: Final = 64 * 1024


def translated(error: sqlite3.Error, path: Path) -> StoreError:
    """The ``StoreError`` for an error of the database at ``path``; its text names SQLite's own code."""
    code = getattr(error, "sqlite_errorcode", 0)
    primary = code & 0xFF
    text = f"{path}: {error}"
    if code:
        text += f" ({error.sqlite_errorname})"
    if primary in _ADVICE:
        text += f"; {_ADVICE[primary]}"
    if primary == sqlite3.SQLITE_FULL or (primary == sqlite3.SQLITE_IOERR and not _takes_bytes(path.parent)):
        return StoreFull(text)
    if primary in _BUSY:
        return StoreBusy(text)
    damaged = primary in _DAMAGED or any(damage in text for damage in _DAMAGE_TEXTS)
    return StoreDamaged(text) if damaged else StoreError(text)


def _takes_bytes(directory: Path) -> bool:
    """Whether the file system still has space for us. SQLite reports only ENOSPC as a lack of space: an exhausted quota
    or a limit of the file's size is an I/O error like those of a broken disk."""
    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            written = file.write(bytes(_PROBE_BYTES))
            os.fsync(file.fileno())
            return written == _PROBE_BYTES
    except OSError as error:
        return error.errno not in FULL_ERRNOS
