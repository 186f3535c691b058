"""Queues that nobody uses any more, where their policy says how long such a queue is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from postroom_common.events import EventType

from ..context import Context, Draft

#: Queues that one turn looks at; a round over all of them takes as many turns as it needs.
_QUEUES_A_TURN: Final = 200
_ROUND: Final = "idle queues"


def idle_queues(context: Context) -> Iterator[list[Draft]]:
    """Deletes empty queues in which nothing has happened for as long as their policy says."""
    store = context.store
    names = store.queue_names(context.rounds.get(_ROUND, ""), _QUEUES_A_TURN)
    context.rounds[_ROUND] = names[-1] if len(names) == _QUEUES_A_TURN else ""
    for name in names:
        record = store.queue(name)
        keep_ms = context.policies.effective(name, record).expire_after_idle_ms
        if record and keep_ms and record.used + keep_ms <= context.now.engine and not any(record.counts.values()):
            yield [{"type": EventType.QUEUE_DELETED, "queue": name, "reason": "idle"}]
