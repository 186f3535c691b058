"""What keeps this process from opening a root, checked before anything is opened or changed.

A file that another user owns, for example after root copied it, is not damaged and must not be set aside as if it were.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from ..config.config import Config
from ..journal.reserve import RESERVE_NAME
from ..journal.segments import list_segments
from ..platform.usable import CHANGE, first_unusable
from ..stores.backends import layout_of, places
from .locks import LOCK_NAME as ROOT_LOCK

#: A directory in the journal's: the events of an imported C++ database, complete, before they become segments.
CPP_IMPORT_COMMITTED: Final = "taken-over"
#: Columns by which the tables of the C++ system are recognised.
_CPP_KV: Final = {"key", "value", "value_type", "created_at", "updated_at"}
_CPP_MSG: Final = {"queue", "state", "priority", "available_at", "lease_until", "attempt", "message_key"}


def hindrance(config: Config) -> str:
    """Why this process may not use the journal or the store, and what to do about it; "" if it may."""
    return first_unusable(_needed(config))


def missing_import(config: Config) -> str:
    """Why a database of the C++ system must be imported first, and how; "" if there is none. Changes nothing."""
    settings, path = config.settings, config.settings.sqlite_db_path
    command = f"`postroomd import cpp --root {config.root}`"
    if (settings.journal_root / CPP_IMPORT_COMMITTED).is_dir():
        return f"{path}: its import was interrupted: finish it with {command}"
    if layout_of(settings).messages:
        return ""
    if is_cpp_database(path, settings.sqlite_kv_table, settings.sqlite_message_index_table):
        return (
            f"{path} is a database of the C++ system: import it first with {command} (with --check, it only shows what"
            " it would import)"
        )
    return ""


def is_cpp_database(path: Path, kv: str, msg: str) -> bool:
    """Whether there is a database of the C++ system at ``path``. One that cannot be read is none."""
    if not path.is_file() or not path.stat().st_size:
        return False
    # Immutable, SQLite leaves no trace beside the file; but then it ignores a write-ahead log.
    modes = ["immutable=1"] + (["mode=ro"] if path.with_name(path.name + "-wal").exists() else [])
    return any(_has_cpp_tables(path, mode, kv, msg) for mode in modes)


def _has_cpp_tables(path: Path, mode: str, kv: str, msg: str) -> bool:
    def columns(table: str) -> set[str]:
        return {row[1] for row in db.execute(f"PRAGMA table_info({table})")}

    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)) as db:
            if db.execute("PRAGMA user_version").fetchone()[0]:
                return False
            found = columns(msg)
            return columns(kv) >= _CPP_KV and found >= _CPP_MSG and "seq" not in found
    except sqlite3.Error:
        return False


def _needed(config: Config) -> Iterator[tuple[Path, int]]:
    """Files and directories, parents first, and the access mode that each needs."""
    settings = config.settings
    stores = places(settings)
    for directory in dict.fromkeys((config.root, settings.journal_root, *(path.parent for path in stores))):
        yield directory, CHANGE
    inside = (config.root / ROOT_LOCK, settings.journal_root / ROOT_LOCK, settings.journal_root / RESERVE_NAME)
    yield from ((path, CHANGE) for path in inside)
    segments = [path for _, path in list_segments(settings.journal_root)] if settings.journal_root.is_dir() else []
    yield from ((path, os.R_OK) for path in segments[:-1])
    yield from ((path, CHANGE) for path in segments[-1:])
    yield from ((path, CHANGE) for path in stores)
    meta = settings.filesystem_root / settings.filesystem_meta_dir
    if settings.filesystem_root in stores and meta.is_dir():
        yield meta, CHANGE
        yield from ((path, os.R_OK) for path in sorted(meta.iterdir()))
