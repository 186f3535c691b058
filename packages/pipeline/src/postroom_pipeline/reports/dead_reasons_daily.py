"""Why messages died, by day, and whether it gets worse."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.table import Frames, Table
from .scope import Scope
from .thresholds import Given, Threshold, chosen

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.column("queue", c.TEXT, "queue in which they died"),
        c.column("reason_code", c.TEXT, "reason; empty if unknown"),
        c.column("cause", c.TEXT, "reason code of the last failure, if no attempt was left; otherwise empty"),
        c.column("deaths", c.INTEGER, "number of these deaths on that day"),
        c.column("messages", c.INTEGER, "number of messages"),
        c.column(
            "day_before", c.INTEGER, "deaths on the day before; null if nothing is known of the device for that day"
        ),
        c.column("growth", c.INTEGER, "`deaths` minus `day_before`"),
        c.column("week_median", c.NUMBER, "median of the known days among the seven days before"),
        c.column("week_days", c.INTEGER, "number of these days"),
        c.column("example", c.TEXT, "key of one of the messages: the smallest"),
        c.column("last_at", c.MOMENT, "time of the last death; null if the clock is suspect"),
        c.DAY,
    ]
)
KEY: Final = ("device", "queue", "reason_code", "cause", "day")
PARTITION: Final = ("day",)
TABLE: Final = Table("dead_reasons_daily", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("rare_events", "hours")
SCOPE: Final = Scope(by_day_of=("rare_events", "hours"), days_before=7)
THRESHOLDS: Final[tuple[Threshold, ...]] = ()
TROUBLE: Final = "true"

_SERIES: Final = ("device", "queue", "reason_code", "cause")


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """A day on which a device has events, but none of these, counts as 0. A day about which nothing is known does not
    count.
    """
    chosen(THRESHOLDS, given)
    events = frames["rare_events"].select(*_SERIES, "root", "message", "type", "wall_at", "day")
    died = events.where(F.col("type") == "died").withColumns(
        {name: F.coalesce(name, F.lit("")) for name in ("reason_code", "cause", "queue")}
    )
    deaths = died.groupBy(*KEY).agg(
        F.count(F.lit(1)).alias("deaths"),
        F.count_distinct("root", "message").alias("messages"),
        F.min("message").alias("example"),
        F.max("wall_at").alias("last_at"),
    )
    observed = frames["hours"].select("device", F.col("day").alias("earlier")).distinct()
    then = deaths.select(*_SERIES, F.col("day").alias("earlier"), F.col("deaths").alias("then"))
    week = (
        deaths.select(*KEY, F.explode(F.expr("sequence(date_sub(day, 7), date_sub(day, 1))")).alias("earlier"))
        .join(observed, ["device", "earlier"])
        .join(then, [*_SERIES, "earlier"], "left")
        .withColumn("then", F.coalesce("then", F.lit(0)))
        .groupBy(*KEY)
        .agg(
            F.max(F.when(F.col("earlier") == F.expr("date_sub(day, 1)"), F.col("then"))).alias("day_before"),
            F.median("then").alias("week_median"),
            F.count(F.lit(1)).alias("week_days"),
        )
    )
    return deaths.join(week, [*KEY], "left").withColumns(
        {"growth": F.col("deaths") - F.col("day_before"), "week_days": F.coalesce("week_days", F.lit(0))}
    )
