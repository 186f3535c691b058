"""The metrics of queues: of a bounded number of single queues, and of all queues together."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Final

from postroom_common.events import EventType
from postroom_common.exposition import Exposition
from postroom_common.protocol import State

from ...engine.verbs.queues import oldest_dead_ms, oldest_lease_ms, oldest_ready_ms
from ...model.consumers import Consumers
from ...model.log_record import LogRecord
from ...model.records import QueueRecord
from ...stores.base import Store
from ...stores.errors import StoreDamaged, StoreError
from . import table

#: Number of queues that one step reads, and maximum number of queues in total.
STEP: Final = 50
LOOKED_LIMIT: Final = 10_000
#: Readers of a log that have metrics.
_READERS: Final = 100
#: Types of events that a queue always shows, even 0: a rate needs a first value.
_ALWAYS: Final = (EventType.PUBLISHED, EventType.LEASED, EventType.ACKED, EventType.RETRIED, EventType.DIED)


def every_queue(name: str) -> bool:
    """Show all queues."""
    return True


@contextmanager
def reading(store: Store) -> Iterator[None]:
    """A transaction that only reads. Raises ``OSError`` if the store cannot be read, and ``StoreDamaged`` if it must be
    rebuilt."""
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
    """The figures of a queue: its record, and the ages (ms) of its oldest ready message, lease and dead letter."""

    record: QueueRecord
    ready_ms: int
    lease_ms: int
    dead_ms: int

    @property
    def rank(self) -> tuple[int, str]:
        """Sort key: older queues come first, so that a new queue never replaces another in the metrics."""
        return self.record.created_wall, self.record.name


@dataclass(slots=True)
class _Totals:
    """The totals of all queues, and the queues that are listed."""

    queues: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    ready_ms: int = 0
    lease_ms: int = 0
    dead_ms: int = 0
    listed: list[_Queue] = field(default_factory=list)

    def add(self, one: _Queue) -> None:
        """Add a queue to the totals."""
        self.queues += 1
        self.counts.update(one.record.counts)
        self.reasons.update(one.record.reasons)
        self.bytes += one.record.bytes
        self.ready_ms, self.lease_ms = max(self.ready_ms, one.ready_ms), max(self.lease_ms, one.lease_ms)
        self.dead_ms = max(self.dead_ms, one.dead_ms)

    def list(self, one: _Queue, most: int) -> None:
        """List a queue if it is among the ``most`` oldest."""
        if len(self.listed) < most or (most and one.rank < self.listed[-1].rank):
            one.record = one.record.copy()  # as of now: later groups change it before all steps are done
            insort(self.listed, one, key=lambda each: each.rank)
            del self.listed[most:]


def add_queues(
    out: Exposition, store: Store, consumers: Consumers, now: int, most: int, shows: Callable[[str], bool]
) -> Iterator[None]:
    """Add the totals of all queues, and the metrics of the ``most`` oldest queues for which ``shows`` is true, in steps
    of a few milliseconds outside of transactions. Raises what ``reading`` raises."""
    totals, after, more = _Totals(), "", True
    while more and totals.queues < LOOKED_LIMIT:
        yield
        with reading(store):
            names = store.pages.queue_names(after, STEP)
            for name in names:
                one = _look(store, consumers, now, name)
                if one:
                    totals.add(one)
                    if shows(name):
                        totals.list(one, most)
        more = len(names) == STEP
        after = names[-1] if names else ""
    for number, one in enumerate(totals.listed):
        if number % STEP == 0:
            yield
        _list(out, one)
    _add_totals(out, totals, complete=not more)


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
    if record.log:
        _list_log(out, record.log, name)
    for type_, count in (dict.fromkeys(_ALWAYS, 0) | record.totals).items():
        out.add(table.QUEUE_EVENTS, count, name, type_)


def _list_log(out: Exposition, log: LogRecord, name: str) -> None:
    out.add(table.QUEUE_RECORDS, log.records, name)
    out.add(table.QUEUE_RECORD_BYTES, log.bytes, name)
    behind = nlargest(_READERS, ((log.last - position, reader) for reader, (position, _) in log.readers.items()))
    for lag, reader in behind:
        out.add(table.QUEUE_READER_LAG, lag, name, reader)


def _add_totals(out: Exposition, totals: _Totals, complete: bool) -> None:
    out.add(table.QUEUES, totals.queues)
    out.add(table.QUEUES_LISTED, len(totals.listed))
    out.add(table.QUEUES_COMPLETE, complete)
    out.add_all(table.MESSAGES, ((state.value, totals.counts[state]) for state in State))
    out.add(table.MESSAGE_BYTES, totals.bytes)
    out.add_all(table.DEAD_LETTERS, totals.reasons.items())
    out.add(table.OLDEST_READY, totals.ready_ms / 1000)
    out.add(table.OLDEST_LEASE, totals.lease_ms / 1000)
    out.add(table.OLDEST_DEAD, totals.dead_ms / 1000)
