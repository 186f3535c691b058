"""The bodies of messages in the SQLite store, wherever they are: not written yet, in a row of the database, or in a
file to which a row refers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Set
from itertools import islice
from typing import Any, Final

from ...model.records import Entry
from ..base import Bodies, Facts
from ..errors import BodyLost, StoreError
from .changes import MESSAGE, NewBody
from .database import Database
from .references import ReferencedBodies
from .rows import value_crc, value_holds
from .unwritten import Unwritten

#: Bytes of bodies that are cached for the rest of a group.
_BYTES_LIMIT: Final = 1024 * 1024
#: Bodies that are read ahead for the next consumers, and their bytes.
_AHEAD: Final = 25
_AHEAD_BYTES: Final = 256 * 1024
#: Bodies that are in memory so at most, of all queues.
_AHEAD_LIMIT: Final = 100


class SqliteBodies(Bodies):
    """Reads bodies. ``cached`` are those that the open group has read, ``ahead`` those for the next consumers, also of
    later groups. ``get`` returns the entry of a message, or None if there is no such message."""

    def __init__(
        self,
        db: Database,
        unwritten: Unwritten,
        referenced: ReferencedBodies | None,
        get: Callable[[str], Entry | None],
        facts: Facts,
    ) -> None:
        self.facts = facts
        self.cached: dict[str, bytes] = {}
        self._bytes = 0
        self.ahead: dict[str, bytes | None] = {}
        self._db = db
        self._group, self._earlier = unwritten.group, unwritten.earlier
        self._referenced = referenced
        self._get = get

    def clear(self) -> None:
        """Forget what the open group has read."""
        self.cached.clear()
        self._bytes = 0

    def forget(self, key: str) -> None:
        """Forget what was read of a message whose body changes."""
        self.cached.pop(key, None)
        self.ahead.pop(key, None)

    def forget_all(self) -> None:
        """Forget everything that was read."""
        self.clear()
        self.ahead.clear()

    def envelope(self, key: str) -> bytes:
        new = self._earlier.bodies.get(key)
        if new is not None and new[1] == MESSAGE and key not in self._group.removed and key not in self._group.replaced:
            return new[0]
        body = self.cached.get(key)
        if body is not None:
            return body
        new = self._new(key)
        if new and new[1] == MESSAGE:
            return new[0]
        body = self.ahead.pop(key, None) or self._read(key)
        self._bytes += len(body)
        if self._bytes > _BYTES_LIMIT:
            self.cached.clear()
            self._bytes = len(body)
        self.cached[key] = body
        return body

    def read_several(self, entries: list[Entry]) -> None:
        """Cache the bodies of messages that are to be delivered, as far as the cache has space. What cannot be
        delivered is left to ``envelope``, which reports it."""
        for key, body in self._rows(entries, _BYTES_LIMIT - self._bytes):
            if body is not None:
                self.cached[key] = body
                self._bytes += len(body)

    def read_ahead(self, entries: deque[Entry]) -> None:
        """Have the body of the first message in memory, and with it those of others, which later consumers will get."""
        key, ahead = entries[0].key, self.ahead
        if key in ahead or key in self.cached or key in self._group.bodies or key in self._earlier.bodies:
            return
        if len(ahead) > _AHEAD_LIMIT:
            ahead.clear()
        ahead.update(self._rows(islice(entries, _AHEAD), _AHEAD_BYTES))

    def _rows(self, entries: Iterable[Entry], space: int) -> Iterator[tuple[str, bytes | None]]:
        """The bodies of messages that the database has in its rows, at most ``space`` bytes; None for one that it has
        elsewhere, or that has changed."""
        cached, group, earlier = self.cached, self._group.bodies, self._earlier.bodies
        stale: Set[str] = frozenset()
        if self._group.replaced or self._earlier.replaced:
            stale = self._group.replaced.keys() | self._earlier.replaced.keys()
        keys: list[str] = []
        for entry in entries:
            key = entry.key
            if key in cached or key in group or key in earlier or key in stale:
                continue
            space -= entry.size
            if space < 0:
                break
            keys.append(key)
        for key, value, kind, crc in self._db.values_of(keys):
            body = value.encode() if type(value) is str and kind == MESSAGE else None
            yield key, body if body is None or crc is None or crc == value_crc(key, body, kind) else None

    def row(self, key: str) -> Any:
        """The row of a message in ``kv``: its body or what refers to it, the kind, and the checksum (None: it is not
        written yet). None if there is no row."""
        new = self._new(key)
        if new:
            return new[0].decode(), new[1], None
        if key in self._group.removed or key in self._earlier.removed:
            return None
        return self._db.row_of(self._db.sql.get_value, (key,))

    def _new(self, key: str) -> NewBody | None:
        """What the database does not have yet of the body of a message."""
        group, earlier = self._group, self._earlier
        new = group.bodies.get(key)
        if new is None and group.replaced:
            new = group.replaced_body(key)
        if new is None and key not in group.removed:
            new = earlier.bodies.get(key)
            if new is None and earlier.replaced:
                new = earlier.replaced_body(key)
        return new

    def _read(self, key: str) -> bytes:
        row = self.row(key)
        if row is None:
            if self._get(key) is None:
                raise StoreError(f"no body for {key}")
            raise BodyLost(key, f"it is not in {self._db.path}")
        if self._referenced and row[1] == self._referenced.kind:
            return self._referenced.read(key, row)
        if not value_holds(key, *row):
            raise BodyLost(key, f"it has changed in {self._db.path}")
        return str(row[0]).encode()
