"""``scripts/bench shapes``: the pipeline on fleets of one size that come in different ways.

What skew, late, doubled and contradicting snapshots, many small files and many small runs cost, compared with an even
fleet in bundles and one run."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .figures import Report
from .fleet import Fleet, fleet, put_back, skewed
from .pipeline import ingest
from .processes import Cost

_PORTIONS: Final = 5


class Differs(Exception):
    """Tables that should be equal are not; the text says which."""


TITLE: Final = "CPU of the runs that take in one fleet, times that of the even one"


def measure(report: Report, devices: int, each: int, place: Path, cache: Path) -> dict[str, float]:
    """All shapes, each into tables of its own below ``place``; how many times the CPU of the even fleet they cost."""
    even = fleet(cache, devices, each)
    report.section(f"{devices} devices, {even.snapshots:,} snapshots, {even.lines:,} lines")
    base_s, wanted = 0.0, None
    times: dict[str, float] = {}
    for name, (runs, is_same) in _shapes(cache, even, devices, each).items():
        tables, costs = place / "tables", _run(place / "landing", place / "tables", runs)
        cpu_s = sum(cost.cpu_s for cost in costs)
        base_s = base_s or cpu_s
        times[name] = cpu_s / base_s
        events, digest, conflicts, lost, files = _result(tables)
        wanted = wanted or digest
        if is_same and digest != wanted:
            raise Differs(f"{name}: the events are not those of the even fleet")
        note = f"{times[name]:.2f} times the even one; {events:,} events, {conflicts:,} conflicts, {lost:,} lost"
        report.add(f"{name}, CPU", cpu_s, "s", note=f"{note}; {files:,} files of tables")
        report.add(f"{name}, resident", max(cost.rss_mb for cost in costs), "MB")
        shutil.rmtree(tables)
    return times


def _shapes(cache: Path, even: Fleet, devices: int, each: int) -> dict[str, tuple[list[list[Path]], bool]]:
    """The files that are in the directory at each run, and whether all events are those of the even fleet."""
    bundles, singles = sorted(even.bundles.iterdir()), sorted(even.singles.rglob("*.gz"))
    one, back = skewed(cache, devices, each), put_back(cache, devices, each)
    half = len(singles) // 2
    return {
        "even, in bundles": ([bundles], True),
        "single files": ([singles], True),
        "twice: bundles, and each file": ([[*bundles, *singles]], True),
        "late: one half of the files, then the other": ([singles[half:], singles], True),
        f"{_PORTIONS} portions, reports after each": (_portions(singles), True),
        "one device with half of all": ([sorted(one.bundles.iterdir())], False),
        "devices that were put back": ([sorted(back.bundles.iterdir())], False),
    }


def _portions(files: Sequence[Path]) -> list[list[Path]]:
    """What is in the directory at each of some runs."""
    return [[*files[: max(1, len(files) * (turn + 1) // _PORTIONS)]] for turn in range(_PORTIONS)]


def _run(landing: Path, tables: Path, runs: Sequence[Sequence[Path]]) -> list[Cost]:
    costs, there = [], set[Path]()
    for files in runs:
        landing.mkdir(exist_ok=True)
        for path in {*files} - there:
            shutil.copyfile(path, landing / f"{path.parent.name}-{path.name}")
        there |= {*files}
        costs.append(ingest(landing, tables))
    shutil.rmtree(landing)
    return costs


def _result(tables: Path) -> tuple[int, int, int, int, int]:
    """Number and digest of the events, conflicts, messages called lost, and files."""
    import duckdb

    base = duckdb.connect()
    base.execute("SET timezone = 'UTC'")

    def first(query: str, table: str) -> tuple[int, ...]:
        rows = base.execute(f"SELECT {query} FROM read_parquet('{tables}/{table}/**/*.parquet') AS t").fetchall()
        return tuple(map(int, rows[0]))

    events, digest = first("count(*), coalesce(bit_xor(hash(to_json(t)::varchar)), 0)", "events")
    (conflicts,) = first("count(DISTINCT (device, root, epoch, event))", "conflicts")
    (lost,) = first("count(*) FILTER (kind = 'lost')", "audit_messages")
    return events, digest, conflicts, lost, sum(1 for _ in tables.rglob("*.parquet"))
