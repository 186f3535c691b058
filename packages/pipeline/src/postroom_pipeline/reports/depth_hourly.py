"""How full each queue was, by hour: as snapshots counted it, and as events tell it in between."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..tables import columns as c
from .lineage import standing
from .steps import changes, hour, steps
from .thresholds import Given, Threshold, chosen

#: States of a message that waits or is worked on, and of one that is dead.
LIVE: Final = ("ready", "inflight", "delayed", "held")
STATES: Final = (*LIVE, "dead")

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("queue", c.TEXT, "the queue"),
        c.column("hour", c.MOMENT, "hour of the wall clock; the beginning of the day where the clock is suspect"),
        c.column("snapshots", c.INTEGER, "snapshots that were taken in that hour"),
        *(c.column(f"{state}_last", c.INTEGER, f"`{state}` in the last of them") for state in STATES),
        c.column("ready_max", c.INTEGER, "most ready messages in one of them"),
        c.column("oldest_ready_age_ms", c.INTEGER, "greatest age of a ready message in one of them"),
        c.column("events", c.INTEGER, "events of that hour that changed how many messages there are"),
        c.column("live_end", c.INTEGER, "messages that are not dead at the end of the hour, by events and snapshots"),
        c.column("live_max", c.INTEGER, "most of them within the hour"),
        c.column("dead_end", c.INTEGER, "dead letters at the end of the hour, by events and snapshots"),
        c.DAY,
    ]
)
KEY: Final = ("device", "root", "queue", "hour", "day")
PARTITION: Final = ("day",)
TABLE: Final = c.table("depth_hourly", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("events", "dead_letters", "queue_depth", "snapshots")
THRESHOLDS: Final[tuple[Threshold, ...]] = ()
TROUBLE: Final = "false"


def build(frames: c.Frames, given: Given | None = None) -> DataFrame:
    """Depth between snapshots is that of the last one, or the next where there is none before, and what events changed
    since. Hours in which nothing was seen and nothing changed have no row: the depth is that of the hour before."""
    chosen(THRESHOLDS, given)
    return (
        _counted(frames)
        .join(_told(frames), [*KEY], "full")
        .withColumns({name: F.coalesce(name, F.lit(0).cast("bigint")) for name in ("snapshots", "events")})
    )


def depth(frames: c.Frames) -> DataFrame:
    """``live_depth`` and ``dead_depth`` of a queue after each event that changes them, and at each snapshot.

    Where no snapshot tells of a queue, it held nothing before its first event.
    """
    moved = changes(steps(frames)).select(*_PLACE, "event", *_TIMES, "live", "dead", F.lit(False).alias("is_snapshot"))
    counted = _anchors(frames)
    rows = moved.unionByName(counted, allowMissingColumns=True)
    queue = Window.partitionBy("device", "root", "queue").orderBy("epoch", "event", "is_snapshot")
    past, whole = queue.rowsBetween(Window.unboundedPreceding, 0), Window.partitionBy("device", "root", "queue")
    for name in ("live", "dead"):
        rows = rows.withColumn("_sum", F.sum(F.coalesce(name, F.lit(0))).over(past))
        rows = rows.withColumn("_off", F.col(f"counted_{name}") - F.col("_sum"))
        known = F.last("_off", ignorenulls=True).over(past)
        next_known = F.min_by("_off", F.when(F.col("_off").isNotNull(), F.struct("epoch", "event"))).over(whole)
        offset = F.coalesce(known, next_known, F.lit(0))
        rows = rows.withColumn(f"{name}_depth", (F.col("_sum") + offset).cast("bigint"))
    return rows.drop("_sum", "_off", "counted_live", "counted_dead", "live", "dead")


_PLACE: Final = ("device", "root", "epoch", "queue")
_TIMES: Final = ("engine_ms", "wall_at", "day")


def _anchors(frames: c.Frames) -> DataFrame:
    """What consistent snapshots counted; two as of one event say the same."""
    consistent = standing(frames["queue_depth"], frames["events"], "as_of_event").join(
        frames["snapshots"].where("consistent").select("device", "snapshot"), ["device", "snapshot"], "left_semi"
    )
    live = sum((F.coalesce(state, F.lit(0)) for state in LIVE), F.lit(0))
    return consistent.select(
        *_PLACE,
        F.col("as_of_event").alias("event"),
        *_TIMES,
        live.alias("counted_live"),
        F.coalesce("dead", F.lit(0)).alias("counted_dead"),
        F.lit(True).alias("is_snapshot"),
    )


def _counted(frames: c.Frames) -> DataFrame:
    place = F.struct("epoch", "as_of_event", "engine_ms", "snapshot")
    return (
        frames["queue_depth"]
        .withColumn("hour", hour())
        .groupBy(*KEY)
        .agg(
            F.count(F.lit(1)).alias("snapshots"),
            *(F.max_by(state, place).alias(f"{state}_last") for state in STATES),
            F.max("ready").alias("ready_max"),
            F.max("oldest_ready_age_ms").alias("oldest_ready_age_ms"),
        )
    )


def _told(frames: c.Frames) -> DataFrame:
    place = F.struct("epoch", "event", "is_snapshot")
    return (
        depth(frames)
        .withColumn("hour", hour())
        .groupBy(*KEY)
        .agg(
            F.count_if(~F.col("is_snapshot")).alias("events"),
            F.max_by("live_depth", place).alias("live_end"),
            F.max("live_depth").alias("live_max"),
            F.max_by("dead_depth", place).alias("dead_end"),
        )
    )
