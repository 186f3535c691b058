"""The text format of Prometheus, version 0.0.4: families of samples, each with help and type."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Metric:
    """A family of samples. By the conventions of Prometheus, ``name`` ends in the unit, and in ``_total`` for a
    counter. ``labels`` are the names of its labels."""

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = ()


class Bounded(Protocol):
    """A histogram with bounds."""

    total: int

    @property
    def count(self) -> int: ...
    def cumulated(self) -> list[tuple[int, int]]: ...


class Exposition:
    """Builds the text. Samples of a family are grouped, in the order in which they were added."""

    def __init__(self) -> None:
        self._lines: dict[Metric, list[str]] = {}

    def add(self, metric: Metric, value: float, *labels: str) -> None:
        """Add a sample, with a value for each of the metric's labels."""
        self._family(metric).append(f"{metric.name}{_labelled(metric.labels, labels)} {_number(value)}")

    def add_all(self, metric: Metric, values: Iterable[tuple[str, float]]) -> None:
        """Add a sample for each value of the metric's only label."""
        for label, value in values:
            self.add(metric, value, label)

    def histogram(self, metric: Metric, values: Bounded, unit: float) -> None:
        """Add a histogram whose values are multiples of ``unit``."""
        lines = self._family(metric)
        for bound, count in values.cumulated():
            lines.append(f'{metric.name}_bucket{{le="{bound * unit:.12g}"}} {count}')
        lines.append(f'{metric.name}_bucket{{le="+Inf"}} {values.count}')
        lines.append(f"{metric.name}_sum {values.total * unit:.12g}")
        lines.append(f"{metric.name}_count {values.count}")

    def summary(self, metric: Metric, quantiles: Iterable[tuple[float, float]], total: float, count: int) -> None:
        """Add a summary."""
        lines = self._family(metric)
        lines += [f'{metric.name}{{quantile="{quantile:g}"}} {_number(value)}' for quantile, value in quantiles]
        lines += [f"{metric.name}_sum {_number(total)}", f"{metric.name}_count {count}"]

    def text(self) -> str:
        """The complete text."""
        parts = []
        for metric, lines in self._lines.items():
            parts.append(f"# HELP {metric.name} {metric.help.translate(_HELP_ESCAPES)}")
            parts.append(f"# TYPE {metric.name} {metric.type}")
            parts += lines
        return "\n".join(parts) + "\n"

    def _family(self, metric: Metric) -> list[str]:
        return self._lines.setdefault(metric, [])


def _labelled(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    pairs = zip(names, values, strict=True)
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs) + "}"


def _number(value: float) -> str:
    return repr(value) if type(value) is float else str(int(value))
