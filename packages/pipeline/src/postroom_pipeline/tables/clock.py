"""Wall clocks of devices, which may be wrong: what a day and a time is made of."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

#: 2015 to 2100, Unix milliseconds: a device whose clock is outside was never set.
SANE_FROM_MS: Final = 1_420_070_400_000
SANE_UNTIL_MS: Final = 4_102_444_800_000


def is_suspect(wall_ms: Column) -> Column:
    """Whether a wall clock cannot be right."""
    return ~F.coalesce((wall_ms >= SANE_FROM_MS) & (wall_ms < SANE_UNTIL_MS), F.lit(False))


def time_of(wall_ms: Column) -> Column:
    """A wall clock as a time; null where it cannot be right."""
    return F.timestamp_millis(F.when(~is_suspect(wall_ms), wall_ms))


def day_of(wall_ms: Column, arrival: Column) -> Column:
    """The day of a wall clock, UTC; the day of arrival where it cannot be right, lest it make days of its own."""
    return F.coalesce(F.to_date(time_of(wall_ms)), arrival)
