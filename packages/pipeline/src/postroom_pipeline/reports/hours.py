"""The hours with events, by epoch of a root. Reports that only ask for this need not read all events."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.columns import hour_of_row
from ..schema.table import Frames, Table
from .scope import Scope
from .thresholds import Given, Threshold, chosen

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("epoch", c.INTEGER, "epoch of the events"),
        c.column("hour", c.MOMENT, "hour of the wall clock; the start of the day if the clock is suspect"),
        c.column("first_event", c.INTEGER, "lowest id of these events"),
        c.column("started_event", c.INTEGER, "the one that began the epoch; null if it is not among them"),
        c.column("day", c.DATE, "day of the events"),
    ]
)
KEY: Final = ("device", "root", "epoch", "hour", "day")
PARTITION: Final = ("day",)
TABLE: Final = Table("hours", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("events",)
SCOPE: Final = Scope(by_day_of=("events",))
THRESHOLDS: Final[tuple[Threshold, ...]] = ()
TROUBLE: Final = "false"


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """One row per hour with a known event."""
    chosen(THRESHOLDS, given)
    events = frames["events"].select("device", "root", "epoch", "event", "type", "wall_at", "day")
    started = F.min(F.when(F.col("type") == "epoch_started", F.col("event")))
    return (
        events.withColumn("hour", hour_of_row())
        .groupBy(*KEY)
        .agg(F.min("event").alias("first_event"), started.alias("started_event"))
    )
