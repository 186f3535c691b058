"""The key-values of the SQLite store: rows whose value is JSON, which are facts or the records of queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson

from ..base import Facts
from .database import Database
from .unwritten import Unwritten

#: The prefix of the keys of rows that are facts.
_FACT_KEY: Final = "fact:"
#: Values that are cached, and how long (characters) they may be: histories of failures are long, and rarely read.
_VALUES_LIMIT: Final = 1024
_VALUE_LENGTH: Final = 4096


class SqliteFacts(Facts):
    """Facts by name, and the values of other rows by key."""

    #: Called with each fact that is stored, if somebody keeps books on them.
    on_put: Callable[[str, Any], None] | None = None

    def __init__(self, db: Database, unwritten: Unwritten) -> None:
        self._db = db
        self._unwritten = unwritten
        self._group, self._earlier = unwritten.group, unwritten.earlier
        self._values: dict[str, str | None] = {}  # as the database has them

    def get(self, name: str) -> Any:
        value = self.value(_FACT_KEY + name)
        return None if value is None else orjson.loads(value)

    def put(self, name: str, value: Any) -> None:
        self.put_value(_FACT_KEY + name, None if value is None else (orjson.dumps(value), "fact"))
        if self.on_put:
            self.on_put(name, value)

    def names(self, prefix: str, after: str, limit: int) -> list[str]:
        begin = prefix if after < prefix else after + "\0"  # the least text behind it
        whole = _FACT_KEY + prefix
        end = whole[:-1] + chr(ord(whole[-1]) + 1)  # the least text behind all that begin so
        rows = self._db.rows(self._db.sql.kv_keys, (_FACT_KEY + begin, end, limit))
        return [row[0].removeprefix(_FACT_KEY) for row in rows]

    def value(self, key: str) -> str | bytes | None:
        """The value of the row with this key, None if there is no such row."""
        for changes in (self._group, self._earlier):
            if key in changes.values:
                changed = changes.values[key]
                return changed[0] if changed else None
        if key in self._values:
            return self._values[key]
        if len(self._values) >= _VALUES_LIMIT:
            self._values.clear()
        value = self._db.value(key)
        if value is None or len(value) <= _VALUE_LENGTH:
            self._values[key] = value
        return value

    def put_value(self, key: str, value: tuple[bytes, str] | None) -> None:
        """Store the value and the kind of the row with this key; None removes the row."""
        changes = self._group if self._unwritten.in_group else self._earlier
        changes.values[key] = value
        if value:
            changes.bytes += len(value[0])
        self._values.pop(key, None)

    def forget_all(self) -> None:
        """Forget what was read."""
        self._values.clear()
