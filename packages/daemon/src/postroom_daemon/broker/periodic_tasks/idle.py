"""Queues that nobody uses any more, where their policy says how long such a queue is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from postroom_common.events import EventType

from ...engine.context import Context, Draft

#: Queues that one turn looks at; a round over all of them takes as many turns as it needs.
_QUEUES_A_TURN: Final = 200
_ROUND: Final = "idle queues"


def delete_idle_queues(context: Context) -> Iterator[list[Draft]]:
    """Deletes empty queues in which nothing has happened for as long as their policy says, and of which nobody has
    asked for messages meanwhile. One that is paused stays: its pause would be forgotten with it."""
    store = context.store
    names = store.pages.queue_names(context.cursors.get(_ROUND, ""), _QUEUES_A_TURN)
    context.cursors[_ROUND] = names[-1] if len(names) == _QUEUES_A_TURN else ""
    asked: dict[str, int] | None = None
    for name in names:
        record = store.queue(name)
        keep_ms = context.policies.effective(name, record).expire_after_idle_ms
        if not record or not keep_ms or any(record.counts.values()) or record.publish_paused or record.consume_paused:
            continue
        since = context.now.engine - keep_ms
        if record.used > since or context.subscriptions.on(name):
            continue
        if asked is None:
            asked = _last_asked(context)
        if asked.get(name, 0) <= since:
            yield [{"type": EventType.QUEUE_DELETED, "queue": name, "reason": "idle"}]


def _last_asked(context: Context) -> dict[str, int]:
    """When a message of a queue was asked for last, as far as is known: over a restart that is forgotten."""
    asked: dict[str, int] = {}
    for queue, _, consumer in context.consumers.listed():
        asked[queue] = max(consumer.asked, asked.get(queue, 0))
    return asked
