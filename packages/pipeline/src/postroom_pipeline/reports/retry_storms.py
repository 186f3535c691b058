"""Times in which most deliveries of a queue fail and are retried."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.table import Frames, Table
from ..spark.session import frame_of, materialized
from .lineage import native
from .scope import OF_DEVICE
from .thresholds import Given, Threshold, chosen

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("epoch", c.INTEGER, "epoch of the events"),
        c.column("queue", c.TEXT, "queue of the messages"),
        c.column("from_event", c.INTEGER, "first failed delivery of the storm"),
        c.column("to_event", c.INTEGER, "last event"),
        c.column("from_engine_ms", c.INTEGER, "engine time of the first event"),
        c.column("to_engine_ms", c.INTEGER, "engine time of the last event"),
        c.column("from_at", c.MOMENT, "wall clock of the first event; null if it is suspect"),
        c.column("to_at", c.MOMENT, "wall clock of the last event; null if it is suspect"),
        c.column("retries", c.INTEGER, "failed deliveries"),
        c.column("deliveries", c.INTEGER, "deliveries in the same period"),
        c.column("messages", c.INTEGER, "number of failed messages"),
        c.column("consumers", c.INTEGER, "number of consumers"),
        c.column("died", c.INTEGER, "messages that died in the same period"),
        c.column("reason_code", c.TEXT, "most frequent reason code of the failures; the smallest of several"),
    ]
)
KEY: Final = ("device", "root", "epoch", "queue", "from_event")
PARTITION: Final = ()
TABLE: Final = Table("retry_storms", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("rare_events", "imports", "deliveries")
SCOPE: Final = OF_DEVICE
THRESHOLDS: Final = (
    Threshold("window_ms", 300_000, "time that is examined after each failed delivery; closer storms are merged"),
    Threshold("retries_min", 20, "minimum number of failed deliveries in that time"),
    Threshold("messages_min", 3, "minimum number of failing messages; one alone is poison"),
    Threshold("share_min", 0.5, "minimum share of all deliveries in that time"),
)
TROUBLE: Final = "true"

#: The columns of events that are read: plans of few columns are prepared faster.
_READ: Final = (
    "device",
    "root",
    "epoch",
    "event",
    "request_end",
    "type",
    "queue",
    "message",
    "consumer",
    "reason_code",
    "engine_ms",
    "wall_at",
)
_QUEUE: Final = ("device", "root", "epoch", "queue")


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """A storm includes all failed deliveries of the examined times, also those before the thresholds were reached."""
    limits = chosen(THRESHOLDS, given)
    kind = F.col("type")
    ended = native(frames["rare_events"].select(*_READ), frames["imports"]).where(kind.isin("retried", "died"))
    looked = Window.partitionBy(*_QUEUE).orderBy("engine_ms").rangeBetween(-int(limits["window_ms"]), 0)
    # Few queues have so many failed deliveries within the time: only their other deliveries are counted.
    failures = ended.where("type = 'retried'").withColumn("_retries", F.count(F.lit(1)).over(looked))
    queues = materialized(failures.where(F.col("_retries") >= limits["retries_min"]).select(*_QUEUE).distinct())
    none = frame_of(ended.sparkSession, [], SCHEMA)
    if queues.isEmpty():  # as it should be
        return none
    leased = frames["deliveries"].select(*_QUEUE, F.inline("leases"), F.lit("leased").alias("type"))
    events = ended.unionByName(leased, allowMissingColumns=True).join(F.broadcast(queues), [*_QUEUE], "left_semi")
    failed = F.when(kind == "retried", F.col("engine_ms"))
    seen = events.withColumns(
        {
            "_retries": F.count(failed).over(looked),
            "_leases": F.count_if(kind == "leased").over(looked),
            "_since": F.min(failed).over(looked),
        }
    )
    hot = seen.where(
        (kind == "retried")
        & (F.col("_retries") >= limits["retries_min"])
        & (F.col("_retries") >= F.col("_leases") * limits["share_min"])
    )
    order = Window.partitionBy(*_QUEUE).orderBy("engine_ms", "event")
    apart = F.coalesce(F.col("_since") - F.lag("engine_ms").over(order) > limits["window_ms"], F.lit(True))
    numbered = hot.withColumn("_storm", F.sum(apart.cast("int")).over(order))
    storms = materialized(
        numbered.groupBy(*_QUEUE, "_storm").agg(
            F.min("_since").alias("from_engine_ms"), F.max("engine_ms").alias("to_engine_ms")
        )
    )
    if storms.isEmpty():
        return none
    return _told(events, storms).where(F.col("messages") >= limits["messages_min"])


def _told(events: DataFrame, storms: DataFrame) -> DataFrame:
    within = events.join(storms, [*_QUEUE]).where(
        F.col("engine_ms").between(F.col("from_engine_ms"), F.col("to_engine_ms"))
    )
    retried, place = F.col("type") == "retried", F.col("event")
    by_reason = (
        within.where(retried)
        .groupBy(*_QUEUE, "_storm", F.coalesce("reason_code", F.lit("")).alias("reason"))
        .agg(F.count(F.lit(1)).alias("n"))
        .groupBy(*_QUEUE, "_storm")
        .agg(F.min_by("reason", F.struct(-F.col("n"), "reason")).alias("reason_code"))
    )
    return (
        within.groupBy(*_QUEUE, "_storm", "from_engine_ms", "to_engine_ms")
        .agg(
            F.min(F.when(retried, place)).alias("from_event"),
            F.max(F.when(retried, place)).alias("to_event"),
            F.min_by("wall_at", F.when(retried, place)).alias("from_at"),
            F.max_by("wall_at", F.when(retried, place)).alias("to_at"),
            F.count_if(retried).alias("retries"),
            F.count_if(F.col("type") == "leased").alias("deliveries"),
            F.count_distinct(F.when(retried, F.col("message"))).alias("messages"),
            F.count_distinct(F.when(retried, F.col("consumer"))).alias("consumers"),
            F.count_if(F.col("type") == "died").alias("died"),
        )
        .join(by_reason, [*_QUEUE, "_storm"])
        .drop("_storm")
    )
