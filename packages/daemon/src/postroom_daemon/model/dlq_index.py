"""Which queues share a name of dead letters: found once, and remembered while the root is open."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from postroom_common.events import EventType

#: Names that are remembered, and queues of one: whose list is longer is found anew each time.
_NAMES_LIMIT: Final = 64
_QUEUES_LIMIT: Final = 100_000
#: What changes which queues a name addresses.
_CHANGES: Final = frozenset({EventType.QUEUE_CREATED, EventType.QUEUE_DELETED, EventType.POLICY_SET})


class Addressed:
    """The queues that share a name, in order; ``lively`` are those of them that may have dead letters."""

    def __init__(self, queues: list[str], has_letters: Callable[[str], bool]) -> None:
        self.queues = queues
        self._all = frozenset(queues)
        self._has_letters = has_letters
        self._lively = set(queues)

    def with_letters(self) -> list[str]:
        """Those of the queues that have dead letters, in order."""
        self._lively = set(filter(self._has_letters, self._lively))
        return sorted(self._lively)

    def dies(self, queue: str) -> None:
        """A message has died in a queue."""
        if queue in self._all:
            self._lively.add(queue)


class DeadAddresses:
    """No part of the root's state. Whoever changes queues, their policies or dead letters says so by ``note``, and by
    ``forget`` when a change is taken back."""

    def __init__(self) -> None:
        self._known: dict[str, Addressed] = {}

    def of(self, name: str, find: Callable[[], Addressed]) -> Addressed:
        """The queues whose dead letters ``name`` addresses; ``find`` is asked if that is not known."""
        known = self._known.get(name)
        if known is None:
            known = find()
            if len(known.queues) <= _QUEUES_LIMIT:
                if len(self._known) >= _NAMES_LIMIT:
                    del self._known[next(iter(self._known))]
                self._known[name] = known
        return known

    def note(self, events: Iterable[dict[str, Any]]) -> None:
        """Events, or drafts of such, are recorded: what they may have changed is found anew."""
        if not self._known:
            return
        for event in events:
            if event["type"] in _CHANGES:
                self._known.clear()
            elif event["type"] == EventType.DIED:
                for known in self._known.values():
                    known.dies(event["queue"])

    def forget(self) -> None:
        """Find everything anew."""
        self._known.clear()
