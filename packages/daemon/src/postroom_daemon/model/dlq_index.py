"""Which queues share a dead-letter address: looked up once, and remembered while the root is open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from postroom_common.events import Event, EventType

from .observer import Observer

#: Addresses that are remembered, and queues of one: a longer list is looked up each time.
_ADDRESSES_LIMIT: Final = 64
_QUEUES_LIMIT: Final = 100_000
#: Events that change which queues an address means.
_CHANGES: Final = frozenset(
    {
        EventType.QUEUE_CREATED,
        EventType.QUEUE_DELETED,
        EventType.POLICY_SET,
        EventType.POLICY_PATTERNS_SET,
    }
)


class Addressed:
    """The queues that share an address, in order."""

    def __init__(self, queues: list[str], has_dead_letters: Callable[[str], bool]) -> None:
        self.queues = queues
        self._all = frozenset(queues)
        self._has_dead_letters = has_dead_letters
        self._candidates = set(queues)

    def with_dead_letters(self) -> list[str]:
        """Those of the queues that have dead letters, in order."""
        self._candidates = set(filter(self._has_dead_letters, self._candidates))
        return sorted(self._candidates)

    def note_death(self, queue: str) -> None:
        """A message of a queue has died."""
        if queue in self._all:
            self._candidates.add(queue)


class DlqIndex(Observer):
    """The queues by dead-letter address; not part of the root's state. A participant of transactions: a rollback
    forgets everything."""

    event_types = _CHANGES | {EventType.DIED}

    def __init__(self) -> None:
        self._addresses: dict[str, Addressed] = {}

    def of(self, address: str, look_up: Callable[[], Addressed]) -> Addressed:
        """The queues whose dead letters have this address; ``look_up`` is called if they are not remembered."""
        addressed = self._addresses.get(address)
        if addressed is None:
            addressed = look_up()
            if len(addressed.queues) <= _QUEUES_LIMIT:
                if len(self._addresses) >= _ADDRESSES_LIMIT:
                    del self._addresses[next(iter(self._addresses))]
                self._addresses[address] = addressed
        return addressed

    def folded(self, event: Event) -> None:
        """See ``Observer``."""
        if not self._addresses:
            return
        if event["type"] in _CHANGES:
            self._addresses.clear()
        else:
            for addressed in self._addresses.values():
                addressed.note_death(event["queue"])

    def commit(self) -> None:
        """See ``Participant``."""

    def rollback(self) -> None:
        """See ``Participant``."""
        self._addresses.clear()

    def forget(self) -> None:
        """Forget everything: the policies have changed."""
        self._addresses.clear()
