"""Where several snapshots have the same events: only there can an event occur twice, or be reported in two ways."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

_OF: Final = ["file", "snapshot"]
_ROOT: Final = ["device", "root"]
_RANGE: Final = ["least_event", "greatest_event"]
#: The key of a range: events from ``low`` to ``high`` of a root.
SPAN: Final = [*_ROOT, "low", "high"]


def overlaps(fresh: DataFrame, existing: DataFrame) -> DataFrame:
    """Ranges of events, by device and root, that a snapshot of ``fresh`` and another snapshot both cover. A range may
    come in parts, and more than once.

    :param fresh: rows of ``snapshots``, like ``existing``.
    :returns: ``device``, ``root``, ``low`` and ``high``.
    """
    columns = [*_ROOT, *_RANGE]
    both = (
        fresh.select(*columns, F.lit(True).alias("is_fresh"))
        .unionByName(existing.select(*columns, F.lit(False).alias("is_fresh")))
        .where("least_event IS NOT NULL")
    )
    before = Window.partitionBy(*_ROOT).orderBy(*_RANGE, "is_fresh").rowsBetween(Window.unboundedPreceding, -1)
    covered = both.withColumns(
        {
            "any_until": F.max("greatest_event").over(before),
            "fresh_until": F.max(F.when(F.col("is_fresh"), F.col("greatest_event"))).over(before),
        }
    )
    until = F.when(F.col("is_fresh"), F.col("any_until")).otherwise(F.col("fresh_until"))
    covered = covered.withColumn("until", until).where("until IS NOT NULL")
    ranges = covered.select(*_ROOT, F.col("least_event").alias("low"), F.least("greatest_event", "until").alias("high"))
    return ranges.where("low <= high").distinct()


def assessed(accepted: DataFrame, unrecorded: DataFrame | None = None) -> DataFrame:
    """The snapshots with ``is_doubtful``: whether any event of the device may be there twice.

    :param accepted: rows of ``snapshots.described``.
    :param unrecorded: names of devices that are doubtful in any case, from ``unrecorded``.
    """
    doubt = ~_is_regular()
    if unrecorded is not None:
        accepted = accepted.join(unrecorded.withColumn("_unrecorded", F.lit(True)), "device", "left")
        doubt = doubt | F.col("_unrecorded").isNotNull()
    doubtful = F.max(doubt).over(Window.partitionBy("device"))
    columns = ("file", "snapshot", "arrival", *_ROOT, *_RANGE)
    return accepted.withColumn("is_doubtful", doubtful).select(*columns, "is_doubtful")


def seams(assessed: DataFrame, existing: DataFrame, ranges: DataFrame) -> DataFrame:
    """The ranges with which one snapshot ends and another one begins, and that no third one has: how a device exports
    that says some events again. ``earlier`` is the one that ends with them, ``later`` the other.

    :param assessed: rows of ``assessed``; ``existing``: of ``snapshots``; ``ranges``: of ``overlaps``.
    """
    both = assessed.unionByName(existing.select(*_ROOT, *_RANGE), allowMissingColumns=True)
    met = both.join(ranges, _ROOT).where("low <= greatest_event AND least_event <= high")
    side = F.struct("file", "snapshot")
    ends, begins = F.col("high") == F.col("greatest_event"), F.col("low") == F.col("least_event")
    pairs = met.groupBy(*SPAN).agg(
        F.count(F.lit(1)).alias("sides"),
        F.count_if(ends).alias("ends"),
        F.count_if(begins).alias("begins"),
        F.max(F.when(ends, side)).alias("earlier"),
        F.max(F.when(begins, side)).alias("later"),
        F.max(F.coalesce("is_doubtful", F.lit(True))).alias("is_doubtful"),
    )
    return pairs.where("sides = 2 AND ends = 1 AND begins = 1 AND earlier != later AND NOT is_doubtful").select(
        *SPAN, "earlier", "later"
    )


def repeats(seams: DataFrame, lines: DataFrame) -> DataFrame:
    """The seams whose events both snapshots report alike, with the names of both. These need not be compared one by
    one: their number and a combination of their marks are the same, and each id occurs once.

    :param seams: rows of ``seams``; ``lines``: those of events.
    """
    none = F.lit(None).cast("bigint")
    ends = seams.select("earlier.*", F.col("low").alias("tail"), none.alias("head"))
    begins = seams.select("later.*", none.alias("tail"), F.col("high").alias("head"))
    of_snapshot = ends.unionByName(begins).groupBy(*_OF).agg(F.min("tail").alias("tail"), F.max("head").alias("head"))
    rows = lines.select(*_OF, "event", "mark").join(F.broadcast(of_snapshot), _OF)
    is_in = {"tail": F.col("event") >= F.col("tail"), "head": F.col("event") <= F.col("head")}
    summed = rows.where(is_in["tail"] | is_in["head"]).groupBy(*_OF)
    marks = summed.agg(*(_marks_of(what).alias(name) for name, what in is_in.items()))
    told = seams
    for side, end in (("earlier", "tail"), ("later", "head")):
        of_side = marks.select(F.struct(*_OF).alias(side), F.col(end).alias(f"{side}_mark"))
        told = told.join(of_side, side)
    is_whole = F.col("earlier_mark")["events"] == F.col("high") - F.col("low") + 1
    same = told.where(is_whole & (F.col("earlier_mark") == F.col("later_mark")))
    return same.select(*SPAN, F.col("earlier.snapshot").alias("earlier"), F.col("later.snapshot").alias("later"))


def _marks_of(events: Column) -> Column:
    """How many of these events have a mark, and a combination of these that is independent of their order."""
    mark = F.when(events, F.col("mark"))
    return F.struct(F.count(mark).alias("events"), F.bit_xor(mark).alias("marks"))


def contests(assessed: DataFrame, ranges: DataFrame, repeats: DataFrame) -> DataFrame:
    """The snapshots that are taken in, with the range of their events that no other snapshot has: ``alone_from`` to
    ``alone_until``, null if it is not known. Outside of it are those that another one may have, and perhaps more.
    Events outside of ``needed_from`` to ``needed_until`` are those that another one reports alike: that with the
    smaller id.

    :param assessed: rows of ``assessed``; ``ranges``: rows of ``overlaps`` without those of ``repeats``.
    """
    met = assessed.select(*_OF, *_ROOT, *_RANGE).join(ranges, _ROOT)
    at_begin = F.col("low") <= F.col("least_event")
    met = met.where("low <= greatest_event AND least_event <= high")
    shared = met.groupBy(*_OF).agg(
        F.max(F.when(at_begin, F.col("high"))).alias("head"), F.min(F.when(~at_begin, F.col("low"))).alias("tail")
    )
    none = F.lit(None).cast("bigint")
    begun = repeats.where("earlier < later").select(
        "device", F.col("later").alias("snapshot"), (F.col("high") + 1).alias("from"), none.alias("until")
    )
    ended = repeats.where("later < earlier").select(
        "device", F.col("earlier").alias("snapshot"), none.alias("from"), (F.col("low") - 1).alias("until")
    )
    needed = (
        begun.unionByName(ended)
        .groupBy("device", "snapshot")
        .agg(F.max("from").alias("needed_from"), F.min("until").alias("needed_until"))
    )
    rows = assessed.join(shared, _OF, "left").join(needed, ["device", "snapshot"], "left")
    first, last = F.coalesce("needed_from", "least_event"), F.coalesce("needed_until", "greatest_event")
    is_sure = ~F.col("is_doubtful")
    return rows.select(
        *_OF,
        "device",
        "arrival",
        "is_doubtful",
        F.when(is_sure, F.greatest(F.col("head") + 1, first)).alias("alone_from"),
        F.when(is_sure, F.least(F.col("tail") - 1, last)).alias("alone_until"),
        "needed_from",
        "needed_until",
    )


def unrecorded(events: DataFrame, snapshots: DataFrame) -> DataFrame:
    """The devices with events of snapshots that are not recorded: those of a run that was killed. One column,
    ``device``."""
    named = events.select("device", "snapshot").distinct()
    return (
        named.join(snapshots.select("device", "snapshot"), ["device", "snapshot"], "left_anti")
        .select("device")
        .distinct()
    )


def _is_regular() -> Column:
    """Whether a snapshot has each event from its lowest to its highest id exactly once, all of its own root.

    The ids are compared by their number and a combination of their hashes. A snapshot whose events have gaps is not
    regular either, although no event occurs twice in it.
    """
    count = F.col("greatest_event") - F.col("least_event") + 1
    is_full = (F.coalesce("copies", F.lit(0)) == 1) & (F.col("n_event") == count)
    ids = F.when(is_full, F.sequence("least_event", "greatest_event"))
    none = F.lit(0).cast("bigint")
    mark = F.aggregate(ids, none, lambda combined, one: combined.bitwiseXOR(F.xxhash64(one)))
    own = F.xxhash64("root")
    of_root = (F.col("least_root_mark") == own) & (F.col("greatest_root_mark") == own)
    return (F.col("n_event") == 0) | F.coalesce((mark == F.col("event_mark")) & of_root, F.lit(False))


def parted(existing: DataFrame, ranges: DataFrame, taken: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Existing rows of ``EVENTS`` whose key may have another row in a batch, and the others.

    :param ranges: rows of ``overlaps``; ``taken``: of ``contests``.
    """
    doubtful = taken.where("is_doubtful").select("device").distinct()
    doubtful = doubtful.select("device", *(F.lit(None).alias(name) for name in ("root", "low", "high")))
    span = ranges.unionByName(doubtful).select(F.col("device").alias("d"), F.col("root").alias("r"), "low", "high")
    is_in = (existing["device"] == span["d"]) & (
        span["low"].isNull() | ((existing["root"] == span["r"]) & existing["event"].between(span["low"], span["high"]))
    )
    return existing.join(F.broadcast(span), is_in, "left_semi"), existing.join(F.broadcast(span), is_in, "left_anti")


def days_of(ranges: DataFrame, existing: DataFrame) -> DataFrame:
    """The days on which events of the ranges may already be stored: one column, ``day``."""
    spans = existing.where("least_event IS NOT NULL").select(*_ROOT, *_RANGE, "least_day", "greatest_day")
    met = ranges.join(spans, _ROOT).where("low <= greatest_event AND least_event <= high")
    return met.select(F.explode(F.sequence("least_day", "greatest_day")).alias("day")).distinct()


def within(events: DataFrame, ranges: DataFrame) -> DataFrame:
    """The events in any of the ranges."""
    span = ranges.select(F.col("device").alias("d"), F.col("root").alias("r"), "low", "high")
    is_in = (
        events["device"].eqNullSafe(span["d"])
        & events["root"].eqNullSafe(span["r"])
        & events["event"].between(span["low"], span["high"])
    )
    return events.join(F.broadcast(span), is_in, "left_semi")
