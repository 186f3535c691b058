"""``scripts/bench pipeline``: the pipeline on the snapshots of a fleet, beside other engines on one machine."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from . import eventlog
from .curves import Curve, Panel
from .figures import Report
from .fleet import Fleet, daily, fleet
from .processes import Cost, Failed, run
from .readers import ENGINES

_ROOT: Final = Path(__file__).resolve().parent.parent
_HEAP: Final = "1g"
#: Stages of a run as it tells of them, by the parts that they are shown as; what begins with ``report`` is gold.
_PARTS: Final = {
    "inventory": "inventory: list, hash, what is new",
    "lines": "read: JSON to columns, kept as bronze",
    "admission": "admission: sums of the text, verdicts",
    "events": "silver",
    "messages": "silver",
    "state": "silver",
    "snapshots": "silver",
    "inventory of files": "files and refusals",
}
_GOLD: Final = "gold: the reports"
_START: Final = "start of Python, Java and Spark"
_END: Final = "end"


@dataclass(frozen=True, slots=True)
class Size:
    """Fleets as devices and snapshots of each; how often each is measured."""

    fleets: tuple[tuple[int, int], ...]
    runs: int
    limit_s: int
    #: Of the fleet that sends a snapshot a day: devices and days.
    daily: tuple[int, int]


QUICK = Size(((20, 10),), 1, 1_800, (20, 7))
NORMAL = Size(((20, 10), (100, 20)), 1, 3_600, (40, 15))
FULL = Size(((20, 10), (100, 20), (500, 40)), 1, 14_400, (200, 30))

#: Seconds that a cold run may take, by snapshots and how they lie; of its CPU; of reading alone; of the inventory.
_ALL_S: Final = {(2_000, "bundles"): 60.0, (20_000, "bundles"): 220.0}
_CPU_S: Final = {(2_000, "bundles"): 100.0, (20_000, "bundles"): 450.0}
#: How many times DuckDB's CPU a run may take.
_OF_DUCKDB: Final = {(20_000, "bundles"): 3.0}
_READ_S: Final = {(20_000, "bundles"): 60.0}
_INVENTORY_S: Final = {(20_000, "singles"): 8.0}
_AGAIN_S: Final = 6.0


_OURS: Final = "pipeline"
_LINES: Final = {_OURS: "the pipeline", "duckdb": "DuckDB", "polars": "Polars"}
_PANELS: Final = [
    Panel("CPU of a snapshot", "ms", {f"{name}, a snapshot": line for name, line in _LINES.items()}),
    Panel("CPU of a run", "s", {f"{name}, CPU": line for name, line in _LINES.items()}),
    Panel("Resident memory", "MB", {f"{name}, memory": line for name, line in _LINES.items()}),
]


class Differs(Exception):
    """Two engines have different results; the text says which."""


def measure(report: Report, size: Size, place: Path, cache: Path) -> Curve:
    """All figures; what fleets in bundles cost by their size. ``place`` is an empty directory; the fleets stay in
    ``cache``."""
    software = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "duckdb", "polars"))
    print(f"engines   {software}; heap {_HEAP}, all cores")
    report.conditions["engines"] = software
    curve = Curve("size", "Snapshots", _PANELS, y_scale="log")
    per_snapshot: dict[str, dict[int, float]] = {}
    for devices, each in size.fleets:
        made = fleet(cache, devices, each)
        for name, source in (("singles", made.singles), ("bundles", made.bundles)):
            for turn in range(size.runs):
                out = place / f"{made.snapshots}-{name}-{turn}"
                costs = _contest(report, made, name, source, out)
                per_snapshot.setdefault(name, {})[made.snapshots] = costs[_OURS].cpu_s / made.snapshots
                if source == made.bundles:
                    curve.add(report, made.snapshots, _points(costs, made.snapshots))
                shutil.rmtree(out)
    _growing(report, *size.daily, place, cache)
    if len(size.fleets) > 1:
        report.section("What a snapshot costs of a larger fleet, against a smaller one: CPU of the whole run")
        for name, costs in per_snapshot.items():
            (few, at_few), (many, at_many) = sorted(costs.items())[-2:]
            note = f"{at_few * 1000:.1f} and {at_many * 1000:.1f} ms each"
            report.add(f"{name}, {many:,} against {few:,}", at_many / at_few, "times", note=note)
    return curve


def _points(costs: Mapping[str, Cost], snapshots: int) -> dict[str, float]:
    """The figures of a size, by engine."""
    points = {f"{name}, a snapshot": 1000 * cost.cpu_s / snapshots for name, cost in costs.items()}
    points |= {f"{name}, CPU": cost.cpu_s for name, cost in costs.items()}
    return points | {f"{name}, memory": float(cost.rss_mb) for name, cost in costs.items()}


def _growing(report: Report, devices: int, days: int, place: Path, cache: Path) -> None:
    """What is added to the tables of a fleet that sends a snapshot a day; then all reports rebuilt."""
    from postroom_pipeline.jobs.gold import NOTE
    from postroom_pipeline.local.settled import BEHIND

    report.section(f"{devices} devices that send a snapshot a day: what is added after {days - 1} days")
    *before, last = (sorted(day.iterdir()) for day in sorted(daily(cache, devices, days).singles.glob("*/*")))
    few = max(1, devices // 20)
    landing, tables = place / "landing", place / "tables"
    for name, added in (
        (f"the {days - 1} days", [path for day in before for path in day]),
        (f"one day more of {few} of the devices", last[:few]),
        ("one day more of the others", last[few:]),
        ("nothing more, and all reports rebuilt", []),
    ):
        landing.mkdir(exist_ok=True)
        for path in added:
            shutil.copyfile(path, landing / path.name)
        if not added:
            (tables / NOTE).unlink()
            (tables / BEHIND).touch()
        cost = ingest(landing, tables)
        gold = {part: cpu_s for part, _, cpu_s in _stages(cost)}.get(_GOLD, 0.0)
        report.add(f"{name}, CPU", cost.cpu_s, "s", note=f"of that the reports {gold:.1f} s; {len(added):,} snapshots")
    shutil.rmtree(landing)
    shutil.rmtree(tables)


def _contest(report: Report, made: Fleet, name: str, source: Path, out: Path) -> dict[str, Cost]:
    """Peers and pipeline on the same files; what each has cost."""
    files = len(list(source.rglob("*.gz")))
    report.section(f"{made.snapshots:,} snapshots, {made.lines:,} lines, {made.bytes() / 1e6:,.0f} MB, {files:,} files")
    results = {}
    costs = {}
    for engine in ENGINES:
        theirs = out / engine
        theirs.mkdir(parents=True)
        try:
            cost = run([sys.executable, "-m", "bench.readers", engine, source, theirs], {"PYTHONPATH": str(_ROOT)})
        except Failed as error:  # for want of memory: Polars holds all rows at once
            print(f"  {name}, {engine}: did not come to an end: {error}")
            report.conditions[f"{made.snapshots} {name}, {engine}"] = f"did not come to an end: {error}"
            continue
        results[engine], costs[engine] = json.loads(cost.output), cost
        _show(report, f"{name}, {engine}", cost)
    tables, logs = out / "tables", out / "logs"
    logs.mkdir()
    which = (made.snapshots, name)
    ours = ingest(source, tables, eventlog.settings(logs))
    _show(report, f"{name}, pipeline", ours, _ALL_S.get(which), _CPU_S.get(which))
    work = eventlog.work_in(logs)
    report.add(f"{name}, pipeline, jobs of Spark", work.jobs, "jobs", note=work.described)
    results["pipeline"] = _found(tables)
    if len({json.dumps(result, sort_keys=True) for result in results.values()}) > 1:
        raise Differs(json.dumps(results))
    _show_stages(report, name, made, ours)
    work_s = sum(cpu for part, _, cpu in _stages(ours) if part != _START)
    if "duckdb" in costs:
        times = ours.cpu_s / costs["duckdb"].cpu_s
        report.add(f"{name}, pipeline of duckdb, CPU, all", times, "times", budget=_OF_DUCKDB.get(which))
        report.add(f"{name}, pipeline of duckdb, CPU, without its start", work_s / costs["duckdb"].cpu_s, "times")
    again = ingest(source, tables)
    _show(report, f"{name}, pipeline, nothing new", again, _AGAIN_S)
    return costs | {_OURS: ours}


def _show(report: Report, name: str, cost: Cost, most_s: float | None = None, cpu_s: float | None = None) -> None:
    report.add(name, cost.seconds, "s", budget=most_s, note=f"{cost.rss_mb:,.0f} MB resident at most")
    report.add(f"{name}, CPU", cost.cpu_s, "s", budget=cpu_s)


def _show_stages(report: Report, name: str, made: Fleet, cost: Cost) -> None:
    for part, seconds, cpu_s in _stages(cost):
        limits = {_PARTS["lines"]: _READ_S, _PARTS["inventory"]: _INVENTORY_S}.get(part, {})
        rate = f"CPU {cpu_s:.1f} s, {made.lines / max(cpu_s, 0.01):,.0f} lines for each second of it"
        report.add(f"{name}, {part}", seconds, "s", budget=limits.get((made.snapshots, name)), note=rate)


def _stages(cost: Cost) -> Iterator[tuple[str, float, float]]:
    """The parts of a run with their seconds and CPU seconds. What passes between two lines is of the second."""
    found: dict[str, list[float]] = {}
    before_s = before_cpu_s = 0.0
    for told in cost.told:
        stage = told.text.removeprefix("ingest: ").rpartition(": ")[0]
        part = _GOLD if stage.startswith("report ") else _PARTS.get(stage)
        if part is None:
            continue
        took = float(told.text.rpartition(": ")[2].removesuffix(" s"))
        if not found:  # the first line tells how long its stage took; what was before it is the start
            share = max(0.0, told.seconds - took) / told.seconds
            found[_START] = [told.seconds * share, told.cpu_s * share]
            before_s, before_cpu_s = found[_START]
        sums = found.setdefault(part, [0.0, 0.0])
        sums[0] += told.seconds - before_s
        sums[1] += told.cpu_s - before_cpu_s
        before_s, before_cpu_s = told.seconds, told.cpu_s
    found[_END] = [cost.seconds - before_s, cost.cpu_s - before_cpu_s]
    for part, (seconds, cpu_s) in found.items():
        yield part, seconds, cpu_s


def ingest(source: Path, tables: Path, more: Sequence[str] = ()) -> Cost:
    """The cost of one run; ``more`` are further settings."""
    command: list[str | Path] = [sys.executable, "-m", "postroom_pipeline", "ingest", "--in", source, "--out", tables]
    settings = [f"spark.driver.memory={_HEAP}", "spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1"]
    return run([*command, *(word for one in (*settings, *more) for word in ("--conf", one))])


def _found(tables: Path) -> dict[str, Any]:
    """What the peers tell of their results, of the pipeline's tables."""
    import duckdb

    base = duckdb.connect()
    events = f"read_parquet('{tables}/events/**/*.parquet')"
    told = base.execute(f"SELECT count(*), count(*) FILTER (type = 'died') FROM {events}").fetchall()[0]
    messages = f"read_parquet('{tables}/messages/**/*.parquet')"
    states = base.execute(f"SELECT state, count(*) FROM {messages} GROUP BY ALL ORDER BY 1").fetchall()
    return {"events": told[0], "died": told[1], "messages": dict(states)}
