"""The ready messages that come next, in memory: consuming a busy queue asks the database once for many messages."""

from __future__ import annotations

from collections import deque
from typing import Final

from ...model.records import Entry

#: Messages that are in memory for one queue and target at most.
_LENGTH_LIMIT = 1024
#: Messages that are asked for at once: few at first, since whoever asks may want only one.
_FIRST_COUNT: Final = 4
_COUNT_LIMIT: Final = 1024
#: Messages and heads that are in memory at most, of all queues and targets: beyond that, all are forgotten.
_TOTAL_LIMIT = 20_000


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

    def add(self, entry: Entry) -> int:
        """A message has become ready. Returns how many more are in memory."""
        entries, order = self.entries, (-entry.priority, entry.returned_seq or entry.seq)
        if not entries or order > (-entries[-1].priority, entries[-1].returned_seq or entries[-1].seq):
            if self.is_all and len(entries) < _LENGTH_LIMIT:
                entries.append(entry)
                return 1
            self.is_all = False
            return 0
        at = len(entries)
        while at and (-entries[at - 1].priority, entries[at - 1].position) > order:
            at -= 1
        entries.insert(at, entry)
        if len(entries) <= _LENGTH_LIMIT:
            return 1
        entries.pop()
        self.is_all = False
        return 0

    def remove(self, key: str) -> int:
        """A message is no longer ready. Returns how many fewer are in memory."""
        entries = self.entries
        if not entries:
            return 0
        if entries[0].key == key:
            entries.popleft()
            return 1
        for at, entry in enumerate(entries):
            if entry.key == key:
                del entries[at]
                return 1
        return 0


class ReadyHeads:
    """The heads of queues by target. Messages with an ordering key are not followed here: when one of them changes,
    the heads of its queue must be forgotten."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[str, Head]] = {}
        self._count = 0  # messages and heads

    def head(self, queue: str, target: str) -> Head:
        """The head of a target, from which nothing may be known."""
        if self._count > _TOTAL_LIMIT:
            self.clear()
        heads = self._queues.get(queue)
        if heads is None:
            heads = self._queues[queue] = {}
        head = heads.get(target)
        if head is None:
            head = heads[target] = Head()
            self._count += 1
        return head

    def fill(self, head: Head, entries: deque[Entry], is_all: bool) -> None:
        """What the database has for a head that was just asked for."""
        self._count += len(entries) - len(head.entries)
        head.entries, head.is_all = entries, is_all

    def add(self, entries: list[Entry]) -> None:
        """Messages of one queue have become ready."""
        heads = self._queues.get(entries[0].queue)
        if heads:
            for entry in entries:
                head = heads.get(entry.target)
                if head:
                    self._count += head.add(entry)
            if self._count > _TOTAL_LIMIT:
                self.clear()

    def remove(self, entries: list[Entry]) -> None:
        """Messages of one queue are no longer ready; queue and targets are as they were."""
        heads = self._queues.get(entries[0].queue)
        if heads:
            for entry in entries:
                head = heads.get(entry.target)
                if head:
                    self._count -= head.remove(entry.key)

    def forget(self, queue: str) -> None:
        """Which messages of a queue come next is no longer known."""
        heads = self._queues.pop(queue, None)
        if heads:
            self._count -= len(heads) + sum(len(head.entries) for head in heads.values())

    def clear(self) -> None:
        """As ``forget``, for all queues."""
        self._queues.clear()
        self._count = 0
