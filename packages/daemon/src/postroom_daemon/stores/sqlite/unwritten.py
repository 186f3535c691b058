"""What the database does not have yet, and the database transaction in which it is written.

Changes wait in memory, and are written for many groups at once: those of the groups before the open one directly, those
of the open one behind a savepoint, so that it can be rolled back.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from postroom_common.protocol import State

from ..errors import StoreError
from .changes import Changes
from .database import Database, translated
from .entry_cache import EntryCache
from .space import SpaceEstimate

#: Groups whose changes wait at most to be written.
GROUPS_LIMIT: Final = 256
#: Rows and bytes of bodies that wait at most.
ROWS_LIMIT: Final = 4000
_BYTES_LIMIT: Final = 2 * 1024 * 1024
#: Rows that one transaction of the database changes, about: its log cannot be folded before its end.
_TRANSACTION_ROWS: Final = 4000


class Unwritten:
    """``group`` are the changes of the open group, ``earlier`` those of the groups before it. ``entries`` are as the
    database has them: what is written changes them, too."""

    def __init__(self, db: Database, entries: EntryCache) -> None:
        self.group = Changes()
        self.earlier = Changes()
        self.space = SpaceEstimate()
        self.in_group = False
        self._db = db
        self._entries = entries
        self._has_savepoint = False
        self._groups = 0  # whose changes are not committed to the database yet
        self._rows_before = 0

    def opened(self) -> None:
        """The database was opened: there is nothing to write."""
        self.group.clear()
        self.earlier.clear()
        self.space.clear()
        self.in_group = self._has_savepoint = False
        self._groups = 0
        self._rows_before = self._db.connection.total_changes

    # --- groups ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a group."""
        self.begin_transaction()
        self.in_group = True

    def commit(self, has_events: bool) -> None:
        """End the group: its changes wait with those of earlier ones."""
        has_written = self._has_savepoint
        if has_written:
            self._db.command("RELEASE one_group")
            self._has_savepoint = False
        self.in_group = False
        if has_events or has_written or self.group:
            self._groups += 1
            self.earlier.absorb(self.group)

    def rollback(self) -> None:
        """Undo the group. Raises ``StoreError`` if SQLite has undone more than that."""
        self.in_group = False
        self.group.clear()
        has_savepoint, self._has_savepoint = self._has_savepoint, False
        try:
            if has_savepoint and self._db.in_transaction:
                self._db.command("ROLLBACK TO one_group")
                self._db.command("RELEASE one_group")
        except StoreError:
            if self._db.in_transaction:
                raise
        self._check_transaction()

    # --- the database transaction ---------------------------------------------------------------------------------

    @property
    def is_anything(self) -> bool:
        """Whether there is something to commit to the database."""
        return bool(self._groups or self.earlier or self._db.in_transaction)

    @property
    def is_much(self) -> bool:
        """Whether so much has changed that it should be committed to the database."""
        return (
            self._groups >= GROUPS_LIMIT
            or len(self.earlier) > ROWS_LIMIT
            or self.earlier.bytes > _BYTES_LIMIT
            or self._db.connection.total_changes - self._rows_before > _TRANSACTION_ROWS
        )

    def begin_transaction(self) -> None:
        """Begin the transaction of the database unless it is open: after some errors, also of a question, SQLite has
        rolled it back. Rows that are written outside of it would be there without what ``applied`` says."""
        if not self._db.in_transaction:
            self._check_transaction()
            self._db.command("BEGIN IMMEDIATE")
            self._rows_before = self._db.connection.total_changes

    def commit_transaction(self) -> None:
        """Write everything, and commit it to the database."""
        self.write()
        self._db.command("COMMIT")
        self._groups = 0
        self.space.clear()

    def write(self) -> None:
        """Write what has changed, that of the open group behind a savepoint."""
        group, earlier = self.group, self.earlier
        if earlier:
            self._write_earlier(earlier)
        if self.in_group:
            if not self._has_savepoint:
                self._db.command("SAVEPOINT one_group")
                self._has_savepoint = True
            if group:
                for key in (*group.entries, *group.removed):
                    self._entries.values.pop(key, None)
                self._write(group)
                group.clear()

    def _write_earlier(self, earlier: Changes) -> None:
        self.begin_transaction()
        self._db.command("SAVEPOINT earlier_groups")
        try:
            self._write(earlier)
            self._db.command("RELEASE earlier_groups")
        except StoreError:
            if self._db.in_transaction:
                self._db.command("ROLLBACK TO earlier_groups")
                self._db.command("RELEASE earlier_groups")
            raise
        for key, (entry, _) in earlier.entries.items():
            if entry.state is State.INFLIGHT:  # it is likely to be settled soon
                self._entries.remember(key, entry)
        earlier.clear()

    def _write(self, changes: Changes) -> None:
        try:
            changes.write(self._db.connection, self._db.sql)
            self.space.write(changes.bytes)
        except sqlite3.Error as error:
            raise translated(error, self._db.path) from error
        except (OverflowError, TypeError, ValueError) as unfit:  # never "nothing was changed": the journal has it
            raise StoreError(f"{self._db.path}: a row that cannot be stored: {unfit}") from unfit

    def _check_transaction(self) -> None:
        """Raise ``StoreError`` if changes that were written are gone: after some errors, that of a commit among them,
        SQLite rolls back all of its transaction. Nothing may then be built on what ``applied`` says."""
        db = self._db
        if self._groups and not db.in_transaction and db.connection.total_changes != self._rows_before:
            raise StoreError(f"{db.path}: groups that were not committed yet are rolled back; reopen the store")
