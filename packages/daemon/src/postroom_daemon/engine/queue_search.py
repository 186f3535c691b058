"""A search for the queues that a pattern matches: in steps, between which other requests are processed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from postroom_common.protocol import MATCHED_QUEUES_LIMIT

from ..stores.base import Store

Matches = Callable[[str], bool]

#: Queues that one step looks at.
PAGE = 100


class QueueSearch:
    """The search for one pattern, and what is remembered of its result: subclasses have it. ``steps`` are those that
    are left; None: the search is complete."""

    def __init__(self) -> None:
        self.used = 0  # engine ms
        self.steps: Iterator[None] | None = None

    def advance(self) -> bool:
        """Do the next step, if there is one left. Whether the search is complete."""
        if self.steps is not None and next(self.steps, True):
            self.steps = None
        return self.steps is None


class MatchingQueues(QueueSearch):
    """The queues that a pattern matches; ``names`` is None if there are more than a request may reach."""

    def __init__(self, store: Store, matches: Matches) -> None:
        super().__init__()
        self.names: set[str] | None = set()
        self._matches = matches
        self.steps = self._search(store)

    def _search(self, store: Store) -> Iterator[None]:
        for names in pages_of_names(store):
            for name in names:
                self.note_created(name)
            if self.names is None:
                return
            if len(names) == PAGE:
                yield

    def note_created(self, queue: str) -> None:
        """A queue exists."""
        if self.names is not None and self._matches(queue):
            self.names.add(queue)
            if len(self.names) > MATCHED_QUEUES_LIMIT:
                self.names = None


def pages_of_names(store: Store) -> Iterator[list[str]]:
    """The names of all queues in order, a page at a time."""
    after = ""
    while names := store.pages.queue_names(after, PAGE):
        yield names
        if len(names) < PAGE:
            return
        after = names[-1]
