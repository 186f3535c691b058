"""Curves: the figures at each point of one dimension, printed as a table and drawn by ``plots``."""

from __future__ import annotations

from dataclasses import dataclass, field

from .figures import Report, number


@dataclass(frozen=True, slots=True)
class Panel:
    """What one part of a plot shows: a line for each column, named by ``lines``, and the budget of those columns that
    begin with ``of``."""

    title: str
    unit: str
    lines: dict[str, str]
    budget: float | None = None
    of: str = ""


@dataclass(slots=True)
class Curve:
    """The figures at each point of one dimension, by column."""

    name: str
    axis: str
    panels: list[Panel]
    points: dict[int, dict[str, float]] = field(default_factory=dict)
    y_scale: str = "linear"

    def add(self, report: Report, point: int, figures: dict[str, float]) -> None:
        """Keep the figures of a point."""
        self.points[point] = figures
        for panel in self.panels:
            for column in panel.lines:
                if column in figures:
                    budget = panel.budget if column.startswith(panel.of) else None
                    report.keep(f"{self.name} {point:,}: {column}", [figures[column]], panel.unit, budget=budget)

    def print(self, report: Report) -> None:
        """Print all as a table."""
        columns = [(panel, column) for panel in self.panels for column in panel.lines]
        columns = [one for one in columns if any(one[1] in figures for figures in self.points.values())]
        titles = [", ".join(filter(None, (column, panel.unit))) for panel, column in columns]
        rows = [
            [f"{point:,}", *(number(figures[column]) if column in figures else "" for _, column in columns)]
            for point, figures in self.points.items()
        ]
        report.table([self.axis, *titles], rows)
