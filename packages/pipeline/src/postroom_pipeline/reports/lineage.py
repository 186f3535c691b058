"""Which events belong together: what a restore undid, and what was brought in from elsewhere."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from . import imports

ROOT: Final = ("device", "root")
#: So many messages can be sent to every task, to tell their events from others.
FEW_MESSAGES: Final = 200_000


def with_undone(frame: DataFrame, restores: DataFrame, event: str = "event") -> DataFrame:
    """The frame with ``undone_epoch``: the first epoch that continues from before the row's event; null where all later
    ones build on it.

    :param frame: has ``device``, ``root``, ``epoch`` and the column that ``event`` names.
    :param restores: the table of that name.
    """
    begun = F.sort_array(F.collect_list(F.struct("epoch", "begins")))
    restored = restores.groupBy(*ROOT).agg(begun.alias("_epochs"))
    own_epoch, own_event = F.col("epoch"), F.col(event)

    def went_back(other: Column) -> Column:
        return (other["epoch"] > own_epoch) & (other["begins"] <= own_event)

    later = F.transform(F.filter(F.col("_epochs"), went_back), lambda other: other["epoch"])
    undone = F.when(F.col("_epochs").isNotNull(), F.array_min(later))
    return frame.join(restored, [*ROOT], "left").withColumn("undone_epoch", undone).drop("_epochs")


def standing(frame: DataFrame, restores: DataFrame, event: str = "event") -> DataFrame:
    """The rows of a frame whose events no restore has undone."""
    return with_undone(frame, restores, event).where(F.col("undone_epoch").isNull()).drop("undone_epoch")


def extents(epochs: DataFrame) -> DataFrame:
    """Each root with ``is_set_back``: whether a restore has undone any of its known events; and ``last_known``, the
    epoch and the event of the last one.

    :param epochs: the table of that name.
    """
    later = Window.partitionBy(*ROOT).orderBy(F.desc("epoch")).rowsBetween(Window.unboundedPreceding, -1)
    undone = F.coalesce(F.col("ends") >= F.min("begins").over(later), F.lit(False))
    of_root = epochs.withColumn("_undone", undone).groupBy(*ROOT)
    last = F.max(F.struct("epoch", F.col("ends").alias("event")))
    return of_root.agg(F.max("_undone").alias("is_set_back"), last.alias("last_known"))


def native(events: DataFrame, imported: DataFrame) -> DataFrame:
    """Events without those that an import brought in: these have the times of another root.

    :param imported: the table ``imports``.
    """
    brought = events.join(imported.withColumn("_is_brought", F.lit(True)), [*imports.KEY], "left")
    return brought.where("_is_brought is null or type = 'imported'").drop("_is_brought")


def imported_messages(events: DataFrame, imported: DataFrame) -> DataFrame:
    """The messages that an import brought in, once each."""
    published = events.where(F.col("type") == "published")
    return published.join(imported, [*imports.KEY], "left_semi").select(*ROOT, "message").distinct()


def order(event: str = "event") -> Column:
    """Place of an event among all of its root, as a number: groups by it need no sorting. An epoch has 2^44 events."""
    return F.call_function("shiftleft", F.col("epoch").cast("bigint"), F.lit(44)) + F.col(event)
