"""Find files and rows of a store that belong to no message, or are in the wrong place."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from ...config.settings import Settings
from ...model.facts import HISTORY, PART, PART_DIGITS
from ...stores.backends import layout_of
from ...stores.recovery import DAMAGED_CHECKPOINT, FileProblem
from .findings import Finding, Kind
from .readonly_store import ReadonlyStore

_KINDS: Final = {
    FileProblem.ORPHAN: Kind.FILE_ORPHAN,
    FileProblem.MISPLACED: Kind.FILE_MISPLACED,
    FileProblem.FOREIGN: Kind.FILE_STRANGE,
    FileProblem.UNREADABLE: Kind.FILE_UNREADABLE,
    FileProblem.LEFT_OVER: Kind.FILE_LEFT_OVER,
    FileProblem.MOVED_BY_HAND: Kind.MOVED_BY_HAND,
}

#: The prefixes of keys of histories and of parts.
_HISTORY_ROW: Final = f"fact:{HISTORY}"
_PART_ROW: Final = f"fact:{PART}"


class Row(NamedTuple):
    """A row of ``kv`` that belongs to no message."""

    key: str
    value: str
    kind: str


def rows_beside(settings: Settings, deep: bool) -> Iterator[Finding]:
    """Findings about rows without a message in a copy of the database and, if ``deep``, about its pages by SQLite. Rows
    that cannot be read are reported by whoever opens it as a store."""
    if layout_of(settings).database is None:
        return
    if deep:
        yield from _page_findings(settings.sqlite_db_path)
    for row in orphan_rows(settings):
        what = (
            "a history" if row.key.startswith(_HISTORY_ROW) else "a part" if row.key.startswith(_PART_ROW) else "a body"
        )
        yield Finding(Kind.ROW_ORPHAN, row.key, f"{what} without a message, {len(row.value)} characters")


def _page_findings(database: Path) -> Iterator[Finding]:
    try:
        with closing(sqlite3.connect(database)) as db:
            lines = [str(row[0]) for row in db.execute("PRAGMA integrity_check(20)")]
    except sqlite3.Error as error:
        lines = [str(error)]
    if lines != ["ok"]:
        yield Finding(Kind.STORE_DAMAGED, "pages", "; ".join(lines))


def orphan_rows(settings: Settings) -> Iterator[Row]:
    """Bodies, parts and histories that belong to no message, in a database that is not open elsewhere."""
    kv, msg = settings.sqlite_kv_table, settings.sqlite_message_index_table
    of_messages = f"SELECT message_key FROM {msg}"
    try:
        with closing(sqlite3.connect(settings.sqlite_db_path)) as db:
            yield from (
                Row(*row)
                for row in db.execute(
                    f"SELECT key, value, value_type FROM {kv} WHERE value_type IN ('message', 'payload')"
                    f" AND key NOT IN ({of_messages})"
                )
            )
            yield from (
                Row(*row)
                for row in db.execute(
                    f"SELECT key, value, value_type FROM {kv} WHERE value_type = 'fact' AND substr(key, 1, ?) = ?"
                    f" AND substr(key, ?) NOT IN ({of_messages} WHERE failures > 0)",
                    (len(_HISTORY_ROW), _HISTORY_ROW, len(_HISTORY_ROW) + 1),
                )
            )
            yield from (
                Row(*row)
                for row in db.execute(
                    f"SELECT key, value, value_type FROM {kv} WHERE value_type = 'fact' AND substr(key, 1, ?) = ?"
                    f" AND substr(key, ?) NOT IN ({of_messages})",
                    (len(_PART_ROW), _PART_ROW, len(_PART_ROW) + PART_DIGITS + 2),
                )
            )
    except sqlite3.Error:
        return


def file_findings(opened: ReadonlyStore, last: int, clean: bool) -> Iterator[Finding]:
    """Findings about the files of a store. ``last`` is the journal's last event; ``clean``: the daemon stopped in order
    after it, and the store has folded all. Raises ``StoreError``."""
    for path, reason in dict.fromkeys(opened.aside):
        if reason == DAMAGED_CHECKPOINT:
            kind = Kind.CHECKPOINT_DAMAGED
        else:
            kind = Kind.FILE_SECOND if "second" in reason else Kind.FILE_STRANGE
        yield Finding(kind, path, reason)
    for place in opened.removed:
        path = str(opened.store.disk.files()[0] / place)
        yield Finding(Kind.FILE_LEFT_OVER, path, "not written to its end; the journal has its message")
    for found in opened.store.audit.file_findings(last, clean):
        yield Finding(_KINDS[found.problem], found.path, found.text)
