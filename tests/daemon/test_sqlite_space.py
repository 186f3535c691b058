"""The room that a group asks for on the disk: no less than SQLite writes, and not ten times as much either."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from postroom_daemon.stores.sqlite.store import SqliteStore
from tests.conformance.bench import Bench


@pytest.mark.parametrize(
    ("size", "in_order", "most"), [(100, True, 4_000_000), (100, False, 16_000_000), (8000, False, 28_000_000)]
)
def test_a_batch_that_settles_requests_the_space_that_the_log_may_grow_by(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, size: int, in_order: bool, most: int
) -> None:
    bench = make_bench("sqlite").open()
    for _ in range(4):
        bench.do("publish_batch", queue="q", messages=[{"message": "x" * size}] * 500)
    leases = [one["lease"] for _ in range(20) for one in bench.do("consume_next", queue="q", max=100)["messages"]]
    assert len(leases) == 2000
    if not in_order:
        random.Random(1).shuffle(leases)
    store = bench.store
    assert isinstance(store, SqliteStore)
    store.disk.checkpoint()
    asked: list[int] = []
    has_plenty = bench.live.reserve.has_plenty

    def note(needed: int) -> bool:
        asked.append(needed)
        return has_plenty(needed)

    monkeypatch.setattr(bench.live.reserve, "has_plenty", note)
    bench.do("ack_batch", items=[{"messageKey": one["messageKey"], "leaseId": one["leaseId"]} for one in leases[:1000]])
    store.flush()
    log = store.disk.files()[1]
    assert log.stat().st_size <= asked[0] <= most


def test_messages_of_many_queues_request_the_space_that_the_log_may_grow_by(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench("sqlite").open()
    for queue in range(100):
        bench.do("publish_batch", queue=f"q{queue}", messages=[{"message": "x" * 100}] * 40)
    bench.store.disk.checkpoint()
    for queue in range(100):
        bench.do("publish", queue=f"q{queue}", message="x")
    store = bench.store
    assert isinstance(store, SqliteStore)
    asked = store.disk.space_needed(1)
    store.flush()
    log = store.disk.files()[1].stat().st_size
    assert log <= asked <= 10 * log
