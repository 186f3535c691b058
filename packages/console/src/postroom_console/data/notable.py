"""What people did to the queues, as the tail tells it: who paused one and when, who moved or brought back messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from .records import Record

#: Events that somebody caused who looks after the device.
DEEDS: Final = frozenset(
    {"paused", "resumed", "policy_set", "reprocessed", "moved", "quarantined", "held", "unheld", "queue_deleted"}
)
#: Queues and deeds of each that are kept.
_QUEUES: Final = 500
_EACH: Final = 8


class Notable:
    """The last deeds of each queue. Of as many queues as a device has; those that nobody touched for long go first."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[Record]] = {}

    def add(self, records: Iterable[Record]) -> None:
        """Take what is notable of the tail."""
        for record in records:
            if record.is_event and record.kind in DEEDS and record.queue:
                deeds = self._queues.pop(record.queue, None) or deque(maxlen=_EACH)
                deeds.append(record)
                self._queues[record.queue] = deeds
                if len(self._queues) > _QUEUES:
                    del self._queues[next(iter(self._queues))]

    def of(self, queue: str) -> list[Record]:
        """The last deeds, the latest in front."""
        return list(reversed(self._queues.get(queue, ())))

    def pause_of(self, queue: str) -> Record | None:
        """The event by which a queue was paused, where the tail still has it."""
        for record in self.of(queue):
            if record.kind == "paused":
                return record
            if record.kind == "resumed":
                break
        return None
