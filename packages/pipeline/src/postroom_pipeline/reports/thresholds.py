"""Numbers from which on something is told as a trouble: data of each report, that the user may set otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..errors import UsageError

#: What the user sets otherwise, of one report: values by name of the threshold.
Given = Mapping[str, float]


class Threshold(NamedTuple):
    """One number, its unit at the end of its name."""

    name: str
    value: float
    meaning: str


def chosen(thresholds: Sequence[Threshold], given: Given | None) -> dict[str, float]:
    """The value of each threshold: the user's where there is one.

    :raises UsageError: the user names one that is not known.
    """
    values = {known.name: known.value for known in thresholds}
    unknown = sorted(set(given or {}) - set(values))
    if unknown:
        raise UsageError(f"no threshold {', '.join(unknown)}; there are {', '.join(values) or 'none'}")
    return values | dict(given or {})
