"""Queue records in memory, with the undo that a transaction needs. Shared by the stores."""

from __future__ import annotations

from collections.abc import Set
from itertools import islice

from postroom_common.protocol import State

from ..model.records import QueueRecord
from .base import NotStored


class QueueBook:
    """The records that were looked at, and copies of those that the open transaction has changed."""

    def __init__(self) -> None:
        self.records: dict[str, QueueRecord] = {}
        self._before: dict[str, QueueRecord | None] = {}

    def touch(self, name: str) -> QueueRecord:
        """The record, about to be changed: a copy is kept until the transaction ends. Raises ``NotStored`` when there
        is none."""
        record = self.records.get(name)
        if record is None:
            raise NotStored(f"no record of queue {name!r}")
        if name not in self._before:
            self._before[name] = record.copy()
        return record

    def put(self, record: QueueRecord) -> None:
        """Keep a new record."""
        self._before.setdefault(record.name, None)
        self.records[record.name] = record

    def move(self, queue: str, before: State | None, after: State | None, size: int = 0) -> None:
        """Count one message of ``queue``, of ``size`` bytes, from one state to another; None stands for no message."""
        if before is after:
            return
        record = self.touch(queue)
        if before is not None:
            record.counts[before] -= 1
            if before is not State.DEAD:
                record.bytes -= size
        if after is not None:
            record.counts[after] += 1
            if after is not State.DEAD:
                record.bytes += size

    def remove(self, name: str) -> None:
        """Forget a record."""
        record = self.records.pop(name, None)
        if record is not None:
            self._before.setdefault(name, record)

    def changed(self) -> list[QueueRecord]:
        """The records that the transaction has changed."""
        return [self.records[name] for name in self._before if name in self.records]

    def forget_oldest(self, limit: int, needed: Set[str]) -> None:
        """Between transactions: keep no more than ``limit`` records, besides what is ``needed``. For a store that
        can read them again."""
        spare = len(self.records) - limit
        if spare > 0:
            for name in list(islice((name for name in self.records if name not in needed), spare)):
                del self.records[name]

    def commit(self) -> None:
        """Forget the copies."""
        self._before.clear()

    def rollback(self) -> None:
        """Put the copies back."""
        for name, record in self._before.items():
            if record is None:
                self.records.pop(name, None)
            else:
                self.records[name] = record
        self._before.clear()
