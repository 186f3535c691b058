"""Columns that several tables share, and the expressions for wall clocks, which may be wrong."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

TEXT: Final = StringType()
INTEGER: Final = LongType()
NUMBER: Final = DoubleType()
FLAG: Final = BooleanType()
MOMENT: Final = TimestampType()
DATE: Final = DateType()

#: 2015 to 2100 in Unix milliseconds: a device whose wall clock is outside was never set.
SANE_FROM_MS: Final = 1_420_070_400_000
SANE_UNTIL_MS: Final = 4_102_444_800_000
_HOUR_MICROS: Final = 3_600_000_000


def column(name: str, kind: DataType, meaning: str) -> StructField:
    """A column with its meaning, which the documents show."""
    return StructField(name, kind, metadata={"comment": meaning})


DEVICE: Final = column("device", TEXT, "name of the device")
SNAPSHOT: Final = column("snapshot", TEXT, "id of the snapshot")
ROOT: Final = column("root", TEXT, "id of the root")
WALL_AT: Final = column("wall_at", MOMENT, "`wall_ms` as a time; null if the clock is suspect")
CLOCK_SUSPECT: Final = column("clock_suspect", FLAG, "whether the wall clock is outside 2015 to 2100")
DAY: Final = column("day", DATE, "day of the wall clock, UTC; that of the file's arrival if the clock is suspect")

#: The columns of a snapshot in every table with rows of one: which device, when, as of which event.
OF_SNAPSHOT: Final = (
    DEVICE,
    SNAPSHOT,
    ROOT,
    column("epoch", INTEGER, "epoch of the root when the snapshot was taken"),
    column("as_of_event", INTEGER, "event that the row reflects"),
    column("wall_ms", INTEGER, "wall clock of the device when the snapshot was taken, in Unix ms"),
    column("engine_ms", INTEGER, "engine time of the root then"),
    WALL_AT,
    CLOCK_SUSPECT,
)


def of_snapshot(*own: StructField) -> StructType:
    """The schema of a table with rows of snapshots: the snapshot's columns, the table's own, the day."""
    return StructType([*OF_SNAPSHOT, *own, DAY])


def is_suspect(wall_ms: Column) -> Column:
    """Whether a wall clock cannot be right."""
    return ~F.coalesce((wall_ms >= SANE_FROM_MS) & (wall_ms < SANE_UNTIL_MS), F.lit(False))


def time_of(wall_ms: Column) -> Column:
    """A wall clock as a timestamp; null if it cannot be right."""
    return F.timestamp_millis(F.when(~is_suspect(wall_ms), wall_ms))


def day_of(wall_ms: Column, arrival: Column) -> Column:
    """The day of a wall clock, UTC; the day of arrival if the clock cannot be right, so that it creates no days."""
    return F.coalesce(F.to_date(time_of(wall_ms)), arrival)


def hour_of_row() -> Column:
    """The hour of a row's ``wall_at``; the beginning of its ``day`` if the clock is suspect."""
    micros = F.unix_micros("wall_at")  # ``date_trunc`` takes ten times as long, for the sake of time zones
    hour = F.timestamp_micros(micros - micros % _HOUR_MICROS)
    return F.coalesce(hour, F.col("day").cast("timestamp"))


def clock_columns() -> dict[str, Column]:
    """``wall_at`` and ``clock_suspect`` of a row, computed from its ``wall_ms``."""
    wall = F.col("wall_ms")
    return {"wall_at": time_of(wall), "clock_suspect": is_suspect(wall)}


def is_one_of(days: Collection[str]) -> Column:
    """Whether a row is of any of these days; Spark then reads only their directories."""
    return F.col("day").isin([F.to_date(F.lit(day)) for day in sorted(days)]) if days else F.lit(False)
