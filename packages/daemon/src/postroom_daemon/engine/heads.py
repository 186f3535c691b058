"""The heads of queues: of several queues, which one has the message that has been available longest.

The head of a queue is its next message; only a note of when that became available is remembered.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Final

from postroom_common.protocol import State

from ..model.records import Entry
from ..stores.base import Store
from .queue_search import PAGE, Matches, QueueSearch, pages_of_names

Head = tuple[int, int, str]
"""Since when the next message of a queue can be delivered: engine ms, the event that gave the message its position, and
the name of the queue. An older value is possible: a look at the queue corrects it. A newer one is possible only for a
consumer for whom there is a message of its own."""

#: Queues with messages that one request passes over because none of them is for its consumer.
PASSED_OVER_LIMIT = 500
_READY: Final = State.READY
#: More than the id of any event.
_LAST: Final = 2**62


def available_from(entry: Entry) -> tuple[int, int]:
    """Since when a ready message can be delivered (engine ms), and the event that gave it its position."""
    return max(entry.created, entry.due), entry.position


class Heads(QueueSearch):
    """The heads of the queues that a pattern matches and that have ready messages, in the order in which their next
    messages became available.

    ``blocked`` are queues whose messages nobody can get until an event of the queue: a pause, an in-flight limit."""

    def __init__(self, store: Store, matches: Matches) -> None:
        super().__init__()
        self.blocked: set[str] = set()
        self.heads: dict[str, Head] = {}
        self._heap: list[Head] = []
        self._fresh: set[str] = set()
        self._rounds = 0
        self._matches = matches
        self.steps = self._search(store)

    def _search(self, store: Store) -> Iterator[None]:
        for names in pages_of_names(store):
            for name in names:
                if self._matches(name):
                    record = store.queue(name)
                    if record and record.counts[_READY]:
                        head = store.next_ready(name, "")  # the same for all but those who have messages of their own
                        self._put((*available_from(head), name) if head else (0, 0, name))
            if len(names) == PAGE:
                yield

    def note(self, queue: str) -> None:
        """A queue may have another next message, or one at all."""
        if queue in self.heads or self._matches(queue):
            self._fresh.add(queue)

    def next_queue(
        self, look: Callable[[str], Entry | None], is_blocked: Callable[[str], bool | None], now: int
    ) -> str:
        """The queue whose next message has been available longest; "" if there is none. ``look`` returns the next
        message that the consumer could get from a queue. For a queue without, ``is_blocked`` says whether it has ready
        messages that nobody can get; None: it has no ready messages. ``now`` is engine ms."""
        for fresh in self._fresh:
            self._put((0, 0, fresh))
        self._fresh.clear()
        passed_over: list[Head] = []
        queue = ""
        while self._heap and len(passed_over) < PASSED_OVER_LIMIT:
            head = self._heap[0]
            if self.heads.get(head[2]) != head:  # there is a newer one
                heapq.heappop(self._heap)
                continue
            entry = look(head[2])
            if entry is None:
                self._remove(head, is_blocked(head[2]), passed_over)
                continue
            seen = (*available_from(entry), head[2])
            if seen > head:
                self.heads[head[2]] = seen
                heapq.heapreplace(self._heap, seen)
                if self._heap[0] != seen:
                    continue
            queue = head[2]
            break
        # Where very many are for other consumers, the next request begins with the rest.
        many = len(passed_over) == PASSED_OVER_LIMIT
        self._rounds += many
        for head in passed_over:
            self._put((now, _LAST + self._rounds, head[2]) if many else head)
        return queue

    def others_from(self) -> tuple[int, int] | None:
        """From when, and which event, messages of the other queues are available, at the earliest; None if there are no
        others. Call it only after ``next_queue`` has returned a queue."""
        other = min(self._heap[1:3], default=None)
        return other and other[:2]

    def _remove(self, head: Head, blocked: bool | None, passed_over: list[Head]) -> None:
        heapq.heappop(self._heap)
        del self.heads[head[2]]
        if blocked:
            self.blocked.add(head[2])
        elif blocked is False:
            passed_over.append(head)

    def _put(self, head: Head) -> None:
        self.blocked.discard(head[2])
        self.heads[head[2]] = head
        heapq.heappush(self._heap, head)
        if len(self._heap) > 2 * len(self.heads) + PAGE:
            self._heap = list(self.heads.values())
            heapq.heapify(self._heap)
