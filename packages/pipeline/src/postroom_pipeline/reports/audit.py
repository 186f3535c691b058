"""Whether every message of a queue is accounted for: between consecutive snapshots, and from the first to the last."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..tables import columns as c
from .balance import FLOWS, INFLOWS, OUTFLOWS, anchors, flows
from .depth_hourly import STATES
from .lineage import ROOT
from .thresholds import Given, Threshold, chosen

#: Counters of a queue that are held against its events, by the type that they count.
COUNTERS: Final = ("published", "acked", "died", "dropped")

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("queue", c.TEXT, "the queue; empty for all of the root together"),
        c.column("span", c.TEXT, "`between` two consecutive snapshots, or `all`: from the first to the last"),
        c.column(
            "from_snapshot", c.TEXT, "snapshot at its beginning; empty where it begins with the first one's slice"
        ),
        c.column("to_snapshot", c.TEXT, "snapshot at its end"),
        c.column("from_event", c.INTEGER, "its events are behind this one"),
        c.column("to_event", c.INTEGER, "its last event"),
        c.column("to_at", c.MOMENT, "wall clock of the snapshot at its end; null where it is suspect"),
        c.column("opening", c.INTEGER, "messages at its beginning, dead letters among them"),
        c.column("published", c.INTEGER, "and those that were added"),
        c.column("moved_in", c.INTEGER, "and those that came from other queues"),
        c.column("acked", c.INTEGER, "less those that were done"),
        c.column("dropped_expired", c.INTEGER, "less those whose time was over"),
        c.column("dropped_purged", c.INTEGER, "less those that somebody removed"),
        c.column("dropped_limits", c.INTEGER, "less those that gave way to a limit"),
        c.column("dropped_failed", c.INTEGER, "less those that failed where the queue keeps no dead letters"),
        c.column("moved_out", c.INTEGER, "less those that went to other queues"),
        c.column("expected", c.INTEGER, "messages that should be there at its end"),
        *(c.column(state, c.INTEGER, f"messages that are `{state}` at its end") for state in STATES),
        c.column("present", c.INTEGER, "messages that are there at its end, in whatever state"),
        c.column(
            "difference", c.INTEGER, "`present` less `expected`: below 0 messages are lost, above it there are too many"
        ),
        c.column("missing_events", c.INTEGER, "events of the root that no snapshot has told"),
        c.column(
            "counters_differ", c.FLAG, "whether the queue's own counters say otherwise than its events; null: not known"
        ),
        c.column(
            "status",
            c.TEXT,
            "`balanced`; `unbalanced`; `incomplete`: events are missing, so that a difference proves nothing",
        ),
    ]
)
KEY: Final = ("device", "root", "queue", "span", "to_snapshot")
PARTITION: Final = ()
TABLE: Final = c.table("audit", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("events", "snapshots", "queue_depth")
THRESHOLDS: Final[tuple[Threshold, ...]] = ()
TROUBLE: Final = "status = 'unbalanced' or (status = 'balanced' and counters_differ)"

_SPAN: Final = (*ROOT, "snapshot", "number")
_SUMS: Final = ("opening", *FLOWS, *STATES)


def build(frames: c.Frames, given: Given | None = None) -> DataFrame:
    """What a restore undid is taken away from the flows again, in the span that ends behind it."""
    chosen(THRESHOLDS, given)
    ends = anchors(frames)
    moved = flows(frames, ends)
    spans = _spans(ends, moved)
    rows = _states(frames, ends).unionByName(_flowed(moved), allowMissingColumns=True)
    counted = rows.select("*", F.explode(F.array("queue", F.lit(""))).alias("_queue")).drop("queue")
    between = counted.groupBy(*_SPAN, F.col("_queue").alias("queue")).agg(
        *(F.sum(F.coalesce(name, F.lit(0))).alias(name) for name in _SUMS),
        *(_differs(name) for name in COUNTERS),
    )
    between = between.join(spans, [*_SPAN])
    return _judged(between.withColumn("span", F.lit("between")).unionByName(_overall(between)))


def _spans(ends: DataFrame, moved: DataFrame) -> DataFrame:
    """Each span with how many of its events no snapshot has told."""
    whole = F.col("as_of_event") - F.col("from_event")
    told = moved.where("flow is null or flow <> 'moved_in'").groupBy(*_SPAN).agg(F.sum("by").alias("told"))
    return (
        ends.where("number > 1 or has_opening")
        .join(told, [*_SPAN], "left")
        .select(
            *_SPAN,
            F.coalesce("from_snapshot", F.lit("")).alias("from_snapshot"),
            "from_event",
            F.col("as_of_event").alias("to_event"),
            F.col("wall_at").alias("to_at"),
            (whole - F.coalesce("told", F.lit(0))).alias("missing_events"),
        )
    )


def _states(frames: c.Frames, ends: DataFrame) -> DataFrame:
    """What each queue held at the end of a span, and, as its opening, at the end of the one before."""
    held = frames["queue_depth"].join(ends.select(*_SPAN, "has_opening"), [*ROOT, "snapshot"])
    states = held.select(*_SPAN, "queue", *STATES, *(_total(name).alias(f"{name}_to") for name in COUNTERS))
    opened = held.where("number = 1 and has_opening").select(*_SPAN, "queue", "opening")
    following = ends.select(*ROOT, F.col("from_snapshot").alias("before"), "snapshot", "number")
    total = reduce(add, (F.coalesce(state, F.lit(0)) for state in STATES))
    before = held.withColumnRenamed("snapshot", "before").drop("number").join(following, [*ROOT, "before"])
    carried = before.select(
        *_SPAN, "queue", total.alias("opening"), *(_total(name).alias(f"{name}_from") for name in COUNTERS)
    )
    return states.unionByName(opened, allowMissingColumns=True).unionByName(carried, allowMissingColumns=True)


def _flowed(moved: DataFrame) -> DataFrame:
    by, kind = F.col("by"), F.col("type")
    of_source = F.coalesce("flow", F.lit("")) != "moved_in"
    return (
        moved.where("queue is not null")
        .groupBy(*_SPAN, "queue")
        .agg(
            *(F.sum(F.when(F.col("flow") == flow, by).otherwise(0)).alias(flow) for flow in FLOWS),
            *(F.sum(F.when((kind == name) & of_source, by).otherwise(0)).alias(f"{name}_told") for name in COUNTERS),
            F.max(kind == "queue_deleted").alias("was_deleted"),
        )
    )


def _total(name: str) -> Column:
    """A counter of a queue; one that is not named is 0."""
    return F.when(F.col("totals").isNotNull(), F.coalesce(F.col("totals")[name], F.lit(0)))


def _differs(name: str) -> Column:
    """Whether a counter grew by another number than the events say; null where an end is not known."""
    grew = F.max(f"{name}_to") - F.max(f"{name}_from")
    told = F.coalesce(F.sum(f"{name}_told"), F.lit(0))
    known = ~F.coalesce(F.max("was_deleted"), F.lit(False))
    return F.when(known & (F.max("_queue") != ""), grew != told).alias(f"{name}_differs")


def _overall(between: DataFrame) -> DataFrame:
    """From the first balance of a root to its last: the spans put together."""
    ends = between.groupBy(*ROOT).agg(F.max("number").alias("last"))
    spans = between.select(*_SPAN, "from_snapshot", "from_event", "to_event", "to_at", "missing_events").distinct()
    whole = spans.groupBy(*ROOT).agg(
        F.max("number").alias("number"),
        F.max_by("snapshot", "number").alias("snapshot"),
        F.min_by("from_snapshot", "number").alias("from_snapshot"),
        F.min_by("from_event", "number").alias("from_event"),
        F.max_by("to_event", "number").alias("to_event"),
        F.max_by("to_at", "number").alias("to_at"),
        F.sum("missing_events").alias("missing_events"),
    )
    summed = (
        between.join(ends, [*ROOT])
        .groupBy(*ROOT, "queue")
        .agg(
            F.min_by("opening", "number").alias("opening"),
            *(F.sum(flow).alias(flow) for flow in FLOWS),
            *(F.sum(F.when(F.col("number") == F.col("last"), F.col(s)).otherwise(0)).alias(s) for s in STATES),
            *(F.max(f"{name}_differs").alias(f"{name}_differs") for name in COUNTERS),
        )
    )
    return summed.join(whole, [*ROOT]).withColumn("span", F.lit("all"))


def _judged(rows: DataFrame) -> DataFrame:
    came = reduce(add, (F.col(name) for name in ("opening", *INFLOWS)))
    went = reduce(add, (F.col(name) for name in OUTFLOWS))
    present = reduce(add, (F.col(state) for state in STATES))
    differs = reduce(lambda one, other: one | other, (F.col(f"{name}_differs") for name in COUNTERS))
    status = F.when(F.col("missing_events") != 0, "incomplete").when(F.col("difference") == 0, "balanced")
    told = rows.withColumns({"expected": came - went, "present": present, "counters_differ": differs})
    told = told.withColumn("difference", F.col("present") - F.col("expected"))
    judged = told.withColumns({"status": status.otherwise("unbalanced"), "to_snapshot": F.col("snapshot")})
    return judged.select(*SCHEMA.names)
