"""What a sample of values looks like: means, moments, percentiles, a histogram.

The definitions are those of the Erlang libraries folsom and bear (https://github.com/folsom-project/bear), whose
figures LMQ's statistics show.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

_PERCENTILES: Final = {"50": 0.5, "75": 0.75, "90": 0.9, "95": 0.95, "99": 0.99, "99.9": 0.999}
#: Values from which a variance says something; below, everything but the mean and the ends is 0.
_LEAST: Final = 2


def described(values: Sequence[float]) -> dict[str, Any]:
    """The figures of a sample of non-negative values; ``n`` alone if it is empty."""
    n = len(values)
    if not n:
        return {"n": 0}
    ordered = sorted(values)
    mean = math.fsum(ordered) / n
    deviations = [value - mean for value in ordered]
    variance = math.fsum(d**2 for d in deviations) / (n - 1) if n >= _LEAST else 0.0
    deviation = math.sqrt(variance)
    inverse = math.fsum(1 / value for value in ordered if value)
    return {
        "n": n,
        "min": ordered[0],
        "max": ordered[-1],
        "mean": mean,
        "geometricMean": math.exp(math.fsum(math.log(value) if value else 1.0 for value in ordered) / n),
        "harmonicMean": n / inverse if inverse else 0.0,
        "median": _percentile(ordered, 0.5),
        "variance": variance,
        "standardDeviation": deviation,
        "skewness": math.fsum(d**3 for d in deviations) / n / deviation**3 if deviation**3 else 0.0,
        "kurtosis": math.fsum(d**4 for d in deviations) / n / deviation**4 - 3 if deviation**4 else 0.0,
        "percentiles": {name: _percentile(ordered, fraction) for name, fraction in _PERCENTILES.items()},
        "histogram": _histogram(ordered, deviation),
    }


def _percentile(ordered: list[float], fraction: float) -> float:
    return ordered[max(1, _rounded(fraction * len(ordered))) - 1]


def _rounded(value: float) -> int:
    """The next whole number, as Erlang rounds: a half goes up."""
    return math.floor(value + 0.5)


def _histogram(ordered: list[float], deviation: float) -> list[dict[str, Any]]:
    """How many values are at most ``upTo`` and above the bin before."""
    low, high = ordered[0], ordered[-1]
    width = max(1, _rounded(3.5 * deviation / len(ordered) ** 0.3333333))
    edges = sorted({_edge(number * width) for number in range(1, _rounded((high - low) / width) + 2)})
    bins = [edge + low for edge in edges] if len(edges) > 1 else [high]
    counts = [0] * len(bins)
    at = 0
    for value in ordered:
        while value > bins[at] and at < len(bins) - 1:
            at += 1
        counts[at] += 1
    return [{"upTo": up_to, "count": count} for up_to, count in zip(bins, counts, strict=True)]


def _edge(distance: int) -> int:
    """The distance of a bin's end from the least value, rounded up to two digits or so."""
    base = int(10 ** _rounded(math.log10(distance) - 1)) if distance >= 10 else 1
    base = max(1, base)
    return distance + -distance % base
