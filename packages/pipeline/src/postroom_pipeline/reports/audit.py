"""Whether every message of a queue is accounted for: between consecutive snapshots, and from the first to the last."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..held import held
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
        c.column("to_epoch", c.INTEGER, "epoch of the snapshot at its end"),
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
NEEDS: Final = ("events", "epochs", "snapshots", "queue_depth", "conflicts")
THRESHOLDS: Final[tuple[Threshold, ...]] = ()
TROUBLE: Final = "status = 'unbalanced' or (status = 'balanced' and counters_differ)"

_SPAN: Final = (*ROOT, "number")


def build(frames: c.Frames, given: Given | None = None) -> DataFrame:
    """What a restore undid is taken away from the flows again, in the span that ends behind it."""
    chosen(THRESHOLDS, given)
    ends = held(anchors(frames))
    rows = _states(frames, ends).unionByName(_flowed(flows(frames, ends)), allowMissingColumns=True)
    limits = ends.where("is_balanced").groupBy(*ROOT).agg(F.min("number").alias("first"), F.max("last").alias("last"))
    rows = rows.join(limits, [*ROOT]).where("number >= first")
    # Each row counts in its own span and in the whole one, in its queue and in the root.
    spans = F.array(
        F.struct(
            F.lit("between").alias("span"),
            F.col("number"),
            F.col("number").alias("first"),
            F.col("number").alias("last"),
        ),
        F.struct(F.lit("all").alias("span"), F.col("last").alias("number"), F.col("first"), F.col("last")),
    )
    rows = rows.select("*", F.explode(spans).alias("_in")).withColumn(
        "queue", F.explode(F.array_distinct(F.array(F.coalesce("queue", F.lit("")), F.lit(""))))
    )
    at_first, at_last = F.col("number") == F.col("_in")["first"], F.col("number") == F.col("_in")["last"]
    summed = rows.groupBy(
        *ROOT, F.col("_in")["span"].alias("span"), F.col("_in")["number"].alias("number"), "queue"
    ).agg(
        F.sum(F.when(at_first, F.coalesce("opening", F.lit(0))).otherwise(0)).alias("opening"),
        *(F.sum(F.coalesce(flow, F.lit(0))).alias(flow) for flow in FLOWS),
        *(F.sum(F.when(at_last, F.coalesce(state, F.lit(0))).otherwise(0)).alias(state) for state in STATES),
        F.sum(F.coalesce("told", F.lit(0))).alias("_told"),
        *(_differs(name, at_first, at_last) for name in COUNTERS),
    )
    return _judged(summed.join(_named(ends), [*ROOT, "span", "number"]))


def _named(ends: DataFrame) -> DataFrame:
    """What each span is called, where it begins and ends."""
    balanced = ends.where("is_balanced")
    end = ("number", "snapshot", "as_of_event", "epoch", "wall_at", "from_snapshot", "from_event")
    between = balanced.select(*ROOT, F.lit("between").alias("span"), *end)
    begun = balanced.groupBy(*ROOT).agg(F.min_by(F.struct("from_snapshot", "from_event"), "number").alias("begun"))
    whole = balanced.where("number = last").select(*ROOT, F.lit("all").alias("span"), *end[:5]).join(begun, [*ROOT])
    return between.unionByName(whole.select(*ROOT, "span", *end[:5], "begun.*"))


def _states(frames: c.Frames, ends: DataFrame) -> DataFrame:
    """What each queue held at the end of a span, and, as its opening, at the end of the one before."""
    held = frames["queue_depth"].join(ends.select(*_SPAN, "snapshot", "last"), [*ROOT, "snapshot"])
    states = held.select(*_SPAN, "queue", *STATES, *(_total(name).alias(f"{name}_to") for name in COUNTERS))
    opened = held.where("number = 1").select(*_SPAN, "queue", "opening")
    total = reduce(add, (F.coalesce(state, F.lit(0)) for state in STATES))
    carried = held.where("number < last").select(
        *ROOT,
        (F.col("number") + 1).alias("number"),
        "queue",
        total.alias("opening"),
        *(_total(name).alias(f"{name}_from") for name in COUNTERS),
    )
    return states.unionByName(opened, allowMissingColumns=True).unionByName(carried, allowMissingColumns=True)


def _flowed(moved: DataFrame) -> DataFrame:
    by, kind = F.col("by"), F.col("type")
    of_source = F.coalesce("flow", F.lit("")) != "moved_in"
    return moved.groupBy(*_SPAN, "queue").agg(
        *(F.sum(F.when(F.col("flow") == flow, by).otherwise(0)).alias(flow) for flow in FLOWS),
        F.sum(F.when(of_source, by).otherwise(0)).alias("told"),
        *(F.sum(F.when((kind == name) & of_source, by).otherwise(0)).alias(f"{name}_told") for name in COUNTERS),
        F.max(kind == "queue_deleted").alias("was_deleted"),
    )


def _total(name: str) -> Column:
    """A counter of a queue; one that is not named is 0."""
    return F.when(F.col("totals").isNotNull(), F.coalesce(F.col("totals")[name], F.lit(0)))


def _differs(name: str, at_first: Column, at_last: Column) -> Column:
    """Whether a counter grew by another number than the events say; null where an end is not known."""
    grew = F.max(F.when(at_last, F.col(f"{name}_to"))) - F.max(F.when(at_first, F.col(f"{name}_from")))
    told = F.coalesce(F.sum(f"{name}_told"), F.lit(0))
    known = ~F.coalesce(F.max("was_deleted"), F.lit(False)) & (F.max("queue") != "")
    return F.when(known, grew != told).alias(f"{name}_differs")


def _judged(rows: DataFrame) -> DataFrame:
    came = reduce(add, (F.col(name) for name in ("opening", *INFLOWS)))
    went = reduce(add, (F.col(name) for name in OUTFLOWS))
    present = reduce(add, (F.col(state) for state in STATES))
    differs = reduce(lambda one, other: one | other, (F.col(f"{name}_differs") for name in COUNTERS))
    untold = (
        F.col("as_of_event")
        - F.col("from_event")
        - F.max(F.when(F.col("queue") == "", F.col("_told"))).over(Window.partitionBy(*ROOT, "span", "number"))
    )
    told = rows.withColumns({"expected": came - went, "present": present, "missing_events": untold})
    told = told.withColumns({"difference": F.col("present") - F.col("expected"), "counters_differ": differs})
    status = F.when(F.col("missing_events") != 0, "incomplete").when(F.col("difference") == 0, "balanced")
    names = {"snapshot": "to_snapshot", "as_of_event": "to_event", "epoch": "to_epoch", "wall_at": "to_at"}
    return told.withColumn("status", status.otherwise("unbalanced")).withColumnsRenamed(names).select(*SCHEMA.names)
