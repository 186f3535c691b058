"""Data of the C++ system in the places of the settings: what there is, and whether it must be imported before a start.

Nothing here changes anything. What is done about it is in ``maintenance/import_cpp``.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from postroom_common.events import EventType

from ..config.config import Config
from ..config.settings import Settings
from ..journal.segments import list_segments, read_lines
from ..platform.files import LOST_ERRNOS
from ..stores.backends import layout_of

#: Columns by which the tables of the C++ system are recognised.
_KV_COLUMNS: Final = {"key", "value", "value_type", "created_at", "updated_at"}
_MSG_COLUMNS: Final = {"queue", "state", "priority", "available_at", "lease_until", "attempt", "message_key"}
#: The name of a message's file in its filesystem backend.
_MESSAGE_FILE: Final = re.compile(r"[0-9A-F]{4}(-[0-9A-F]{4}){4}\.json")
#: Directories of its filesystem backend for facts about messages, and the beginning of the names of policies.
LEASES_DIR, DELAYS_DIR, POLICY_PREFIX = "leases", "delayed", "policy_"
#: Wait for a database that is locked (s): only a daemon of ours locks one for longer, and the root is refused for that.
BUSY_S: Final = 0.2
#: A journal with no events but these has no messages and no settings of queues.
_NOTHING_DONE: Final = frozenset(
    {EventType.EPOCH_STARTED, EventType.CLOCK_MARKED, EventType.ANSWERED, EventType.GAP, EventType.LOSS_ACCEPTED}
)


@dataclass(frozen=True, slots=True)
class CppData:
    """Data of the C++ system: a database (also that of its hybrid backend), or a directory of message files.

    ``committed`` is the directory in the journal's in which the events of its import are, complete, before they become
    segments.
    """

    path: Path
    is_database: bool

    @property
    def committed(self) -> str:
        return "taken-over" if self.is_database else "taken-over-files"

    def __str__(self) -> str:
        return f"{self.path} is {'a database' if self.is_database else 'a directory of messages'} of the C++ system"


def places_of(settings: Settings) -> tuple[CppData, CppData]:
    """Where data of the C++ system may be; first in the place that the backend uses."""
    database, files = CppData(settings.sqlite_db_path, True), CppData(settings.filesystem_root, False)
    return (files, database) if layout_of(settings).messages else (database, files)


def found_in(settings: Settings) -> list[CppData]:
    """The data of the C++ system that exists; first what is in the place that the backend uses."""
    return [data for data in places_of(settings) if exists(data, settings)]


def exists(data: CppData, settings: Settings) -> bool:
    """Whether there is data of the C++ system in a place."""
    if data.is_database:
        return is_cpp_database(data.path, settings.sqlite_kv_table, settings.sqlite_message_index_table)
    return _is_cpp_directory(data.path, settings)


def interrupted_import(settings: Settings) -> CppData | None:
    """What an interrupted import has begun to replace."""
    return next((data for data in places_of(settings) if (settings.journal_root / data.committed).is_dir()), None)


def missing_import(config: Config) -> str:
    """Why data of the C++ system must be imported first, and how; "" if there is none. Raises ``OSError``."""
    settings, command = config.settings, f"`postroomd import cpp --root {config.root}`"
    begun = interrupted_import(settings)
    if begun:
        return f"{begun.path}: its import was interrupted: finish it with {command}"
    data = to_import(settings)
    return f"{data}: import it first with {command} (with --check, it only shows what it would import)" if data else ""


def to_import(settings: Settings) -> CppData | None:
    """The data of the C++ system that must be imported before a start; None if there is none. Once the journal has
    messages, message files of the C++ system are only foreign files. Raises ``OSError``."""
    own = places_of(settings)[0]
    if own.is_database and exists(own, settings):
        return own
    if not layout_of(settings).is_persistent or is_used(settings.journal_root):
        return None
    return next(iter(found_in(settings)), None)


def is_used(journal: Path) -> bool:
    """Whether there may be messages or settings of queues: a journal has an event about them, has lost its first
    segments, or cannot be read. Raises ``OSError``."""
    segments = list_segments(journal) if journal.is_dir() else []
    if segments and segments[0][0] != 1:
        return True
    lines = (line for _, path in segments for line in read_lines(path))
    try:
        return any(line.event is None or line.event["type"] not in _NOTHING_DONE for line in lines)
    except OSError as error:
        if error.errno not in LOST_ERRNOS:
            raise
        return True


def is_cpp_database(path: Path, kv: str, msg: str) -> bool:
    """Whether there is a database of the C++ system at ``path``. False if it cannot be read."""
    if not path.is_file() or not path.stat().st_size:
        return False
    # Immutable, SQLite leaves no trace beside the file; but then it ignores a write-ahead log.
    modes = ["immutable=1"] + (["mode=ro"] if path.with_name(path.name + "-wal").exists() else [])
    return any(_has_cpp_tables(path, mode, kv, msg) for mode in modes)


def _has_cpp_tables(path: Path, mode: str, kv: str, msg: str) -> bool:
    def columns(table: str) -> set[str]:
        return {row[1] for row in db.execute(f"PRAGMA table_info({table})")}

    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", timeout=BUSY_S, uri=True)) as db:
            if db.execute("PRAGMA user_version").fetchone()[0]:
                return False
            found = columns(msg)
            return columns(kv) >= _KV_COLUMNS and found >= _MSG_COLUMNS and "seq" not in found
    except sqlite3.Error:
        return False


def _is_cpp_directory(root: Path, settings: Settings) -> bool:
    """Whether the C++ system's filesystem backend has used ``root``. Another program's files are no sign of it."""
    meta = root / settings.filesystem_meta_dir
    if (meta / LEASES_DIR).is_dir() or (meta / DELAYS_DIR).is_dir() or any(meta.glob(f"{POLICY_PREFIX}*.json")):
        return True
    return any(_MESSAGE_FILE.fullmatch(path.name) for path, _ in message_files(settings))


def message_files(settings: Settings) -> Iterator[tuple[Path, str]]:
    """All files among the messages of its filesystem backend, with the state that their directory means; ``archive``:
    acknowledged. A queue's name may contain ``/``, and so be several directories."""
    root = settings.filesystem_root
    states = {
        settings.filesystem_inbox_dir: "ready",
        settings.filesystem_delayed_dir: "delayed",
        settings.filesystem_dlq_dir: "dlq",
        settings.filesystem_processing_dir: "inflight",
        settings.filesystem_archive_dir: "archive",
    }
    facts = root / settings.filesystem_meta_dir / DELAYS_DIR
    for directory, names, files in os.walk(root):
        names.sort()
        state = states.get(os.path.basename(directory))
        if state and Path(directory) != facts and Path(directory).parent != root:
            yield from ((Path(directory, name), state) for name in sorted(files))
