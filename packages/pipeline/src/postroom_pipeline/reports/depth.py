"""How full each queue was after each event that changed it, and at each snapshot."""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.table import Frames, Table
from ..silver.messages import ENDS, fate
from ..spark.session import materialized
from .lineage import FEW_MESSAGES, ROOT, order, standing
from .scope import Scope
from .thresholds import Given, Threshold, chosen

#: States of a message that waits or is in flight.
LIVE: Final = ("ready", "inflight", "delayed", "held")

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("queue", c.TEXT, "name of the queue"),
        c.column("epoch", c.INTEGER, "epoch of the event"),
        c.column("event", c.INTEGER, "the event, or the last event of the snapshot"),
        c.column("snapshot", c.TEXT, "snapshot with the count; empty if the event changed the queue"),
        c.column("engine_ms", c.INTEGER, "engine time of that event"),
        c.column("wall_at", c.MOMENT, "wall clock of it; null if that is suspect"),
        c.column("live_depth", c.INTEGER, "messages that are not dead, after it"),
        c.column("dead_depth", c.INTEGER, "dead letters after it"),
        c.DAY,
    ]
)
KEY: Final = ("device", "root", "queue", "epoch", "event", "snapshot")
PARTITION: Final = ("day",)
TABLE: Final = Table("depth", SCHEMA, KEY, PARTITION, varied=("event", "engine_ms", "wall_at"))
NEEDS: Final = ("events", "fates", "restores", "dead_letters", "queue_depth", "snapshots", "hours", "conflicts")
SCOPE: Final = Scope(by_end_of=("events", "dead_letters", "queue_depth"))
THRESHOLDS: Final[tuple[Threshold, ...]] = ()
TROUBLE: Final = "false"
#: The last step leaves the rows of a queue together, in the order of the key.
IS_ORDERED: Final = True

#: The columns of events that are read: plans of few columns are prepared faster.
_READ: Final = (
    "device",
    "root",
    "epoch",
    "event",
    "type",
    "queue",
    "to",
    "message",
    "state",
    "of_dead",
    "keep",
    "engine_ms",
    "wall_at",
    "day",
)
_TIMES: Final = ("engine_ms", "wall_at", "day")
_MESSAGE: Final = (*ROOT, "message")
_PLACE: Final = (*ROOT, "epoch", "event")
_QUEUE: Final = (*ROOT, "queue")
#: An epoch before all others.
_BEFORE: Final = -1
#: Events that may change how many messages a queue has.
_CHANGES: Final = ("published", *ENDS, "died", "reprocessed", "moved")


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """Between snapshots it is the count of the last one, or of the next one if there is none before, plus the changes
    by events. A queue that is in no snapshot was empty before its first event.
    """
    chosen(THRESHOLDS, given)
    return _depths(steps(frames), _counted(frames))


def ends(old: DataFrame) -> DataFrame:
    """The last depth of each queue on days that are not new, and whether any snapshot of these has it."""
    of_snapshot = F.col("snapshot") != ""
    place = F.call_function("shiftleft", order(), F.lit(1)) + of_snapshot.cast("bigint")
    last = (F.max_by(f"{name}_depth", place).alias(f"counted_{name}") for name in ("live", "dead"))
    return old.where("NOT is_new").groupBy(*_QUEUE).agg(*last, F.max(of_snapshot).alias("is_counted"))


def going_on(frames: Frames, ends: DataFrame) -> DataFrame:
    """The devices whose events and snapshots of new days come behind all others, with queues that are known.

    A queue that is counted for the first time tells how full it was before. Where contents or clocks were in doubt, an
    event may have left a day that is not new.
    """
    hours, snapshots = frames["hours"], frames["snapshots"]
    first, last = (
        F.struct("epoch", F.col(f"{which}_event").alias("event"), F.lit("").alias("snapshot"))
        for which in ("first", "last")
    )
    of_snapshot = F.struct("epoch", F.col("as_of_event").alias("event"), "snapshot")
    places = hours.select(*ROOT, "is_new", first.alias("first"), last.alias("last")).unionByName(
        snapshots.select(*ROOT, "is_new", of_snapshot.alias("first"), of_snapshot.alias("last"))
    )
    is_new = F.col("is_new")
    of_root = places.groupBy(*ROOT).agg(
        F.min(F.when(is_new, F.col("first"))).alias("first"), F.max(F.when(~is_new, F.col("last"))).alias("last")
    )
    counted = frames["queue_depth"].where(is_new).select(*_QUEUE).distinct()
    odd = (
        of_root.where("last >= first"),
        frames["restores"],
        frames["conflicts"],
        hours.where("first_at IS NULL OR last_at IS NULL"),
        ends.where("NOT is_counted").join(counted, [*_QUEUE], "left_semi"),
    )
    is_odd = reduce(DataFrame.unionByName, (frame.select("device") for frame in odd)).distinct()
    return of_root.select("device").distinct().join(is_odd, "device", "left_anti")


def build_on(frames: Frames, ends: DataFrame) -> DataFrame:
    """The rows of new days, of devices that are ``going_on``: from the last depth of each queue on."""
    before = {"epoch": F.lit(_BEFORE).cast("bigint"), "event": F.lit(0).cast("bigint"), "snapshot": F.lit("")}
    begun = ends.drop("is_counted").withColumns(before)
    counted = _counted({**frames, "queue_depth": frames["queue_depth"].where("is_new")})
    rows = _depths(steps(frames, only_new=True), counted.unionByName(begun, allowMissingColumns=True))
    return rows.where(F.col("epoch") != _BEFORE)


def _depths(steps: DataFrame, counted: DataFrame) -> DataFrame:
    moved = changes(steps).select(*KEY[:-1], F.lit("").alias("snapshot"), *_TIMES, "live", "dead")
    rows = moved.unionByName(counted, allowMissingColumns=True)
    queue = Window.partitionBy(*_QUEUE).orderBy("epoch", "event", "snapshot")
    past = queue.rowsBetween(Window.unboundedPreceding, 0)
    # In the same order as ``past``: else Spark goes through all rows once more.
    whole = queue.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    names = ("live", "dead")
    rows = rows.withColumns({f"_{name}": F.sum(F.coalesce(name, F.lit(0))).over(past) for name in names})
    rows = rows.withColumns({f"_off_{name}": F.col(f"counted_{name}") - F.col(f"_{name}") for name in names})
    depths = {}
    for name in names:
        off = F.col(f"_off_{name}")
        last_offset = F.last(off, ignorenulls=True).over(past)
        next_offset = F.first(off, ignorenulls=True).over(whole)
        depth = F.col(f"_{name}") + F.coalesce(last_offset, next_offset, F.lit(0))
        depths[f"{name}_depth"] = depth.cast("bigint")
    return rows.withColumns(depths).select(*SCHEMA.names)


def _counted(frames: Frames) -> DataFrame:
    """The counts of consistent snapshots; two as of one event are equal."""
    consistent = standing(frames["queue_depth"], frames["restores"], "as_of_event").join(
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


def steps(frames: Frames, *, only_new: bool = False) -> DataFrame:
    """The events that may change the number of messages, with ``was_dead``: whether an event took away a dead letter.

    Events that a restore undid are left out.

    :param only_new: only those of new days.
    """
    events, restores = frames["events"].where(F.col("message").isNotNull()), frames["restores"]
    wanted = standing((events.where("is_new") if only_new else events).select(*_READ), restores)
    dead = _ends_of_dead(standing(events.select(*_READ), restores), frames, wanted if only_new else None)
    of_dead = dead.select(*(F.col(name).alias(f"_{name}") for name in _PLACE))
    if dead.count() <= FEW_MESSAGES:
        of_dead = F.broadcast(of_dead)
    # Without an end there is nothing to look up.
    number = F.when(F.col("type").isin(*ENDS, "died"), F.col("event"))
    same = [F.col(name) == F.col(f"_{name}") for name in _PLACE[:-1]]
    moving = wanted.where(F.col("type").isin(*_CHANGES)).drop("message", "of_dead", "keep")
    joined = moving.join(of_dead, [*same, number == F.col("_event")], "left")
    return joined.withColumn("was_dead", F.col("_event").isNotNull()).drop(*(f"_{name}" for name in _PLACE))


def _ends_of_dead(events: DataFrame, frames: Frames, only: DataFrame | None) -> DataFrame:
    """The events that ended a message, or with which it died, while it was a dead letter.

    :param only: look only at messages with such events among these.
    """
    is_end = F.col("type").isin(*ENDS, "died")
    dead = frames["dead_letters"].select(
        *ROOT,
        "epoch",
        F.col("as_of_event").alias("event"),
        "message",
        F.lit(True).alias("_says_dead"),
        F.lit(False).alias("_is_event"),
    )
    # Most messages never die: only the events of the others have to meet, and to be put in order.
    died = frames["fates"].where(F.coalesce("was_dead", F.lit(True)))  # null: by a version that did not say it
    mortal = died.select(*_MESSAGE).unionByName(dead.select(*_MESSAGE)).distinct()
    if only is not None:
        mortal = mortal.join(only.where(is_end).select(*_MESSAGE).distinct(), [*_MESSAGE], "left_semi")
    mortal = materialized(mortal)
    if mortal.count() <= FEW_MESSAGES:
        mortal = F.broadcast(mortal)
    of_mortal = events.select(
        *_PLACE, "message", "type", _says_dead().alias("_says_dead"), F.lit(True).alias("_is_event")
    )
    of_mortal = of_mortal.join(mortal, [*_MESSAGE], "left_semi")
    before = (
        Window.partitionBy(F.xxhash64(*_MESSAGE), *_MESSAGE)  # a hash is sorted faster than texts that begin alike
        .orderBy("epoch", "event", F.col("_is_event").desc())
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    placed = of_mortal.unionByName(dead, allowMissingColumns=True).withColumn(
        "was_dead", F.coalesce(F.last("_says_dead", ignorenulls=True).over(before), F.lit(False))
    )
    return materialized(placed.where(F.col("_is_event") & is_end & F.col("was_dead")).select(*_PLACE))


def changes(steps: DataFrame) -> DataFrame:
    """A row for each queue that an event changes: ``queue``, and ``live`` and ``dead``, the changes of its counts."""
    kind, queue, to = F.col("type"), F.col("queue"), F.coalesce("to", "queue")
    stays = to == queue
    of_dead = F.when(F.col("was_dead"), F.lit(1)).otherwise(F.lit(0))
    was_done = F.coalesce(F.col("state") == "done", F.lit(False))  # it counted as neither
    made = (
        F.when(kind == "published", F.array(_change(queue, 1, 0)))
        .when(was_done & (kind == "died"), F.array(_change(queue, 0, 1)))
        .when(was_done & (kind == "dropped"), F.array(_change(queue, 0, 0)))
        .when(kind.isin(*ENDS), F.array(_change(queue, of_dead - 1, -of_dead)))
        .when(kind == "died", F.array(_change(queue, of_dead - 1, 1 - of_dead)))
        .when(stays & (kind == "reprocessed"), F.array(_change(queue, 1, -1)))
        .when(kind == "reprocessed", F.array(_change(queue, 0, -1), _change(to, 1, 0)))
        .when(~stays & (kind == "moved"), F.array(_change(queue, -1, 0), _change(to, 1, 0)))
    )
    changed = steps.withColumn("_change", F.explode(made))
    return changed.withColumns(
        {name: F.col("_change")[name] for name in ("live", "dead")} | {"queue": F.col("_change")["in"]}
    ).drop("_change")


def _change(queue: Column, live: int | Column, dead: int | Column) -> Column:
    counts = [(F.lit(n) if isinstance(n, int) else n).cast("bigint") for n in (live, dead)]
    return F.struct(queue.alias("in"), counts[0].alias("live"), counts[1].alias("dead"))


def _says_dead() -> Column:
    """Whether a message is dead from an event on. An event that ends it does not say what it was before."""
    return F.when(~F.col("type").isin(*ENDS), fate() == "dead")
