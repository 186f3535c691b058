"""What takes part in the work of the fold without being part of the stored state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from postroom_common.events import Event

from .records import Entry


class Participant(Protocol):
    """Memory that changes together with the store: what was noted since ``begin`` is kept by ``commit`` and undone by
    ``rollback``. None of them raises."""

    def begin(self) -> None: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


class Observer:
    """Shown every change of a message that the fold makes, so that it can count or remember; it never decides. A
    follower that only folds has the same observers, and so the same memory. This one ignores everything."""

    def published(self, entry: Entry) -> None:
        """A new message was stored."""

    def leased(self, entry: Entry) -> None:
        """A message is in flight; the entry has its lease."""

    def lease_ended(self, entry: Entry) -> None:
        """A message is about to leave the state in flight; the entry still has its lease."""

    def removed(self, entry: Entry) -> None:
        """A message is no longer stored."""

    def folded(self, event: Event) -> None:
        """An event was folded."""


#: For a fold that nobody observes.
UNOBSERVED: Final = Observer()


class Observers(Observer):
    """Several observers as one. Each is called only for what it overrides."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        def overriding(name: str) -> list[Observer]:
            return [one for one in listed if getattr(type(one), name) is not getattr(Observer, name)]

        listed = list(observers)
        self._published = [one.published for one in overriding("published")]
        self._leased = [one.leased for one in overriding("leased")]
        self._lease_ended = [one.lease_ended for one in overriding("lease_ended")]
        self._removed = [one.removed for one in overriding("removed")]
        self._folded = [one.folded for one in overriding("folded")]

    def published(self, entry: Entry) -> None:
        """See ``Observer``."""
        for call in self._published:
            call(entry)

    def leased(self, entry: Entry) -> None:
        """See ``Observer``."""
        for call in self._leased:
            call(entry)

    def lease_ended(self, entry: Entry) -> None:
        """See ``Observer``."""
        for call in self._lease_ended:
            call(entry)

    def removed(self, entry: Entry) -> None:
        """See ``Observer``."""
        for call in self._removed:
            call(entry)

    def folded(self, event: Event) -> None:
        """See ``Observer``."""
        for call in self._folded:
            call(event)
