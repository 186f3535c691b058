"""SQLite's errors as those of the contract: what lacks space, what is held by another process, what is no database."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from pathlib import Path
from typing import Final

from ...platform.files import FULL_ERRNOS
from ..base import StoreBusy, StoreDamaged, StoreError, StoreFull

_BUSY: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
#: Keys are unique: a row that breaks a constraint meets one that should not be there.
_DAMAGED: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT}
_SIGNS: Final = ("Could not decode to UTF-8", "no such column", "no such table", "has no column named")
#: What to do about errors whose own text does not say it.
_ADVICE: Final = {
    sqlite3.SQLITE_READONLY: "the database or its directory cannot be written: look at owner, mode and mount",
    sqlite3.SQLITE_CANTOPEN: "the database cannot be opened: look at owner, mode and mount of it and its directory",
    sqlite3.SQLITE_IOERR: "the disk refused it",
}
#: As much as SQLite writes at once: a page and the head of its frame, and some.
_PROBE_BYTES: Final = 64 * 1024


def translated(error: sqlite3.Error, path: Path) -> StoreError:
    """The ``StoreError`` that an error of the database at ``path`` comes to; its text names SQLite's own code."""
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
    # What has become of a text or of the schema is told without a code of its own.
    damaged = primary in _DAMAGED or any(sign in text for sign in _SIGNS)
    return StoreDamaged(text) if damaged else StoreError(text)


def _takes_bytes(directory: Path) -> bool:
    """Whether the file system still has room for us. SQLite tells only ENOSPC as a lack of space: a quota that is used
    up, or a limit of the file's size, is an I/O error like those of a broken disk."""
    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            written = file.write(bytes(_PROBE_BYTES))
            os.fsync(file.fileno())
            return written == _PROBE_BYTES
    except OSError as error:
        return error.errno not in FULL_ERRNOS
