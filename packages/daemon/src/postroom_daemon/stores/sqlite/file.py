"""The database file of the SQLite store: who has it open, its write-ahead log, and the space that it gives back."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Final

from ...platform.files import Files

log = logging.getLogger(__name__)

#: The log is folded into the database when it has so many pages, and is cut back to so many bytes when it was longer.
_AUTOCHECKPOINT_PAGES: Final = 1000
WAL_BYTES: Final = 8 * 1024 * 1024
#: The log is longer than it should ever be: somebody keeps it from being folded.
WAL_ALARM_BYTES: Final = 4 * WAL_BYTES
#: How long we wait to be alone, before we share the database with whoever holds it (s).
_ALONE_S: Final = 0.2
#: Free pages that stay in the file for what comes next: so many, and so large a part of it (1 in ...).
_SPARE_PAGES: Final = 1024
_SPARE_PART: Final = 4
#: Pages that one step gives back.
_STEP_PAGES: Final = 256
#: A database of an older make is written anew, so that it can give back space, once so few of its pages are in use.
_REWRITE_PAGES: Final = 1024


def connect(path: Path, synchronous: str, busy_ms: int) -> sqlite3.Connection:
    """Open the database for one process alone: no other can then read in it, and keep its log from being folded.

    While another process has it open, it is shared with that one. Raises ``sqlite3.Error``.
    """
    try:
        return _connect(path, synchronous, _ALONE_S, "EXCLUSIVE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise
    db = _connect(path, synchronous, busy_ms / 1000, "NORMAL")
    log.warning("%s: another process has it open; as long as it reads, the log beside it grows", path)
    return db


def _connect(path: Path, synchronous: str, timeout_s: float, locking: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=timeout_s, isolation_level=None, cached_statements=64)
    try:
        db.execute(f"PRAGMA locking_mode = {locking}")  # before the first look at the log: no -shm is then made
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # for a new database; nothing to one that has tables
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {synchronous}")
        db.execute(f"PRAGMA wal_autocheckpoint = {_AUTOCHECKPOINT_PAGES}")
        db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
        db.execute("BEGIN IMMEDIATE")
        db.execute("COMMIT")
    except sqlite3.Error:
        db.close()
        raise
    return db


def adopt(salvaged: Path, path: Path) -> None:
    """Let a salvaged database take the place of the damaged one, which has been set aside. Raises ``OSError``."""
    if salvaged.exists() and not path.exists():
        salvaged.rename(path)
        Files().sync_directory(path.parent)


def is_alone(db: sqlite3.Connection) -> bool:
    """Whether no other process can read in the database."""
    return bool(db.execute("PRAGMA locking_mode").fetchone()[0] == "exclusive")


def wal_bytes(path: Path) -> int:
    """The length of the log; 0 when there is none."""
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        return 0


def give_back(db: sqlite3.Connection) -> int:
    """Take one small step towards a file without needless space. How many free pages it has given back.

    The file itself shrinks when the log is folded into it. Raises ``sqlite3.Error``.
    """
    free = _number(db, "freelist_count")
    if free <= _SPARE_PAGES:
        return 0
    pages = _number(db, "page_count")
    if free <= pages // _SPARE_PART:
        return 0
    if not _number(db, "auto_vacuum"):
        if pages - free > _REWRITE_PAGES:
            return 0
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("VACUUM")
        return free
    db.executescript(f"PRAGMA incremental_vacuum({_STEP_PAGES})")  # execute would stop after the first page
    return free - _number(db, "freelist_count")


def _number(db: sqlite3.Connection, pragma: str) -> int:
    return int(db.execute(f"PRAGMA {pragma}").fetchone()[0])
