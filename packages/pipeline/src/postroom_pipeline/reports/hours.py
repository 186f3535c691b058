"""The hours with events, by epoch of a root. Reports that only ask for this need not read all events."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.columns import hour_of_row
from ..schema.table import Frames, Table
from ..spark.session import materialized
from .scope import Scope
from .thresholds import Given, Threshold, chosen

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("epoch", c.INTEGER, "epoch of the events"),
        c.column("hour", c.MOMENT, "hour of the wall clock; the start of the day if the clock is suspect"),
        c.column("first_event", c.INTEGER, "lowest id of these events"),
        c.column("last_event", c.INTEGER, "highest id; all ids between are of events of this hour"),
        c.column("first_at", c.MOMENT, "wall clock of the first event; null if it is suspect"),
        c.column("last_at", c.MOMENT, "wall clock of the last event; null if it is suspect"),
        c.column("started_event", c.INTEGER, "the one that began the epoch; null if it is not among them"),
        c.column("day", c.DATE, "day of the events"),
    ]
)
KEY: Final = ("device", "root", "epoch", "hour", "first_event", "day")
PARTITION: Final = ("day",)
TABLE: Final = Table("hours", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("events",)
SCOPE: Final = Scope(by_day_of=("events",))
THRESHOLDS: Final[tuple[Threshold, ...]] = ()
TROUBLE: Final = "false"

_HOUR: Final = ("device", "root", "epoch", "hour", "day")


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """One row per hour and range of ids of which each is a known event of that hour: mostly one per hour."""
    chosen(THRESHOLDS, given)
    events = frames["events"].select("device", "root", "epoch", "event", "type", "wall_at", "day")
    events = events.withColumn("hour", hour_of_row())
    hours = materialized(_summed(events))
    is_range = F.col("last_event") - F.col("first_event") + 1 == F.col("events")
    ranges = hours.where(is_range).drop("events")
    parted = hours.where(~is_range).select(*_HOUR)
    if parted.isEmpty():  # as it should be: the events need not be read again
        return ranges
    order = Window.partitionBy(*_HOUR).orderBy("event")
    numbered = events.join(F.broadcast(parted), [*_HOUR], "left_semi").withColumn(
        "_range", F.col("event") - F.row_number().over(order)
    )
    return ranges.unionByName(_summed(numbered, "_range").drop("events", "_range"))


def _summed(events: DataFrame, *more: str) -> DataFrame:
    started = F.min(F.when(F.col("type") == "epoch_started", F.col("event")))
    return events.groupBy(*_HOUR, *more).agg(
        F.min("event").alias("first_event"),
        F.max("event").alias("last_event"),
        F.min_by("wall_at", "event").alias("first_at"),
        F.max_by("wall_at", "event").alias("last_at"),
        F.count(F.lit(1)).alias("events"),
        started.alias("started_event"),
    )
