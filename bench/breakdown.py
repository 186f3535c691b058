"""``scripts/bench stages``: what a durable publish, consume and ack take, in groups of 32 and of one.

CPU by stage and by line, Python calls, allocations, and system calls beside the least that would do.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from . import calls, stages, syscalls
from .figures import Report, number

GROUPS: Final = (32, 1)
#: Figures by name, by the title of their column.
Columns = dict[str, dict[str, float]]
_NAMES: Final = {
    "python_calls": "calls of Python functions",
    "c_calls": "calls of C functions",
    "allocations": "allocated blocks",
    "allocated_bytes": "allocated bytes",
}


@dataclass(frozen=True, slots=True)
class Size:
    """How many requests of each command are measured by stage, and counted; for how much CPU lines are sampled, and
    how many are shown."""

    staged: int
    counted: int
    sampled_s: float
    lines: int
    limit_s: int


TINY: Final = Size(64, 32, 0.1, 3, 120)
QUICK: Final = Size(1_600, 320, 3.0, 20, 600)
NORMAL: Final = Size(9_600, 640, 15.0, 30, 900)


def measure(report: Report, size: Size, place: Path) -> None:
    """All figures, in this order. ``place`` is an empty directory for the roots."""
    place.mkdir(exist_ok=True)
    report.section("CPU by stage, us a request, in groups of 32 and of one; without the daemon's waiting")
    columns: Columns = {}
    for group in GROUPS:
        columns |= _named(group, stages.measure(place / f"stages-{group}", group, size.staged // group))
    _table(report, columns, "us")
    report.section("Calls and allocations a request, in groups of 32 and of one")
    columns = {}
    for group in GROUPS:
        counted = calls.count(place, group, max(1, size.counted // group))
        columns |= _named(group, {command: _counts(one) for command, one in counted.items()})
    _table(report, columns, "")
    report.section("System calls a request, in groups of 32 and of one, beside the least that would do")
    columns = {}
    try:
        for group in GROUPS:
            made = syscalls.count(place / f"traced-{group}", group, size.counted)
            columns |= _named(group, {"least": syscalls.least(group), **made})
    except syscalls.NoStrace as reason:
        report.missing("system calls", str(reason))
    else:
        _table(report, _with_sums(columns), "", "system calls, ")
    for group in GROUPS:
        report.section(f"Lines that take most CPU in a publish, consume and ack together, groups of {group}")
        lines, samples = calls.lines(place, group, size.sampled_s, size.lines)
        report.table(
            ("us", f"line ({samples:,} samples)", ""),
            [(number(line.cpu_us), f"`{line.where}`", f"`{line.source}`") for line in lines],
        )


def _named(group: int, by_command: Columns) -> Columns:
    return {f"{command}, {group}": values for command, values in by_command.items()}


def _counts(one: calls.Counts) -> dict[str, float]:
    return {_NAMES[name]: value for name, value in asdict(one).items() if value is not None}


def _with_sums(columns: Columns) -> Columns:
    """All calls in each column, and their sum; without what is rare."""
    names = dict.fromkeys(name for column in columns.values() for name in column)
    seen = [name for name in names if any(values.get(name, 0.0) >= 0.01 for values in columns.values())]
    return {
        column: {name: values.get(name, 0.0) for name in seen} | {"all": sum(values.values())}
        for column, values in columns.items()
    }


def _table(report: Report, columns: Columns, unit: str, kind: str = "") -> None:
    for column, values in columns.items():
        for name, value in values.items():
            report.keep(f"{column}: {kind}{name}", [value], unit)
    rows = [[name, *(number(values[name]) for values in columns.values())] for name in next(iter(columns.values()))]
    report.table(["", *columns], rows)
