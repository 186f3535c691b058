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
    for group in GROUPS:
        report.section(f"CPU by stage, us a request, groups of {group}; without the daemon's waiting")
        found = stages.measure(place / f"stages-{group}", group, size.staged // group)
        _table(report, f"groups of {group}", found, "us")
        report.section(f"Calls and allocations a request, groups of {group}")
        counted = calls.count(place, group, max(1, size.counted // group))
        by_command = {
            command: {_NAMES[name]: value for name, value in asdict(one).items() if value is not None}
            for command, one in counted.items()
        }
        _table(report, f"groups of {group}", by_command, "")
        report.section(f"System calls a request, groups of {group}")
        try:
            made = syscalls.count(place / f"traced-{group}", group, size.counted)
        except syscalls.NoStrace as reason:
            report.missing("system calls", str(reason))
        else:
            _table(report, f"groups of {group}", _with_least(made, syscalls.least(group)), "", "system calls, ")
        report.section(f"Lines that take most CPU in a publish, consume and ack together, groups of {group}")
        lines, samples = calls.lines(place, group, size.sampled_s, size.lines)
        report.table(
            ("us", f"line ({samples:,} samples)", ""),
            [(number(line.cpu_us), f"`{line.where}`", f"`{line.source}`") for line in lines],
        )


def _with_least(made: dict[str, dict[str, float]], least: dict[str, float]) -> dict[str, dict[str, float]]:
    columns = {"least": least, **made}
    names = dict.fromkeys(name for column in columns.values() for name in column)
    rows = {
        column: {name: values.get(name, 0.0) for name in names} | {"all": sum(values.values())}
        for column, values in columns.items()
    }
    seen = [name for name in rows["least"] if any(values[name] >= 0.01 for values in rows.values())]
    return {column: {name: values[name] for name in seen} for column, values in rows.items()}


def _table(report: Report, what: str, columns: dict[str, dict[str, float]], unit: str, kind: str = "") -> None:
    for column, values in columns.items():
        for name, value in values.items():
            report.keep(f"{what}: {column}: {kind}{name}", [value], unit)
    rows = [[name, *(number(values[name]) for values in columns.values())] for name in next(iter(columns.values()))]
    report.table(["", *columns], rows)
