"""How full each queue was after each event that changed it, and at each snapshot."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..tables import columns as c
from .lineage import standing
from .steps import changes, steps
from .thresholds import Given, Threshold, chosen

#: States of a message that waits or is worked on.
LIVE: Final = ("ready", "inflight", "delayed", "held")

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("queue", c.TEXT, "the queue"),
        c.column("epoch", c.INTEGER, "epoch of the event"),
        c.column("event", c.INTEGER, "the event, or the last one that a snapshot knows of"),
        c.column("snapshot", c.TEXT, "the snapshot that counted; empty: the event changed the queue"),
        c.column("engine_ms", c.INTEGER, "engine time of it"),
        c.column("wall_at", c.MOMENT, "wall clock of it; null where that is suspect"),
        c.column("live_depth", c.INTEGER, "messages that are not dead, then"),
        c.column("dead_depth", c.INTEGER, "dead letters, then"),
        c.DAY,
    ]
)
KEY: Final = ("device", "root", "queue", "epoch", "event", "snapshot")
PARTITION: Final = ("day",)
TABLE: Final = c.table("depth", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("events", "epochs", "dead_letters", "queue_depth", "snapshots")
THRESHOLDS: Final[tuple[Threshold, ...]] = ()
TROUBLE: Final = "false"

_TIMES: Final = ("engine_ms", "wall_at", "day")


def build(frames: c.Frames, given: Given | None = None) -> DataFrame:
    """Between snapshots it is what the last one counted, or the next where there is none before, and what events
    changed since. Where no snapshot tells of a queue, it held nothing before its first event."""
    chosen(THRESHOLDS, given)
    told = steps(frames["events"], frames["epochs"], frames["dead_letters"])
    moved = changes(told).select(*KEY[:-1], F.lit("").alias("snapshot"), *_TIMES, "live", "dead")
    rows = moved.unionByName(_counted(frames), allowMissingColumns=True)
    queue = Window.partitionBy("device", "root", "queue").orderBy("epoch", "event", "snapshot")
    past, whole = queue.rowsBetween(Window.unboundedPreceding, 0), Window.partitionBy("device", "root", "queue")
    for name in ("live", "dead"):
        rows = rows.withColumn("_sum", F.sum(F.coalesce(name, F.lit(0))).over(past))
        rows = rows.withColumn("_off", F.col(f"counted_{name}") - F.col("_sum"))
        known = F.last("_off", ignorenulls=True).over(past)
        next_known = F.min_by("_off", F.when(F.col("_off").isNotNull(), F.struct("epoch", "event"))).over(whole)
        offset = F.coalesce(known, next_known, F.lit(0))
        rows = rows.withColumn(f"{name}_depth", (F.col("_sum") + offset).cast("bigint"))
    return rows.select(*SCHEMA.names)


def _counted(frames: c.Frames) -> DataFrame:
    """What consistent snapshots counted; two as of one event say the same."""
    consistent = standing(frames["queue_depth"], frames["epochs"], "as_of_event").join(
        frames["snapshots"].where("consistent").select("device", "snapshot"), ["device", "snapshot"], "left_semi"
    )
    live = sum((F.coalesce(state, F.lit(0)) for state in LIVE), F.lit(0))
    return consistent.select(
        "device",
        "root",
        "queue",
        "epoch",
        F.col("as_of_event").alias("event"),
        "snapshot",
        *_TIMES,
        live.alias("counted_live"),
        F.coalesce("dead", F.lit(0)).alias("counted_dead"),
    )
