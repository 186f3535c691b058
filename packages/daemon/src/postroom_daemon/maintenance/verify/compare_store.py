"""A store and the journal face to face: for verify, which looks at a copy, and for repair, which works on the store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...model.records import FACT_CLOCK, FACT_LOSSES, dlq_fact
from ...observe.state import of_store
from ...platform.clock import Clock, Mark, Now
from ...stores.base import Store
from .comparing import Comparison, Difference
from .findings import Finding, Kind
from .rebuilt import Expected

#: What an event or row raises when it is intact, and not of the form that it should have.
MALFORMED: Final = (KeyError, TypeError, ValueError)


class Facing:
    """The store must be open, without a transaction, and used before."""

    def __init__(self, store: Store, expected: Expected, clock: Clock) -> None:
        self.store = store
        self.expected = expected
        now = engine_now(store, expected, clock)
        losses = [(first, last) for first, last in store.get_kv(FACT_LOSSES) or []]
        self.state = of_store(store, now)
        self.comparison = Comparison(
            self.state, expected, store.applied, store.audit.newest_event(), now.engine, losses
        )

    def facts(self) -> Iterator[Difference]:
        """What is wrong with single facts."""
        for record in self.state.queues:
            name = record.override.get("dlq.queue")
            if name and self.store.get_kv(dlq_fact(name)) is None:
                text = f"queue {record.name!r} addresses its dead letters by it"
                yield Difference(Finding(Kind.DLQ_NAME, name, text), queue=record)
        clock = self.expected.books.clock
        if clock and not self.comparison.doubt and self.store.get_kv(FACT_CLOCK) != clock:
            yield Difference(Finding(Kind.CLOCK_WRONG, "clock", f"it is {self.store.get_kv(FACT_CLOCK)}, not {clock}"))


def engine_now(store: Store, expected: Expected, clock: Clock) -> Now:
    """The time at which a daemon that starts now would go on."""
    kept = expected.get_kv(FACT_CLOCK) or store.get_kv(FACT_CLOCK)
    mark = Mark(kept["bootId"], kept["bootMs"], kept["engineMs"], kept["wallMs"]) if kept else None
    clock.resume(mark, max(expected.time, Now(mark.engine, mark.wall)) if mark else expected.time)
    return clock.now()
