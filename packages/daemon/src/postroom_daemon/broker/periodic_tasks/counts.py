"""What is counted by and by: the messages of all queues by state, and the stored bytes of each account."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from ...engine.context import Context, Draft

#: Queues that one turn counts; counting all of them takes as many turns as it needs.
_QUEUES_A_TURN: Final = 200
#: Messages that one turn counts: three milliseconds.
_MESSAGES_A_TURN: Final = 500
_COUNTING: Final = "depths: how far"
_COUNTED: Final = "depths: the last complete count"


def count_depths(context: Context) -> Iterator[list[Draft]]:
    """Count the messages of some more queues. Changes nothing."""
    after, sums = context.cursors.get(_COUNTING, ("", {}))
    names = context.store.pages.queue_names(after, _QUEUES_A_TURN)
    counted = Counter(sums)
    for name in names:
        record = context.store.queue(name)
        counted.update(record.counts if record else {})
    complete = len(names) < _QUEUES_A_TURN
    if complete:
        context.cursors[_COUNTED] = dict(counted)
    context.cursors[_COUNTING] = ("", {}) if complete else (names[-1], dict(counted))
    yield from ()


def depths(cursors: dict[str, Any]) -> dict[str, int]:
    """The messages of all queues by state, as last counted; empty before that."""
    counts: dict[str, int] = cursors.get(_COUNTED, {})
    return counts


def count_usage(context: Context) -> Iterator[list[Draft]]:
    """After the start, count the bytes of some more messages that were stored before it. Changes nothing."""
    usage = context.usage
    if usage and not usage.is_complete:
        page = context.store.pages.entries(usage.counted, _MESSAGES_A_TURN)
        usage.count(page, is_last=len(page) < _MESSAGES_A_TURN)
    yield from ()
