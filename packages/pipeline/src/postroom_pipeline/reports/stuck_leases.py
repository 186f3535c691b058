"""Leases that last far longer than usual, or whose time has passed and that nobody has ended."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.table import Frames, Table
from ..spark.session import materialized
from .histogram import summarised
from .lineage import native
from .scope import OF_DEVICE
from .thresholds import Given, Threshold, chosen

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("queue", c.TEXT, "queue of the message"),
        c.column("message", c.TEXT, "key of the message"),
        c.column("leased_engine_ms", c.INTEGER, "engine time at which the lease started; 0 if unknown"),
        c.column("lease", c.TEXT, "lease id"),
        c.column("consumer", c.TEXT, "consumer that has the lease"),
        c.column("attempt", c.INTEGER, "number of the delivery"),
        c.column("of_dead", c.FLAG, "true for a dead letter"),
        c.column("why", c.TEXT, "`overdue`: its time has passed; `held`: longer than usual in its queue"),
        c.column("held_ms", c.INTEGER, "age of the lease in the last snapshot that has it"),
        c.column("overdue_ms", c.INTEGER, "time since the lease should have ended; 0 if it should not have"),
        c.column("usual_ms", c.INTEGER, "90th percentile of the durations of acknowledged leases"),
        c.column("measured", c.INTEGER, "number of deliveries behind it"),
        c.column("seen", c.INTEGER, "number of snapshots with the lease"),
        c.column("snapshot", c.TEXT, "last snapshot with the lease"),
        c.column("seen_at", c.MOMENT, "wall clock of that snapshot; null if it is suspect"),
        c.column("still_held", c.FLAG, "whether this is the last snapshot of the root"),
    ]
)
KEY: Final = ("device", "root", "queue", "message", "leased_engine_ms")
PARTITION: Final = ()
TABLE: Final = Table("stuck_leases", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("events", "imports", "leases", "snapshots")
SCOPE: Final = OF_DEVICE
THRESHOLDS: Final = (
    Threshold("overdue_ms", 60_000, "a lease is stuck if the daemon has not ended it this long after its time"),
    Threshold("held_ms", 900_000, "minimum duration of a stuck lease"),
    Threshold("held_factor", 10, "and this multiple of the 90th percentile of its queue on its device"),
    Threshold("measured_min", 20, "minimum number of measured deliveries"),
    Threshold("held_alone_ms", 21_600_000, "minimum duration if there are fewer deliveries"),
)
TROUBLE: Final = "true"

#: The columns of events that are read: plans of few columns are prepared faster.
_READ: Final = ("device", "root", "epoch", "request_end", "type", "queue", "held_ms")
_QUEUE: Final = ("device", "root", "queue")


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """One row per lease, from the last snapshot that has it. Only the leader of a cluster ends leases: snapshots of the
    other nodes do not count, whose time goes on without its events.
    """
    limits = chosen(THRESHOLDS, given)
    held_ms = F.greatest(F.col("engine_ms") - F.col("leased_engine_ms"), F.lit(0))
    overdue = F.coalesce(F.greatest(F.col("engine_ms") - F.col("until_engine_ms"), F.lit(0)), F.lit(0))
    place = F.struct("epoch", "as_of_event", "engine_ms", "snapshot")
    whole = Window.partitionBy("device", "root")
    others = F.coalesce(F.col("role") != "leads", F.lit(False))
    snapshots = frames["snapshots"].where(~others).select("device", "root", "snapshot", place.alias("_place"))
    of_others = F.broadcast(frames["snapshots"].where(others).select("device", "snapshot"))
    last = snapshots.withColumn("_last", F.max("_place").over(whole)).where("_place = _last").drop("_place", "_last")
    ended = (
        frames["leases"]
        .join(of_others, ["device", "snapshot"], "left_anti")
        .withColumns({"held_ms": F.coalesce(held_ms, F.lit(0)), "overdue_ms": overdue, "_place": place})
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
    # Only a lease that is overdue or old may be stuck: what is usual is asked of the queues of these.
    old_ms = min(limits["held_ms"], limits["held_alone_ms"])
    may_be = F.col("overdue_ms") >= limits["overdue_ms"]
    ended = materialized(ended.where(may_be | (F.col("held_ms") >= old_ms)))
    events = frames["events"].where("false") if ended.isEmpty() else frames["events"]
    acked = (
        native(events.select(*_READ), frames["imports"])
        .join(ended.select(*_QUEUE).distinct(), [*_QUEUE], "left_semi")
        .where("type = 'acked' and held_ms >= 0")
        .withColumn("ms", F.col("held_ms"))
    )
    usual = summarised(acked, _QUEUE).select(
        *_QUEUE, F.col("count").alias("measured"), F.col("p90_ms").alias("usual_ms")
    )
    compared = ended.join(usual, [*_QUEUE], "left").withColumn("measured", F.coalesce("measured", F.lit(0)))
    is_measured = F.col("measured") >= limits["measured_min"]
    longest = F.when(is_measured, F.greatest(F.lit(limits["held_ms"]), F.col("usual_ms") * limits["held_factor"]))
    why = F.when(F.col("overdue_ms") >= limits["overdue_ms"], "overdue").when(
        F.col("held_ms") >= F.coalesce(longest, F.lit(limits["held_alone_ms"])), "held"
    )
    stuck = compared.withColumn("why", why).where("why is not null")
    of_last = last.withColumn("still_held", F.lit(True))
    return stuck.join(of_last, ["device", "root", "snapshot"], "left").withColumns(
        {"still_held": F.coalesce("still_held", F.lit(False)), "of_dead": F.coalesce("of_dead", F.lit(False))}
    )
