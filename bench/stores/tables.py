"""Prints the figures of a contest side by side, and adds them to the report."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..figures import Report, number
from .queue import FLOORS
from .workers import QueueProcess

OPERATIONS = ("publish", "consume", "ack")
#: Consume behind a backlog, as a multiple of consume without one.
GROWTH_BUDGET = 1.3


@dataclass(frozen=True, slots=True)
class Row:
    """One way to use a queue. ``group`` operations become durable together."""

    name: str
    kind: str
    group: int
    ours: bool = False
    durable: bool = True
    note: str = ""


Rounds = dict[str, list[dict[str, Any]]]
"""By row: what each round came to, in seconds and bytes of a message."""


def print_head(rows: Sequence[Row], processes: Mapping[str, QueueProcess]) -> None:
    """What is measured, with its version and its conditions."""
    print("\nWhat is measured, each in a process of its own")
    for row in rows:
        versions = processes[row.kind].versions
        said = ", ".join(f"{name} {value}" for name, value in versions.items())
        print(f"  {row.name:<42} {said}{'; ' if row.note else ''}{row.note}", flush=True)


def print_filled(report: Report, backlog: int, seconds: Mapping[str, float]) -> None:
    """How long it took to build a backlog; no figure of comparison."""
    report.section(f"A backlog of {backlog:,}, filled without waiting for the disk, all at the same time, in seconds")
    print("  " + ", ".join(f"{kind} {number(took)}" for kind, took in seconds.items()), flush=True)


def print_rates(report: Report, where: str, rows: Sequence[Row], rounds: Rounds) -> None:
    """Operations per second: the median of the rounds, and the best round."""
    report.section(f"Messages per second, {where}: median of {_counts(rows, rounds)}, best round in brackets")
    heads = "".join(f"{name + '/s':>18}" for name in OPERATIONS)
    print(f"  {'':<42}{heads}{'bytes written':>15}{'bytes read':>12}{'upkeep ms':>11}")
    for row in rows:
        found = rounds[row.name]
        cells = ""
        for name in OPERATIONS:
            rates = [1 / one[name] for one in found]
            report.keep(f"{row.name}, {where}: {name}", rates, "/s", row.note)
            cells += f"{f'{number(statistics.median(rates))} ({number(max(rates))})':>18}"
        written = report.keep(f"{row.name}, {where}: bytes written a message", _all(found, "written"), "bytes")
        read = report.keep(f"{row.name}, {where}: bytes read a message", _all(found, "read"), "bytes")
        upkeep = report.keep(f"{row.name}, {where}: upkeep", [s * 1000 for s in _all(found, "tidy")], "ms")
        few = f"  only {found[0]['count']} a round" if found[0]["count"] < _most(rounds) else ""
        note = "  not durable" if not row.durable else ""
        print(
            f"  {row.name:<42}{cells}{number(written):>15}{number(read):>12}{number(upkeep):>11}{note}{few}", flush=True
        )


def print_ratios(report: Report, where: str, rows: Sequence[Row], rounds: Rounds) -> None:
    """Our rates as multiples of each peer's that is durable and has the same groups; above 1 ours is faster."""
    report.section(f"Ours as a multiple of each, {where}: median of the rounds, best by best in brackets")
    print(f"  {'':<76}" + "".join(f"{name:>16}" for name in (*OPERATIONS, "all three")))
    for mine in rows:
        if not mine.ours:
            continue
        for its in rows:
            if its.ours or its.group != mine.group or not its.durable:
                continue
            name = f"{mine.name} ÷ {its.name}"
            cells = ""
            for part in (*OPERATIONS, "all three"):
                ratios, best = _ratios(part, rounds[mine.name], rounds[its.name])
                middle = report.keep(f"{name}, {where}: {part}", ratios, "x", note=f"best by best {best:.2f}")
                cells += f"{f'{middle:.2f} ({best:.2f})':>16}"
            print(f"  {name:<76}{cells}", flush=True)


def _ratios(part: str, mine: list[dict[str, Any]], its: list[dict[str, Any]]) -> tuple[list[float], float]:
    parts = OPERATIONS if part == "all three" else (part,)
    ours, theirs = ([sum(one[name] for name in parts) for one in found] for found in (mine, its))
    return [b / a for a, b in zip(ours, theirs, strict=True)], min(theirs) / min(ours)


def print_growth(report: Report, backlog: int, rows: Sequence[Row], without: Rounds, behind: Rounds) -> None:
    """What a backlog costs a consumer."""
    report.section(f"Time of a consume behind {backlog:,}, as a multiple of that without a backlog")
    for row in rows:
        if row.kind in FLOORS:
            continue
        ratios, best = _ratios("consume", behind[row.name], without[row.name])
        budget = GROWTH_BUDGET if row.ours else None
        slower = [1 / ratio for ratio in ratios]
        report.add(f"{row.name}: behind {backlog:,}", slower, "x", budget, note=f"best by best {1 / best:.2f}")


def _all(found: list[dict[str, Any]], name: str) -> list[float]:
    return [one[name] for one in found]


def _most(rounds: Rounds) -> int:
    return int(max(one["count"] for found in rounds.values() for one in found))


def _counts(rows: Sequence[Row], rounds: Rounds) -> str:
    return f"{len(rounds[rows[0].name])} rounds of {_most(rounds)}"
