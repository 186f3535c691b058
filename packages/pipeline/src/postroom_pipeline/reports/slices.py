"""Ranges of events that headers name, split by the epochs to which their events belong."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .lineage import ROOT


def in_epochs(ranges: DataFrame, epochs: DataFrame) -> DataFrame:
    """Each range cut at the beginnings of epochs: a journal goes on behind a restore from the event that was restored,
    so a slice holds the older epochs only up to there.

    :param ranges: ``device``, ``root``, ``epoch`` (of the header), ``first``, ``last`` and any other columns.
    :param epochs: the table of that name.
    :returns: the same with ``epoch`` of the events themselves; parts that are empty are left out.
    """
    listed = epochs.groupBy(*ROOT).agg(F.collect_list(F.struct("epoch", "begins")).alias("_epochs"))
    own = ranges.withColumnRenamed("epoch", "_header").join(listed, [*ROOT], "left")
    # A header of an epoch of which no event is known tells of that epoch alone.
    known = F.filter("_epochs", lambda one: one["epoch"] <= F.col("_header"))
    alone = F.array(F.struct(F.col("_header").alias("epoch"), F.col("first").alias("begins")))
    parts = own.withColumn("_past", F.when(F.size(F.coalesce(known, F.array())) > 0, known).otherwise(alone))
    parts = parts.withColumn("_part", F.explode("_past"))
    following = F.filter("_past", lambda one: one["epoch"] > F.col("_part")["epoch"])
    ends = F.array_min(F.transform(following, lambda one: one["begins"])) - 1
    oldest = F.array_min(F.transform("_past", lambda one: one["epoch"])) == F.col("_part")["epoch"]
    # What stands before the first known event of the oldest epoch is of that epoch as well.
    begins = F.when(oldest, F.col("first")).otherwise(F.greatest("first", F.col("_part")["begins"]))
    cut = parts.withColumns({"epoch": F.col("_part")["epoch"], "first": begins, "last": F.least("last", ends)})
    return cut.where("first <= last").drop("_epochs", "_past", "_part", "_header")
