"""``scripts/bench export``: what an export costs, and how much it slows a busy daemon down."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any, Final

from postroom_common.snapshot import Kind
from postroom_common.snapshot_writer import LineEncoder, SnapshotWriter, file_name
from postroom_console.export.event_slice import EventSlice
from postroom_console.export.exporter import Exporter
from postroom_console.export.journal import Journal, JournalPosition
from postroom_console.export.redaction import Redaction, Redactor
from postroom_console.export.request import LAST, ExportRequest
from postroom_console.export.spool import Drafts, Spool
from postroom_console.paths import find_paths

from . import load
from .daemon import Daemon, die_with_parent, running
from .figures import Report
from .traffic import Writer

#: Events of a usual snapshot, and how many such slices one figure is taken over.
USUAL: Final = 500
QUEUES: Final = 20
LETTERS: Final = 10
_ROOT: Final = "01a21eba-167b-7c3a-9b1e-5d0f6a2e8400"
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    pairs: int
    seconds: float
    runs: int
    events: int
    limit_s: int


QUICK = Size(4, 3.0, 7, 50_000, 300)
NORMAL = Size(8, 6.0, 15, 200_000, 900)
FULL = Size(12, 10.0, 15, 1_000_000, 1_800)


def measure(report: Report, size: Size, place: Path) -> None:
    """All figures. ``place`` is an empty directory."""
    _slices(report, size, place / "slices")
    with running(place / "root") as daemon:
        _fill(daemon)
        _idle(report, size, daemon, place / "idle")
        _busy(report, size, daemon, place / "busy")


def _slices(report: Report, size: Size, place: Path) -> None:
    """Reading the journal, leaving out what is to be left out, and writing the file: without the daemon's answers."""
    place.mkdir()
    for name, events in (("usual", USUAL), ("large", size.events)):
        writer = Writer(place / name)
        writer.write(events)
        writer.close()
    report.section(f"The slice of a snapshot, for each {USUAL} events of it")
    usual = [_slice(place / "usual", USUAL) for _ in range(size.runs)]
    report.add("by the clock", [wall * 1000 for wall, _ in usual], "ms", budget=5)
    report.add("CPU", [cpu * 1000 for _, cpu in usual], "ms", budget=5)
    wall, cpu = _slice(place / "large", size.events)
    note = f"of {size.events:,} events"
    report.add("by the clock, of a large slice", wall * 1000 * USUAL / size.events, "ms", note=note)
    report.add("CPU, of a large slice", cpu * 1000 * USUAL / size.events, "ms", budget=5, note=note)


def _slice(place: Path, events: int) -> tuple[float, float]:
    """Seconds by the clock, and of CPU."""
    begun, used = time.perf_counter(), time.process_time()
    snapshot = f"{time.monotonic_ns():032x}"
    with Spool(place) as spool, SnapshotWriter(place, file_name("press", _ROOT, events, 0), "press", snapshot) as file:
        drafts = Drafts(spool, LineEncoder("press", snapshot))
        EventSlice(drafts, Redactor(Redaction.PAYLOAD), _ROOT).read(
            Journal(place / "journal"), JournalPosition(None, 0), events, LAST, None, True, lambda: None
        )
        file.put(Kind.HEADER, {"major": 2})
        for kind, lines in drafts.blocks():
            file.put_encoded(kind, lines)
        path = file.finish(1, events)
    took = time.perf_counter() - begun, time.process_time() - used
    path.unlink()
    return took


def _fill(daemon: Daemon) -> None:
    client: Any = daemon.client
    for number in range(QUEUES):
        for _ in range(LETTERS):
            client.publish(f"queue-{number}", load.MESSAGE)
            delivery = client.consume_next(f"queue-{number}", consumer_id="worker")
            client.nack(delivery, reason="no good")


def _idle(report: Report, size: Size, daemon: Daemon, folder: Path) -> None:
    report.section(f"A whole export of an idle daemon: {QUEUES} queues, {QUEUES * LETTERS} dead letters")
    walls, cpus, daemons = [], [], []
    _export(daemon, folder)
    for _ in range(size.runs):
        begun, used, its = time.perf_counter(), time.process_time(), daemon.cpu_s()
        _export(daemon, folder)
        walls.append((time.perf_counter() - begun) * 1000)
        cpus.append((time.process_time() - used) * 1000)
        daemons.append((daemon.cpu_s() - its) * 1000)
    report.add("by the clock, with its rests", walls, "ms")
    report.add("CPU of the export", cpus, "ms")
    report.add("CPU of the daemon", statistics.fmean(daemons), "ms", note="mean")
    share = sum(daemons) / sum(walls) * 100
    report.add("of the daemon's time, one after the other", share, "% of core", budget=5)


def _busy(report: Report, size: Size, daemon: Daemon, folder: Path) -> None:
    report.section("Two clients publish, without and with one export after the other, in turn")
    without, beside, ratios, exports = [], [], [], 0
    for _ in range(size.pairs):
        alone = load.run(daemon, 2, "real", size.seconds).per_second
        with _exporting(daemon, folder) as made:
            disturbed = load.run(daemon, 2, "real", size.seconds).per_second
            exports += made.value
        without.append(alone)
        beside.append(disturbed)
        ratios.append(disturbed / alone)
    report.add("published without", without, "messages/s")
    report.add("published beside exports", beside, "messages/s", note=f"{exports} of them ended")
    report.add("of what is published without", ratios, "of it", budget=0.95, at_least=True)


def _export(daemon: Daemon, folder: Path) -> None:
    made = Exporter(find_paths(daemon.root), ExportRequest(folder), lambda: False, time.sleep).run()
    made.path.unlink()


@contextmanager
def _exporting(daemon: Daemon, folder: Path) -> Iterator[Synchronized[int]]:
    """A process that exports again and again; gives how many it has made."""
    made: Any = _FORK.Value("i", 0)

    def work() -> None:
        die_with_parent()
        while True:
            _export(daemon, folder)
            made.value += 1

    process = _FORK.Process(target=work, daemon=True)
    process.start()
    try:
        yield made
    finally:
        process.kill()
        process.join()
