"""How full each queue was, by hour: from the counts of snapshots, and from the events in between."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.columns import hour_of_row
from ..schema.table import Frames, Table
from .depth import LIVE
from .lineage import order
from .scope import Scope
from .thresholds import Given, Threshold, chosen

#: States of a message.
STATES: Final = (*LIVE, "dead")

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("queue", c.TEXT, "name of the queue"),
        c.column("hour", c.MOMENT, "hour of the wall clock; the start of the day if the clock is suspect"),
        c.column("snapshots", c.INTEGER, "number of snapshots in the hour"),
        *(c.column(f"{state}_last", c.INTEGER, f"`{state}` in the last snapshot") for state in STATES),
        c.column("ready_max", c.INTEGER, "maximum number of ready messages in these snapshots"),
        c.column("oldest_ready_age_ms", c.INTEGER, "maximum age of the oldest ready message in these snapshots"),
        c.column("events", c.INTEGER, "events of the hour that changed the number of messages"),
        c.column("live_end", c.INTEGER, "messages that are not dead at the end of the hour, from events and snapshots"),
        c.column("live_max", c.INTEGER, "maximum of them within the hour"),
        c.column("dead_end", c.INTEGER, "dead letters at the end of the hour, from events and snapshots"),
        c.DAY,
    ]
)
KEY: Final = ("device", "root", "queue", "hour", "day")
PARTITION: Final = ("day",)
TABLE: Final = Table("depth_hourly", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("depth", "queue_depth")
SCOPE: Final = Scope(by_day_of=("depth", "queue_depth"))
THRESHOLDS: Final[tuple[Threshold, ...]] = ()
TROUBLE: Final = "false"


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """Hours without a snapshot and without a change have no row: the depth is that of the previous hour."""
    chosen(THRESHOLDS, given)
    return (
        _counted(frames)
        .join(_by_events_and_snapshots(frames), [*KEY], "full")
        .withColumns({name: F.coalesce(name, F.lit(0).cast("bigint")) for name in ("snapshots", "events")})
    )


def _counted(frames: Frames) -> DataFrame:
    place = F.struct("epoch", "as_of_event", "engine_ms", "snapshot")
    return (
        frames["queue_depth"]
        .withColumn("hour", hour_of_row())
        .groupBy(*KEY)
        .agg(
            F.count(F.lit(1)).alias("snapshots"),
            *(F.max_by(state, place).alias(f"{state}_last") for state in STATES),
            F.max("ready").alias("ready_max"),
            F.max("oldest_ready_age_ms").alias("oldest_ready_age_ms"),
        )
    )


def _by_events_and_snapshots(frames: Frames) -> DataFrame:
    is_counted = F.col("snapshot") != ""
    place = order() * 2 + is_counted.cast("int")
    return (
        frames["depth"]
        .withColumn("hour", hour_of_row())
        .groupBy(*KEY)
        .agg(
            F.count_if(~is_counted).alias("events"),
            F.max_by("live_depth", place).alias("live_end"),
            F.max("live_depth").alias("live_max"),
            F.max_by("dead_depth", place).alias("dead_end"),
        )
    )
