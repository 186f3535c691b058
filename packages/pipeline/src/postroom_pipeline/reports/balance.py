"""What flows into and out of queues between the snapshots of a root: the ground of the audit."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ..tables.columns import Frames
from .lineage import ROOT, epochs, with_undone

#: Why a message is dropped without its queue having given it up: by the code of its end.
DROPS: Final = {"dropped_expired": "MESSAGE_EXPIRED", "dropped_purged": "PURGED", "dropped_limits": "QUEUE_FULL"}
#: What is added to a queue, and what is taken away.
INFLOWS: Final = ("published", "moved_in")
OUTFLOWS: Final = ("acked", *DROPS, "dropped_failed", "moved_out")
FLOWS: Final = (*INFLOWS, *OUTFLOWS)


def anchors(frames: Frames) -> DataFrame:
    """The consistent snapshots of each root in order, one for each event that they are as of: ``number`` from 1,
    ``from_snapshot`` (null of the first), ``from_event`` behind which its events begin, ``has_opening``."""
    of_queues = (
        frames["queue_depth"].groupBy("device", "snapshot").agg(F.max(F.col("opening").isNotNull()).alias("told"))
    )
    order = Window.partitionBy(*ROOT).orderBy("epoch", "as_of_event")
    named = (
        frames["snapshots"]
        .where("consistent")
        .groupBy(*ROOT, "epoch", "as_of_event")
        .agg(
            F.min_by(
                F.struct("snapshot", "wall_at", "first_event", "previous_event"),
                F.struct(F.col("previous_event").isNotNull(), "snapshot"),
            ).alias("of")
        )
        .select(*ROOT, "epoch", "as_of_event", "of.*")
        .join(of_queues, ["device", "snapshot"], "left")
    )
    opening = F.coalesce("told", F.col("previous_event").isNull() & F.col("first_event").isNotNull())
    behind = F.coalesce(F.col("first_event") - 1, F.col("as_of_event"))
    return named.select(
        *ROOT,
        "epoch",
        "as_of_event",
        "snapshot",
        "wall_at",
        F.row_number().over(order).alias("number"),
        F.lag("snapshot").over(order).alias("from_snapshot"),
        F.coalesce(F.lag("as_of_event").over(order), behind).alias("from_event"),
        opening.alias("has_opening"),
    )


def flows(frames: Frames, anchors: DataFrame) -> DataFrame:
    """Every event between two snapshots, at the later one (``snapshot``, ``number``), with the ``queue`` that it
    changes, ``flow`` (null: none) and ``by``: 1, or -1 where a restore takes back what had been counted before."""
    events = with_undone(frames["events"], frames["events"])
    begun = epochs(frames["events"]).select(*ROOT, F.col("epoch").alias("undone_epoch"))
    counted = events.select(*ROOT, "epoch", "event", "type", "queue", "to", "reason_code", F.lit(1).alias("by"))
    undone = events.join(begun, [*ROOT, "undone_epoch"], "left_semi").select(
        *ROOT,
        F.col("undone_epoch").alias("epoch"),
        F.lit(0).cast("bigint").alias("event"),
        "type",
        "queue",
        "to",
        "reason_code",
        F.lit(-1).alias("by"),
    )
    placed = _placed(counted.unionByName(undone), anchors)
    return placed.select("*", F.explode(_flows()).alias("_flow")).select(
        *ROOT,
        "snapshot",
        "number",
        "by",
        "type",
        F.col("_flow")["queue"].alias("queue"),
        F.col("_flow")["flow"].alias("flow"),
    )


def _placed(rows: DataFrame, anchors: DataFrame) -> DataFrame:
    """Each row at the first snapshot that is as of its event or a later one. What stands before the first balance of a
    root, or behind the last one, is left out."""
    ends = anchors.select(
        *ROOT,
        "epoch",
        F.col("as_of_event").alias("event"),
        F.struct("snapshot", "number", "from_event", "has_opening").alias("_end"),
    )
    # Backwards, for a frame that begins with the row itself is computed anew for each row.
    back = Window.partitionBy(*ROOT).orderBy(
        F.col("epoch").desc(), F.col("event").desc(), F.col("_end").isNotNull().desc()
    )
    found = rows.unionByName(ends, allowMissingColumns=True).withColumn(
        "_at", F.last("_end", ignorenulls=True).over(back.rowsBetween(Window.unboundedPreceding, 0))
    )
    first = F.col("_at")["number"] == 1
    balanced = ~first | (F.col("_at")["has_opening"] & (F.col("event") > F.col("_at")["from_event"]))
    return found.where(F.col("_end").isNull() & F.col("_at").isNotNull() & balanced).select(
        "*", "_at.snapshot", "_at.number"
    )


def _flows() -> Column:
    kind, queue, to, reason = F.col("type"), F.col("queue"), F.col("to"), F.coalesce("reason_code", F.lit(""))
    dropped = F.lit("dropped_failed")
    for flow, code in DROPS.items():
        dropped = F.when(reason == code, flow).otherwise(dropped)
    leaves = kind.isin("moved", "reprocessed") & (to != queue)
    one = F.when(kind.isin("published", "acked"), kind).when(kind == "dropped", dropped)
    none = F.lit(None).cast("string")
    return F.when(leaves, F.array(_flow(queue, F.lit("moved_out")), _flow(to, F.lit("moved_in")))).otherwise(
        F.array(_flow(queue, F.coalesce(one, none)))
    )


def _flow(queue: Column, flow: Column) -> Column:
    return F.struct(queue.alias("queue"), flow.alias("flow"))
