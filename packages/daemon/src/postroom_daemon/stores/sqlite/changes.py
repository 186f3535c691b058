"""Changes of rows that the database does not have yet.

Rows are made when they are written. A message that comes and goes before that costs the database nothing: the journal
has its events.
"""

from __future__ import annotations

import sqlite3
from itertools import chain
from typing import Final

from ...model.records import Entry
from ..errors import StoreDamaged
from .rows import Row, changes_of, new_of, row_of, value_crc
from .schema import Insert, Statements, keys_in_turn

#: The kind of a row of ``kv`` that has the body of a message.
MESSAGE: Final = "message"
NewBody = tuple[bytes, str, int]
"""What is to be written of the body of a new message: value, kind, and when the message was created (Unix ms)."""


class Changes:
    """New, changed and removed messages, and key-values.

    ``bodies`` are those of new messages, ``replaced`` the new bodies of others. ``entries`` are new and changed
    messages, each with the last event that it shows. ``removed`` are messages whose rows are to go, ``values``
    key-values by the key of their row: value and kind, or None for one that is to go. ``queues`` are those whose
    messages have changed.
    """

    __slots__ = ("bodies", "bytes", "entries", "queues", "removed", "replaced", "values")

    def __init__(self) -> None:
        self.bodies: dict[str, NewBody] = {}
        self.replaced: dict[str, bytes] = {}
        self.entries: dict[str, tuple[Entry, int]] = {}
        self.removed: dict[str, None] = {}
        self.values: dict[str, tuple[bytes, str] | None] = {}
        self.queues: set[str] = set()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self.bodies) + len(self.replaced) + len(self.entries) + 2 * len(self.removed) + len(self.values)

    def replace(self, key: str, body: bytes) -> None:
        """A message has another body from now on."""
        self.bytes += len(body)
        new = self.bodies.get(key)
        if new is None:
            self.replaced[key] = body
        else:
            self.bytes -= len(new[0])
            self.bodies[key] = (body, MESSAGE, new[2])

    def replaced_body(self, key: str) -> NewBody | None:
        """The new body of a message that is not new, if it has one."""
        body = self.replaced.get(key)
        return None if body is None else (body, MESSAGE, 0)

    def remove(self, key: str) -> None:
        """A message is gone: a new one leaves nothing."""
        body = self.bodies.pop(key, None)
        if body is None:
            self.removed[key] = None
        else:
            self.bytes -= len(body[0])
        if self.replaced:
            self.replaced.pop(key, None)
        self.entries.pop(key, None)

    def absorb(self, later: Changes) -> None:
        """Take over later changes, which are forgotten there."""
        if later.removed:
            for key in later.removed:
                self.remove(key)
            later.removed.clear()
        if later.bodies:
            self.bodies.update(later.bodies)
            later.bodies.clear()
        if later.replaced:
            for key, body in later.replaced.items():
                self.replace(key, body)
                self.bytes -= len(body)  # which ``later`` has counted
            later.replaced.clear()
        if later.entries:
            self.entries.update(later.entries)
            later.entries.clear()
        if later.values:
            self.values.update(later.values)
            later.values.clear()
        if later.queues:
            self.queues.update(later.queues)
            later.queues.clear()
        self.bytes += later.bytes
        later.bytes = 0

    def clear(self) -> None:
        """Forget all changes."""
        self.bodies.clear()
        self.replaced.clear()
        self.entries.clear()
        self.removed.clear()
        self.values.clear()
        self.queues.clear()
        self.bytes = 0

    def write(self, db: sqlite3.Connection, sql: Statements) -> None:
        """Write all rows, in one statement of a kind. The changes stay: forget them once they cannot be rolled back.

        Raises ``sqlite3.Error``, and ``StoreDamaged`` for a row that does not exist under the key that was read from
        it: unchanged, it would be delivered for ever.
        """
        bodies, entries = self.bodies, self.entries
        if bodies:
            values = [
                (key, value.decode(), kind, wall, value_crc(key, value, kind))
                for key, (value, kind, wall) in bodies.items()
            ]
            _insert(db, sql.add_value, values)
            new: list[Row] = []
            others: list[Row] = []
            for key in bodies:
                row = row_of(*entries[key])
                bound = new_of(row)
                if bound is None:
                    others.append(row)
                else:
                    new.append(bound)
            _insert(db, sql.insert_new, new)
            _insert(db, sql.insert, others)
        if self.replaced:
            replaced = [
                (key, body.decode(), MESSAGE, 0, value_crc(key, body, MESSAGE)) for key, body in self.replaced.items()
            ]
            db.executemany(sql.replace_value, replaced)
        changed = [[*changes_of(row_of(*one)), key] for key, one in entries.items() if key not in bodies]
        if changed:
            _expect(len(changed), db.executemany(sql.update, changed).rowcount, changed[0][-1])
        if self.removed:
            removed = [*keys_in_turn(self.removed)]
            _expect(len(self.removed), db.executemany(sql.delete_several, removed).rowcount, str(removed[0][0]))
            db.executemany(sql.delete_values, removed)
        if self.values:
            self._write_values(db, sql)

    def _write_values(self, db: sqlite3.Connection, sql: Statements) -> None:
        gone = [(key,) for key, one in self.values.items() if one is None]
        if gone:
            db.executemany(sql.delete_value, gone)
        put = [(key, one[0].decode(), one[1], 0, value_crc(key, *one)) for key, one in self.values.items() if one]
        if put:
            db.executemany(sql.put_value, put)


def _insert(db: sqlite3.Connection, insert: Insert, rows: list[Row]) -> None:
    if not rows:
        return
    together = len(rows) - len(rows) % insert.rows
    portions = [[*chain.from_iterable(rows[begin : begin + insert.rows])] for begin in range(0, together, insert.rows)]
    db.executemany(insert.several, portions)
    db.executemany(insert.one, rows[together:])


def _expect(count: int, changed: int, first: str) -> None:
    if changed != count:
        raise StoreDamaged(
            f"of the rows of {first} and {count - 1} others, {count - changed} are not found by their keys"
        )
