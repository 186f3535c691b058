"""Rows of a group that the SQLite store is yet to write: all of a kind are written at once, at the latest before the
group is kept."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from ..base import StoreDamaged
from .statements import Statements

#: Bytes of bodies that wait at most.
_BYTES_LIMIT: Final = 1024 * 1024

Values = tuple[Any, ...] | list[Any]


class Waiting:
    """New rows, then changes of rows, then rows that go: in this order they come to the same as in the order in which
    they came, since a key that goes does not come again before it is gone (``holds_back``)."""

    def __init__(self, sql: Statements) -> None:
        self._sql = sql
        self._bodies: list[Values] = []
        self._new: dict[str, Values] = {}
        self._changes: dict[str, Values] = {}
        self._gone: dict[str, None] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return 2 * len(self._new) + len(self._changes) + 2 * len(self._gone)

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
        self._gone[key] = None

    def holds_back(self, key: str) -> bool:
        """Whether a new row with this key must not wait beside what does."""
        return self._bytes > _BYTES_LIMIT or key in self._gone

    def concerns(self, key: str) -> bool:
        """Whether something waits of a message."""
        return key in self._new or key in self._changes or key in self._gone

    def forget(self) -> None:
        """What waits is not written."""
        self._bodies, self._new, self._changes, self._gone, self._bytes = [], {}, {}, {}, 0

    def write(self, db: sqlite3.Connection) -> None:
        """Write it; it waits no longer, even if that fails.

        Raises ``sqlite3.Error``, and ``StoreDamaged`` for a row that is not found by the key that was read from it:
        unchanged, it would be delivered for ever.
        """
        bodies, new, gone = self._bodies, self._new, [(key,) for key in self._gone]
        changes = list(self._changes.values())
        self.forget()
        if new:
            db.executemany(self._sql.add_value, bodies)
            db.executemany(self._sql.insert, new.values())
        if changes:
            _expect(len(changes), db.executemany(self._sql.update, changes).rowcount, changes[0][-1])
        if gone:
            _expect(len(gone), db.executemany(self._sql.delete, gone).rowcount, gone[0][0])
            db.executemany(self._sql.delete_value, gone)


def _expect(count: int, changed: int, first: str) -> None:
    if changed != count:
        raise StoreDamaged(
            f"of the rows of {first} and {count - 1} others, {count - changed} are not found by their keys"
        )
