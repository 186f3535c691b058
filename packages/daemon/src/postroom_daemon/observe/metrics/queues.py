"""The figures of queues: of a bounded number each by itself, and of all together."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from postroom_common.events import EventType
from postroom_common.protocol import State

from ...engine.ages import oldest_dead_ms, oldest_lease_ms, oldest_ready_ms
from ...model.consumers import Consumers
from ...model.records import QueueRecord
from ...stores.base import Store, StoreDamaged, StoreError
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


@contextmanager
def reading(store: Store) -> Iterator[None]:
    """A transaction that changes nothing. Raises ``OSError`` for what the store does not give, ``StoreDamaged`` for one
    that must be folded anew."""
    store.begin()
    try:
        yield
    except StoreDamaged:
        raise
    except StoreError as error:
        store.rollback()
        raise OSError(str(error)) from error
    store.commit()


@dataclass(slots=True)
class _Queue:
    """What is told of a queue: its record, and the ages of its oldest ready message, lease and dead letter (ms)."""

    record: QueueRecord
    ready_ms: int
    lease_ms: int
    dead_ms: int

    @property
    def rank(self) -> tuple[int, str]:
        """Who was made first comes first: no queue that is made later takes the place of another."""
        return self.record.created_wall, self.record.name


@dataclass(slots=True)
class _Found:
    """What all queues come to, and those that are told by themselves."""

    queues: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    ready_ms: int = 0
    lease_ms: int = 0
    dead_ms: int = 0
    listed: list[_Queue] = field(default_factory=list)

    def add(self, one: _Queue) -> None:
        """Count a queue."""
        self.queues += 1
        self.counts.update(one.record.counts)
        self.reasons.update(one.record.reasons)
        self.bytes += one.record.bytes
        self.ready_ms, self.lease_ms = max(self.ready_ms, one.ready_ms), max(self.lease_ms, one.lease_ms)
        self.dead_ms = max(self.dead_ms, one.dead_ms)

    def list(self, one: _Queue, most: int) -> None:
        """Keep a queue, if it is among the ``most`` that were made first."""
        if len(self.listed) < most or (most and one.rank < self.listed[-1].rank):
            one.record = one.record.copy()  # as it is now: other groups change it before all is told
            insort(self.listed, one, key=lambda each: each.rank)
            del self.listed[most:]


def add_queues(
    out: Exposition, store: Store, consumers: Consumers, now: int, most: int, shows: Callable[[str], bool]
) -> Iterator[None]:
    """Add the figures of all queues, and by themselves those of the ``most`` that were made first, of those that
    ``shows`` lets pass: in steps of a few milliseconds, outside of transactions. Raises as ``reading``."""
    found, after, more = _Found(), "", True
    while more and found.queues < LOOKED_LIMIT:
        yield
        with reading(store):
            names = store.pages.queue_names(after, STEP)
            for name in names:
                one = _look(store, consumers, now, name)
                if one:
                    found.add(one)
                    if shows(name):
                        found.list(one, most)
        more = len(names) == STEP
        after = names[-1] if names else ""
    for number, one in enumerate(found.listed):
        if number % STEP == 0:
            yield
        _list(out, one)
    _add_sums(out, found, complete=not more)


def _look(store: Store, consumers: Consumers, now: int, name: str) -> _Queue | None:
    record = store.queue(name)
    if record is None:
        return None
    return _Queue(
        record,
        oldest_ready_ms(store, now, record) or 0,
        oldest_lease_ms(consumers, now, name) or 0,
        oldest_dead_ms(store, now, record) or 0,
    )


def _list(out: Exposition, one: _Queue) -> None:
    record, name = one.record, one.record.name
    for state in State:
        out.add(table.QUEUE_MESSAGES, record.counts[state], name, state.value)
    out.add(table.QUEUE_BYTES, record.bytes, name)
    out.add(table.QUEUE_OLDEST_READY, one.ready_ms / 1000, name)
    out.add(table.QUEUE_OLDEST_LEASE, one.lease_ms / 1000, name)
    out.add(table.QUEUE_OLDEST_DEAD, one.dead_ms / 1000, name)
    for reason, count in record.reasons.items():
        out.add(table.QUEUE_DEAD_LETTERS, count, name, reason)
    out.add(table.QUEUE_PAUSED, record.publish_paused, name, "publish")
    out.add(table.QUEUE_PAUSED, record.consume_paused, name, "consume")
    for type_, count in (dict.fromkeys(_ALWAYS, 0) | record.totals).items():
        out.add(table.QUEUE_EVENTS, count, name, type_)


def _add_sums(out: Exposition, found: _Found, complete: bool) -> None:
    out.add(table.QUEUES, found.queues)
    out.add(table.QUEUES_LISTED, len(found.listed))
    out.add(table.QUEUES_COMPLETE, complete)
    out.add_all(table.MESSAGES, ((state.value, found.counts[state]) for state in State))
    out.add(table.MESSAGE_BYTES, found.bytes)
    out.add_all(table.DEAD_LETTERS, found.reasons.items())
    out.add(table.OLDEST_READY, found.ready_ms / 1000)
    out.add(table.OLDEST_LEASE, found.lease_ms / 1000)
    out.add(table.OLDEST_DEAD, found.dead_ms / 1000)
