"""A measured figure, its budget, and whether it is within the budget."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Figure:
    """One line of the report. ``runs`` are the values that ``value`` is the median of."""

    name: str
    value: float
    unit: str
    budget: float | None = None
    at_least: bool = False
    note: str = ""
    runs: list[float] = field(default_factory=list)

    @property
    def kept(self) -> bool | None:
        """Whether the figure is within its budget; None without a budget."""
        if self.budget is None:
            return None
        return self.value >= self.budget if self.at_least else self.value <= self.budget

    def line(self) -> str:
        """The figure for people."""
        text = f"{self.name:<58} {number(self.value):>10} {self.unit:<10}"
        if self.budget is not None:
            sign, ratio = (">=" if self.at_least else "<="), self.value / self.budget
            verdict = "within budget" if self.kept else "over budget"
            text += f" budget {sign} {number(self.budget):<7} {ratio:5.2f} of it  {verdict}"
        if self.note:
            text += f"  ({self.note})"
        return text.rstrip()

    def to_json(self) -> dict[str, Any]:
        """The figure for programs."""
        return asdict(self) | {"kept": self.kept}


class Report:
    """Collects figures: prints each at once, and writes all as JSON at the end."""

    def __init__(self, conditions: dict[str, Any]) -> None:
        self.conditions = conditions
        self.figures: list[Figure] = []

    def section(self, title: str) -> None:
        """Begin a part of the report."""
        print(f"\n{title}", flush=True)

    def add(
        self,
        name: str,
        runs: float | Sequence[float],
        unit: str,
        budget: float | None = None,
        at_least: bool = False,
        note: str = "",
    ) -> float:
        """Print and keep a figure: the median of ``runs``. Returns it."""
        values = [float(runs)] if isinstance(runs, (int, float)) else [float(run) for run in runs]
        if len(values) > 1:
            spread = f"median of {len(values)}: {number(min(values))} to {number(max(values))}"
            note = f"{spread}; {note}" if note else spread
        value = self.keep(name, values, unit, note, budget, at_least)
        print("  " + self.figures[-1].line(), flush=True)
        return value

    def keep(
        self,
        name: str,
        runs: Sequence[float],
        unit: str,
        note: str = "",
        budget: float | None = None,
        at_least: bool = False,
    ) -> float:
        """Keep a figure that is printed otherwise: the median of ``runs``. Returns it."""
        value = statistics.median(runs)
        self.figures.append(Figure(name, value, unit, budget, at_least, note, list(runs)))
        return value

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print figures that are kept otherwise, as Markdown."""
        print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
        for row in rows:
            print("| " + " | ".join(row) + " |", flush=True)

    def missing(self, name: str, reason: str) -> None:
        """Say that a figure was not measured, and why."""
        print(f"  {name:<58} not measured: {reason}", flush=True)

    def summary(self) -> str:
        """How many figures are within their budgets, and which are not."""
        judged = [figure for figure in self.figures if figure.kept is not None]
        over = [figure.name for figure in judged if not figure.kept]
        text = f"{len(judged) - len(over)} of {len(judged)} figures with a budget are within it"
        return text + "".join(f"\n  over budget: {name}" for name in over)

    def write(self, path: Path) -> None:
        """Write all as one JSON object."""
        tree = {"conditions": self.conditions, "figures": [figure.to_json() for figure in self.figures]}
        path.write_text(json.dumps(tree, indent=2) + "\n")


def percentile(values: Sequence[float], percent: float) -> float:
    """The value at or below which ``percent`` of the values lie. ``values`` must not be empty."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def number(value: float) -> str:
    """A figure with its significant digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
