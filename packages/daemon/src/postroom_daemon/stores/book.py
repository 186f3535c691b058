"""Queue records in memory. Shared by the stores."""

from __future__ import annotations

from collections.abc import Set
from itertools import islice

from postroom_common.protocol import State

from ..model.records import QueueRecord
from .errors import NotStored
from .undoable import Undoable

_DEAD, _DONE = State.DEAD, State.DONE


class QueueBook(Undoable[QueueRecord]):
    """Records by the names of their queues: all of them, or those that a store has read. Each is changed in place."""

    def touch(self, name: str) -> QueueRecord:
        """The record, about to be changed. Raises ``NotStored`` if there is none."""
        record = self.values.get(name)
        if record is None:
            raise NotStored(f"no record of queue {name!r}")
        if name not in self.before:
            self.before[name] = record.copy()
        return record

    def count(self, queue: str, before: State | None, after: State | None, size: int = 0, messages: int = 1) -> None:
        """Count messages of ``queue``, of ``size`` bytes together, from one state to another; None means no message.
        Raises ``NotStored``."""
        if before is after:
            return
        record = self.values.get(queue)
        if record is None:
            raise NotStored(f"no record of queue {queue!r}")
        if queue not in self.before:
            self.before[queue] = record.copy()
        if before is not None:
            record.counts[before] -= messages
            if before is not _DEAD and before is not _DONE:
                record.bytes -= size
        if after is not None:
            record.counts[after] += messages
            if after is not _DEAD and after is not _DONE:
                record.bytes += size

    def forget_oldest(self, limit: int, needed: Set[str]) -> None:
        """Between transactions: drop records beyond ``limit`` that are not ``needed``, oldest first. For a store that
        can read them again."""
        spare = len(self.values) - limit
        if spare > 0:
            for name in list(islice((name for name in self.values if name not in needed), spare)):
                del self.values[name]
