"""Prints the figures side by side, and adds them to the report."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..figures import Figure, Report, number, percentile
from .driver import Outcome
from .systems import Contestant

#: The aims for the gateway's process: resident memory (MB), and CPU while nothing happens (percent of a core).
GATEWAY_RESIDENT_MB: Final = 60.0
GATEWAY_IDLE_PERCENT: Final = 0.3
#: A server whose median answer comes in less than this part of the time of a sync does not sync every message. Some
#: write to files that have their size already, which is cheaper than an append.
_SUSPICIOUS: Final = 0.4


@dataclass(frozen=True, slots=True)
class Shape:
    """How many connections there are, and how many commands are in flight on each."""

    name: str
    connections: int
    window: int


ONE: Final = Shape("1 connection", 1, 1)
SIXTEEN: Final = Shape("16 connections", 16, 1)
WINDOW: Final = Shape("1 connection, 64 in flight", 1, 64)


@dataclass(frozen=True, slots=True)
class Row:
    """What is measured of a server in each round. ``shape`` is that of the peers' rows beside it. ``budget`` is a rate
    (at least), ``p50_ms`` a time (at most)."""

    who: str
    work: str
    how: str
    shape: Shape
    processes: tuple[str, ...]
    is_ours: bool
    is_durable: bool
    budget: float | None = None
    p50_ms: float | None = None

    @property
    def name(self) -> str:
        """The name of its figures."""
        return f"{self.who}: {self.work}, {self.how}"


@dataclass(frozen=True, slots=True)
class Idle:
    """A process while nothing happens."""

    name: str
    resident_mb: float
    cpu_percent: float


@dataclass(slots=True)
class Syncs:
    """The floor of a round: appends that are each synced, per second, and the median time of one (ms)."""

    per_second: list[float] = field(default_factory=list)
    median_ms: list[float] = field(default_factory=list)

    def add(self, per_second: float, median_us: float) -> None:
        """Add a measurement."""
        self.per_second.append(per_second)
        self.median_ms.append(median_us / 1000)


Found = Mapping[Row, Sequence[Outcome]]


def print_head(report: Report, contestants: Iterable[Contestant]) -> None:
    """What is measured, with its version and its conditions."""
    report.section("What is measured")
    for one in contestants:
        version = report.conditions["versions"].get(one.name, "")
        print(f"  {one.name:<26} {version:<10} {one.note}".rstrip(), flush=True)


def print_idle(report: Report, idle: Sequence[Idle], resident_mb: Mapping[str, float]) -> None:
    """Memory and CPU of every process."""
    report.section("Every process, all at the same time")
    for one in idle:
        is_gateway = one.name == "gateway"
        report.add(f"{one.name}: CPU, idle", one.cpu_percent, "% of core", GATEWAY_IDLE_PERCENT if is_gateway else None)
        report.add(
            f"{one.name}: resident memory, idle", one.resident_mb, "MB", GATEWAY_RESIDENT_MB if is_gateway else None
        )
        if one.name in resident_mb:
            budget = GATEWAY_RESIDENT_MB if is_gateway else None
            report.add(f"{one.name}: resident memory after the load", resident_mb[one.name], "MB", budget)


def print_rows(report: Report, found: Found, syncs: Sequence[Syncs]) -> None:
    """Rates, times and CPU of every row, after the floor of each round; without ``syncs`` there is no floor."""
    if syncs:
        report.section("The floor (bench/floor.c): one append, one fdatasync, and so on")
        report.add("append + fdatasync of one event", [statistics.median(one.per_second) for one in syncs], "/s")
        report.add("append + fdatasync of one event: p50", [statistics.median(one.median_ms) for one in syncs], "ms")
    for work in dict.fromkeys(row.work for row in found):
        report.section(
            f"Messages per second, {work}: median of the rounds, best round in brackets; CPU in µs per message"
        )
        head = f"{'rate/s':>18}{'x floor':>9}{'p50 ms':>9}{'p99 ms':>9}{'CPU':>8}{'gateway':>9}{'client':>8}"
        print(f"  {'':<54}{head}  budget")
        for row, outcomes in found.items():
            if row.work != work:
                continue
            if not outcomes:
                report.missing(row.name, "there was nothing left to pull")
                continue
            print(f"  {row.name.replace(f': {work}', ''):<54}{_cells(report, row, outcomes, syncs)}", flush=True)


def _cells(report: Report, row: Row, outcomes: Sequence[Outcome], syncs: Sequence[Syncs]) -> str:
    rates = [one.per_second for one in outcomes]
    note = "" if row.is_durable else "NOT DURABLE"
    rate = report.keep(row.name, rates, "/s", note, row.budget, at_least=True)
    verdict = _verdict(report.figures[-1])
    ratio = ""
    if syncs:
        ratios = [mine / statistics.median(its.per_second) for mine, its in zip(rates, syncs, strict=False)]
        ratio = f"{report.keep(f'{row.name}: as a multiple of the floor', ratios, 'x', note):.2f}"
    latencies_ms = [value for one in outcomes for value in one.latencies_ms]
    p50 = report.keep(f"{row.name}: p50", [statistics.median(latencies_ms)], "ms", budget=row.p50_ms)
    if row.p50_ms is not None:
        verdict = f"{verdict}  p50 {_verdict(report.figures[-1])}".strip()
    fastest_ms = min((value for one in syncs for value in one.median_ms), default=0.0)
    if row.is_durable and row.shape.window == 1 and p50 < _SUSPICIOUS * fastest_ms:
        note = "faster than the disk syncs: is every message synced?"
    p99 = report.keep(f"{row.name}: p99", [percentile(latencies_ms, 99)], "ms")
    cpu = {
        process: report.keep(f"{row.name}: CPU of the {process}", [one.cpu_us[place] for one in outcomes], "us")
        for place, process in enumerate(row.processes)
    }
    first, gateway = cpu[row.processes[0]], cpu.get("gateway")
    clients = [one.client_percent for one in outcomes if one.client_percent is not None]
    client = report.keep(f"{row.name}: CPU of the client", clients, "% of core") if clients else None
    return (
        f"{f'{number(rate)} ({number(max(rates))})':>18}{ratio:>9}{number(p50):>9}{number(p99):>9}{number(first):>8}"
        f"{number(gateway) if gateway is not None else '':>9}{f'{client:.0f} %' if client is not None else '':>8}"
        f"  {verdict}{'  ' if verdict and note else ''}{note}"
    ).rstrip()


def _verdict(figure: Figure) -> str:
    """A figure beside its budget."""
    if figure.budget is None:
        return ""
    sign, said = (">=" if figure.at_least else "<="), "within" if figure.kept else "over budget"
    return f"{sign} {number(figure.budget)}: {figure.value / figure.budget:.2f} of it, {said}"


def print_ratios(report: Report, found: Found) -> None:
    """Our rates as multiples of each durable peer's; above 1 ours is faster."""
    peers = list(dict.fromkeys(row.who for row in found if not row.is_ours and row.is_durable))
    if not peers:
        return
    report.section("Our rate as a multiple of each peer's in the row that is named: median of the rounds")
    print(f"  {'':<54}{'beside':>28}" + "".join(f"{peer:>16}" for peer in peers))
    for mine, outcomes in found.items():
        if not mine.is_ours or not outcomes:
            continue
        cells = ""
        for peer in peers:
            beside = next(
                (row for row in found if (row.who, row.work, row.shape) == (peer, mine.work, mine.shape)), None
            )
            ratios = [
                a.per_second / b.per_second for a, b in zip(outcomes, found[beside] if beside else (), strict=False)
            ]
            if ratios:
                ratio = report.keep(f"{mine.name} ÷ {peer}, {mine.shape.name}", ratios, "x")
                cells += f"{ratio:>16.2f}"
            else:
                cells += f"{'':>16}"
        if cells.strip():
            print(f"  {mine.name:<54}{mine.shape.name:>28}{cells}", flush=True)
