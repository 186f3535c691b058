"""Which message has which lease, for requests that name only the lease: an observer of the fold, in memory.

The first such request builds the index. Until then it costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from postroom_common.events import Event, EventType

from .observer import Observer, Observers
from .records import Entry

#: Used for every message, and slow to look up in its class.
_LEASED: Final = EventType.LEASED


class LeaseIndex(Observer):
    """The keys of the leased messages by lease id, also of leased dead letters. A participant of transactions."""

    #: All events that begin or end a lease.
    event_types: ClassVar[frozenset[EventType]] = frozenset(
        {
            EventType.LEASED,
            EventType.ACKED,
            EventType.RELEASED,
            EventType.RETRIED,
            EventType.DIED,
            EventType.DROPPED,
            EventType.REPROCESSED,
        }
    )

    def __init__(self, observers: Observers) -> None:
        self.is_complete = False
        self._observers = observers
        self._observes = False
        self._keys: dict[str, str] = {}

    def build(self, leased: Iterable[Entry]) -> None:
        """Add all messages that are leased now, and follow what happens to them from here on."""
        self._keys = {entry.lease_id: entry.key for entry in leased}
        self.is_complete = True
        if not self._observes:
            self._observes = True
            self._observers.add(self)

    def key_of(self, lease: str) -> str | None:
        """The key of the message with a lease; None if no message has it. Call ``build`` first."""
        return self._keys.get(lease)

    def folded(self, event: Event) -> None:
        """See ``Observer``."""
        if not self.is_complete:
            return
        if event["type"] == _LEASED:
            self._keys[event["lease"]] = event["key"]
        else:
            self._keys.pop(event.get("lease", ""), None)

    def commit(self) -> None:
        """See ``Participant``."""

    def rollback(self) -> None:
        """See ``Participant``. Rollbacks are rare: the next question builds the index from scratch."""
        self.is_complete = False
        self._keys.clear()
