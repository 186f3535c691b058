"""Thresholds: the numbers from which a report lists something as a trouble. The user may change them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..errors import UsageError

#: The values that the user sets for one report, by name of the threshold.
Given = Mapping[str, float]


class Threshold(NamedTuple):
    """One number; its name ends with its unit."""

    name: str
    value: float
    meaning: str


def chosen(thresholds: Sequence[Threshold], given: Given | None) -> dict[str, float]:
    """The value of each threshold: the user's, or the default.

    :raises UsageError: the user names a threshold that does not exist.
    """
    values = {threshold.name: threshold.value for threshold in thresholds}
    unknown = sorted(set(given or {}) - set(values))
    if unknown:
        raise UsageError(f"no threshold {', '.join(unknown)}; there are {', '.join(values) or 'none'}")
    return values | dict(given or {})
