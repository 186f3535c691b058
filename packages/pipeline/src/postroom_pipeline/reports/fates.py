"""What the events up to the last snapshot of a root make of each message, and what that snapshot shows of it."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ..tables.columns import Frames
from .lineage import ROOT, standing

_PLACE: Final = ("epoch", "event")
_ENDS: Final = ("acked", "dropped")
_WAITS: Final = ("published", "retried", "reprocessed", "held", "unheld", "moved", "retargeted", "rescheduled")


def fates(frames: Frames, last: DataFrame) -> DataFrame:
    """A row for each message that events name: ``fate`` (``waiting``, ``inflight``, ``dead``, ``gone``), where it was
    last, and which events say so. Events that a restore undid, and those behind the last snapshot, are left out.

    :param last: ``device``, ``root``, ``last_epoch`` and ``as_of_event`` of the snapshot.
    """
    place, kind = F.struct(*_PLACE), F.col("type")
    events = standing(frames["events"], frames["epochs"]).where("message is not null")
    told = events.join(last.select(*ROOT, "last_epoch", "as_of_event"), [*ROOT]).where(
        place <= F.struct(F.col("last_epoch").alias("epoch"), F.col("as_of_event").alias("event"))
    )
    ended, published, fate = kind.isin(*_ENDS), kind == "published", _fate()
    return (
        told.withColumn("_fate", fate)
        .groupBy(*ROOT, "message")
        .agg(
            F.max_by("_fate", F.when(F.col("_fate").isNotNull(), place)).alias("fate"),
            F.max_by(F.coalesce("to", "queue"), place).alias("queue"),
            F.min_by("event", place).alias("first_event"),
            F.max_by("event", place).alias("last_event"),
            F.max_by("type", place).alias("last_type"),
            F.max_by("wall_at", place).alias("last_at"),
            F.count_if(published).alias("publications"),
            F.min_by("event", F.when(published, place)).alias("first_published_event"),
            F.max_by("event", F.when(published, place)).alias("published_event"),
            F.count_if(ended).alias("endings"),
            F.min_by("event", F.when(ended, place)).alias("ended_event"),
            F.max_by("event", F.when(ended, place)).alias("last_ended_event"),
            (F.max(place) > F.min(F.when(ended, place))).alias("went_on"),
        )
    )


def shown(frames: Frames, last: DataFrame) -> DataFrame:
    """A row for each message that the last snapshot of its root names: ``shown`` (``inflight``, ``dead``)."""
    leases = frames["leases"].where(~F.coalesce("of_dead", F.lit(False))).withColumn("shown", F.lit("inflight"))
    letters = frames["dead_letters"].withColumn("shown", F.lit("dead"))
    columns = (*ROOT, "snapshot", "queue", "message", "shown")
    named = leases.select(*columns).unionByName(letters.select(*columns))
    of_last = named.join(last.select(*ROOT, "snapshot"), [*ROOT, "snapshot"], "left_semi")
    return of_last.groupBy(*ROOT, "message").agg(
        F.min("shown").alias("shown"), F.min_by("queue", "shown").alias("shown_queue")
    )


def untold(frames: Frames, last: DataFrame) -> DataFrame:
    """Queues of which the last snapshot counts more leases or dead letters than it names: what it does not name may be
    there all the same."""
    place = (*ROOT, "snapshot", "queue")
    counted = frames["queue_depth"].select(*place, "inflight", "dead")
    leases = frames["leases"].where(~F.coalesce("of_dead", F.lit(False)))
    leases = leases.select(*place, F.lit(-1).alias("inflight"), F.lit(0).alias("dead"))
    letters = frames["dead_letters"].select(*place, F.lit(0).alias("inflight"), F.lit(-1).alias("dead"))
    rows = counted.unionByName(leases).unionByName(letters).join(last.select(*ROOT, "snapshot"), [*ROOT, "snapshot"])
    more = rows.groupBy(*ROOT, "queue").agg(F.sum("inflight").alias("inflight"), F.sum("dead").alias("dead"))
    return more.where("inflight > 0 or dead > 0").select(*ROOT, "queue")


def _fate() -> Column:
    """What an event makes of its message; null where it leaves it as it is."""
    kind = F.col("type")
    given_back = F.when(F.col("state") == "dead", "dead").otherwise("waiting")
    return (
        F.when(kind.isin(*_ENDS), "gone")
        .when(kind.isin(*_WAITS), "waiting")
        .when(kind.isin("died", "quarantined"), "dead")
        .when(kind == "leased", F.when(F.coalesce("of_dead", F.lit(False)), "dead").otherwise("inflight"))
        .when(kind == "released", given_back)
    )
