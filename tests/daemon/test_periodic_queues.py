"""The periodic look at all queues: when it reads them, and when it lets them be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from postroom_daemon.policy.policies import Policies
from postroom_daemon.stores.sqlite.store import SqliteStore
from tests.conformance.bench import Bench
from tests.daemon.dead_letters import DAY_MS, bench, bury, dead, policy, run_periodic_tasks

__all__ = ["bench"]


@contextmanager
def counted_reads(bench: Bench) -> Iterator[list[str]]:
    """Behind which queue each page of queues was read."""
    store, reads = bench.store, list[str]()
    read: Callable[..., Any] = type(store.pages).queues
    with pytest.MonkeyPatch.context() as patch:

        def queues(self: Any, after: str, limit: int) -> Any:
            reads.append(after)
            return read(self, after, limit)

        patch.setattr(type(store.pages), "queues", queues)
        yield reads


def test_queues_are_read_again_only_after_an_event(bench: Bench) -> None:
    for number in range(5):
        bench.publish(f"q{number}")
    run_periodic_tasks(bench, 2)
    with counted_reads(bench) as reads:
        run_periodic_tasks(bench, 20)
        assert reads == []
        bench.publish("q1")
        run_periodic_tasks(bench, 20)
        assert reads == [""]
    assert bench.live.broker.depths()["ready"] == 6


def test_a_round_over_many_queues_ends_and_counts_all_of_them(bench: Bench) -> None:
    bench.run(*(bench.make("publish", queue=f"q{number:03}", message="x") for number in range(250)))
    run_periodic_tasks(bench, 4)
    assert bench.live.broker.depths()["ready"] == 250
    with counted_reads(bench) as reads:
        bench.publish("q100")
        run_periodic_tasks(bench, 10)
    assert reads == ["", "q099", "q199"]


def test_an_idle_queue_is_read_when_it_is_due_and_not_before(bench: Bench) -> None:
    policy(bench, expireAfterIdleSec=600)
    run_periodic_tasks(bench, 2)
    with counted_reads(bench) as reads:
        run_periodic_tasks(bench, 100)
        assert reads == [] and bench.store.queue("q")
        bench.do("consume_next", queue="q")
        run_periodic_tasks(bench, 2)
        bench.clocks.pass_ms(500_000)
        run_periodic_tasks(bench, 2)
        assert len(reads) == 1 and bench.store.queue("q"), "it was asked for messages meanwhile"
        bench.clocks.pass_ms(100_000)
        run_periodic_tasks(bench, 2)
    assert bench.store.queue("q") is None


def test_a_dead_letter_is_read_when_it_is_old_and_not_before(bench: Bench) -> None:
    policy(bench, dlq={"retentionDays": 2})
    bury(bench)
    run_periodic_tasks(bench, 2)
    with counted_reads(bench) as reads:
        bench.clocks.pass_ms(DAY_MS)
        run_periodic_tasks(bench, 3)
        before = len(reads)
        assert len(dead(bench)) == 1
        bench.clocks.pass_ms(DAY_MS)
        run_periodic_tasks(bench, 3)
    assert dead(bench) == [] and len(reads) <= before + 2


def test_other_policies_of_a_reload_apply_without_an_event(bench: Bench) -> None:
    keys = [bury(bench) for _ in range(3)]
    run_periodic_tasks(bench, 2)
    bench.live.broker.reload(Policies({"dlq.maxMessages": 1}, {}), bench.live.broker.limits)
    run_periodic_tasks(bench, 2)
    assert dead(bench) == keys[2:]


@pytest.mark.parametrize("bench", ["sqlite"], indirect=True)
def test_a_round_leaves_no_record_in_memory_that_was_not_there(bench: Bench) -> None:
    bench.run(*(bench.make("publish", queue=f"q{number:03}", message="x") for number in range(150)))
    bench.reopen()
    run_periodic_tasks(bench, 4)
    assert bench.live.broker.depths()["ready"] == 150
    assert isinstance(bench.store, SqliteStore) and not bench.store.book.values
