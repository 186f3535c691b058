"""Queue records in memory. Shared by the stores."""

from __future__ import annotations

from postroom_common.protocol import State

from ..model.records import Entry, QueueRecord
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

    def count_change(self, entry: Entry, before: State, source: str | None) -> None:
        """Count a message that was in state ``before``; ``source`` is the queue that it has left, if it has. Raises
        ``NotStored``."""
        if source is None:
            self.count(entry.queue, before, entry.state, entry.size)
        else:
            self.count(source, before, None, entry.size)
            self.count(entry.queue, None, entry.state, entry.size)
