"""How much disk a root takes: what waits, and what retention keeps, however much has gone through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from postroom_daemon.broker.idempotency import REMEMBERED_AFTER_RESTART, REPEATS_MS
from postroom_daemon.journal.recent import RECENT_BYTES
from tests.conformance.bench import Bench

SEGMENT_BYTES = 30_000
MAX_BYTES = 200_000
#: Messages that go through in a test.
FLOW = 3_000


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def flow(bench: Bench, messages: int, recent_ms: int = 0) -> dict[str, int]:
    """Let messages come and go, with a checkpoint at each new segment as the service makes it. The most bytes that each
    directory had after a checkpoint."""
    most: dict[str, int] = {}
    segment = bench.live.journal.segment
    for _ in range(messages // 50):
        bench.run(*[bench.make("publish", queue="q", message="x" * 100) for _ in range(50)])
        asked = [bench.make("consume_next", queue="q") for _ in range(50)]
        bench.run(*asked)
        leases = [sent.data["lease"] for sent in asked]
        receipts = [{name: lease[name] for name in ("messageKey", "leaseId")} for lease in leases]
        bench.run(*[bench.make("ack", **receipt) for receipt in receipts])
        bench.clocks.pass_ms(1000)
        if bench.live.journal.segment != segment:
            segment = bench.live.journal.segment
            folded = bench.store.disk.checkpoint()
            bench.live.journal.drop_segments(folded, 0, MAX_BYTES, bench.live.clock.now().engine - recent_ms)
            for name in ("journal", "data", "quarantine"):
                most[name] = max(most.get(name, 0), size_of(bench.path / name))
    return most


@pytest.mark.parametrize("backend", ["sqlite", "filesystem", "hybrid"])
def test_disk_use_is_bounded_by_the_backlog_and_by_retention(bench_of: Bench, backend: str) -> None:
    bench = bench_of
    for _ in range(20):
        bench.publish("waiting", "y" * 1000)
    first = flow(bench, FLOW // 3)
    second = flow(bench, 2 * FLOW // 3)
    assert first["journal"] <= MAX_BYTES + 3 * SEGMENT_BYTES + RECENT_BYTES
    for name, most in second.items():
        assert most <= max(first[name], MAX_BYTES) * 1.3, (name, first, second)
    assert second["quarantine"] == 0
    assert bench.do("status", queue="waiting")["metrics"]["ready"] == 20
    bench.reopen()
    assert bench.do("status", queue="waiting")["metrics"]["ready"] == 20


@pytest.fixture
def bench_of(make_bench: Callable[..., Bench], backend: str) -> Bench:
    bench: Bench = make_bench(backend, segment_bytes=SEGMENT_BYTES)
    bench.config = replace(bench.config, settings=replace(bench.config.settings, storage_reserve_bytes=0))
    return bench.open()


@pytest.mark.parametrize("backend", ["sqlite"])
def test_segments_of_the_last_minutes_stay_however_many_bytes_they_have(bench_of: Bench, backend: str) -> None:
    """A repeat of ten minutes ago is to be recognised after a restart, whatever ``journal.maxBytes`` says."""
    bench = bench_of
    sent = bench.send("publish", queue="first", message="once")
    flow(bench, 1500, recent_ms=REPEATS_MS)
    assert size_of(bench.journal_root) > 2 * MAX_BYTES
    assert bench.live.journal.last_id < REMEMBERED_AFTER_RESTART
    bench.reopen()
    again = bench.again(sent)
    bench.run(again)
    assert again.data == sent.data
    assert bench.do("status", queue="first")["metrics"]["ready"] == 1


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_repeat_is_forgotten_only_when_it_is_older_than_the_promise(bench_of: Bench, backend: str) -> None:
    bench = bench_of
    sent = bench.send("publish", queue="first", message="once")
    bench.clocks.pass_ms(REPEATS_MS)
    flow(bench, 3000, recent_ms=REPEATS_MS)
    bench.clocks.pass_ms(REPEATS_MS)
    flow(bench, 1500, recent_ms=REPEATS_MS)
    assert int(bench.segments()[0].stem) > 1
    bench.reopen()
    again = bench.again(sent)
    bench.run(again)
    assert again.data["messageKey"] != sent.data["messageKey"]


@pytest.mark.parametrize("backend", ["sqlite"])
def test_health_reports_the_size_of_the_quarantine(bench_of: Bench, backend: str) -> None:
    bench = bench_of
    assert "quarantineBytes" not in bench.do("health")["checks"]["disk"]
    bench.publish("q")
    bench.close()
    with bench.segments()[-1].open("ab") as file:
        file.write(b"torn" * 100)
    bench.open()
    assert bench.do("health")["checks"]["disk"]["quarantineBytes"] == 400
    for path in (bench.path / "quarantine").iterdir():
        path.unlink()
    assert "quarantineBytes" not in bench.do("health")["checks"]["disk"]
