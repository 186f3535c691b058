"""Queues by pattern: which queues a regular expression matches, and which of them has the message that is next.

The result of a search is remembered for a while and updated from the events, so that a request by pattern does not look
at every queue. It is not part of the root's state. The first request with a pattern searches all queues, in steps
between which other requests are processed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

from postroom_common.errors import CommandError
from postroom_common.events import Event, EventType
from postroom_common.protocol import ErrorCode

from ..model.observer import Observer, Observers
from ..model.principal import Account
from ..policy.schema import NamePattern
from ..stores.base import Store
from ..stores.errors import StoreError
from .heads import Heads
from .queue_search import Matches, MatchingQueues, QueueSearch

AGAIN: Final[dict[str, Any]] = {}
"""The result of a request whose search is complete: it is to be decided again."""
K = TypeVar("K")
S = TypeVar("S", bound=QueueSearch)

#: Patterns of each kind that are remembered; the one that was used least recently is forgotten first.
PATTERNS_LIMIT = 64
#: Queues with messages that all patterns together remember, beside the pattern that is being used.
HEADS_LIMIT = 250_000
#: Engine milliseconds after which a pattern that nobody uses is forgotten.
IDLE_MS: Final = 60_000
#: Events that add a ready message to a queue which may have older ones, or make an older one the next.
_RETURNS: Final = frozenset(
    {
        EventType.PART_SET,
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


class QueuePatterns(Observer):
    """The patterns of requests. It observes events only while it remembers any: unused, it costs nothing. A
    participant of transactions: a rollback forgets all results."""

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

    def _used(self, remembered: dict[K, S], key: K, now: int, make: Callable[[], S]) -> S:
        search = remembered.pop(key, None)
        if search is None:
            if len(remembered) >= PATTERNS_LIMIT:
                del remembered[next(iter(remembered))]
            search = make()
            if self.observers and not self._observes:
                self._observes = True
                self.observers.add(self)
        search.used = now
        remembered[key] = search  # the one that was used last is the last one
        return search

    def complete(self, search: QueueSearch) -> Generator[None, None, dict[str, Any]]:
        """Complete a search, and let the request be decided again. Raises ``CommandError`` if the store fails."""
        try:
            while not search.advance():
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
            for matching in self._matching.values():
                matching.note_created(queue)
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
        for text in [text for text, matching in self._matching.items() if matching.names is None]:
            del self._matching[text]  # there may be few enough now
        for matching in self._matching.values():
            if matching.names is not None:
                matching.names.discard(queue)

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
        """Forget all results: policies have changed, or a rollback has undone what led to it."""
        self._matching.clear()
        self._heads.clear()

    def commit(self) -> None:
        """See ``Participant``."""

    def rollback(self) -> None:
        """See ``Participant``."""
        self.forget()
