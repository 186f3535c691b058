"""What takes part in the work of the fold without being part of the stored state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Final, Protocol

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
    #: What the fold calls, by type of event.
    by_type: Mapping[str, Sequence[Callable[[Event], None]]] = MappingProxyType({})

    def published(self, entry: Entry) -> None:
        """A new message was stored."""

    def leased(self, entry: Entry) -> None:
        """A message is in flight; the entry has its lease."""

    def lease_ended(self, entry: Entry) -> None:
        """A message is about to leave the state in flight; the entry still has its lease."""

    def removed(self, entry: Entry) -> None:
        """A message is no longer stored."""

    def folded(self, event: Event) -> None:
        """An event of one of the ``event_types`` was folded."""


#: For a fold that nobody observes.
UNOBSERVED: Final = Observer()


_HOOKS: Final = ("published", "leased", "lease_ended", "removed")


class Observers(Observer):
    """Several observers as one. Each is called only for what it overrides, and for events of the types it names."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        listed = list(observers)
        self._calls: dict[str, list[Callable[[Entry], None]]] = {}
        for name in _HOOKS:
            overriding = [one for one in listed if getattr(type(one), name) is not getattr(Observer, name)]
            self._calls[name] = [getattr(one, name) for one in overriding]
            if len(overriding) == 1:  # this is called for every message: without a detour
                setattr(self, name, self._calls[name][0])
        by_type: dict[str, list[Callable[[Event], None]]] = {}
        for one in listed:
            for type_ in one.event_types:
                by_type.setdefault(type_, []).append(one.folded)
        self.by_type = by_type

    def published(self, entry: Entry) -> None:
        """See ``Observer``."""
        for call in self._calls["published"]:
            call(entry)

    def leased(self, entry: Entry) -> None:
        """See ``Observer``."""
        for call in self._calls["leased"]:
            call(entry)

    def lease_ended(self, entry: Entry) -> None:
        """See ``Observer``."""
        for call in self._calls["lease_ended"]:
            call(entry)

    def removed(self, entry: Entry) -> None:
        """See ``Observer``."""
        for call in self._calls["removed"]:
            call(entry)
