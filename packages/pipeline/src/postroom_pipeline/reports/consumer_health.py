"""Who consumes, and who stopped while messages went on piling up."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..tables import columns as c
from .clock_trouble import boots
from .depth_hourly import depth
from .histogram import summarised
from .lineage import native
from .thresholds import Given, Threshold, chosen

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("queue", c.TEXT, "queue that it consumes"),
        c.column("consumer", c.TEXT, "its id"),
        c.column(
            "status",
            c.TEXT,
            "`ok`; `dead`: silent to the end while a backlog grew; `recovered`: it was so, and came back",
        ),
        c.column("last_active_engine_ms", c.INTEGER, "engine time at which it last asked or was given a message"),
        c.column(
            "last_active_at", c.MOMENT, "the same by the wall clock of the last snapshot; null where that is suspect"
        ),
        c.column("silent_ms", c.INTEGER, "from then to the end of what is known of the root"),
        c.column("active", c.INTEGER, "how often it is known to have asked or been given a message"),
        c.column("usual_ms", c.INTEGER, "nine of ten of its pauses were no longer"),
        c.column("from_engine_ms", c.INTEGER, "of `dead` and `recovered`: beginning of the longest such silence"),
        c.column("to_engine_ms", c.INTEGER, "end of it, or of what is known"),
        c.column("from_at", c.MOMENT, "`from_engine_ms` by the wall clock of the last snapshot"),
        c.column("backlog_from", c.INTEGER, "messages in the queue at its beginning, dead ones left out"),
        c.column("backlog_to", c.INTEGER, "messages at its end"),
        c.column("grown_since_engine_ms", c.INTEGER, "since when the backlog stayed so much larger"),
        c.column("others_took", c.INTEGER, "deliveries to other consumers meanwhile"),
    ]
)
KEY: Final = ("device", "root", "queue", "consumer")
PARTITION: Final = ()
TABLE: Final = c.table("consumer_health", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("events", "dead_letters", "queue_depth", "consumers", "snapshots")
THRESHOLDS: Final = (
    Threshold("silent_ms", 600_000, "it is silent for so long"),
    Threshold("silent_factor", 10, "and so many times as long as nine of ten of its pauses"),
    Threshold("pauses_min", 20, "of which there are at least so many"),
    Threshold("silent_alone_ms", 3_600_000, "where there are fewer, it is silent for so long"),
    Threshold(
        "backlog_min", 10, "so many messages more are in the queue than when it fell silent, for `silent_ms` at least"
    ),
    Threshold("onset_ms", 3_600_000, "where others go on consuming: since so soon after it fell silent"),
)
TROUBLE: Final = "status <> 'ok'"

_QUEUE: Final = ("device", "root", "queue")


def build(frames: c.Frames, given: Given | None = None) -> DataFrame:
    """Of the newest epoch of each root. A queue whose consuming is paused has no dead consumers, and one that another
    consumer took over, which came only then, has not either; the time before a start of the machine does not count."""
    limits = chosen(THRESHOLDS, given)
    ends = _ends(frames)
    sequence = _sequence(frames, ends)
    active = sequence.where("consumer is not null")
    order = Window.partitionBy(*KEY).orderBy("engine_ms", "event")
    pauses = active.withColumns(
        {"from_engine_ms": F.lag("engine_ms").over(order), "backlog_from": F.lag("backlog").over(order)}
    ).where("from_engine_ms is not null")
    lengths = pauses.where("not is_end").withColumn("ms", F.col("engine_ms") - F.col("from_engine_ms"))
    usual = summarised(lengths, KEY).select(*KEY, F.col("count").alias("pauses"), F.col("p90_ms").alias("usual_ms"))
    candidates = _candidates(pauses.join(usual, [*KEY], "left"), limits)
    silences = _judged(candidates, sequence, frames, limits)
    longest = silences.groupBy(*KEY).agg(
        F.max_by(
            F.struct(
                "from_engine_ms",
                "to_engine_ms",
                "backlog_from",
                "backlog_to",
                "grown_since_engine_ms",
                "others_took",
                "is_end",
            ),
            F.struct(F.col("to_engine_ms") - F.col("from_engine_ms"), "from_engine_ms"),
        ).alias("silence"),
        F.max("is_end").alias("is_dead"),
    )
    seen = (
        active.where("not is_end")
        .groupBy(*KEY)
        .agg(F.max("engine_ms").alias("last_active_engine_ms"), F.count(F.lit(1)).alias("active"))
    )
    told = seen.join(ends, ["device", "root"]).join(usual, [*KEY], "left").join(longest, [*KEY], "left")
    status = F.when(F.col("silence").isNull(), "ok").when(F.col("is_dead"), "dead").otherwise("recovered")
    return told.select(
        *KEY,
        status.alias("status"),
        "last_active_engine_ms",
        _wall(F.col("last_active_engine_ms")).alias("last_active_at"),
        (F.col("end_engine_ms") - F.col("last_active_engine_ms")).alias("silent_ms"),
        "active",
        "usual_ms",
        *(F.col("silence")[name].alias(name) for name in ("from_engine_ms", "to_engine_ms")),
        _wall(F.col("silence")["from_engine_ms"]).alias("from_at"),
        *(
            F.col("silence")[name].alias(name)
            for name in ("backlog_from", "backlog_to", "grown_since_engine_ms", "others_took")
        ),
    )


def _ends(frames: c.Frames) -> DataFrame:
    """The newest epoch of each root, where what is known of it ends, and how its wall clock stood then."""
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


def _sequence(frames: c.Frames, ends: DataFrame) -> DataFrame:
    """Of each queue in order of engine time: signs of life of consumers, changes of the backlog, pauses of consuming,
    and at the end a row for each consumer. ``backlog`` is what the queue held then."""
    leased = F.col("type") == "leased"
    given = native(frames["events"]).where(
        leased & ~F.coalesce("of_dead", F.lit(False)) & F.col("consumer").isNotNull()
    )
    lives = given.select(*_QUEUE, "epoch", "engine_ms", "event", "consumer", F.lit(True).alias("took"))
    for name in ("asked_engine_ms", "delivered_engine_ms"):
        told = frames["consumers"].where(F.col(name).isNotNull())
        lives = lives.unionByName(
            told.select(*_QUEUE, "epoch", F.col(name).alias("engine_ms"), "consumer").distinct(),
            allowMissingColumns=True,
        )
    lives = lives.join(ends.select("device", "root", "epoch"), ["device", "root", "epoch"], "left_semi")
    lives = lives.withColumn("is_end", F.lit(False))
    at_end = lives.select(*KEY).distinct().join(ends, ["device", "root"])
    at_end = at_end.select(*KEY, "epoch", F.col("end_engine_ms").alias("engine_ms"), F.lit(True).alias("is_end"))
    levels = depth(frames).select(*_QUEUE, "epoch", "engine_ms", "event", F.col("live_depth").alias("level"))
    paused = frames["events"].where("type = 'paused' and get_json_object(ext, '$.operation') = 'consume'")
    paused = paused.select(*_QUEUE, "epoch", "engine_ms", "event", F.lit(True).alias("is_pause"))
    off = frames["queue_depth"].where("consume_paused")
    off = off.select(*_QUEUE, "epoch", "engine_ms", F.col("as_of_event").alias("event"), F.lit(True).alias("is_pause"))
    rows = lives
    for more in (at_end, levels, paused, off):
        rows = rows.unionByName(more, allowMissingColumns=True)
    rows = rows.join(ends.select("device", "root", "epoch"), ["device", "root", "epoch"], "left_semi")
    order = Window.partitionBy(*_QUEUE).orderBy(
        "engine_ms", F.coalesce("is_end", F.lit(False)), F.col("event").asc_nulls_first(), "consumer"
    )
    past = order.rowsBetween(Window.unboundedPreceding, 0)
    return rows.withColumns(
        {
            "backlog": F.coalesce(F.last("level", ignorenulls=True).over(past), F.lit(0)),
            "next_engine_ms": F.lead("engine_ms").over(order),
        }
    )


def _candidates(pauses: DataFrame, limits: dict[str, float]) -> DataFrame:
    """Pauses that are long for their consumer, and over which the backlog grew."""
    silent = F.col("engine_ms") - F.col("from_engine_ms")
    own = F.greatest(F.lit(limits["silent_ms"]), F.col("usual_ms") * limits["silent_factor"])
    enough = F.when(F.col("pauses") >= limits["pauses_min"], own).otherwise(
        F.greatest(own, F.lit(limits["silent_alone_ms"]))
    )
    grew = F.col("backlog") - F.col("backlog_from") >= limits["backlog_min"]
    return pauses.where((silent >= enough) & grew).select(
        *KEY,
        "epoch",
        "from_engine_ms",
        F.col("engine_ms").alias("to_engine_ms"),
        "backlog_from",
        F.col("backlog").alias("backlog_to"),
        "is_end",
    )


def _judged(candidates: DataFrame, sequence: DataFrame, frames: c.Frames, limits: dict[str, float]) -> DataFrame:
    """Those of the pauses that are silences of a consumer that is dead."""
    inside = (F.col("engine_ms") > F.col("from_engine_ms")) & (F.col("engine_ms") <= F.col("to_engine_ms"))
    first = F.min("engine_ms").over(Window.partitionBy(*_QUEUE, "_other"))
    meanwhile = (
        sequence.select(
            *_QUEUE, "engine_ms", "next_engine_ms", "backlog", F.col("consumer").alias("_other"), "took", "is_pause"
        )
        .withColumn("_first", first)
        .join(candidates, [*_QUEUE])
        .where(inside)
    )
    other = F.col("_other").isNotNull() & (F.col("_other") != F.col("consumer"))
    low = F.col("backlog") < F.col("backlog_from") + limits["backlog_min"]
    of = (*KEY, "epoch", "from_engine_ms", "to_engine_ms", "backlog_from", "backlog_to", "is_end")
    found = meanwhile.groupBy(*of).agg(
        F.max(F.when(low, F.col("next_engine_ms"))).alias("_low_until"),
        F.count_if(other & F.coalesce("took", F.lit(False))).alias("others_took"),
        F.max(other & (F.col("_first") > F.col("from_engine_ms"))).alias("_replaced"),
        F.max(F.coalesce("is_pause", F.lit(False))).alias("_paused"),
    )
    started = boots(frames["events"]).select("device", "root", "epoch", F.col("engine_ms").alias("_boot"))
    after_boot = F.max(
        F.when((F.col("_boot") > F.col("from_engine_ms")) & (F.col("_boot") <= F.col("to_engine_ms")), F.col("_boot"))
    )
    kept = (*of, "_low_until", "others_took", "_replaced", "_paused")
    grown = F.greatest(F.coalesce("_low_until", "from_engine_ms"), "_last_boot")
    served = (F.col("others_took") == 0) | (
        F.col("grown_since_engine_ms") - F.col("from_engine_ms") <= limits["onset_ms"]
    )
    return (
        found.join(started, ["device", "root", "epoch"], "left")
        .groupBy(*kept)
        .agg(after_boot.alias("_last_boot"))
        .withColumn("grown_since_engine_ms", grown)
        .where((F.col("to_engine_ms") - F.col("grown_since_engine_ms") >= limits["silent_ms"]) & served)
        .where("not _replaced and not _paused")
    )


def _wall(engine: Column) -> Column:
    return F.timestamp_millis(F.col("end_wall_ms") - (F.col("end_engine_ms") - engine))
