"""The records of queues in the SQLite store. Those in memory are the ones that were read or changed last: there may be
any number of queues."""

from __future__ import annotations

from itertools import islice
from typing import Final

import orjson

from postroom_common.protocol import State

from ...model.records import QueueRecord
from ..book import QueueBook
from .facts import SqliteFacts

#: The prefix of the keys of rows that are records.
QUEUE_KEY: Final = "queue:"
#: Records that are cached.
RECORDS_LIMIT = 4096


class SqliteBook(QueueBook):
    """Records by the names of their queues. ``add`` and ``delete`` change rows at once, for ``Pages.queue_names``;
    counters are written by ``flush``."""

    def __init__(self, facts: SqliteFacts) -> None:
        super().__init__()
        self._facts = facts
        self._waiting: set[str] = set()  # queues whose records the groups since the last flush have changed

    def read(self, name: str) -> QueueRecord | None:
        """The record of a queue that is not in memory, which it is from now on."""
        value = self._facts.value(QUEUE_KEY + name)
        if value is None:
            return None
        record = self.values[name] = QueueRecord.from_json(orjson.loads(value))
        return record

    def count(self, queue: str, before: State | None, after: State | None, size: int = 0, messages: int = 1) -> None:
        if queue not in self.values:
            self.read(queue)
        QueueBook.count(self, queue, before, after, size, messages)

    def add(self, record: QueueRecord) -> None:
        """See ``Store.add_queue``."""
        self.set(record.name, record)
        self._put(record)

    def delete(self, name: str) -> None:
        """See ``Store.delete_queue``."""
        if self.values.get(name) or self.read(name):
            self.remove(name)
            self._facts.put_value(QUEUE_KEY + name, None)

    def _put(self, record: QueueRecord) -> None:
        self._facts.put_value(QUEUE_KEY + record.name, (orjson.dumps(record.to_json()), "queue"))

    def commit(self) -> None:
        if self.before:
            self._waiting.update(self.before)
            self.before.clear()

    def flush(self) -> None:
        """Have the records that committed groups have changed written."""
        for name in self._waiting & self.values.keys():  # one may have been deleted since
            self._put(self.values[name])

    def flushed(self) -> None:
        """They are committed to the database."""
        self._waiting.clear()

    def trim(self) -> None:
        """Between transactions: forget the oldest records if there are too many, except those that are not written."""
        spare = len(self.values) - RECORDS_LIMIT
        if spare > 0:
            for name in list(islice((name for name in self.values if name not in self._waiting), spare)):
                del self.values[name]

    def clear(self) -> None:
        super().clear()
        self._waiting.clear()
