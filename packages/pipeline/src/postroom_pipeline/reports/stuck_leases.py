"""Leases that are held far longer than is usual, or whose time is over and that nobody has ended."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.table import Frames, Table
from .histogram import summarised
from .lineage import native
from .thresholds import Given, Threshold, chosen

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("queue", c.TEXT, "queue of the message"),
        c.column("message", c.TEXT, "key of the message"),
        c.column("leased_engine_ms", c.INTEGER, "engine time at which it was given; 0 where that is not known"),
        c.column("lease", c.TEXT, "id of the lease"),
        c.column("consumer", c.TEXT, "who holds it"),
        c.column("attempt", c.INTEGER, "which delivery it is"),
        c.column("of_dead", c.FLAG, "whether it is of a dead letter"),
        c.column("why", c.TEXT, "`overdue`: its time was over; `held`: longer than is usual in its queue"),
        c.column("held_ms", c.INTEGER, "how long it had been held when it was last seen"),
        c.column("overdue_ms", c.INTEGER, "how long its time had been over then; 0 if it was not"),
        c.column("usual_ms", c.INTEGER, "nine of ten deliveries that were acked were held no longer"),
        c.column("measured", c.INTEGER, "how many deliveries that was taken from"),
        c.column("seen", c.INTEGER, "how many snapshots show the lease"),
        c.column("snapshot", c.TEXT, "the last of them"),
        c.column("seen_at", c.MOMENT, "when that was taken; null where the clock is suspect"),
        c.column("still_held", c.FLAG, "whether it is the last snapshot of the root"),
    ]
)
KEY: Final = ("device", "root", "queue", "message", "leased_engine_ms")
PARTITION: Final = ()
TABLE: Final = Table("stuck_leases", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("events", "imports", "leases", "snapshots")
THRESHOLDS: Final = (
    Threshold("overdue_ms", 60_000, "a lease whose time has been over so long should have been ended by the daemon"),
    Threshold("held_ms", 900_000, "a lease is held at least so long"),
    Threshold("held_factor", 10, "and so many times as long as nine of ten deliveries of its queue on its device"),
    Threshold("measured_min", 20, "of which there are at least so many"),
    Threshold("held_alone_ms", 21_600_000, "where there are fewer, it is held at least so long"),
)
TROUBLE: Final = "true"

_QUEUE: Final = ("device", "root", "queue")


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """Each lease once, as the last snapshot shows it that has it."""
    limits = chosen(THRESHOLDS, given)
    held = F.greatest(F.col("engine_ms") - F.col("leased_engine_ms"), F.lit(0))
    overdue = F.coalesce(F.greatest(F.col("engine_ms") - F.col("until_engine_ms"), F.lit(0)), F.lit(0))
    place = F.struct("epoch", "as_of_event", "engine_ms", "snapshot")
    whole = Window.partitionBy("device", "root")
    snapshots = frames["snapshots"].select("device", "root", "snapshot", place.alias("_place"))
    last = snapshots.withColumn("_last", F.max("_place").over(whole)).where("_place = _last").drop("_place", "_last")
    ended = (
        frames["leases"]
        .withColumns({"held_ms": F.coalesce(held, F.lit(0)), "overdue_ms": overdue, "_place": place})
        .withColumn("leased_engine_ms", F.coalesce("leased_engine_ms", F.lit(0)))
        .groupBy(*KEY)
        .agg(
            F.count(F.lit(1)).alias("seen"),
            *(
                F.max_by(name, "_place").alias(name)
                for name in ("lease", "consumer", "attempt", "of_dead", "held_ms", "overdue_ms", "snapshot")
            ),
            F.max_by("wall_at", "_place").alias("seen_at"),
        )
    )
    acked = (
        native(frames["events"], frames["imports"])
        .where("type = 'acked' and held_ms >= 0")
        .withColumn("ms", F.col("held_ms"))
    )
    usual = summarised(acked, _QUEUE).select(
        *_QUEUE, F.col("count").alias("measured"), F.col("p90_ms").alias("usual_ms")
    )
    judged = ended.join(usual, [*_QUEUE], "left").withColumn("measured", F.coalesce("measured", F.lit(0)))
    known = F.col("measured") >= limits["measured_min"]
    longest = F.when(known, F.greatest(F.lit(limits["held_ms"]), F.col("usual_ms") * limits["held_factor"]))
    why = F.when(F.col("overdue_ms") >= limits["overdue_ms"], "overdue").when(
        F.col("held_ms") >= F.coalesce(longest, F.lit(limits["held_alone_ms"])), "held"
    )
    found = judged.withColumn("why", why).where("why is not null")
    of_last = last.withColumn("still_held", F.lit(True))
    return found.join(of_last, ["device", "root", "snapshot"], "left").withColumns(
        {"still_held": F.coalesce("still_held", F.lit(False)), "of_dead": F.coalesce("of_dead", F.lit(False))}
    )
