"""How old the oldest things of a queue are."""

from __future__ import annotations

from postroom_common.protocol import State

from ..model.consumers import Consumers
from ..model.records import QueueRecord
from ..stores.base import Store


def oldest_ready_ms(store: Store, now: int, record: QueueRecord | None) -> int | None:
    """Age of the oldest ready message of a queue at ``now`` (engine ms); None without one."""
    if record is None or not record.counts[State.READY]:
        return None
    oldest = store.pages.oldest_ready(record.name)
    return now - oldest.created if oldest else None


def oldest_lease_ms(consumers: Consumers, now: int, queue: str) -> int | None:
    """Age of the oldest lease of a queue; None without one."""
    since = consumers.oldest_lease(queue)
    return None if since is None else now - since


def oldest_dead_ms(store: Store, now: int, record: QueueRecord | None) -> int | None:
    """How long the oldest dead letter of a queue has been dead; None without one."""
    if record is None or not record.counts[State.DEAD]:
        return None
    oldest = store.pages.dead(record.name, (-1, -1), 1)
    return now - oldest[0].dead_at if oldest else None
