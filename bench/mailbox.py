"""``scripts/bench mailbox``: the mailbox, the engine and the costs of the daemon, beside their budgets."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from . import batches, burst, engine, latency, load
from .batches import BATCH
from .daemon import running
from .figures import Report, percentile
from .floor import GROUP, Floor


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    runs: int
    load_s: float
    burst: int
    latency_samples: int
    engine_messages: int
    backlog: int
    consume_samples: int
    batches: int
    delayed: int
    idle_s: float
    limit_s: int


QUICK = Size(2, 1.5, 5_120, 300, 4_000, 50_000, 150, 100, 0, 5.0, 240)
NORMAL = Size(3, 3.0, 20_000, 500, 20_000, 100_000, 300, 300, 0, 10.0, 900)
FULL = Size(5, 5.0, 20_000, 1_000, 40_000, 1_000_000, 500, 500, 300_000, 10.0, 3600)


def measure(report: Report, size: Size, place: Path, floor: Floor | None) -> None:
    """All figures, in this order. ``place`` is an empty directory for the roots."""
    _idle(report, size, place / "idle")
    _bursts(report, size, place, floor)
    _loads(report, size, place / "load")
    _batches(report, size, place, floor)
    _engine(report, size, place)
    _backlog(report, size, place)


def _idle(report: Report, size: Size, root: Path) -> None:
    report.section("An idle daemon")
    with running(root) as daemon:
        report.add("start of a new root to READY", daemon.ready_s * 1000, "ms")
        daemon.client.publish("warm", "{}")
        report.add("resident memory, idle", daemon.resident_mb(), "MB", budget=40)
        used = daemon.scheduled_s()
        time.sleep(size.idle_s)
        used = daemon.scheduled_s() - used
        note = f"over {size.idle_s:g} s"
        report.add("CPU, idle", used / size.idle_s * 100, "% of core", budget=0.3, note=note)
        took = latency.publish_to_consumer(daemon, size.latency_samples)
        note = f"{len(took)} messages"
        report.add("publish -> long-polling consumer, p50", statistics.median(took), "ms", budget=1.5, note=note)
        report.add("publish -> long-polling consumer, p99", percentile(took, 99), "ms", budget=6, note=note)


def _bursts(report: Report, size: Size, place: Path, floor: Floor | None) -> None:
    report.section(f"The floor (bench/floor.c), and {size.burst:,} durable publishes in groups of exactly {GROUP}")
    if floor:
        syncs = [floor.syncs(1000) for _ in range(size.runs)]
        report.add("append + fdatasync of one event", [rate for rate, _ in syncs], "/s")
    floors, bursts = [], []
    for number in range(size.runs):  # by turns, so that both meet the same weather
        if floor:
            floors.append(floor.requests(size.burst))
        bursts.append(burst.run(place / f"burst-{number}", size.burst, GROUP))
    cpu_us = [one.cpu_us for one in bursts]
    if floor:
        report.add("floor: CPU a request", [cpu for cpu, _ in floors], "us")
        report.add("floor: requests", [rate for _, rate in floors], "/s")
    else:
        report.missing("floor", "no C compiler (cc, gcc, clang) on the PATH")
    report.add("daemon: CPU a publish", cpu_us, "us", note=f"{bursts[0].requests_per_group:.1f} requests a group")
    if floor:
        ratios = [mine / its for mine, (its, _) in zip(cpu_us, floors, strict=True)]
        best = f"the least of each: {min(cpu_us) / min(cpu for cpu, _ in floors):.2f}"
        report.add("daemon: CPU a publish, as a multiple of the floor's", ratios, "x", budget=2.2, note=best)
    report.add("daemon: part of that in the kernel", [one.kernel_us for one in bursts], "us")
    report.add("daemon: publishes that waited, answered", [one.per_second for one in bursts], "/s")
    report.add("journal bytes a message", [one.journal_bytes for one in bursts], "bytes")
    report.add("store bytes a message, after the stop", [one.store_bytes for one in bursts], "bytes")
    written = [one.written_bytes for one in bursts if one.written_bytes is not None]
    if written:
        note = "journal, store, traffic, responses, and what others wrote meanwhile"
        report.add("bytes sent to the device a message", written, "bytes", note=note)
    else:
        report.missing("bytes sent to the device a message", "the data lies on no block device")
    report.add("resident memory after the burst", [one.resident_mb for one in bursts], "MB")


def _loads(report: Report, size: Size, root: Path) -> None:
    report.section("Durable publish through the mailbox and the lane, closed loop, one process a client")
    plan = [
        (1, "real", None),
        (1, "lean", None),
        (8, "real", 5000.0),
        (8, "lean", 5000.0),
        (32, "lean", None),
        (1, "lane", None),
        (8, "lane", 9000.0),
        (8, "window", 30_000.0),
    ]
    found: list[list[load.Outcome]] = [[] for _ in plan]
    with running(root) as daemon:
        for _ in range(size.runs):
            for (clients, kind, _), outcomes in zip(plan, found, strict=True):
                outcomes.append(load.run(daemon, clients, kind, size.load_s))
        resident_mb = daemon.resident_mb()
    names = {"real": "real", "lean": "lean", "lane": "lane", "window": f"lane, {load.WINDOW} in flight,"}
    for (clients, kind, budget), outcomes in zip(plan, found, strict=True):
        who = f"{clients} {names[kind]} client{'s' if clients > 1 else ''}"
        took = [value for outcome in outcomes for value in outcome.latencies_ms]
        report.add(who, [outcome.per_second for outcome in outcomes], "/s", budget, at_least=True)
        report.add(f"{who}: p50", statistics.median(took), "ms", 0.5 if (clients, kind) == (1, "lane") else None)
        report.add(f"{who}: p99", percentile(took, 99), "ms")
        report.add(f"{who}: requests a group", [outcome.requests_per_group for outcome in outcomes], "")
        report.add(f"{who}: daemon CPU a request", [outcome.cpu_us for outcome in outcomes], "us")
    report.add("resident memory after these loads", resident_mb, "MB")


def _batches(report: Report, size: Size, place: Path, floor: Floor | None) -> None:
    report.section(f"Batches of {BATCH} by one client (SQLite), closed loop")
    floors, tables, ours = [], [], []
    with running(place / "batches") as daemon:
        for number in range(size.runs + 1):  # by turns, so that all meet the same weather
            if floor:
                floors.append(batches.floor_rate(floor, size.batches))
            tables.append(batches.bare_table(place / f"table-{number}.db", size.batches))
            ours.append(batches.through_the_mailbox(daemon, size.batches))
    ours, tables, floors = ours[1:], tables[1:], floors[1:]  # the first one warms up
    if floor:
        report.add("floor: requests of a batch, bench/floor.c", floors, "messages/s")
    report.add("bare table: publish", [one.publish for one in tables], "messages/s")
    report.add("bare table: consume and remove", [one.consume for one in tables], "messages/s")
    publishes, cycles = [one.publish for one in ours], [one.consume for one in ours]
    report.add("publish_batch", publishes, "messages/s", budget=40_000, at_least=True)
    report.add("publish_batch: daemon CPU a message", [one.publish_cpu_us for one in ours], "us")
    if floor:
        report.add("publish_batch, as a part of the floor's rate", _ratios(publishes, floors), "x")
    report.add("publish_batch, as a part of the table's", _ratios(publishes, [one.publish for one in tables]), "x")
    report.add("consume_next with max, then ack_batch", cycles, "messages/s", budget=40_000, at_least=True)
    report.add("consume and ack: daemon CPU a message", [one.consume_cpu_us for one in ours], "us")
    report.add("consume and ack, as a part of the table's", _ratios(cycles, [one.consume for one in tables]), "x")


def _ratios(mine: list[float], its: list[float]) -> list[float]:
    return [one / other for one, other in zip(mine, its, strict=True)]


def _engine(report: Report, size: Size, place: Path) -> None:
    report.section(f"The engine without the mailbox, durable, groups of {GROUP}")
    for backend in ("memory", "sqlite"):
        publishes, cycles = [], []
        for number in range(size.runs):
            with engine.opened(place / f"engine-{backend}-{number}", backend=backend) as root:
                publishes.append(engine.publish_rate(root, size.engine_messages, GROUP))
                cycles.append(engine.cycle_rate(root, size.engine_messages // 2, GROUP))
        report.add(f"{backend}: publish", publishes, "messages/s")
        report.add(f"{backend}: publish, consume and ack", cycles, "messages/s")


def _backlog(report: Report, size: Size, place: Path) -> None:
    report.section(f"A backlog of {size.backlog:,} messages (SQLite)")
    started = time.monotonic()
    engine.fill(place / "backlog", "deep", size.backlog)
    if size.delayed:
        engine.fill(place / "backlog", "deep", size.delayed, delayMs=24 * 3600 * 1000)
    report.add("filled through the engine, groups of 1,000", size.backlog / (time.monotonic() - started), "messages/s")
    ready = []
    for _ in range(size.runs):
        with running(place / "backlog") as daemon:
            ready.append(daemon.ready_s * 1000)
    report.add("start to READY, after a clean stop", ready, "ms", budget=1000)
    with running(place / "shallow") as shallow, running(place / "backlog") as deep:
        empty, full = latency.consume_by_turns([shallow, deep], "deep", size.consume_samples)
        resident_mb = deep.resident_mb()
    more = f" and {size.delayed:,} delayed" if size.delayed else ""
    base = report.add("consume, p50, nothing else in the queue", statistics.median(empty), "ms")
    p50 = report.add(f"consume, p50, before {size.backlog:,}{more}", statistics.median(full), "ms")
    report.add("consume, p50, as a multiple of the empty queue's", p50 / base, "x", budget=1.3)
    report.add("resident memory, with the backlog, after these", resident_mb, "MB", budget=80)
