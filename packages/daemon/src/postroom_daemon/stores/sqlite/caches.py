"""What the SQLite store has in memory during a group: messages it has seen, rows it is about to write or to be asked
for, and the disk space that they take.

Code that changes a message reports it to these caches, so that they contain what the database would return. They are
``Participant``s of the store's transactions.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from postroom_common.protocol import State

from ...model.records import Entry
from ..base import StoreDamaged
from .rows import Row, entry_of, row_holds
from .schema import Statements

#: Bytes of bodies that are cached for the rest of a group.
_BODIES_BYTES: Final = 1024 * 1024
#: Leased messages of earlier groups that stay cached.
_LEASED_LIMIT: Final = 2000
#: Ready rows of one target that are read ahead at most.
_AHEAD_LIMIT: Final = 64
#: Bytes of bodies that wait to be written at most.
_PENDING_BYTES: Final = 1024 * 1024

_PAGE_BYTES: Final = 4096 + 24  # with its header in the write-ahead log
#: Trees in which a message has a row or an index entry of its own: two tables, their keys, the lease or the state, and
#: the key-value with its failures.
_TREES: Final = 6
#: Messages published in a row that share a page, on the mean of these trees: fewer than was measured.
_SHARING: Final = 12
#: Bytes for a new message: its rows, and indexes that are not in the order of publishing.
_NEW_BYTES: Final = 32 * 1024
#: Bodies longer than this have pages of their own, which are overwritten when they go.
_SHORT_BYTES: Final = 1024

Values = tuple[Any, ...] | list[Any]


class EntryCache:
    """Entries and bodies that this group has seen, and messages that earlier groups leased, which are likely to be
    settled soon. ``path`` is the database, for error texts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[str, Entry] = {}  # seen by this group
        self._leased: dict[str, Entry] = {}  # by earlier ones, as committed
        self._bodies: dict[str, bytes] = {}
        self._bytes = 0

    def entry(self, key: str) -> Entry | None:
        """The entry of a message, if it is cached."""
        cached = self._entries.get(key)
        if cached is None:
            # This group may change it, so that it no longer is what was committed.
            cached = self._leased.pop(key, None)
            if cached is not None:
                self._entries[key] = cached
        return cached

    def entry_of(self, row: Row) -> Entry:
        """The entry of a row that was read. Raises ``StoreDamaged`` if the row is not what was written."""
        cached = self.entry(row[0])
        if cached is None:
            cached = self._entries[row[0]] = self._checked(row)
        return cached

    def _checked(self, row: Row) -> Entry:
        try:
            if row_holds(row):
                return entry_of(row)
        except (TypeError, ValueError):
            pass
        raise StoreDamaged(f"{self._path}: the row of {str(row[0])[:300]} has changed on the disk")

    def put(self, entry: Entry) -> None:
        """A message is new, or has changed."""
        self._entries[entry.key] = entry

    def remove(self, key: str) -> None:
        """A message is gone."""
        self._entries.pop(key, None)
        self._bodies.pop(key, None)

    def body(self, key: str) -> bytes | None:
        """The body of a message, if it is cached."""
        return self._bodies.get(key)

    def put_body(self, key: str, body: bytes) -> None:
        """A body was read to be checked, and is likely to be delivered."""
        self._bytes += len(body)
        if self._bytes > _BODIES_BYTES:
            self._bodies.clear()
            self._bytes = len(body)
        self._bodies[key] = body

    def begin(self) -> None:
        """See ``Participant``."""

    def commit(self) -> None:
        """See ``Participant``."""
        leased = self._leased
        for key, entry in self._entries.items():
            if entry.state is State.INFLIGHT:
                leased[key] = entry
        for key in list(islice(leased, max(0, len(leased) - _LEASED_LIMIT))):
            del leased[key]
        self.rollback()

    def rollback(self) -> None:
        """See ``Participant``."""
        self._entries.clear()
        self._bodies.clear()
        self._bytes = 0

    def clear(self) -> None:
        """The database is reopened."""
        self.rollback()
        self._leased.clear()


class _Target:
    """The ready rows of a target that come next. ``ended``: there are no more behind them. ``count``: how many are
    asked for next time."""

    __slots__ = ("count", "ended", "rows")

    def __init__(self) -> None:
        self.rows: deque[Row] = deque()
        self.ended = False
        self.count = 1


class ReadyRows:
    """Ready rows by target. A caller that asks twice for the first of them in a group is likely to continue,
    so the rows after it are read ahead. They are valid until anything but a lease changes: call ``clear`` then."""

    def __init__(self, sql: Statements, entries: EntryCache) -> None:
        self._pick = sql.pick
        self._entries = entries
        self._targets: dict[tuple[str, str], _Target] = {}  # by queue and target

    def clear(self) -> None:
        """Something has changed."""
        self._targets.clear()

    def first(self, rows: Callable[[str, Sequence[Any]], list[Any]], queue: str, target: str) -> Entry | None:
        """The first ready message of a target. ``rows`` asks the database. Raises what that does, and ``StoreDamaged``
        for a row that has changed on the disk."""
        one = self._targets.get((queue, target))
        if one is None:
            one = self._targets[queue, target] = _Target()
        while True:
            while one.rows:
                row = one.rows[0]
                entry = self._entries.entry_of(row)
                if entry.state is not State.INFLIGHT or row[2] != State.READY:
                    return entry
                one.rows.popleft()  # it was leased since it was read
            if one.ended:
                return None
            one.rows.extend(rows(self._pick, (queue, 0, target, one.count)))
            one.ended = len(one.rows) < one.count
            one.count = min(one.count * 4, _AHEAD_LIMIT)

    def begin(self) -> None:
        """See ``Participant``."""

    commit = rollback = clear


class PendingRows:
    """Rows of a group that are yet to be written, all of a kind at once: new rows, then changes of rows, then removals.
    In this order they come to the same as in the order in which they came, since a key that is removed does not come
    again before it is gone (``must_flush``)."""

    def __init__(self, sql: Statements) -> None:
        self._sql = sql
        self._bodies: list[Values] = []
        self._new: dict[str, Values] = {}
        self._changes: dict[str, Values] = {}
        self._removed: dict[str, None] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return 2 * len(self._new) + len(self._changes) + 2 * len(self._removed)

    def add(self, body: Values, row: Values) -> None:
        """A message's rows of ``kv`` and ``msg_index``."""
        self._bodies.append(body)
        self._new[body[0]] = row
        self._bytes += len(body[1])

    def change(self, values: Values) -> None:
        """Values of ``Statements.update``, for a row that was read or is new. The last of them is its key."""
        self._changes[values[-1]] = values

    def remove(self, key: str) -> None:
        """Both rows of a message that was read or is new."""
        self._changes.pop(key, None)
        self._removed[key] = None

    def must_flush(self, key: str) -> bool:
        """Whether the pending rows must be written before a new one with this key is added."""
        return self._bytes > _PENDING_BYTES or key in self._removed

    def concerns(self, key: str) -> bool:
        """Whether rows of a message are pending."""
        return key in self._new or key in self._changes or key in self._removed

    def rollback(self) -> None:
        """Drop what is pending."""
        self._bodies, self._new, self._changes, self._removed, self._bytes = [], {}, {}, {}, 0

    def write(self, db: sqlite3.Connection) -> None:
        """Write what is pending; it no longer is, even if that fails.

        Raises ``sqlite3.Error``, and ``StoreDamaged`` for a row that does not exist under the key that was read from
        it: unchanged, it would be delivered for ever.
        """
        bodies, new, removed = self._bodies, self._new, [(key,) for key in self._removed]
        changes = list(self._changes.values())
        self.rollback()
        if new:
            db.executemany(self._sql.add_value, bodies)
            db.executemany(self._sql.insert, new.values())
        if changes:
            _expect(len(changes), db.executemany(self._sql.update, changes).rowcount, changes[0][-1])
        if removed:
            _expect(len(removed), db.executemany(self._sql.delete, removed).rowcount, removed[0][0])
            db.executemany(self._sql.delete_value, removed)


def _expect(count: int, changed: int, first: str) -> None:
    if changed != count:
        raise StoreDamaged(
            f"of the rows of {first} and {count - 1} others, {count - changed} are not found by their keys"
        )


class SpaceEstimate:
    """How many bytes the open database transaction may write: the pages that it changes.

    Messages that were published one after the other are adjacent in both tables and in most indexes, and share
    pages. A batch that settles messages in their order touches few pages; one in random order several per message.
    """

    def __init__(self) -> None:
        self._touched: set[int] = set()  # the places of changed messages, by publish number in units of ``_SHARING``
        self._new = 0
        self._added = 0
        self._freed = 0

    def add(self, size: int) -> None:
        """A message with a body of ``size`` bytes is new."""
        self._new += 1
        self._added += size

    def touch(self, seq: int) -> None:
        """The message with this publish number has changed."""
        self._touched.add(seq // _SHARING)

    def free(self, seq: int, size: int) -> None:
        """The message with this publish number, and a body of ``size`` bytes, is gone."""
        self._touched.add(seq // _SHARING)
        if size > _SHORT_BYTES:
            self._freed += size + _PAGE_BYTES

    def needed(self) -> int:
        """Bytes that a commit may need."""
        pages = _TREES * (len(self._touched) + bool(self._touched))
        return pages * _PAGE_BYTES + self._added + self._freed + self._new * _NEW_BYTES

    def clear(self) -> None:
        """The database transaction is committed."""
        self._touched.clear()
        self._new = self._added = self._freed = 0

    def begin(self) -> None:
        """See ``Participant``."""

    def commit(self) -> None:
        """A group is written, and not committed yet. Its new messages are adjacent."""
        self._new = 0

    rollback = commit
