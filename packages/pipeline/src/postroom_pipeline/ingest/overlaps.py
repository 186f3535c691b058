"""Where snapshots tell of the same events: only there can an event come twice, or be told in two ways."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

_OF: Final = ["device", "root"]
_RANGE: Final = ["least_event", "greatest_event"]


def overlaps(fresh: DataFrame, known: DataFrame) -> DataFrame:
    """Ranges ``low`` to ``high`` of events of which a snapshot of ``fresh`` and another one tell, by device and root.

    Both frames are rows of ``snapshots``. A range may be named in parts, and more than once.
    """
    columns = [*_OF, *_RANGE]
    both = (
        fresh.select(*columns, F.lit(True).alias("is_fresh"))
        .unionByName(known.select(*columns, F.lit(False).alias("is_fresh")))
        .where("least_event IS NOT NULL")
    )
    before = Window.partitionBy(*_OF).orderBy(*_RANGE, "is_fresh").rowsBetween(Window.unboundedPreceding, -1)
    told = both.withColumns(
        {
            "any_until": F.max("greatest_event").over(before),
            "fresh_until": F.max(F.when(F.col("is_fresh"), F.col("greatest_event"))).over(before),
        }
    )
    until = F.when(F.col("is_fresh"), F.col("any_until")).otherwise(F.col("fresh_until"))
    told = told.withColumn("until", until).where("until IS NOT NULL")
    ranges = told.select(*_OF, F.col("least_event").alias("low"), F.least("greatest_event", "until").alias("high"))
    return ranges.where("low <= high").distinct()


def days_of(ranges: DataFrame, known: DataFrame) -> DataFrame:
    """Days on which events of the ranges may stand already: one column, ``day``."""
    spans = known.where("least_event IS NOT NULL").select(*_OF, *_RANGE, "least_day", "greatest_day")
    met = ranges.join(spans, _OF).where("low <= greatest_event AND least_event <= high")
    return met.select(F.explode(F.sequence("least_day", "greatest_day")).alias("day")).distinct()


def within(events: DataFrame, ranges: DataFrame) -> DataFrame:
    """The events that stand in one of the ranges."""
    span = ranges.select(F.col("device").alias("d"), F.col("root").alias("r"), "low", "high")
    is_in = (
        events["device"].eqNullSafe(span["d"])
        & events["root"].eqNullSafe(span["r"])
        & events["event"].between(span["low"], span["high"])
    )
    return events.join(F.broadcast(span), is_in, "left_semi")
