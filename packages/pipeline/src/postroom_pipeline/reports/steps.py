"""What each event does to the number of messages that a queue holds."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .lineage import standing

#: Events that say of a message whether it is dead from then on, or was: what later ones that end it do not say.
_DEAD: Final = ("died", "quarantined")
_ALIVE: Final = ("published", "reprocessed", "retried", "held", "unheld", "moved", "retargeted", "rescheduled")
_ENDS: Final = ("acked", "dropped")


def steps(events: DataFrame, epochs: DataFrame, dead_letters: DataFrame) -> DataFrame:
    """Events about messages, without those that a restore undid, with ``was_dead``: whether the message was a dead
    letter before."""
    told = standing(events, epochs).where(F.col("message").isNotNull())
    told = told.withColumn("_says_dead", _says_dead()).withColumn("_is_event", F.lit(True))
    dead = dead_letters.select(
        "device",
        "root",
        "epoch",
        F.col("as_of_event").alias("event"),
        "message",
        F.lit(True).alias("_says_dead"),
        F.lit(False).alias("_is_event"),
    )
    before = (
        Window.partitionBy("device", "root", "message")
        .orderBy("epoch", "event", F.col("_is_event").desc())
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    found = told.unionByName(dead, allowMissingColumns=True).withColumn(
        "was_dead", F.coalesce(F.last("_says_dead", ignorenulls=True).over(before), F.lit(False))
    )
    return found.where("_is_event").drop("_is_event", "_says_dead")


def changes(steps: DataFrame) -> DataFrame:
    """A row for each queue that an event changes: ``queue``, ``live`` and ``dead``, by how many more it holds."""
    kind, queue, to = F.col("type"), F.col("queue"), F.coalesce("to", "queue")
    stays = to == queue
    of_dead = F.when(F.col("was_dead"), F.lit(1)).otherwise(F.lit(0))
    made = (
        F.when(kind == "published", F.array(_change(queue, 1, 0)))
        .when(kind.isin(*_ENDS), F.array(_change(queue, of_dead - 1, -of_dead)))
        .when(kind == "died", F.array(_change(queue, -1, 1)))
        .when(stays & (kind == "reprocessed"), F.array(_change(queue, 1, -1)))
        .when(kind == "reprocessed", F.array(_change(queue, 0, -1), _change(to, 1, 0)))
        .when(~stays & (kind == "moved"), F.array(_change(queue, -1, 0), _change(to, 1, 0)))
    )
    changed = steps.withColumn("_change", F.explode(made))
    return changed.withColumns(
        {name: F.col("_change")[name] for name in ("live", "dead")} | {"queue": F.col("_change")["in"]}
    ).drop("_change")


def hour() -> Column:
    """The hour of a row's wall clock; the beginning of its day where the clock is suspect."""
    return F.coalesce(F.date_trunc("hour", "wall_at"), F.col("day").cast("timestamp"))


def _change(queue: Column, live: int | Column, dead: int | Column) -> Column:
    counts = [(F.lit(n) if isinstance(n, int) else n).cast("bigint") for n in (live, dead)]
    return F.struct(queue.alias("in"), counts[0].alias("live"), counts[1].alias("dead"))


def _says_dead() -> Column:
    kind = F.col("type")
    of_dead = F.coalesce("of_dead", F.lit(False))
    return (
        F.when(kind.isin(*_DEAD), True)
        .when(kind.isin(*_ALIVE), False)
        .when(kind == "leased", of_dead)
        .when(kind == "released", F.coalesce(F.col("state") == "dead", F.lit(False)))
    )
