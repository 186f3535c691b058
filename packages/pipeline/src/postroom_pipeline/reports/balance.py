"""What flows into and out of queues between the snapshots of a root: the ground of the audit."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ..tables.clock import time_of
from ..tables.columns import Frames
from .lineage import ROOT, with_undone

#: Why a message is dropped without its queue having given it up: by the code of its end.
DROPS: Final = {"dropped_expired": "MESSAGE_EXPIRED", "dropped_purged": "PURGED", "dropped_limits": "QUEUE_FULL"}
#: What is added to a queue, and what is taken away.
INFLOWS: Final = ("published", "moved_in")
OUTFLOWS: Final = ("acked", *DROPS, "dropped_failed", "moved_out")
FLOWS: Final = (*INFLOWS, *OUTFLOWS)


def anchors(frames: Frames) -> DataFrame:
    """The consistent snapshots of each root in order, one for each event that they are as of. What tells of a past that
    was overwritten, because the device was put back to an earlier state, is left out.

    :returns: ``number`` from 1; ``from_snapshot`` (empty of the first); ``from_event``, behind which its events are;
        ``is_balanced``: false of the first where nobody knows what was there before its slice; ``last``: number of the
        last one of the root.
    """
    of_queues = (
        frames["queue_depth"].groupBy("device", "snapshot").agg(F.max(F.col("opening").isNotNull()).alias("told"))
    )
    whole, order = Window.partitionBy(*ROOT), Window.partitionBy(*ROOT).orderBy("epoch", "as_of_event")
    of = F.struct("snapshot", "wall_at", "first_event", "previous_event")
    named = (
        _standing(frames)
        .groupBy(*ROOT, "epoch", "as_of_event")
        .agg(F.min_by(of, F.struct(F.col("previous_event").isNotNull(), "snapshot")).alias("of"))
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
        F.count(F.lit(1)).over(whole).cast("int").alias("last"),
        F.coalesce(F.lag("snapshot").over(order), F.lit("")).alias("from_snapshot"),
        F.coalesce(F.lag("as_of_event").over(order), behind).alias("from_event"),
        (opening | F.lag("snapshot").over(order).isNotNull()).alias("is_balanced"),
    )


def _standing(frames: Frames) -> DataFrame:
    """Consistent snapshots, but those that were taken before one of their events happened as it is known now."""
    kept = (
        frames["conflicts"].where("kept").select(*ROOT, "epoch", "event", time_of(F.col("wall_ms")).alias("happened"))
    )
    is_past = (F.col("event") <= F.col("as_of_event")) & (F.col("happened") > F.col("wall_at"))
    snapshots = frames["snapshots"].where("consistent")
    past = snapshots.join(kept, [*ROOT, "epoch"]).where(is_past).select("device", "snapshot").distinct()
    return snapshots.join(past, ["device", "snapshot"], "left_anti")


def flows(frames: Frames, anchors: DataFrame) -> DataFrame:
    """Every event between two snapshots, at the ``number`` of the later one, with the ``queue`` that it changes,
    ``flow`` (null: none) and ``by``: 1, or -1 where a restore takes back what had been counted before."""
    events = with_undone(frames["events"], frames["epochs"])
    columns = (*ROOT, "epoch", "event", "type", "queue", "to", "reason_code", "by")
    counted = events.withColumn("by", F.lit(1)).select(*columns)
    undone = events.where("undone_epoch is not null").withColumns(
        {"epoch": F.col("undone_epoch"), "event": F.lit(0).cast("bigint"), "by": F.lit(-1)}
    )
    placed = _placed(counted.unionByName(undone.select(*columns)), anchors)
    return placed.select(*ROOT, "number", "by", "type", F.explode(_flows()).alias("_flow")).select(
        *ROOT, "number", "by", "type", F.col("_flow")["queue"].alias("queue"), F.col("_flow")["flow"].alias("flow")
    )


def _placed(rows: DataFrame, anchors: DataFrame) -> DataFrame:
    """Each row at the first snapshot that is as of its event or a later one. What stands before the first balance of a
    root, or behind the last one, is left out."""
    end = F.struct("number", "from_event", "is_balanced")
    ends = anchors.select(*ROOT, "epoch", F.col("as_of_event").alias("event"), end.alias("_end"))
    # Backwards, for a frame that begins with the row itself is computed anew for each row.
    back = Window.partitionBy(*ROOT).orderBy(
        F.col("epoch").desc(), F.col("event").desc(), F.col("_end").isNotNull().desc()
    )
    found = rows.unionByName(ends, allowMissingColumns=True).withColumn(
        "_at", F.last("_end", ignorenulls=True).over(back.rowsBetween(Window.unboundedPreceding, 0))
    )
    later = (F.col("_at")["number"] > 1) | (F.col("event") > F.col("_at")["from_event"])
    return found.where(F.col("_end").isNull() & F.col("_at")["is_balanced"] & later).select("*", "_at.number")


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
