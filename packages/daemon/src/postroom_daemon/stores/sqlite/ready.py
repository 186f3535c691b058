"""The ready messages that come next, in memory: consuming a busy queue asks the database once for many messages."""

from __future__ import annotations

from collections import deque
from typing import Final

from ...model.records import Entry

#: Messages that are in memory for one queue and target at most.
_LENGTH_LIMIT: Final = 1024
#: Messages that are asked for at once: few at first, since whoever asks may want only one.
_FIRST_COUNT: Final = 4
_COUNT_LIMIT: Final = 256
#: Queues whose next messages are in memory.
_QUEUES_LIMIT: Final = 4096


class Head:
    """The next ready messages of a queue and target, in the order of delivery. ``is_all``: there are no others."""

    __slots__ = ("_count", "entries", "is_all")

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque()
        self.is_all = False
        self._count = _FIRST_COUNT

    def next_count(self) -> int:
        """How many to ask the database for."""
        count = self._count
        self._count = min(count * 4, _COUNT_LIMIT)
        return count

    def add(self, entry: Entry) -> None:
        """A message has become ready."""
        entries, place = self.entries, (-entry.priority, entry.seq)
        if not entries or place > (-entries[-1].priority, entries[-1].seq):
            if self.is_all and len(entries) < _LENGTH_LIMIT:
                entries.append(entry)
            else:
                self.is_all = False
            return
        at = len(entries)
        while at and (-entries[at - 1].priority, entries[at - 1].seq) > place:
            at -= 1
        entries.insert(at, entry)

    def remove(self, key: str) -> None:
        """A message is no longer ready."""
        entries = self.entries
        if not entries:
            return
        if entries[0].key == key:
            entries.popleft()
            return
        for at, entry in enumerate(entries):
            if entry.key == key:
                del entries[at]
                return


class ReadyHeads:
    """The heads of queues by target. Messages with an ordering key are not followed here: when one of them changes,
    the heads of its queue must be forgotten."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[str, Head]] = {}

    def head(self, queue: str, target: str) -> Head:
        """The head of a target, from which nothing may be known."""
        heads = self._queues.get(queue)
        if heads is None:
            if len(self._queues) >= _QUEUES_LIMIT:
                self._queues.clear()
            heads = self._queues[queue] = {}
        head = heads.get(target)
        if head is None:
            if len(heads) >= _QUEUES_LIMIT:
                heads.clear()
            head = heads[target] = Head()
        return head

    def add(self, entry: Entry) -> None:
        """A message has become ready."""
        heads = self._queues.get(entry.queue)
        if heads:
            head = heads.get(entry.target)
            if head:
                head.add(entry)

    def remove(self, entry: Entry) -> None:
        """A message is no longer ready; its queue and target are as they were."""
        heads = self._queues.get(entry.queue)
        if heads:
            head = heads.get(entry.target)
            if head:
                head.remove(entry.key)

    def forget(self, queue: str) -> None:
        """Which messages of a queue come next is no longer known."""
        self._queues.pop(queue, None)

    def clear(self) -> None:
        """As ``forget``, for all queues."""
        self._queues.clear()
