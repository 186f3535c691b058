"""Which devices need attention first."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.table import Frames, Table
from . import (
    anomalies,
    audit,
    audit_messages,
    clock_trouble,
    consumer_health,
    dead_reasons_daily,
    duplicate_publishes,
    journal_gaps,
    poison_messages,
    retry_storms,
    stuck_leases,
)
from .scope import OF_FLEET
from .thresholds import Given, Threshold, chosen

#: What is counted of a device: the report, its rows, the weight of one, and what they are.
_COUNTED: Final = {
    "messages_lost": (audit_messages, "kind = 'lost'", 100, "lost messages"),
    "messages_doubtful": (audit_messages, "kind <> 'lost'", 20, "duplicated or unexplained messages"),
    "queues_unbalanced": (
        audit,
        f"span = 'between' and queue <> '' and ({audit.TROUBLE})",
        50,
        "unbalanced audits of a queue between two snapshots",
    ),
    "journal_gaps": (journal_gaps, journal_gaps.TROUBLE, 50, "gaps of the journal"),
    "dead_consumers": (consumer_health, "status = 'dead'", 40, "dead consumers"),
    "recovered_consumers": (consumer_health, "status = 'recovered'", 10, "consumers that were dead temporarily"),
    "stuck_leases": (stuck_leases, stuck_leases.TROUBLE, 20, "stuck leases"),
    "retry_storms": (retry_storms, retry_storms.TROUBLE, 20, "retry storms"),
    "poison_messages": (poison_messages, poison_messages.TROUBLE, 10, "poison messages"),
    "clock_troubles": (clock_trouble, clock_trouble.TROUBLE, 10, "clock problems, including power cuts"),
    "duplicate_publishes": (duplicate_publishes, duplicate_publishes.TROUBLE, 5, "messages published twice"),
    "anomalies": (anomalies, anomalies.TROUBLE, 2, "anomalies"),
}

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.column("rank", c.INTEGER, "1 is the device that needs attention first; equal scores have equal ranks"),
        c.column("score", c.INTEGER, "weighted sum of all problems"),
        c.column("worst", c.TEXT, "problem that adds most to the score; null if there is none"),
        c.column("last_at", c.MOMENT, "wall clock of its last snapshot; null if that is suspect"),
        c.column("snapshots", c.INTEGER, "number of its snapshots"),
        c.column(
            "behind_ms",
            c.INTEGER,
            "time by which its last snapshot precedes the fleet's newest ones, or 0; null if its clock is suspect",
        ),
        c.column(
            "usual_ms",
            c.INTEGER,
            "90th percentile of its pauses between snapshots; of all devices if it has few; null if there are none",
        ),
        c.column("silent", c.INTEGER, "1 if another snapshot is long overdue, otherwise 0"),
        c.column("dead_letters", c.INTEGER, "dead letters in its last snapshots, over all its roots"),
        c.column("deaths", c.INTEGER, "messages that ever died, as far as events are known"),
        *(c.column(name, c.INTEGER, meaning) for name, (_, _, _, meaning) in _COUNTED.items()),
        c.column("conflicts", c.INTEGER, "events that differ between two snapshots"),
    ]
)
KEY: Final = ("device",)
PARTITION: Final = ()
TABLE: Final = Table("device_health", SCHEMA, KEY, PARTITION)
NEEDS: Final = (
    "snapshots",
    "queue_depth",
    "conflicts",
    dead_reasons_daily.TABLE.name,
    *dict.fromkeys(module.TABLE.name for module, *_ in _COUNTED.values()),
)
SCOPE: Final = OF_FLEET
THRESHOLDS: Final = (
    *(
        Threshold(f"{name}_weight", weight, f"weight in the score: {meaning}")
        for name, (_, _, weight, meaning) in _COUNTED.items()
    ),
    Threshold("conflicts_weight", 50, "weight in the score: events that differ between two snapshots"),
    Threshold("silent_weight", 40, "weight in the score: a silent device"),
    Threshold("silent_factor", 3, "a device is silent if it is behind the others by this multiple of its usual pause"),
    Threshold("silent_ms", 3_600_000, "and by at least this time"),
    Threshold("pauses_min", 3, "number of pauses between snapshots from which a device's own count"),
    Threshold(
        "newest_part",
        0.75,
        "share of devices whose last snapshots define the fleet's newest time, so that a clock ahead has no effect",
    ),
    Threshold("dead_letters_weight", 1, "weight in the score: dead letters"),
    Threshold("most_counted", 20, "maximum number of problems of one kind that count"),
)
TROUBLE: Final = "score > 0"


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """One row per device with a snapshot."""
    limits = chosen(THRESHOLDS, given)
    place = F.struct("wall_ms", "epoch", "as_of_event", "snapshot")
    devices = (
        frames["snapshots"]
        .groupBy("device")
        .agg(F.max_by("wall_at", place).alias("last_at"), F.count(F.lit(1)).alias("snapshots"))
    )
    for count in (_counts(frames), _silence(frames, limits)):
        devices = devices.join(count, ["device"], "left")
    weighed = (*_COUNTED, "conflicts", "silent", "dead_letters")
    devices = devices.withColumns({name: F.coalesce(name, F.lit(0)) for name in (*weighed, "deaths")})
    adds = {name: F.least(F.col(name), F.lit(limits["most_counted"])) * limits[f"{name}_weight"] for name in weighed}
    score = reduce(add, adds.values()).cast("bigint")
    worst = F.array_max(
        F.array(*(F.struct(part.alias("adds"), F.lit(name).alias("name")) for name, part in adds.items()))
    )
    scored = devices.withColumns({"score": score, "worst": F.when(worst["adds"] > 0, worst["name"])})
    rank = F.rank().over(Window.orderBy(F.col("score").desc()))
    return scored.withColumn("rank", rank.cast("bigint"))


def _counts(frames: Frames) -> DataFrame:
    """What is counted of each device: one sum over the rows of all reports."""
    counted = {name: frames[module.TABLE.name].where(where) for name, (module, where, _, _) in _COUNTED.items()}
    counted["conflicts"] = frames["conflicts"].select("device", "root", "epoch", "event").distinct()
    one = F.lit(1).cast("bigint")
    parts = {name: frame.select("device", one.alias("n")) for name, frame in counted.items()}
    parts["deaths"] = frames["dead_reasons_daily"].select("device", F.col("deaths").alias("n"))
    parts["dead_letters"] = _dead_letters(frames).select("device", F.col("dead").alias("n"))
    rows = reduce(DataFrame.unionByName, (part.withColumn("what", F.lit(name)) for name, part in parts.items()))
    return rows.groupBy("device").agg(*(F.sum(F.when(F.col("what") == name, F.col("n"))).alias(name) for name in parts))


def _dead_letters(frames: Frames) -> DataFrame:
    """The queues of each device in the last snapshot of each root, with their dead letters."""
    place = F.struct("epoch", "as_of_event", "engine_ms", "snapshot")
    last = frames["snapshots"].groupBy("device", "root").agg(F.max_by("snapshot", place).alias("snapshot"))
    return frames["queue_depth"].join(last, ["device", "root", "snapshot"], "left_semi")


def _silence(frames: Frames, limits: dict[str, float]) -> DataFrame:
    """``behind_ms``, ``usual_ms`` and ``silent`` of each device with a snapshot whose clock is sane."""
    sane = frames["snapshots"].where(~F.col("clock_suspect")).select("device", "wall_ms").distinct()
    order = Window.partitionBy("device").orderBy("wall_ms")
    pauses = sane.withColumn("pause_ms", F.col("wall_ms") - F.lag("wall_ms").over(order))
    of_all = pauses.agg(F.percentile("pause_ms", F.lit(0.9)).alias("usual_of_all"))
    own = pauses.groupBy("device").agg(
        F.max("wall_ms").alias("last_ms"),
        F.when(F.count("pause_ms") >= limits["pauses_min"], F.percentile("pause_ms", F.lit(0.9))).alias("usual_own"),
    )
    newest = own.agg(
        F.expr(f"percentile_disc({limits['newest_part']}) within group (order by last_ms)").alias("newest_ms")
    )
    compared = own.crossJoin(of_all).crossJoin(newest)
    behind = F.greatest(F.col("newest_ms") - F.col("last_ms"), F.lit(0)).cast("bigint")
    usual = F.coalesce("usual_own", "usual_of_all").cast("bigint")
    too_long = F.greatest(F.coalesce(usual * limits["silent_factor"], F.lit(0)), F.lit(limits["silent_ms"]))
    return compared.select(
        "device", behind.alias("behind_ms"), usual.alias("usual_ms"), (behind > too_long).cast("bigint").alias("silent")
    )
