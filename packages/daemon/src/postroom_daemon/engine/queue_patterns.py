"""Queues by pattern: which queues a regular expression matches, and which of them has the message that is next.

What was found is remembered for a while and kept up to date from the events, so that a request by pattern does not look
at every queue. It is not part of the root's state. To find it for the first time, all queues are looked at, in steps
between which other requests are processed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final, TypeVar

from postroom_common.errors import CommandError
from postroom_common.events import Event, EventType
from postroom_common.protocol import MATCHED_QUEUES_LIMIT, ErrorCode, State

from ..model.observer import Observer, Observers
from ..model.principal import Account
from ..model.records import Entry
from ..policy.schema import NamePattern
from ..stores.base import Store, StoreError

AGAIN: Final[dict[str, Any]] = {}
"""What a search returns: the request is to be decided again."""
K = TypeVar("K")
F = TypeVar("F", bound="_Found")
Matches = Callable[[str], bool]
Head = tuple[int, int, str]
"""A queue and since when its next message can be delivered: engine ms, the event that gave the message its place, the
name of the queue. An older value is possible: a look at the queue corrects it. A newer one is possible only for a
consumer for whom there is a message of its own."""

#: Patterns of each kind that are remembered; the one that was used least recently is forgotten first.
PATTERNS_LIMIT = 64
#: Queues with messages that all patterns together remember, beside the pattern that is being used.
HEADS_LIMIT = 250_000
#: Engine milliseconds after which a pattern that nobody uses is forgotten.
IDLE_MS: Final = 60_000
#: Queues that one step looks at.
PAGE = 100
#: Queues with messages that one request passes over because none of them is for its consumer.
PASSED_OVER_LIMIT = 500
_READY: Final = State.READY
#: More than the id of any event.
_LAST: Final = 2**62
#: Events that add a ready message to a queue which may have older ones, or make an older one the next.
_RETURNS: Final = frozenset(
    {
        EventType.RELEASED,
        EventType.REPROCESSED,
        EventType.UNHELD,
        EventType.MOVED,
        EventType.RETARGETED,
        EventType.RESCHEDULED,
    }
)
#: Events after which messages that nobody could get may be delivered.
_UNBLOCKS: Final = frozenset(
    {
        EventType.ACKED,
        EventType.DROPPED,
        EventType.DIED,
        EventType.RETRIED,
        EventType.RESUMED,
        EventType.POLICY_SET,
    }
)


def available_from(entry: Entry) -> tuple[int, int]:
    """Since when a ready message can be delivered (engine ms), and the event that gave it its place."""
    return max(entry.created, entry.due), entry.turn


def pages_of_names(store: Store) -> Iterator[list[str]]:
    """The names of all queues in order, a page at a time."""
    after = ""
    while names := store.pages.queue_names(after, PAGE):
        yield names
        if len(names) < PAGE:
            return
        after = names[-1]


class _Found:
    """What is remembered about one pattern; ``search`` finds it in steps, and is None once it has."""

    def __init__(self) -> None:
        self.used = 0  # engine ms
        self.search: Iterator[None] | None = None

    def is_complete(self) -> bool:
        """Do the next step of the search. Whether there is none left."""
        if self.search is not None and next(self.search, True):
            self.search = None
        return self.search is None


class MatchingQueues(_Found):
    """The queues that a pattern matches; ``names`` is None if there are more than a request may reach."""

    def __init__(self, store: Store, matches: Matches) -> None:
        super().__init__()
        self.names: set[str] | None = set()
        self._matches = matches
        self.search = self._search(store)

    def _search(self, store: Store) -> Iterator[None]:
        for names in pages_of_names(store):
            for name in names:
                self.note_created(name)
            if self.names is None:
                return
            yield

    def note_created(self, queue: str) -> None:
        """A queue exists."""
        if self.names is not None and self._matches(queue):
            self.names.add(queue)
            if len(self.names) > MATCHED_QUEUES_LIMIT:
                self.names = None


class Heads(_Found):
    """The queues that a pattern matches and that have ready messages, in the order in which their next messages became
    available.

    ``blocked`` are queues whose messages nobody can get until an event of the queue: a pause, an in-flight limit."""

    def __init__(self, store: Store, matches: Matches) -> None:
        super().__init__()
        self.blocked: set[str] = set()
        self.heads: dict[str, Head] = {}
        self._heap: list[Head] = []
        self._fresh: set[str] = set()
        self._turns = 0
        self._matches = matches
        self.search = self._search(store)

    def _search(self, store: Store) -> Iterator[None]:
        for names in pages_of_names(store):
            for name in names:
                if self._matches(name):
                    record = store.queue(name)
                    if record and record.counts[_READY]:
                        head = store.next_ready(name, "")  # the same for all but those who have messages of their own
                        self._put((*available_from(head), name) if head else (0, 0, name))
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
            if self.heads.get(head[2]) is not head:  # there is a newer one
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
                if self._heap[0] is not seen:
                    continue
            queue = head[2]
            break
        # Where very many are for other consumers, the next request begins with the rest.
        many = len(passed_over) == PASSED_OVER_LIMIT
        self._turns += many
        for head in passed_over:
            self._put((now, _LAST + self._turns, head[2]) if many else head)
        return queue

    def others_from(self) -> tuple[int, int] | None:
        """From when, and which event, messages of the other queues are available, at the earliest; None if there are no
        others. Only after ``next_queue`` has found a queue."""
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


class QueuePatterns(Observer):
    """The patterns of requests. It observes events only while it remembers any. A participant of transactions: a
    rollback forgets what was found."""

    event_types = (
        _RETURNS
        | _UNBLOCKS
        | {
            EventType.PUBLISHED,
            EventType.QUEUE_CREATED,
            EventType.QUEUE_DELETED,
            EventType.POLICY_PATTERNS_SET,
        }
    )

    def __init__(self) -> None:
        self._compiled: dict[str, NamePattern] = {}
        self._matching: dict[str, MatchingQueues] = {}
        self._heads: dict[tuple[str, Account | None], Heads] = {}
        self.observers: Observers | None = None
        """What the fold calls."""
        self._observes = False
        self._access_version = 0

    def compiled(self, text: str) -> NamePattern:
        """The compiled pattern. Raises ``CommandError`` (ERR_INVALID_REQUEST)."""
        pattern = self._compiled.get(text)
        if pattern is None:
            try:
                pattern = NamePattern(text)
            except ValueError as error:
                raise CommandError(ErrorCode.INVALID_REQUEST, f"queuePattern: {error}") from None
            if len(self._compiled) >= PATTERNS_LIMIT:
                del self._compiled[next(iter(self._compiled))]
            self._compiled[text] = pattern
        return pattern

    def matching(self, text: str, store: Store, now: int) -> MatchingQueues:
        """The queues that a pattern matches, or the beginning of the search. ``now`` is engine ms. Raises
        ``CommandError``."""
        pattern = self.compiled(text)
        return self._used(self._matching, text, now, lambda: MatchingQueues(store, pattern.matches))

    def heads(self, text: str, account: Account | None, may: Matches, version: int, store: Store, now: int) -> Heads:
        """The queues with messages that a pattern matches, or the beginning of the search: those in which ``account``
        ``may`` consume. None is for everyone, if that makes no difference. ``version`` changes when permissions do.
        Raises ``CommandError``."""
        pattern = self.compiled(text)
        if version != self._access_version:
            self._access_version = version
            self._heads.clear()
        matches: Matches = pattern.matches if account is None else lambda name: pattern.matches(name) and may(name)
        key = (text, account)
        if key not in self._heads and sum(len(one.heads) for one in self._heads.values()) > HEADS_LIMIT:
            self._heads.clear()
        return self._used(self._heads, key, now, lambda: Heads(store, matches))

    def _used(self, remembered: dict[K, F], key: K, now: int, make: Callable[[], F]) -> F:
        found = remembered.pop(key, None)
        if found is None:
            if len(remembered) >= PATTERNS_LIMIT:
                del remembered[next(iter(remembered))]
            found = make()
            if self.observers and not self._observes:
                self._observes = True
                self.observers.add(self)
        found.used = now
        remembered[key] = found  # the one that was used last is the last one
        return found

    def search(self, found: _Found) -> Generator[None, None, dict[str, Any]]:
        """Complete a search, and let the request be decided again. Raises ``CommandError`` if the store fails."""
        try:
            while not found.is_complete():
                yield
        except StoreError as error:
            self.forget()
            raise CommandError(ErrorCode.STORAGE_FAILED, f"nothing was changed: {error}") from error
        return AGAIN

    def note_ready(self, queue: str) -> None:
        """Messages of a queue have become ready by time."""
        for heads in self._heads.values():
            heads.note(queue)

    def folded(self, event: Event) -> None:
        """See ``Observer``."""
        type_: str = event["type"]
        queue: str = event.get("to") or event.get("queue", "")
        if type_ == EventType.POLICY_PATTERNS_SET:
            self._heads.clear()  # messages that nobody could get may be delivered
        elif type_ == EventType.QUEUE_CREATED:
            for found in self._matching.values():
                found.note_created(queue)
        elif type_ == EventType.QUEUE_DELETED:
            self._forget_deleted(queue)
        elif type_ == EventType.PUBLISHED:
            for heads in self._heads.values():
                if queue not in heads.heads:
                    heads.note(queue)
        elif type_ in _RETURNS:
            self.note_ready(queue)
        else:
            for heads in self._heads.values():
                if queue in heads.blocked:
                    heads.note(queue)

    def _forget_deleted(self, queue: str) -> None:
        for text in [text for text, found in self._matching.items() if found.names is None]:
            del self._matching[text]  # there may be few enough now
        for found in self._matching.values():
            if found.names is not None:
                found.names.discard(queue)

    def forget_idle(self, now: int) -> None:
        """Forget patterns that nobody has used for a while. ``now`` is engine ms."""
        if not self._observes:
            return
        self._matching = {key: one for key, one in self._matching.items() if one.used >= now - IDLE_MS}
        self._heads = {key: one for key, one in self._heads.items() if one.used >= now - IDLE_MS}
        if self.observers and not self._matching and not self._heads:
            self.observers.remove(self)
            self._observes = False

    def forget(self) -> None:
        """Forget everything that was found: policies have changed, or a rollback has undone what led to it."""
        self._matching.clear()
        self._heads.clear()

    def commit(self) -> None:
        """See ``Participant``."""

    def rollback(self) -> None:
        """See ``Participant``."""
        self.forget()
