"""Whether every message of a queue is accounted for: between consecutive snapshots, and from the first to the last."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.columns import time_of
from ..schema.table import Frames, Table
from ..spark.session import fully, materialized
from .depth_hourly import STATES as DEPTH_STATES
from .flows import DROPS, READ, counted
from .lineage import ROOT, extents, with_undone
from .scope import OF_DEVICE
from .thresholds import Given, Threshold, chosen

#: Every state in which a queue may have messages.
STATES: Final = (*DEPTH_STATES, "done")
#: Flows into a queue, and out of it.
INFLOWS: Final = ("published", "moved_in")
_DROPPED: Final = (*DROPS, "dropped_failed")
OUTFLOWS: Final = ("acked", *_DROPPED, "moved_out")
FLOWS: Final = (*INFLOWS, *OUTFLOWS)
#: Counters of a queue that are compared with its events, by the type of event that they count.
COUNTERS: Final = ("published", "acked", "died", "dropped")
#: What is counted of events besides the flows.
_TOLD: Final = ("events", "acked_events", "died", "deleted")

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("queue", c.TEXT, "name of the queue; empty for the whole root"),
        c.column("span", c.TEXT, "`between` two consecutive snapshots, or `all`: from the first to the last"),
        c.column("from_snapshot", c.TEXT, "snapshot at the start; empty if the span starts with the first slice"),
        c.column("to_snapshot", c.TEXT, "snapshot at the end"),
        c.column("from_event", c.INTEGER, "the span starts after this event"),
        c.column("to_event", c.INTEGER, "last event of the span"),
        c.column("to_epoch", c.INTEGER, "epoch of the snapshot at the end"),
        c.column("to_at", c.MOMENT, "wall clock of the snapshot at the end; null if it is suspect"),
        c.column("opening", c.INTEGER, "messages at the start, including dead letters"),
        c.column("published", c.INTEGER, "plus messages published"),
        c.column("moved_in", c.INTEGER, "plus messages moved in from other queues"),
        c.column("acked", c.INTEGER, "minus messages acknowledged and not kept"),
        c.column("dropped_expired", c.INTEGER, "minus messages expired"),
        c.column("dropped_purged", c.INTEGER, "minus messages purged"),
        c.column("dropped_limits", c.INTEGER, "minus messages dropped by a limit"),
        c.column("dropped_failed", c.INTEGER, "minus messages that failed in a queue without dead letters"),
        c.column("moved_out", c.INTEGER, "minus messages moved to other queues"),
        c.column("expected", c.INTEGER, "expected messages at the end"),
        *(c.column(state, c.INTEGER, f"messages in state `{state}` at the end") for state in STATES),
        c.column("present", c.INTEGER, "messages at the end, in any state"),
        c.column(
            "difference", c.INTEGER, "`present` minus `expected`: below 0 messages are lost, above 0 there are too many"
        ),
        c.column("missing_events", c.INTEGER, "events of the root that are in no snapshot"),
        c.column("counters_differ", c.FLAG, "whether the counters of the queue contradict its events; null: unknown"),
        c.column(
            "status",
            c.TEXT,
            "`balanced`; `unbalanced`; `incomplete`: events are missing, so that a difference proves nothing",
        ),
    ]
)
KEY: Final = ("device", "root", "queue", "span", "to_snapshot")
PARTITION: Final = ()
TABLE: Final = Table("audit", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("flows", "events", "epochs", "restores", "snapshots", "queue_depth", "conflicts")
#: Read only for a few roots, if at all.
SELDOM: Final = ("events", "restores")
#: A row becomes several: from half as many bytes on as elsewhere, it pays off to compile its plans.
TIMES: Final = 2
SCOPE: Final = OF_DEVICE
THRESHOLDS: Final[tuple[Threshold, ...]] = ()
TROUBLE: Final = "status = 'unbalanced' or (status = 'balanced' and counters_differ)"

_SPAN: Final = (*ROOT, "number")
#: So many snapshots can be sent to every task.
_FEW_ENDS: Final = 200_000
#: After all epochs and events.
_NEVER: Final = 2**62


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """What a restore undid is subtracted from the flows, in the span that ends after it."""
    chosen(THRESHOLDS, given)
    ends = materialized(anchors(frames))
    rows = _states(frames, ends).unionByName(_flowed(_moved(frames, ends)), allowMissingColumns=True)
    # There are many rows, and few sums of a queue between two snapshots: all others are made of these.
    of_queues = materialized(rows.groupBy(*_SPAN, F.coalesce("queue", F.lit("")).alias("queue")).agg(*_sums()))
    of_roots = materialized(of_queues.groupBy(*_SPAN).agg(*_sums()).withColumn("queue", F.lit("")))
    between = of_queues.where("queue <> ''").unionByName(of_roots)
    limits = ends.where("is_balanced").groupBy(*ROOT).agg(F.min("number").alias("first"), F.max("last").alias("last"))
    whole = (
        between.join(limits, [*ROOT])
        .where("number >= first")
        .groupBy(*ROOT, "queue")
        .agg(*_sums(F.col("number") == F.col("first"), F.col("number") == F.col("last")), F.max("last").alias("number"))
    )
    each, all_of_them = (F.lit(span).alias("span") for span in ("between", "all"))
    summed = between.select("*", each).unionByName(whole.select("*", all_of_them))
    named = _named(ends, of_roots.select(*_SPAN, "events"))
    if ends.count() <= _FEW_ENDS:
        named = F.broadcast(named)
    return _with_status(summed.drop("events").join(named, [*ROOT, "span", "number"]))


def _sums(at_first: Column | None = None, at_last: Column | None = None) -> list[Column]:
    """Sums over rows of a span, or over spans of which these are the first and the last."""

    def where(is_so: Column | None, name: str) -> Column:
        return F.col(name) if is_so is None else F.when(is_so, F.col(name))

    return [
        F.sum(where(at_first, "opening")).alias("opening"),
        *(F.sum(where(at_last, state)).alias(state) for state in STATES),
        *(F.sum(name).alias(name) for name in (*FLOWS, *_TOLD)),
        *(F.max(where(at_first, f"{name}_from")).alias(f"{name}_from") for name in COUNTERS),
        *(F.max(where(at_last, f"{name}_to")).alias(f"{name}_to") for name in COUNTERS),
    ]


def _named(ends: DataFrame, told: DataFrame) -> DataFrame:
    """The snapshots and events at which each span begins and ends, and how many events there are in it.

    :param told: the ``events`` up to each end.
    """
    balanced = ends.where("is_balanced").join(told, [*_SPAN], "left")
    end = ("number", "snapshot", "as_of_event", "epoch", "wall_at")
    between = balanced.select(*ROOT, F.lit("between").alias("span"), *end, "from_snapshot", "from_event", "events")
    of_root = balanced.groupBy(*ROOT).agg(
        F.min_by(F.struct("from_snapshot", "from_event"), "number").alias("begun"), F.sum("events").alias("events")
    )
    whole = balanced.where("number = last").select(*ROOT, F.lit("all").alias("span"), *end).join(of_root, [*ROOT])
    return between.unionByName(whole.select(*ROOT, "span", *end, "begun.*", "events"))


def _states(frames: Frames, ends: DataFrame) -> DataFrame:
    """The counts of each queue at the end of a span, and at the end of the one before as its opening."""
    counted = frames["queue_depth"].join(ends.select(*_SPAN, "snapshot", "last"), [*ROOT, "snapshot"])
    states = counted.select(
        *_SPAN,
        "queue",
        F.when(F.col("number") == 1, F.col("opening")).alias("opening"),
        *STATES,
        *(_total(name).alias(f"{name}_to") for name in COUNTERS),
    )
    total = reduce(add, (F.coalesce(state, F.lit(0)) for state in STATES))
    carried = counted.where("number < last").select(
        *ROOT,
        (F.col("number") + 1).alias("number"),
        "queue",
        total.alias("opening"),
        *(_total(name).alias(f"{name}_from") for name in COUNTERS),
    )
    return states.unionByName(carried, allowMissingColumns=True)


def _flowed(moved: DataFrame) -> DataFrame:
    """What queues gained and lost in each span, and what events told of them.

    :param moved: rows with the columns of ``flows.COUNTS``.
    """
    lost = ("published", "acked", *_DROPPED)
    own = moved.select(*_SPAN, "queue", *lost, F.col("moved").alias("moved_out"), *_TOLD)
    others = moved.where("to <> ''").select(*_SPAN, F.col("to").alias("queue"), F.col("moved").alias("moved_in"))
    return own.unionByName(others, allowMissingColumns=True)


def _total(name: str) -> Column:
    """A counter of a queue; one that is not listed is 0."""
    return F.when(F.col("totals").isNotNull(), F.coalesce(F.col("totals")[name], F.lit(0)))


def _differs(name: str, events: Column) -> Column:
    """Whether a counter grew by another number than its events; null if an end of the span is not known."""
    known = (F.coalesce("deleted", F.lit(0)) == 0) & (F.col("queue") != "")
    return F.when(known, F.col(f"{name}_to") - F.col(f"{name}_from") != events)


def _with_status(rows: DataFrame) -> DataFrame:
    rows = rows.fillna(0, ["opening", *STATES, *FLOWS, *_TOLD])
    came = reduce(add, (F.col(name) for name in ("opening", *INFLOWS)))
    went = reduce(add, (F.col(name) for name in OUTFLOWS))
    present = reduce(add, (F.col(state) for state in STATES))
    told = {"published": F.col("published"), "acked": F.col("acked_events"), "died": F.col("died")}
    told["dropped"] = reduce(add, (F.col(name) for name in _DROPPED))
    differs = reduce(lambda one, other: one | other, (_differs(name, events) for name, events in told.items()))
    missing = F.col("as_of_event") - F.col("from_event") - F.col("events")
    balances = rows.withColumns({"expected": came - went, "present": present, "missing_events": missing})
    balances = balances.withColumns({"difference": F.col("present") - F.col("expected"), "counters_differ": differs})
    status = F.when(F.col("missing_events") != 0, "incomplete").when(F.col("difference") == 0, "balanced")
    names = {"snapshot": "to_snapshot", "as_of_event": "to_event", "epoch": "to_epoch", "wall_at": "to_at"}
    return balances.withColumn("status", status.otherwise("unbalanced")).withColumnsRenamed(names).select(*SCHEMA.names)


def anchors(frames: Frames) -> DataFrame:
    """The consistent snapshots of each root in order, one for each ``as_of_event``. Snapshots of a past that was
    overwritten, because the device was set back to an earlier state, are left out.

    :returns: ``number`` from 1; ``from_snapshot`` (empty for the first); ``from_epoch`` and ``from_event``, after
        which its events come;
        ``is_balanced``: false for a first snapshot without opening counts; ``last``: the root's last ``number``.
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
        F.coalesce(F.lag("epoch").over(order), F.lit(0)).alias("from_epoch"),
        F.coalesce(F.lag("as_of_event").over(order), behind).alias("from_event"),
        (opening | F.lag("snapshot").over(order).isNotNull()).alias("is_balanced"),
    )


def _standing(frames: Frames) -> DataFrame:
    """Consistent snapshots, without those taken before one of their events happened, by the content that counts now."""
    winners = (
        frames["conflicts"].where("kept").select(*ROOT, "epoch", "event", time_of(F.col("wall_ms")).alias("happened"))
    )
    is_past = (F.col("event") <= F.col("as_of_event")) & (F.col("happened") > F.col("wall_at"))
    snapshots = frames["snapshots"].where("consistent")
    past = snapshots.join(winners, [*ROOT, "epoch"]).where(is_past).select("device", "snapshot").distinct()
    return snapshots.join(past, ["device", "snapshot"], "left_anti")


def _moved(frames: Frames, ends: DataFrame) -> DataFrame:
    """What events did to queues, at the ``number`` of the snapshot that comes next: from ``flows``; of roots of which
    a restore undid events, or whose rows there are not all between two snapshots, from their events."""
    back = extents(frames["epochs"]).where("is_set_back").select(*ROOT)
    placed = materialized(_placed(frames["flows"].withColumn("event", F.col("last_event")), ends))
    odd = materialized(placed.where(_is_torn()).select(*ROOT).unionByName(back).distinct())
    known = placed.where("counts")
    if odd.isEmpty():
        return known
    few = F.broadcast(odd)
    with fully(ends.sparkSession):
        only_odd = {**frames, "events": frames["events"].join(few, [*ROOT], "left_semi")}
        of_odd = materialized(_by_event(only_odd, ends))
    return known.join(few, [*ROOT], "left_anti").select(*of_odd.columns).unionByName(of_odd)


def _is_torn() -> Column:
    """Whether a row of ``flows`` has events before and behind the end of a span."""
    begun = F.col("_at")["from_event"]
    after = F.struct("epoch", F.col("first_event").alias("event")) > F.struct(
        F.col("_at")["from_epoch"].alias("epoch"), begun.alias("event")
    )
    at_first = (F.col("first_event") <= begun) & (F.col("last_event") > begun)
    return F.when(F.col("_at")["number"] > 1, ~after).otherwise(at_first)


def _by_event(frames: Frames, anchors: DataFrame) -> DataFrame:
    """What every event did, at the ``number`` of the next snapshot; if a restore undid one that was counted before, it
    counts again there as -1."""
    events = with_undone(frames["events"].select(*READ), frames["restores"])
    columns = (*READ, "by")
    each = events.withColumn("by", F.lit(1)).select(*columns)
    undone = events.where("undone_epoch is not null").withColumns(
        {"epoch": F.col("undone_epoch"), "event": F.lit(0).cast("bigint"), "by": F.lit(-1)}
    )
    placed = _placed(each.unionByName(undone.select(*columns)), anchors).where("counts")
    return counted(placed, *_SPAN, by=F.col("by"))


def _placed(rows: DataFrame, anchors: DataFrame) -> DataFrame:
    """Each row with ``_at``, the first snapshot as of its event or a later one, and its ``number``. ``counts`` says
    whether it is neither before the first balance of its root nor after the last."""
    end = F.struct("number", "from_epoch", "from_event", "is_balanced")
    ends = anchors.select(*ROOT, "epoch", F.col("as_of_event").alias("event"), end.alias("_end"))
    last = anchors.where("number = last").select(
        *ROOT,
        F.lit(_NEVER).alias("epoch"),
        F.lit(_NEVER).alias("event"),
        F.struct(
            (F.col("number") + 1).alias("number"),
            F.col("epoch").alias("from_epoch"),
            F.col("as_of_event").alias("from_event"),
            F.lit(False).alias("is_balanced"),
        ).alias("_end"),
    )
    # Backwards: Spark recomputes a window frame that begins with the row itself for each row.
    back = Window.partitionBy(*ROOT).orderBy(
        F.col("epoch").desc(), F.col("event").desc(), F.col("_end").isNotNull().desc()
    )
    anchored = rows.unionByName(ends.unionByName(last), allowMissingColumns=True).withColumn(
        "_at", F.last("_end", ignorenulls=True).over(back.rowsBetween(Window.unboundedPreceding, 0))
    )
    later = (F.col("_at")["number"] > 1) | (F.col("event") > F.col("_at")["from_event"])
    counts = F.col("_at")["is_balanced"] & later
    return anchored.where(F.col("_end").isNull()).select("*", "_at.number", counts.alias("counts"))
