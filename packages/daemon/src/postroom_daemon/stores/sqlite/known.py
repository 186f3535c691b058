"""What the SQLite store knows of messages without asking the database: what this group has seen, and leases of before.

Whoever changes a message says so (``note``, ``forget``), so what is known is what the database would tell.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Final

from postroom_common.protocol import State

from ...model.records import Entry
from ..base import StoreDamaged
from .rows import Row, entry_of, row_holds

#: Bytes of bodies that are kept for the rest of a group.
_BODIES_BYTES: Final = 1024 * 1024
#: Leased messages of groups before that are kept.
_LEASED_LIMIT: Final = 2000


class Known:
    """Entries and bodies by their keys. ``path`` is the database, for what is said of damage."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[str, Entry] = {}  # that this group has seen
        self._leased: dict[str, Entry] = {}  # some that were leased before, as they are kept
        self._bodies: dict[str, bytes] = {}  # that this group has read
        self._bytes = 0

    def entry(self, key: str) -> Entry | None:
        """The entry of a message, if it is known. It may be changed in this group, so it is none that is right whatever
        becomes of that."""
        known = self._entries.get(key)
        if known is None:
            known = self._leased.pop(key, None)
            if known is not None:
                self._entries[key] = known
        return known

    def entry_of(self, row: Row) -> Entry:
        """The entry of a row that was read, which is known from now on. Raises ``StoreDamaged`` if the row is not what
        was written."""
        known = self.entry(row[0])
        if known is None:
            known = self._entries[row[0]] = self._read(row)
        return known

    def _read(self, row: Row) -> Entry:
        try:
            if row_holds(row):
                return entry_of(row)
        except (TypeError, ValueError):
            pass
        raise StoreDamaged(f"{self._path}: the row of {str(row[0])[:300]} has changed on the disk")

    def note(self, entry: Entry) -> None:
        """A message is new, or has changed."""
        self._entries[entry.key] = entry

    def forget(self, key: str) -> None:
        """A message is gone."""
        self._entries.pop(key, None)
        self._bodies.pop(key, None)

    def body(self, key: str) -> bytes | None:
        """The body of a message, if it is known."""
        return self._bodies.get(key)

    def note_body(self, key: str, body: bytes) -> None:
        """A body was read to be checked, and is likely to be delivered."""
        self._bytes += len(body)
        if self._bytes > _BODIES_BYTES:
            self._bodies.clear()
            self._bytes = len(body)
        self._bodies[key] = body

    def keep(self) -> None:
        """The group is kept. A message that is leased is likely to be settled soon."""
        leased = self._leased
        for key, entry in self._entries.items():
            if entry.state is State.INFLIGHT:
                leased[key] = entry
        for key in list(islice(leased, max(0, len(leased) - _LEASED_LIMIT))):
            del leased[key]
        self.take_back()

    def take_back(self) -> None:
        """The group has not happened."""
        self._entries.clear()
        self._bodies.clear()
        self._bytes = 0

    def clear(self) -> None:
        """Another database is opened, or the same one anew."""
        self.take_back()
        self._leased.clear()
