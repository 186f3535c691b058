"""How many messages all queues hold, by state: for whoever watches the service, counted in rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from ...engine.context import Context, Draft

#: Queues that one turn counts; a round over all of them takes as many turns as it needs.
_QUEUES_A_TURN: Final = 200
_ROUND: Final = "depths: this round"
_FOUND: Final = "depths: the last whole round"


def depths(context: Context) -> Iterator[list[Draft]]:
    """Counts the messages of some queues more. Changes nothing."""
    after, sums = context.rounds.get(_ROUND, ("", {}))
    names = context.store.pages.queue_names(after, _QUEUES_A_TURN)
    counted = Counter(sums)
    for name in names:
        record = context.store.queue(name)
        counted.update(record.counts if record else {})
    over = len(names) < _QUEUES_A_TURN
    if over:
        context.rounds[_FOUND] = dict(counted)
    context.rounds[_ROUND] = ("", {}) if over else (names[-1], dict(counted))
    yield from ()


def found(rounds: dict[str, Any]) -> dict[str, int]:
    """What the last whole round has counted; empty before there was one."""
    counts: dict[str, int] = rounds.get(_FOUND, {})
    return counts
