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
    """Deletes empty queues in which nothing has happened for as long as their policy says, and of which nobody has
    asked for messages meanwhile. One that is paused stays: its pause would be forgotten with it."""
    store = context.store
    names = store.queue_names(context.rounds.get(_ROUND, ""), _QUEUES_A_TURN)
    context.rounds[_ROUND] = names[-1] if len(names) == _QUEUES_A_TURN else ""
    for name in names:
        record = store.queue(name)
        keep_ms = context.policies.effective(name, record).expire_after_idle_ms
        if not record or not keep_ms or any(record.counts.values()) or record.publish_paused or record.consume_paused:
            continue
        since = context.now.engine - keep_ms
        if record.used <= since and not _is_asked(context, name, since):
            yield [{"type": EventType.QUEUE_DELETED, "queue": name, "reason": "idle"}]


def _is_asked(context: Context, queue: str, since: int) -> bool:
    """Whether somebody waits for messages of a queue, or has asked for one after ``since``, as far as is known: over a
    restart that is forgotten."""
    if context.waiters.on(queue):
        return True
    known = context.store.in_flight.consumers(queue) if context.store.in_flight else []
    return any(holder.asked > since for _, _, holder in known)
