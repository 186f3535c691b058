"""Messages that fail at each delivery while other messages of their queue succeed."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.table import Frames, Table
from ..spark.session import frame_of, fully, materialized
from .lineage import ROOT, native, standing
from .scope import OF_DEVICE
from .thresholds import Given, Threshold, chosen

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("message", c.TEXT, "key of the message"),
        c.column("queue", c.TEXT, "queue of its last failure"),
        c.column("failures", c.INTEGER, "failed deliveries"),
        c.column("consumers", c.INTEGER, "number of consumers at which it failed"),
        c.column("from_event", c.INTEGER, "first failed delivery"),
        c.column("to_event", c.INTEGER, "last event"),
        c.column("from_at", c.MOMENT, "wall clock of the first event; null if it is suspect"),
        c.column("to_at", c.MOMENT, "wall clock of the last event; null if it is suspect"),
        c.column("others_done", c.INTEGER, "messages of the queue acknowledged between these two"),
        c.column("others_failed", c.INTEGER, "failed deliveries of other messages of the queue between these two"),
        c.column("reason_code", c.TEXT, "reason code of the last failure"),
        c.column("cause", c.TEXT, "reason code of the last failure, if no attempt was left"),
        c.column("state", c.TEXT, "what happened to it: `open`, `dead` or `dropped`"),
        c.column("payload_digest", c.TEXT, "digest of the body"),
        c.column("same_body", c.INTEGER, "messages with the same body in this table, on all devices"),
    ]
)
KEY: Final = ("device", "root", "message")
PARTITION: Final = ()
TABLE: Final = Table("poison_messages", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("rare_events", "restores", "imports", "events", "messages")
#: These are only read if a message failed often.
SELDOM: Final = ("events", "messages")
SCOPE: Final = OF_DEVICE
THRESHOLDS: Final = (
    Threshold("failures_min", 3, "minimum number of failures, unless it died with `POISON`"),
    Threshold("alike_max", 2, "others may fail this many times as often, if fewer of them succeed"),
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
    "cause",
    "wall_at",
)
_QUEUE: Final = ("device", "root", "epoch", "queue")
#: Reasons that say nothing about the message: its time ran out, somebody decided, or space was short.
_NO_FAILURE: Final = ("MESSAGE_EXPIRED", "QUEUE_FULL", "PURGED", "BODY_LOST", "ABANDONED")


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """Messages that were finally acknowledged are omitted, and so are those that failed when everything failed."""
    limits = chosen(THRESHOLDS, given)
    failed = _ended(frames["rare_events"], frames).where("is_failure")
    often = materialized(_often(failed, limits))
    if often.isEmpty():  # as it should be
        return frame_of(often.sparkSession, [], SCHEMA)
    with fully(often.sparkSession):
        return materialized(_poison(frames, failed, often, limits))


def _poison(frames: Frames, failed: DataFrame, often: DataFrame, limits: dict[str, float]) -> DataFrame:
    messages = frames["messages"].where(F.col("state") != "acked")
    often = often.join(messages.select(*ROOT, "message"), [*ROOT, "message"], "left_semi")
    suspects = failed.join(often, [*ROOT, "message"], "left_semi").select(*_QUEUE).distinct()
    failing = (
        _counted(frames, materialized(suspects))
        .where("is_failure")
        .groupBy(*ROOT, "message")
        .agg(
            F.count(F.lit(1)).alias("failures"),
            F.count_distinct("consumer").alias("consumers"),
            F.max(F.col("reason_code") == "POISON").alias("is_poison"),
            *(F.max_by(name, F.struct("epoch", "event")).alias(name) for name in ("queue", "reason_code", "cause")),
            F.min_by("event", F.struct("epoch", "event")).alias("from_event"),
            F.max_by("event", F.struct("epoch", "event")).alias("to_event"),
            F.min_by("wall_at", F.struct("epoch", "event")).alias("from_at"),
            F.max_by("wall_at", F.struct("epoch", "event")).alias("to_at"),
            (F.max("done") - F.min("done")).alias("others_done"),
            (F.max("failed") - F.min("failed") + 1 - F.count(F.lit(1))).alias("others_failed"),
        )
    )
    enough = (F.col("failures") >= limits["failures_min"]) | F.coalesce("is_poison", F.lit(False))
    bearable = F.greatest(F.col("others_done"), F.col("failures") * limits["alike_max"])
    poison = failing.where(enough & (F.col("others_failed") <= bearable)).join(
        messages.select(*ROOT, "message", "state", "payload_digest"), [*ROOT, "message"]
    )
    return together(poison.drop("is_poison"))


def together(rows: DataFrame) -> DataFrame:
    """The rows of several devices with ``same_body``, which is about all of them."""
    same = F.count(F.lit(1)).over(Window.partitionBy("payload_digest"))
    return rows.withColumn("same_body", F.when(F.col("payload_digest").isNotNull(), same))


def _often(failed: DataFrame, limits: dict[str, float]) -> DataFrame:
    """The messages that failed often enough."""
    counted = failed.groupBy(*ROOT, "message").agg(
        F.count(F.lit(1)).alias("failures"),
        F.coalesce(F.max(F.col("reason_code") == "POISON"), F.lit(False)).alias("is_poison"),
    )
    return counted.where((F.col("failures") >= limits["failures_min"]) | F.col("is_poison"))


def _ended(events: DataFrame, frames: Frames) -> DataFrame:
    """Ends of deliveries among events; ``is_failure`` says which are failures."""
    kind, reason = F.col("type"), F.coalesce("reason_code", F.lit(""))
    failure = kind.isin("retried", "died", "dropped") & ~reason.isin(*_NO_FAILURE)
    events = native(events.select(*_READ), frames["imports"])
    ended = standing(events, frames["restores"]).withColumn("is_failure", failure)
    return ended.where((kind == "acked") | F.col("is_failure"))


def _counted(frames: Frames, queues: DataFrame) -> DataFrame:
    """Ends of deliveries in some queues, with the number of acked (``done``) and failed (``failed``) ones up to each.

    If all attempts are spent, the last failure and the death are one event.
    """
    here = [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in _QUEUE]
    named = queues.withColumnsRenamed({name: f"_{name}" for name in _QUEUE})
    ended = _ended(frames["events"], frames).join(named, reduce(and_, here), "left_semi")
    kind = F.col("type")
    past = Window.partitionBy(*_QUEUE).orderBy("event").rowsBetween(Window.unboundedPreceding, 0)
    return ended.withColumns(
        {"done": F.count_if(kind == "acked").over(past), "failed": F.count_if(F.col("is_failure")).over(past)}
    )
