"""Entries in memory as the database has them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from postroom_common.protocol import State

from ...model.records import Entry
from ..errors import StoreDamaged
from .rows import Row, entry_of, row_holds

#: Entries that are cached.
_LIMIT: Final = 4096


class EntryCache:
    """Entries by key, those that were added first in front; for reading only. Whoever changes the row of one removes it
    from ``values``."""

    def __init__(self, path: Path) -> None:
        self.values: dict[str, Entry] = {}
        self._path = path

    def of(self, row: Row) -> Entry:
        """The entry of a row that was read from the database. Raises ``StoreDamaged`` if the row is not what was
        written."""
        key = row[0]
        entry = self.values.get(key)
        if entry is None:
            try:
                if not row_holds(row):
                    raise ValueError
                entry = entry_of(row)
            except (TypeError, ValueError):
                text = f"{self._path}: the row of {str(key)[:300]} has changed on the disk"
                raise StoreDamaged(text) from None
            self.remember(key, entry)
        return entry

    def several_of(self, rows: Iterable[Row], state: State) -> deque[Entry]:
        """As ``of``, for rows that an index lists in a state. Raises ``StoreDamaged`` also if one is in another one:
        the index would return it for ever."""
        values = self.values
        entries: deque[Entry] = deque()
        for row in rows:
            entry = values.get(row[0]) or self.of(row)
            if entry.state is not state:
                raise StoreDamaged(f"{self._path}: an index has {entry.key} as {state}, its row as {entry.state}")
            entries.append(entry)
        return entries

    def remember(self, key: str, entry: Entry) -> None:
        """Add an entry, and forget the oldest one if there are too many."""
        values = self.values
        if len(values) >= _LIMIT and key not in values:
            del values[next(iter(values))]
        values[key] = entry
