"""Anomalies: figures that differ from the device's own past, or from the same queue on other devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.table import Frames, Table
from ..spark.session import frame_of, materialized
from .scope import Changed, Scope
from .thresholds import Given, Threshold, chosen


class Metric(NamedTuple):
    """A figure that is checked. Differences below ``floor`` are noise, whatever the spread is."""

    name: str
    period: str
    floor: float
    #: Whether too small a value is a trouble as well.
    both_ways: bool = False


METRICS: Final = (
    Metric("retried", "hour", 5),
    Metric("died", "hour", 3),
    Metric("dropped", "hour", 5),
    Metric("published", "day", 50, both_ways=True),
    Metric("acked", "day", 50, both_ways=True),
    Metric("retried", "day", 10),
    Metric("died", "day", 5),
    Metric("dropped", "day", 10),
    Metric("publish_to_lease_p90_ms", "day", 5_000),
    Metric("lease_to_ack_p90_ms", "day", 5_000),
)

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.column("queue", c.TEXT, "name of the queue"),
        c.column("period", c.TEXT, "`hour` or `day`: the period of the figure"),
        c.column("begins_at", c.MOMENT, "start of the hour or day"),
        c.column("metric", c.TEXT, "the figure: a column of `throughput`, or a measure of `latency_daily`"),
        c.column(
            "against", c.TEXT, "`own`: the device's own past; `fleet`: the same queue on other devices at that time"
        ),
        c.column("value", c.NUMBER, "the figure"),
        c.column("median", c.NUMBER, "median of the compared values"),
        c.column("mad", c.NUMBER, "median of the distances from that median"),
        c.column("n", c.INTEGER, "number of compared figures"),
        c.column("z", c.NUMBER, "distance in multiples of the usual spread; below 0: less than usual"),
        c.DAY,
    ]
)
KEY: Final = ("device", "queue", "period", "begins_at", "metric", "against", "day")
PARTITION: Final = ("day",)
TABLE: Final = Table("anomalies", SCHEMA, KEY, PARTITION)
#: The last two only to know what has changed.
NEEDS: Final = ("hours", "throughput", "latency_daily", "conflicts", "clock_trouble")
SCOPE: Final = Scope(by_device=False, by_past_of=("hours", "throughput", "latency_daily"))
THRESHOLDS: Final = (
    Threshold("z_min", 6, "minimum distance, in multiples of the usual spread"),
    Threshold("relative_floor", 0.25, "minimum spread as a part of the median, so that a MAD of 0 causes no alarms"),
    Threshold("own_hours_min", 24, "minimum number of known hours of the device's past"),
    Threshold("own_hours", 168, "hours of the past that are compared"),
    Threshold("own_days_min", 7, "minimum number of known days of the device's past"),
    Threshold("own_days", 28, "days of the past that are compared"),
    Threshold("peers_min", 5, "minimum number of devices that have the queue, including this one"),
)
TROUBLE: Final = "true"

#: Factor that makes a median distance comparable with a standard deviation.
_SCALE: Final = 1.4826
#: Numbers that differ by less may be equal.
_ROUNDING: Final = 1e-9
_SERIES: Final = ("device", "queue", "period", "metric")
#: The figures of a queue on a device, and at a time on all devices.
_QUEUE: Final = ("device", "queue")
_TIME: Final = ("queue", "begins_at", "day")
_PERIOD: Final = ("device", *_TIME)
#: What is compared with so few figures is sent to all tasks, instead of being sorted.
_FEW: Final = 100_000


@dataclass(frozen=True)
class _Suspects:
    """Figures that may be anomalies by themselves: few are, and only what these are compared with is computed."""

    #: ``device`` and ``queue`` of those that may be against their own past.
    series: DataFrame
    #: ``queue``, ``begins_at`` and ``day`` of those that may be against other devices.
    times: DataFrame

    def compared(self, rows: DataFrame) -> DataFrame:
        """The rows that any suspect is compared with."""
        series = self.series.withColumn("_in_series", F.lit(True))
        times = self.times.withColumn("_in_time", F.lit(True))
        marked = rows.join(series, [*_QUEUE], "left").join(times, [*_TIME], "left")
        return marked.where("_in_series OR _in_time").drop("_in_series", "_in_time")

    def periods(self, covered: DataFrame, begun: DataFrame) -> DataFrame:
        """The periods that any suspect is compared with, by device and queue: those with events of the device.

        :param covered: these periods by device; ``begun``: where each queue of a device begins, as ``_begun``.
        """
        of_series = self.series.join(begun, [*_QUEUE]).join(covered, "device")
        of_times = self.times.join(covered, ["begins_at", "day"]).join(begun, [*_QUEUE])
        both = (rows.where("begins_at >= _begun").select(*_PERIOD) for rows in (of_series, of_times))
        return reduce(DataFrame.unionByName, both).distinct()


def build(frames: Frames, given: Given | None = None, changed: Changed | None = None) -> DataFrame:
    """z = (value - median) / max(1.4826 MAD, ``relative_floor`` of the median, the figure's own floor)."""
    limits = chosen(THRESHOLDS, given)
    if changed and any(_may_be_small(metric, limits) for metric in METRICS):
        # A period without events counts then as well, and is no row of any table.
        return in_change(build(frames, given), changed).where("is_in_change").drop("is_in_change")
    parts = [_latencies(frames, limits, changed), *(_counts(frames, one, limits, changed) for one in ("hour", "day"))]
    found = [part for part in parts if part]
    if not found:  # as on most days
        return frame_of(frames["hours"].sparkSession, [], SCHEMA)
    may_be = _of_metric(lambda metric: _may_be(metric, F.col("value"), limits))
    figures = materialized(_marked(reduce(DataFrame.unionByName, found), may_be, changed))  # it is compared three times
    compared = _against_own(figures, limits).unionByName(_against_fleet(figures, limits))
    spread = F.greatest(
        F.col("mad") * _SCALE,
        F.abs("median") * limits["relative_floor"],
        _of_metric(lambda metric: F.lit(metric.floor)),
    )
    scored = compared.withColumn("z", (F.col("value") - F.col("median")) / spread)
    too_little = (F.col("z") <= -limits["z_min"]) & _of_metric(lambda metric: F.lit(metric.both_ways))
    return scored.where((F.col("z") >= limits["z_min"]) | too_little).select(*SCHEMA.names)


def in_change(rows: DataFrame, changed: Changed) -> DataFrame:
    """Rows of the table with ``is_in_change``: whether they follow from what has changed."""
    of_fleet = (F.col("against") == "fleet") & changed.is_on_day()
    is_in = of_fleet | ((F.col("against") == "own") & F.col("is_later"))
    return changed.marked(rows).withColumn("is_in_change", is_in).drop("is_later")


def _latencies(frames: Frames, limits: dict[str, float], changed: Changed | None) -> DataFrame | None:
    """Latencies in long form; None if none of them may be an anomaly."""
    wanted = [metric.name for metric in METRICS if metric.name.endswith("_ms")]
    figures = (
        frames["latency_daily"]
        .select(
            "device",
            "queue",
            F.lit("day").alias("period"),
            F.col("day").cast("timestamp").alias("begins_at"),
            "day",
            F.concat("measure", F.lit("_p90_ms")).alias("metric"),
            F.col("p90_ms").cast("double").alias("value"),
        )
        .where(F.col("metric").isin(*wanted))
    )
    may_be = _of_metric(lambda metric: _may_be(metric, F.col("value"), limits))
    suspects = _suspects(_recent(figures, changed), may_be, changed)
    return suspects.compared(figures) if suspects else None


def _recent(rows: DataFrame, changed: Changed | None) -> DataFrame:
    """The rows of days on which a figure may have become an anomaly."""
    return rows.where(F.col("day") >= F.lit(min(changed.days)).cast("date")) if changed else rows


def _suspects(figures: DataFrame, may_be: Column, changed: Changed | None) -> _Suspects | None:
    """The figures that may be anomalies, of those that have changed; None if there is none."""
    found = materialized(_marked(figures, may_be, changed).where("_own OR _fleet"))
    number = found.count()
    few = F.broadcast if number <= _FEW else (lambda frame: frame)
    series, times = found.where("_own").select(*_QUEUE), found.where("_fleet").select(*_TIME)
    return _Suspects(few(series.distinct()), few(times.distinct())) if number else None


def _marked(figures: DataFrame, may_be: Column, changed: Changed | None) -> DataFrame:
    """Figures with ``_own`` and ``_fleet``."""
    if changed is None:
        return figures.withColumns({"_own": may_be, "_fleet": may_be})
    marks = {"_own": may_be & F.col("is_later"), "_fleet": may_be & changed.is_on_day()}
    return changed.marked(figures).withColumns(marks).drop("is_later")


def _may_be(metric: Metric, value: Column, limits: dict[str, float]) -> Column:
    """Whether a figure may be an anomaly, by itself.

    No median is negative, and a spread is at least the floor, and at least ``relative_floor`` of the median. So a
    figure that is too large is at least ``z_min`` floors; and none is too small if ``z_min`` times ``relative_floor``
    is more than 1.
    """
    return F.lit(_may_be_small(metric, limits)) | (value >= limits["z_min"] * metric.floor * (1 - _ROUNDING))


def _may_be_small(metric: Metric, limits: dict[str, float]) -> bool:
    """Whether a figure of a metric may be an anomaly because it is too small."""
    return metric.both_ways and limits["z_min"] * limits["relative_floor"] <= 1 + _ROUNDING


def _counts(frames: Frames, period: str, limits: dict[str, float], changed: Changed | None) -> DataFrame | None:
    """Counts of events by queue in long form; None if none of them may be an anomaly. A period with events of the
    device, but none of one of its queues, counts as 0."""
    metrics = [metric for metric in METRICS if metric.period == period and not metric.name.endswith("_ms")]
    begin = F.col("hour") if period == "hour" else F.col("day").cast("timestamp")
    rows = frames["throughput"].withColumn("begins_at", begin)

    def counted(rows: DataFrame) -> DataFrame:
        sums = (F.sum(metric.name).alias(metric.name) for metric in metrics)
        return rows.groupBy(*_PERIOD).agg(*sums)

    may_be = reduce(or_, (_may_be(metric, F.col(metric.name), limits) for metric in metrics))
    suspects = _suspects(counted(_recent(rows, changed)), may_be, changed)
    if not suspects:
        return None
    covered = frames["hours"].withColumn("begins_at", begin).select("device", "begins_at", "day").distinct()
    begun = rows.groupBy(*_QUEUE).agg(F.min("begins_at").alias("_begun"))
    filled = suspects.periods(covered, begun).join(counted(suspects.compared(rows)), [*_PERIOD], "left")
    values = (
        F.struct(F.lit(metric.name).alias("metric"), F.coalesce(metric.name, F.lit(0)).cast("double").alias("value"))
        for metric in metrics
    )
    return filled.select(
        "device", "queue", F.lit(period).alias("period"), "begins_at", "day", F.inline(F.array(*values))
    )


def _against_own(figures: DataFrame, limits: dict[str, float]) -> DataFrame:
    parts = []
    figures = _where_any(figures, "_own", _SERIES)
    for period in ("hour", "day"):
        order = Window.partitionBy(*_SERIES).orderBy("begins_at", "day")
        past = F.sort_array(F.collect_list("value").over(order.rowsBetween(-int(limits[f"own_{period}s"]), -1)))
        own = figures.where(F.col("period") == period).withColumn("_past", past).where("_own")
        own = own.withColumns({"n": F.size("_past").cast("bigint"), "median": _middle(F.col("_past"))})
        own = own.where(F.col("n") >= limits[f"own_{period}s_min"])
        apart = F.sort_array(F.transform("_past", lambda one: F.abs(one - F.col("median"))))
        parts.append(own.withColumns({"mad": _middle(apart), "against": F.lit("own")}).drop("_past"))
    return parts[0].unionByName(parts[1])


def _against_fleet(figures: DataFrame, limits: dict[str, float]) -> DataFrame:
    of = ("queue", "period", "metric", "begins_at", "day")
    peers = Window.partitionBy(*of)
    compared = _where_any(figures, "_fleet", of).withColumns(
        {"n": F.count(F.lit(1)).over(peers), "median": F.median("value").over(peers)}
    )
    compared = compared.where(F.col("n") >= limits["peers_min"])
    return compared.withColumns(
        {"mad": F.median(F.abs(F.col("value") - F.col("median"))).over(peers), "against": F.lit("fleet")}
    )


def _where_any(figures: DataFrame, mark: str, of: tuple[str, ...]) -> DataFrame:
    """The figures that are compared with each other, where any of them has the mark."""
    return figures.join(figures.where(mark).select(*of).distinct(), [*of], "left_semi")


def _middle(ordered: Column) -> Column:
    """The median of a sorted array; null if it is empty."""
    size = F.size(ordered)
    low, high = F.greatest(((size + 1) / 2).cast("int"), F.lit(1)), (size / 2).cast("int") + 1
    return (F.try_element_at(ordered, low) + F.try_element_at(ordered, high)) / 2


def _of_metric(value: Callable[[Metric], Column]) -> Column:
    """``value`` of the metric that a row is about."""
    return F.coalesce(
        *(F.when((F.col("metric") == one.name) & (F.col("period") == one.period), value(one)) for one in METRICS)
    )
