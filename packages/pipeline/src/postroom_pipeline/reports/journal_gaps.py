"""Events that no snapshot has: not exported, missing on the device, or lost on the way."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.table import Frames, Table
from .lineage import ROOT
from .scope import OF_DEVICE
from .thresholds import Given, Threshold, chosen

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("epoch", c.INTEGER, "epoch of the events"),
        c.column("first_event", c.INTEGER, "first missing event"),
        c.column("last_event", c.INTEGER, "last missing event"),
        c.column("events", c.INTEGER, "their number"),
        c.column(
            "gap",
            c.TEXT,
            "kind of the gap: `lost`, `reported`, `retired` or `not_exported`",
        ),
        c.column("before_at", c.MOMENT, "wall clock of the previous event; null if unknown"),
        c.column("after_at", c.MOMENT, "wall clock of the next event; null if unknown"),
    ]
)
KEY: Final = ("device", "root", "epoch", "first_event")
PARTITION: Final = ()
TABLE: Final = Table("journal_gaps", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("hours", "rare_events", "epochs", "snapshots")
SCOPE: Final = OF_DEVICE
THRESHOLDS: Final = (Threshold("not_exported_min", 1, "minimum number of events that no snapshot covers to report"),)
TROUBLE: Final = "gap in ('lost', 'reported')"

_EPOCH: Final = ("device", "root", "epoch")
#: What can cover a range of ids.
_COVERS: Final = ("present", "sliced", "reported", "retired")


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """One row per range of missing ids with the same explanation."""
    limits = chosen(THRESHOLDS, given)
    hours = frames["hours"]
    present = hours.select(*_EPOCH, F.col("first_event").alias("first"), F.col("last_event").alias("last"))
    covers = _ranges(frames["snapshots"], frames["epochs"]).unionByName(_unused(frames["rare_events"]))
    stretches = _stretches(covers.unionByName(present.withColumn("cover", F.lit("present"))))
    gap = (
        F.when(F.col("reported") > 0, "reported")
        .when(F.col("sliced") > 0, "lost")
        .when(F.col("retired") > 0, "retired")
        .otherwise("not_exported")
    )
    missing = _merged(stretches.where("present = 0").withColumn("gap", gap)).withColumn(
        "events", F.col("last_event") - F.col("first_event") + 1
    )
    gaps = missing.where((F.col("gap") != "not_exported") | (F.col("events") >= limits["not_exported_min"]))
    # The events around a gap are the last one and the first one of ranges.
    before = hours.select(*_EPOCH, (F.col("last_event") + 1).alias("first_event"), F.col("last_at").alias("before_at"))
    after = hours.select(*_EPOCH, (F.col("first_event") - 1).alias("last_event"), F.col("first_at").alias("after_at"))
    return gaps.join(before, [*_EPOCH, "first_event"], "left").join(after, [*_EPOCH, "last_event"], "left")


def _ranges(snapshots: DataFrame, epochs: DataFrame) -> DataFrame:
    """The ranges in headers: slices, holes, and what was retired before it was exported."""
    header = [F.col(name) for name in _EPOCH]
    sliced = snapshots.where("first_event is not null and last_event is not null").select(
        *header, F.col("first_event").alias("first"), F.col("last_event").alias("last"), F.lit("sliced").alias("cover")
    )
    hole = F.explode(F.from_json("holes", "array<array<bigint>>"))
    reported = snapshots.where("holes is not null").select(*header, hole.alias("hole"))
    reported = reported.where("size(hole) = 2").select(
        *header, F.expr("hole[0]").alias("first"), F.expr("hole[1]").alias("last"), F.lit("reported").alias("cover")
    )
    retired = snapshots.where("previous_event + 1 < available_from").select(
        *header,
        (F.col("previous_event") + 1).alias("first"),
        (F.col("available_from") - 1).alias("last"),
        F.lit("retired").alias("cover"),
    )
    return in_epochs(sliced.unionByName(reported).unionByName(retired), epochs)


def _unused(events: DataFrame) -> DataFrame:
    """The ids that no event ever had, which an import left out: nothing is missing there."""
    left_out = events.where("type = 'gap' and get_json_object(ext, '$.unused') = 'true'")
    first = (F.get_json_object("ext", "$.after").cast("bigint") + 1).alias("first")
    return left_out.select(*_EPOCH, first, (F.col("event") - 1).alias("last"), F.lit("present").alias("cover"))


def _stretches(ranges: DataFrame) -> DataFrame:
    """Ranges of ids between two ends of ranges, with the number of ranges of each kind that cover them."""
    ends = ranges.distinct().select(
        *_EPOCH,
        "cover",
        F.inline(
            F.array(
                F.struct(F.col("first").alias("at"), F.lit(1).alias("by")),
                F.struct((F.col("last") + 1).alias("at"), F.lit(-1).alias("by")),
            )
        ),
    )
    turns = ends.groupBy(*_EPOCH, "at").agg(
        *(F.sum(F.when(F.col("cover") == cover, F.col("by")).otherwise(0)).alias(cover) for cover in _COVERS)
    )
    changed = turns.where(" or ".join(f"{cover} <> 0" for cover in _COVERS))
    order = Window.partitionBy(*_EPOCH).orderBy("at")
    past = order.rowsBetween(Window.unboundedPreceding, 0)
    return changed.select(
        *_EPOCH,
        F.col("at").alias("first_event"),
        (F.lead("at").over(order) - 1).alias("last_event"),
        *(F.sum(cover).over(past).alias(cover) for cover in _COVERS),
    ).where("last_event is not null")


def _merged(missing: DataFrame) -> DataFrame:
    """Adjacent ranges with the same gap, merged."""
    order = Window.partitionBy(*_EPOCH).orderBy("first_event")
    touches = (F.col("first_event") == F.lag("last_event").over(order) + 1) & (F.col("gap") == F.lag("gap").over(order))
    begins = (~F.coalesce(touches, F.lit(False))).cast("int")
    numbered = missing.withColumn("_run", F.sum(begins).over(order))
    return (
        numbered.groupBy(*_EPOCH, "_run", "gap")
        .agg(F.min("first_event").alias("first_event"), F.max("last_event").alias("last_event"))
        .drop("_run")
    )


def in_epochs(ranges: DataFrame, epochs: DataFrame) -> DataFrame:
    """Each range, split where epochs begin: after a restore a journal continues from the restored event, so a slice has
    the older epochs only up to there.

    :param ranges: ``device``, ``root``, ``epoch`` (of the header), ``first``, ``last`` and any other columns.
    :param epochs: the table of that name.
    :returns: the same columns, with the ``epoch`` of the events themselves. Empty parts are left out.
    """
    listed = epochs.groupBy(*ROOT).agg(F.collect_list(F.struct("epoch", "begins")).alias("_epochs"))
    own = ranges.withColumnRenamed("epoch", "_header").join(listed, [*ROOT], "left")
    # If no event of the header's epoch is known, the range belongs to that epoch only.
    known = F.filter("_epochs", lambda one: one["epoch"] <= F.col("_header"))
    alone = F.array(F.struct(F.col("_header").alias("epoch"), F.col("first").alias("begins")))
    parts = own.withColumn("_past", F.when(F.size(F.coalesce(known, F.array())) > 0, known).otherwise(alone))
    parts = parts.withColumn("_part", F.explode("_past"))
    following = F.filter("_past", lambda one: one["epoch"] > F.col("_part")["epoch"])
    ends = F.array_min(F.transform(following, lambda one: one["begins"])) - 1
    oldest = F.array_min(F.transform("_past", lambda one: one["epoch"])) == F.col("_part")["epoch"]
    # What comes before the first known event of the oldest epoch belongs to that epoch as well.
    begins = F.when(oldest, F.col("first")).otherwise(F.greatest("first", F.col("_part")["begins"]))
    cut = parts.withColumns({"epoch": F.col("_part")["epoch"], "first": begins, "last": F.least("last", ends)})
    return cut.where("first <= last").drop("_epochs", "_past", "_part", "_header")
