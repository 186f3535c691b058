"""Which events belong together: what a restore undid, and what was brought in from elsewhere."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

ROOT: Final = ("device", "root")


def epochs(events: DataFrame) -> DataFrame:
    """Each epoch of a root with the id of its first event, as far as it is known."""
    started = F.min(F.when(F.col("type") == "epoch_started", F.col("event")))
    return events.groupBy(*ROOT, "epoch").agg(F.coalesce(started, F.min("event")).alias("begins"))


def with_undone(frame: DataFrame, events: DataFrame, event: str = "event") -> DataFrame:
    """The frame with ``undone_epoch``: the first epoch that goes on from before the row's event; null where all later
    ones build on it.

    :param frame: has ``device``, ``root``, ``epoch`` and the column that ``event`` names.
    """
    begun = F.sort_array(F.collect_list(F.struct("epoch", "begins")))
    restored = epochs(events).groupBy(*ROOT).agg(begun.alias("_epochs")).where(F.size("_epochs") > 1)
    own_epoch, own_event = F.col("epoch"), F.col(event)

    def went_back(other: Column) -> Column:
        return (other["epoch"] > own_epoch) & (other["begins"] <= own_event)

    later = F.transform(F.filter(F.col("_epochs"), went_back), lambda other: other["epoch"])
    return frame.join(restored, [*ROOT], "left").withColumn("undone_epoch", F.array_min(later)).drop("_epochs")


def standing(frame: DataFrame, events: DataFrame, event: str = "event") -> DataFrame:
    """The rows of a frame whose events no restore has undone."""
    return with_undone(frame, events, event).where(F.col("undone_epoch").isNull()).drop("undone_epoch")


def native(events: DataFrame) -> DataFrame:
    """Events without those that an import brought in: these have the times of another root."""
    imports = events.where(F.col("type") == "imported").select(*ROOT, "epoch", "request_end").distinct()
    brought = events.join(imports, [*ROOT, "epoch", "request_end"], "left_anti")
    return brought.unionByName(events.where(F.col("type") == "imported"))


def imported_messages(events: DataFrame) -> DataFrame:
    """The messages that an import brought in, once each."""
    imports = events.where(F.col("type") == "imported").select(*ROOT, "epoch", "request_end").distinct()
    published = events.where(F.col("type") == "published")
    return published.join(imports, [*ROOT, "epoch", "request_end"], "left_semi").select(*ROOT, "message").distinct()
