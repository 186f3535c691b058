"""Time series that pages draw: computed in Spark, each as one row with all of its points."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ..reports import dead_reasons_daily, depth_hourly, throughput
from ..schema.table import Frames

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
#: The longest time of a chart, and the longest that has hourly steps.
_LONGEST_DAYS: Final = 62
_HOURLY_DAYS: Final = 4
#: How many lines of one chart readers can distinguish.
MOST: Final = 6


@dataclass(frozen=True)
class Span:
    """The time that charts show, in UTC, and the length of one step."""

    begin: dt.datetime
    end: dt.datetime
    step_ms: int

    @property
    def unit(self) -> str:
        """The name of the step in Spark."""
        return "hour" if self.step_ms == HOUR_MS else "day"


def span_of(frames: Frames, since: dt.date | None, until: dt.date | None) -> Span | None:
    """The time up to the last snapshot with a sane clock; later times come from wrong clocks. None if nothing can be
    drawn."""
    if "device_health" not in frames or "throughput" not in frames:
        return None
    last = frames["device_health"].agg(F.max("last_at").alias("at")).collect()[0]["at"]
    if last is None:
        return None
    if until:
        last = min(last, dt.datetime.combine(until, dt.time.max))
    floor = last - dt.timedelta(days=_LONGEST_DAYS)
    if since:
        floor = max(floor, dt.datetime.combine(since, dt.time.min))
    within = frames["throughput"].where(F.col("hour").between(F.lit(floor), F.lit(last)))
    first = within.agg(F.min("hour").alias("at")).collect()[0]["at"]
    if first is None:
        return None
    step = HOUR_MS if last - first <= dt.timedelta(days=_HOURLY_DAYS) else DAY_MS
    return Span(first, last, step)


@dataclass(frozen=True)
class Series:
    """The lines of one chart: the largest by ``value``, one row each with ``place``, ``name`` and ``points``."""

    name: str
    report: str
    span: Span
    at: str
    #: SQL for the name of a line; with ``per_device``, lines of several devices have the device's name before it.
    called: str
    value: str
    per_device: bool = False
    #: Columns that are one line each, with their own names, instead of ``called``.
    columns: tuple[str, ...] = ()

    def rows(self, report: DataFrame, *, by_device: bool) -> DataFrame:
        """The lines of the fleet, or of each device."""
        whose = ["device"] if by_device else []
        if self.columns:
            report = report.unpivot(["device", self.at], [*self.columns], "_name", "_value")
        name: Column = F.expr(self.called)
        if self.per_device and not by_device:
            name = F.concat_ws(" / ", "device", name)
        at = F.unix_millis(F.date_trunc(self.span.unit, F.expr(self.at).cast("timestamp")))
        begin = F.date_trunc(self.span.unit, F.lit(self.span.begin))
        within = report.where(F.expr(self.at).cast("timestamp").between(begin, F.lit(self.span.end)))
        stepped = within.groupBy(*whose, name.alias("name"), at.alias("at_ms")).agg(F.expr(self.value).alias("value"))
        lines = stepped.groupBy(*whose, "name").agg(
            F.sort_array(F.collect_list(F.struct("at_ms", "value"))).alias("points"), F.max("value").alias("_most")
        )
        order = Window.partitionBy(*whose).orderBy(F.col("_most").desc(), "name")
        return lines.withColumn("place", F.row_number().over(order)).where(F.col("place") <= MOST).drop("_most")


def time_series(span: Span) -> tuple[Series, ...]:
    """The time series that pages draw."""
    return (
        Series("depth-course", depth_hourly.TABLE.name, span, "hour", "queue", "max(live_max)", per_device=True),
        Series("dead-course", dead_reasons_daily.TABLE.name, span, "day", _REASON, "sum(deaths)"),
        Series("flow-course", throughput.TABLE.name, span, "hour", "_name", "sum(_value)", columns=_FLOWS),
    )


_FLOWS: Final = ("published", "acked", "retried", "died")
_REASON: Final = "concat_ws(': ', queue, nullif(reason_code, ''), nullif(cause, ''))"
