"""Who consumes, and who stopped while the backlog continued to grow."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.table import Frames, Table
from ..spark.session import materialized
from .scope import OF_DEVICE
from .thresholds import Given, Threshold, chosen

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("queue", c.TEXT, "queue that the consumer uses"),
        c.column("consumer", c.TEXT, "id of the consumer"),
        c.column(
            "status",
            c.TEXT,
            "`ok`; `dead`: silent to the end while a backlog grew; `recovered`: was dead, and came back",
        ),
        c.column("last_active_engine_ms", c.INTEGER, "engine time at which it last asked for or got a message"),
        c.column("last_active_at", c.MOMENT, "the same as wall clock of the last snapshot; null if that is suspect"),
        c.column("silent_ms", c.INTEGER, "time from then to the last known event of the root"),
        c.column("active", c.INTEGER, "number of times it asked for or got a message"),
        c.column("usual_ms", c.INTEGER, "90th percentile of its pauses"),
        c.column("from_engine_ms", c.INTEGER, "for `dead` and `recovered`: start of the longest such silence"),
        c.column("to_engine_ms", c.INTEGER, "end of it, or of the known events"),
        c.column("from_at", c.MOMENT, "`from_engine_ms` as wall clock of the last snapshot"),
        c.column("backlog_from", c.INTEGER, "messages in the queue at the start of the silence, without dead letters"),
        c.column("backlog_to", c.INTEGER, "messages in the queue at the end of the silence"),
        c.column("grown_since_engine_ms", c.INTEGER, "time since when the backlog has been larger by `backlog_min`"),
        c.column("others_took", c.INTEGER, "deliveries to other consumers meanwhile"),
    ]
)
KEY: Final = ("device", "root", "queue", "consumer")
PARTITION: Final = ()
TABLE: Final = Table("consumer_health", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("deliveries", "rare_events", "depth", "queue_depth", "consumers", "snapshots", "clock_trouble")
SCOPE: Final = OF_DEVICE
THRESHOLDS: Final = (
    Threshold("silent_ms", 600_000, "minimum silence of a dead consumer"),
    Threshold("silent_factor", 10, "and this multiple of the 90th percentile of its pauses"),
    Threshold("pauses_min", 20, "minimum number of its pauses"),
    Threshold("silent_alone_ms", 3_600_000, "minimum silence if there are fewer"),
    Threshold("backlog_min", 10, "minimum growth of the queue since it fell silent, for at least `silent_ms`"),
    Threshold("signs_max", 20_000, "number of the last times it asked for or got a message that count"),
    Threshold("onset_ms", 3_600_000, "if others consume: they started at most this long after it fell silent"),
)
TROUBLE: Final = "status <> 'ok'"

_QUEUE: Final = ("device", "root", "queue")
_SILENCE: Final = ("epoch", "from_engine_ms", "to_engine_ms", "backlog_from", "backlog_to", "is_end")
_SHOWN: Final = (
    "from_engine_ms",
    "to_engine_ms",
    "backlog_from",
    "backlog_to",
    "grown_since_engine_ms",
    "others_took",
)
_OF: Final = (*KEY, *_SILENCE)


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """Covers the newest epoch of each root. A queue whose consuming is paused has no dead consumers, and neither has
    one that a new consumer took over. The time before a start of the machine does not count.
    """
    limits = chosen(THRESHOLDS, given)
    lives = materialized(_lives(frames, limits))
    # How full queues were is only asked of those that a consumer left alone for long.
    queues = materialized(lives.where("may_be_dead").select(*_QUEUE).distinct())
    longest = _longest(frames, lives, queues, limits)
    rows = lives.join(longest, [*KEY], "left").withColumn("_from", F.col("silence")["from_engine_ms"])
    status = F.when(F.col("silence").isNull(), "ok").when(F.col("is_dead"), "dead").otherwise("recovered")
    return rows.select(
        *KEY,
        status.alias("status"),
        "last_active_engine_ms",
        _wall("last_active_engine_ms").alias("last_active_at"),
        (F.col("end_engine_ms") - F.col("last_active_engine_ms")).alias("silent_ms"),
        "active",
        "usual_ms",
        _wall("_from").alias("from_at"),
        *(F.col("silence")[name].alias(name) for name in _SHOWN),
    )


def _longest(frames: Frames, lives: DataFrame, queues: DataFrame, limits: dict[str, float]) -> DataFrame:
    """The longest ``silence`` of each consumer of such queues that was dead, and whether it ``is_dead``."""
    if queues.isEmpty():  # as it should be: nothing else needs to be read
        nothing = F.struct(*(F.lit(None).cast("bigint").alias(name) for name in _SHOWN))
        return lives.select(*KEY, nothing.alias("silence"), F.lit(False).alias("is_dead")).where("false")
    course = _course(_rows(frames, queues))
    candidates = materialized(_candidates(_pauses(course), lives, limits))
    silences = _silences(candidates, course, frames, limits)
    if candidates.isEmpty():
        silences = silences.where("false")
    length = F.struct(F.col("to_engine_ms") - F.col("from_engine_ms"), "from_engine_ms")
    return silences.groupBy(*KEY).agg(
        F.max_by(F.struct(*_SHOWN), length).alias("silence"), F.max("is_end").alias("is_dead")
    )


def _ends(frames: Frames) -> DataFrame:
    """The newest epoch of each root, and engine time and wall clock of its last snapshot."""
    place = F.struct("epoch", "as_of_event", "engine_ms", "snapshot")
    return (
        frames["snapshots"]
        .groupBy("device", "root")
        .agg(F.max_by(F.struct("epoch", "engine_ms", "wall_ms", "clock_suspect"), place).alias("last"))
        .select(
            "device",
            "root",
            F.col("last")["epoch"].alias("epoch"),
            F.col("last")["engine_ms"].alias("end_engine_ms"),
            F.when(~F.col("last")["clock_suspect"], F.col("last")["wall_ms"]).alias("end_wall_ms"),
        )
    )


def _signs(frames: Frames) -> DataFrame:
    """When each consumer asked for or got a message, as snapshots say: once for each such time."""
    asked = F.explode(F.array_distinct(F.array_compact(F.array("asked_engine_ms", "delivered_engine_ms"))))
    return frames["consumers"].select(*_QUEUE, "epoch", "consumer", asked.alias("engine_ms")).distinct()


def _lives(frames: Frames, limits: dict[str, float]) -> DataFrame:
    """A row for each consumer; ``may_be_dead`` is whether a pause is long for it."""
    taken = frames["deliveries"].where("consumer is not null").select(*KEY, "epoch", "leases.engine_ms")
    signs = _signs(frames).select(*KEY, "epoch", F.array("engine_ms").alias("engine_ms"))
    parts = taken.unionByName(signs).join(_ends(frames), ["device", "root", "epoch"])
    later = Window.partitionBy(*KEY).orderBy(F.array_max("engine_ms").desc()).rowsBetween(Window.unboundedPreceding, -1)
    counted = parts.withColumn("_later", F.coalesce(F.sum(F.size("engine_ms")).over(later), F.lit(0)))
    counting = F.when(F.col("_later") < limits["signs_max"], F.col("engine_ms"))
    times = F.slice(F.sort_array(F.flatten(F.collect_list(counting)), asc=False), 1, int(limits["signs_max"]))
    lives = counted.groupBy(*KEY, "end_engine_ms", "end_wall_ms").agg(
        F.sum(F.size("engine_ms")).alias("active"), F.reverse(times).alias("times")
    )
    following = F.slice("times", 2, F.size("times"))
    between = F.zip_with(following, F.slice("times", 1, F.size("times") - 1), lambda to, at: to - at)
    lives = lives.select(
        *KEY,
        "end_engine_ms",
        "end_wall_ms",
        "active",
        F.element_at("times", 1).alias("since_engine_ms"),
        F.element_at("times", -1).alias("last_active_engine_ms"),
        F.sort_array(between).alias("lengths"),
    )
    pauses = F.size("lengths")
    lives = lives.withColumn("usual_ms", _ninth_decile(F.col("lengths")))
    own = F.greatest(F.lit(limits["silent_ms"]), F.col("usual_ms") * limits["silent_factor"])
    enough = F.when(pauses >= limits["pauses_min"], own).otherwise(F.greatest(own, F.lit(limits["silent_alone_ms"])))
    silent = F.col("end_engine_ms") - F.col("last_active_engine_ms")
    longest = F.greatest(silent, F.try_element_at("lengths", F.lit(-1)))
    lives = lives.withColumns({"enough_ms": enough, "may_be_dead": F.coalesce(longest >= enough, F.lit(False))})
    return lives.drop("lengths")


def _ninth_decile(ordered: Column) -> Column:
    """The 90th percentile of a sorted array of integers, interpolated and rounded down; null if it is empty."""
    tenths = F.greatest(F.size(ordered) - 1, F.lit(0)) * 9
    low = F.floor(tenths / 10).cast("int")
    at_low = F.try_element_at(ordered, low + 1)
    at_high = F.coalesce(F.try_element_at(ordered, low + 2), at_low)
    return at_low + F.floor((at_high - at_low) * (tenths % 10) / 10)


def _rows(frames: Frames, queues: DataFrame) -> DataFrame:
    """Of such queues: signs of life of consumers, changes of the backlog, and pauses of consuming."""
    place = (*_QUEUE, "epoch", "engine_ms", "event")
    taken = frames["deliveries"].where("consumer is not null").select(*KEY, "epoch", F.inline("leases"))
    rows = taken.withColumn("took", F.lit(True))
    levels = frames["depth"].select(*place, F.col("live_depth").alias("level"))
    is_pause = F.lit(True).alias("is_pause")
    paused = frames["rare_events"].where("type = 'paused' and get_json_object(ext, '$.operation') = 'consume'")
    off = frames["queue_depth"].where("consume_paused").withColumn("event", F.col("as_of_event"))
    for more in (_signs(frames), levels, paused.select(*place, is_pause), off.select(*place, is_pause)):
        rows = rows.unionByName(more, allowMissingColumns=True)
    rows = rows.join(F.broadcast(queues), [*_QUEUE], "left_semi")
    return rows.join(_ends(frames), ["device", "root", "epoch"])


def _course(rows: DataFrame) -> DataFrame:
    """The rows of each queue by engine time, with ``backlog``, and ``next_engine_ms`` until which it stayed so."""
    order = Window.partitionBy(*_QUEUE).orderBy("engine_ms", F.col("event").asc_nulls_first(), "consumer")
    level = F.last("level", ignorenulls=True).over(order.rowsBetween(Window.unboundedPreceding, 0))
    return rows.withColumns({"backlog": F.coalesce(level, F.lit(0)), "next_engine_ms": F.lead("engine_ms").over(order)})


def _pauses(course: DataFrame) -> DataFrame:
    """From each sign of life of a consumer to its next one, or to the end."""
    at_end = F.max_by("backlog", F.struct("engine_ms", F.coalesce("event", F.lit(0)))).over(Window.partitionBy(*_QUEUE))
    order = Window.partitionBy(*KEY).orderBy("engine_ms", F.col("event").asc_nulls_first())
    following = F.lead(F.struct("engine_ms", "backlog")).over(order)
    alive = course.withColumn("end_backlog", at_end).where("consumer is not null").withColumn("_next", following)
    return alive.select(
        *KEY,
        "epoch",
        "end_engine_ms",
        "end_wall_ms",
        F.col("engine_ms").alias("from_engine_ms"),
        F.coalesce(F.col("_next")["engine_ms"], "end_engine_ms").alias("to_engine_ms"),
        F.col("backlog").alias("backlog_from"),
        F.coalesce(F.col("_next")["backlog"], "end_backlog").alias("backlog_to"),
        F.col("_next").isNull().alias("is_end"),
    )


def _candidates(pauses: DataFrame, lives: DataFrame, limits: dict[str, float]) -> DataFrame:
    """The pauses that are long for their consumer, and in which the backlog grew."""
    grew = F.col("backlog_to") - F.col("backlog_from") >= limits["backlog_min"]
    is_long = F.col("to_engine_ms") - F.col("from_engine_ms") >= F.col("enough_ms")
    counts = F.col("from_engine_ms") >= F.col("since_engine_ms")
    own = pauses.join(lives.select(*KEY, "since_engine_ms", "enough_ms"), [*KEY])
    return own.where(grew & is_long & counts).select(*_OF)


def _silences(candidates: DataFrame, course: DataFrame, frames: Frames, limits: dict[str, float]) -> DataFrame:
    """The candidates in which the consumer was dead."""
    other = F.col("other").isNotNull() & (F.col("other") != F.col("consumer"))
    low = F.col("backlog") < F.col("backlog_from") + limits["backlog_min"]
    first = F.min("engine_ms").over(Window.partitionBy(*KEY))
    seen = (
        course.withColumn("first_engine_ms", first)
        .withColumnRenamed("consumer", "other")
        .select(*_QUEUE, "engine_ms", "next_engine_ms", "first_engine_ms", "backlog", "other", "took", "is_pause")
    )
    summed = (
        seen.join(candidates, [*_QUEUE])
        .where("engine_ms > from_engine_ms and engine_ms <= to_engine_ms")
        .groupBy(*_OF)
        .agg(
            F.max(F.when(low, F.col("next_engine_ms"))).alias("low_until"),
            F.count_if(other & F.coalesce("took", F.lit(False))).alias("others_took"),
            F.max(other & (F.col("first_engine_ms") > F.col("from_engine_ms"))).alias("replaced"),
            F.max(F.coalesce("is_pause", F.lit(False))).alias("paused"),
        )
        .where("not replaced and not paused")
    )
    boots = frames["clock_trouble"].where("trouble in ('boot', 'power_cut')")
    started = boots.groupBy("device", "root", "epoch").agg(F.collect_list("engine_ms").alias("boots"))
    inside = F.filter("boots", lambda at: at.between(F.col("from_engine_ms"), F.col("to_engine_ms")))
    grown = F.greatest(F.coalesce("low_until", "from_engine_ms"), F.array_max(inside))
    served = (F.col("others_took") == 0) | (
        F.col("grown_since_engine_ms") - F.col("from_engine_ms") <= limits["onset_ms"]
    )
    dated = summed.join(started, ["device", "root", "epoch"], "left").withColumn("grown_since_engine_ms", grown)
    return dated.where((F.col("to_engine_ms") - F.col("grown_since_engine_ms") >= limits["silent_ms"]) & served)


def _wall(engine: str) -> Column:
    return F.timestamp_millis(F.col("end_wall_ms") - (F.col("end_engine_ms") - F.col(engine)))
