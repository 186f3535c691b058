"""``scripts/bench console``: what the operations console costs on a terminal, beside its budgets."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .daemon import Daemon, running
from .figures import Report, percentile
from .terminal import Terminal, on_terminal
from .traffic import STAMP, STAMP_BYTES, Writer, flowing

COMMAND: Final = Path(sys.executable).with_name("postroom-console")
#: Words by which a screen is known to be drawn: of all screens, of the queues, and of the tail.
FRAME, QUEUES, TAIL = b" Queues", b"[1 Queues]", b"[2 Tail]"
#: Key by which bursts are shown line by line, and what is seen then.
EACH: Final = (b"b", b'"stamp"')
#: Events of one part of the long run: fewer bytes than what a console passes over when it is behind.
PART: Final = 8_000
#: Bytes a second of slow lines, and events a second that are shown over them.
SLOW: Final = (5_000, 15_000)
SLOW_EVENTS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    starts: int
    idle_s: float
    busy_s: float
    keys: int
    events: int
    limit_s: int


QUICK = Size(3, 10.0, 8.0, 20, 360_000, 300)
NORMAL = Size(7, 30.0, 20.0, 50, 3_600_000, 1_200)
FULL = Size(11, 60.0, 60.0, 100, 7_200_000, 3_600)


def measure(report: Report, size: Size, place: Path) -> None:
    """All figures. ``place`` is an empty directory."""
    with running(place / "root") as daemon:
        for number in range(7):
            daemon.client.publish(f"queue-{number}", "{}")
            daemon.client.ack(_consumed(daemon, f"queue-{number}"))
        _start(report, size, daemon)
        _idle(report, size, daemon)
        for rate in (1_000, 5_000):
            _busy(report, size, daemon, place / f"rate-{rate}", rate)
        for bytes_per_s in SLOW:
            _slow(report, size, daemon, place / f"slow-{bytes_per_s}", bytes_per_s)
        _long(report, size, daemon, place / "long")


def _consumed(daemon: Daemon, queue: str) -> str:
    delivery = daemon.client.consume_next(queue)
    if delivery is None:
        raise RuntimeError("no message, although one was published")
    return str(delivery.message_key)


def _console(daemon: Daemon, place: Path | None = None) -> list[str | Path]:
    files: list[str | Path] = ["--journal", place / "journal", "--traffic", place / "traffic"] if place else []
    return [COMMAND, "--root", daemon.root, *files]


def _start(report: Report, size: Size, daemon: Daemon) -> None:
    report.section("Start")
    frames, cpu, answers, resident = [], [], [], []
    for _ in range(size.starts):
        with on_terminal(_console(daemon)) as screen:
            frames.append((screen.waits_for(FRAME) - screen.started) * 1000)
            cpu.append(screen.cpu_s() * 1000)
            answers.append((screen.waits_for(b"queue-6") - screen.started) * 1000)
            resident.append(screen.resident_mb())
    report.add("start of the process to the first frame", frames, "ms", budget=500)
    report.add("CPU until then", cpu, "ms")
    report.add("start of the process to the queues of the daemon", answers, "ms")
    report.add("resident memory, at the start", resident, "MB", budget=60)
    once = []
    for _ in range(size.starts):
        with on_terminal([*_console(daemon), "--once"]) as screen:
            once.append((screen.waits_for(b"queue-6") - screen.started) * 1000)
    report.add("start of the process to the table of --once", once, "ms", budget=150)


def _idle(report: Report, size: Size, daemon: Daemon) -> None:
    report.section("An idle daemon")
    with on_terminal(_console(daemon)) as screen:
        screen.waits_for(b"............")  # the trend is drawn; from now on nothing changes
        time.sleep(3)
        used, sent = _over(screen, size.idle_s)
        note = f"over {size.idle_s:g} s"
        report.add("CPU, idle", used * 100, "% of core", budget=0.5, note=note)
        report.add("sent to the terminal, idle", sent, "bytes/s", budget=200, note=note)
        screen.asks(b"2", TAIL)
        report.add("key to screen, idle, p95", percentile(_keys(screen, size.keys), 95), "ms", budget=80)


def _busy(report: Report, size: Size, daemon: Daemon, place: Path, rate: int) -> None:
    report.section(f"{rate:,} events a second, and the request of each beside it")
    place.mkdir()
    with flowing(place, rate), on_terminal(_console(daemon, place)) as screen:
        screen.waits_for(b"queue-6")
        screen.asks(b"2", TAIL)
        time.sleep(2)
        bursts, sent_bursts = _over(screen, size.busy_s)
        screen.asks(*EACH)
        time.sleep(1)
        screen.clear()
        used, sent = _over(screen, size.busy_s)
        ages = _ages(screen)
        budget = 15 if rate == 5_000 else None
        report.add("CPU of the tail, bursts as one line", bursts * 100, "% of core", budget=budget)
        report.add("sent to the terminal, bursts as one line", sent_bursts, "bytes/s", budget=12_000)
        note = f"over {size.busy_s:g} s"
        report.add("CPU of the tail, each line", used * 100, "% of core", budget=budget, note=note)
        report.add(
            "age of the newest line on the screen, p50", percentile(ages, 50), "ms", note="before each new frame"
        )
        report.add("age of the newest line on the screen, most", max(ages), "ms", budget=1_000, note=note)
        report.add("sent to the terminal, each line", sent, "bytes/s", budget=12_000, note=note)
        report.add("key to screen, p95", percentile(_keys(screen, size.keys), 95), "ms", budget=80)


def _slow(report: Report, size: Size, daemon: Daemon, place: Path, bytes_per_s: int) -> None:
    report.section(f"A line that takes {bytes_per_s:,} bytes a second, at {SLOW_EVENTS:,} events a second")
    place.mkdir()
    with flowing(place, SLOW_EVENTS), on_terminal(_console(daemon, place), bytes_per_s) as screen:
        screen.waits_for(b"queue-6")
        screen.asks(b"2", TAIL)
        screen.asks(*EACH)
        time.sleep(2)
        screen.clear()
        used, sent = _over(screen, size.busy_s)
        ages = _ages(screen)
        keys = _keys(screen, size.keys // 2)
        note = f"over {size.busy_s:g} s"
        report.add("CPU of the tail, each line", used * 100, "% of core", note=note)
        report.add("taken by the terminal", sent, "bytes/s", note=note)
        report.add("age of the newest line on the screen, p50", percentile(ages, 50), "ms", note="before each new one")
        report.add("age of the newest line on the screen, most", max(ages), "ms", note=note)
        report.add("key to screen, p50", percentile(keys, 50), "ms")
        report.add("key to screen, p95", percentile(keys, 95), "ms")


def _long(report: Report, size: Size, daemon: Daemon, place: Path) -> None:
    report.section(f"{size.events:,} events, as fast as they are taken")
    place.mkdir()
    writer = Writer(place)
    written = 0
    with on_terminal(_console(daemon, place)) as screen:
        screen.waits_for(b"queue-6")
        screen.asks(b"2", TAIL)
        writer.write(PART)
        screen.asks(*EACH)
        begun, used = time.monotonic(), screen.cpu_s()
        middle = 0.0
        while written < size.events:
            screen.clear()
            last = writer.write(PART)
            written += PART
            screen.waits_for(f"T{last:012d}E".encode())
            if not middle and written >= size.events / 2:
                middle = screen.resident_mb()
        seconds, used = time.monotonic() - begun, screen.cpu_s() - used
        report.add("resident memory, after half of them", middle, "MB", budget=90)
        report.add("resident memory, after all", screen.resident_mb(), "MB", budget=90)
        report.add("taken", written / seconds, "events/s")
        report.add("CPU, an event and its request", used / written * 1e6, "us")
    writer.close()


def _over(screen: Terminal, seconds: float) -> tuple[float, float]:
    """The share of a core and the bytes a second over so many seconds."""
    begun, used, sent = time.monotonic(), screen.cpu_s(), screen.bytes
    time.sleep(seconds)
    took = time.monotonic() - begun
    return (screen.cpu_s() - used) / took, (screen.bytes - sent) / took


def _keys(screen: Terminal, count: int) -> list[float]:
    """Milliseconds from a key that changes the screen, at first from the tail to the queues, to the changed screen."""
    took = []
    for number in range(count):
        key, text = ((b"1", QUEUES), (b"2", TAIL))[number % 2]
        took.append(screen.asks(key, text) * 1000)
        time.sleep(0.137)  # in step with nothing
    return took


def _ages(screen: Terminal) -> list[float]:
    """How old the newest line was, in milliseconds, each time before a newer one came."""
    ages: list[float] = []
    newest = 0
    before = b""
    for came, data in list(screen.chunks):
        before = before[-STAMP_BYTES:] + data  # a stamp may come in two parts
        stamps = [int(stamp) for stamp in STAMP.findall(before)]
        if stamps and max(stamps) > newest:
            if newest:
                ages.append(came * 1000 - newest)
            newest = max(stamps)
    if not ages:
        raise RuntimeError("no line came to the screen")
    return ages
