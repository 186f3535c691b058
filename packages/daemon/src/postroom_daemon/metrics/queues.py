"""The figures of queues: of a bounded number each by itself, and of all together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from postroom_common.events import EventType
from postroom_common.protocol import State

from ..ages import oldest_dead_ms, oldest_lease_ms, oldest_ready_ms
from ..records import QueueRecord
from ..stores.base import Store
from . import table
from .exposition import Exposition

#: Queues that are looked at in one step, and at most in all.
STEP: Final = 50
LOOKED_LIMIT: Final = 10_000
#: Types of events that a queue shows also where there was none yet: a rate needs a beginning.
_ALWAYS: Final = (EventType.PUBLISHED, EventType.LEASED, EventType.ACKED, EventType.RETRIED, EventType.DIED)


def every_queue(name: str) -> bool:
    """Shows all queues."""
    return True


@dataclass(slots=True)
class _Sums:
    """What all queues come to."""

    queues: int = 0
    listed: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    ready_ms: int = 0
    lease_ms: int = 0
    dead_ms: int = 0


def add_queues(out: Exposition, store: Store, now: int, listed: int, shows: Callable[[str], bool]) -> Iterator[None]:
    """Add the figures of all queues, and of the first ``listed`` by name that ``shows`` lets pass each by itself, in
    steps of a few milliseconds, outside of transactions. Raises ``StoreError``."""
    sums, after, more = _Sums(), "", True
    while more and sums.queues < LOOKED_LIMIT:
        yield
        store.begin()
        names = store.queue_names(after, STEP)
        for name in names:
            _add_queue(out, store, now, name, sums, listed, shows)
        store.commit()
        more = len(names) == STEP
        after = names[-1] if names else ""
    _add_sums(out, sums, complete=not more)


def _add_queue(
    out: Exposition, store: Store, now: int, name: str, sums: _Sums, listed: int, shows: Callable[[str], bool]
) -> None:
    record = store.queue(name)
    if record is None:
        return
    ready = oldest_ready_ms(store, now, record) or 0
    lease = oldest_lease_ms(store, now, name) or 0
    dead = oldest_dead_ms(store, now, record) or 0
    sums.queues += 1
    sums.counts.update(record.counts)
    sums.reasons.update(record.reasons)
    sums.bytes += record.bytes
    sums.ready_ms, sums.lease_ms = max(sums.ready_ms, ready), max(sums.lease_ms, lease)
    sums.dead_ms = max(sums.dead_ms, dead)
    if sums.listed < listed and shows(name):
        sums.listed += 1
        _list(out, record, ready, lease, dead)


def _list(out: Exposition, record: QueueRecord, ready_ms: int, lease_ms: int, dead_ms: int) -> None:
    name = record.name
    for state in State:
        out.add(table.QUEUE_MESSAGES, record.counts[state], name, state.value)
    out.add(table.QUEUE_BYTES, record.bytes, name)
    out.add(table.QUEUE_OLDEST_READY, ready_ms / 1000, name)
    out.add(table.QUEUE_OLDEST_LEASE, lease_ms / 1000, name)
    out.add(table.QUEUE_OLDEST_DEAD, dead_ms / 1000, name)
    for reason, count in record.reasons.items():
        out.add(table.QUEUE_DEAD_LETTERS, count, name, reason)
    out.add(table.QUEUE_PAUSED, record.publish_paused, name, "publish")
    out.add(table.QUEUE_PAUSED, record.consume_paused, name, "consume")
    for type_, count in (dict.fromkeys(_ALWAYS, 0) | record.totals).items():
        out.add(table.QUEUE_EVENTS, count, name, type_)


def _add_sums(out: Exposition, sums: _Sums, complete: bool) -> None:
    out.add(table.QUEUES, sums.queues)
    out.add(table.QUEUES_LISTED, sums.listed)
    out.add(table.QUEUES_COMPLETE, complete)
    out.add_all(table.MESSAGES, ((state.value, sums.counts[state]) for state in State))
    out.add(table.MESSAGE_BYTES, sums.bytes)
    out.add_all(table.DEAD_LETTERS, sums.reasons.items())
    out.add(table.OLDEST_READY, sums.ready_ms / 1000)
    out.add(table.OLDEST_LEASE, sums.lease_ms / 1000)
    out.add(table.OLDEST_DEAD, sums.dead_ms / 1000)
