"""What takes part in the work of the fold without being part of the stored state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Final, Protocol

from postroom_common.events import Event, EventType

from .records import Entry


class Participant(Protocol):
    """Memory that changes together with the store: ``commit`` makes what was noted since the last one final,
    ``rollback`` undoes it. Neither raises."""

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


class Observer:
    """Shown every change of a message that the fold makes, so that it can count or remember; it never decides. A
    follower that only folds has the same observers, and so the same memory. This one ignores everything."""

    #: Types of the events for which ``folded`` is called.
    event_types: ClassVar[frozenset[EventType]] = frozenset()

    def published(self, entries: Sequence[Entry]) -> None:
        """New messages were stored."""

    def grown(self, entry: Entry, size: int) -> None:
        """``size`` bytes were added to a message; the entry has them."""

    def leased(self, entries: Sequence[Entry]) -> None:
        """Messages of one queue are in flight; each entry has its lease."""

    def activated(self, entry: Entry) -> None:
        """The lease of a message has left its first phase; the entry still has the phase."""

    def lease_ended(self, entries: Sequence[Entry]) -> None:
        """Messages of one queue are about to leave the state in flight; each entry still has its lease."""

    def removed(self, entries: Sequence[Entry]) -> None:
        """Messages are no longer stored."""

    def folded(self, event: Event) -> None:
        """An event of one of the ``event_types`` was folded."""


class Observers:
    """What the fold calls: several observers as one, under the names of ``Observer``. Each is called only for what it
    overrides, and for events of the types it names (``by_type``)."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._listed: list[Observer] = []
        self.by_type: dict[str, list[Callable[[Event], None]]] = {}
        self.add(*observers)

    def add(self, *observers: Observer) -> None:
        """Show changes to further observers, from the next one on."""
        listed = self._listed
        listed += observers
        self.published: Callable[[Sequence[Entry]], None] = _of_overriding(listed, "published")
        self.grown: Callable[[Entry, int], None] = _of_overriding(listed, "grown")
        self.leased: Callable[[Sequence[Entry]], None] = _of_overriding(listed, "leased")
        self.activated: Callable[[Entry], None] = _of_overriding(listed, "activated")
        self.lease_ended: Callable[[Sequence[Entry]], None] = _of_overriding(listed, "lease_ended")
        self.removed: Callable[[Sequence[Entry]], None] = _of_overriding(listed, "removed")
        for one in observers:
            for type_ in one.event_types:
                self.by_type.setdefault(type_, []).append(one.folded)

    def remove(self, one: Observer) -> None:
        """Show an observer no further events. It must be one that observes events alone."""
        self._listed.remove(one)
        for type_ in one.event_types:
            self.by_type[type_].remove(one.folded)


def _of_overriding(observers: list[Observer], name: str) -> Callable[..., None]:
    """One function that calls the method ``name`` of each observer that overrides it: the method itself if it is the
    only one, since this is called for every message."""
    calls: list[Callable[..., None]] = [
        getattr(one, name) for one in observers if getattr(type(one), name) is not getattr(Observer, name)
    ]
    if len(calls) == 1:
        return calls[0]

    def call_all(*arguments: Any) -> None:
        for call in calls:
            call(*arguments)

    return call_all


#: For a fold that nobody observes.
UNOBSERVED: Final = Observers(())
