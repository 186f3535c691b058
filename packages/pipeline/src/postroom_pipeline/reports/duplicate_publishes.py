"""Messages that were published twice: a client got no answer, and sent another request."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.table import Frames, Table
from ..spark.session import frame_of, materialized
from .lineage import FEW_MESSAGES, native, standing
from .scope import OF_DEVICE
from .thresholds import Given, Threshold, chosen

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("epoch", c.INTEGER, "epoch of the event"),
        c.column("event", c.INTEGER, "the later publish, or the event that answered it"),
        c.column(
            "outcome",
            c.TEXT,
            "`published`: it is in the queue twice; `recognised`: deduplication recognised it, which is no problem",
        ),
        c.column("queue", c.TEXT, "name of the queue; null for `recognised` if the first publish is unknown"),
        c.column("message", c.TEXT, "key of the second message; of `recognised`, of the first"),
        c.column("first_message", c.TEXT, "key of the first message"),
        c.column("first_event", c.INTEGER, "the previous publish; null if unknown"),
        c.column("apart_ms", c.INTEGER, "engine time between the two; null if unknown"),
        c.column("payload_digest", c.TEXT, "digest of the body of both"),
        c.column("client", c.TEXT, "client of the second request"),
        c.column("wall_at", c.MOMENT, "wall clock of the second publish; null if it is suspect"),
    ]
)
KEY: Final = ("device", "root", "epoch", "event")
PARTITION: Final = ()
TABLE: Final = Table("duplicate_publishes", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("events", "rare_events", "restores", "imports")
SCOPE: Final = OF_DEVICE
THRESHOLDS: Final = (
    Threshold("apart_ms", 60_000, "maximum time between the two publishes"),
    Threshold("copies_max", 5, "a body that occurs more often than this within the time is meant to repeat"),
    Threshold("published_min", 20, "minimum number of publishes from which repetition of bodies is known"),
    Threshold("repeating_max", 0.1, "if a larger part of them has repeating bodies, bodies identify nothing"),
)
TROUBLE: Final = "outcome = 'published'"

#: The columns of events that are read: plans of few columns are prepared faster.
_READ: Final = (
    "device",
    "root",
    "epoch",
    "event",
    "request_end",
    "type",
    "queue",
    "message",
    "client",
    "payload_digest",
    "trace_id",
    "deduplication_key",
    "engine_ms",
    "wall_at",
)
_BODY: Final = ("device", "root", "queue", "payload_digest")
_QUEUE: Final = ("device", "root", "queue")


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """Two requests that publish the same body to the same queue within a short time, if bodies of that queue do not
    repeat otherwise. Messages with different trace ids or deduplication keys are different.
    """
    limits = chosen(THRESHOLDS, given)
    published = _standing(frames["events"].select(*_READ).where("type = 'published'"), frames)
    twice = _published(published, limits)
    answered = frames["rare_events"].where("type = 'answered'")
    if answered.isEmpty():
        return twice
    return twice.unionByName(_recognised(_standing(answered, frames), published))


def _standing(events: DataFrame, frames: Frames) -> DataFrame:
    """Events that no import brought in, and no restore undid."""
    return standing(native(events, frames["imports"]), frames["restores"])


def _published(published: DataFrame, limits: dict[str, float]) -> DataFrame:
    published = published.where("payload_digest is not null")
    # Most bodies occur once: a hash of each tells which ones may occur again, and only these are put in order.
    hashed = published.withColumn("_hash", F.xxhash64(*_BODY))
    again = materialized(hashed.groupBy("_hash").agg(F.count(F.lit(1)).alias("_n")).where("_n > 1").select("_hash"))
    many = again.count()
    if not many:  # the events need not be read again
        return frame_of(published.sparkSession, [], SCHEMA)
    if many <= FEW_MESSAGES:
        again = F.broadcast(again)
    repeated = hashed.join(again, "_hash", "left_semi").drop("_hash")
    of_all = published.groupBy(*_QUEUE).agg(F.count(F.lit(1)).alias("_all"))
    order = Window.partitionBy(*_BODY).orderBy("epoch", "event")
    before = F.lag(F.struct("event", "message", "engine_ms", "epoch", "request_end", "trace_id", "deduplication_key"))
    paired = repeated.withColumn("_before", before.over(order))
    apart = F.col("engine_ms") - F.col("_before")["engine_ms"]
    close = F.coalesce((F.col("_before")["epoch"] == F.col("epoch")) & (apart <= limits["apart_ms"]), F.lit(False))
    numbered = paired.withColumns({"apart_ms": apart, "_close": close})
    numbered = numbered.withColumn("_run", F.count_if(~F.col("_close")).over(order))
    counted = numbered.withColumns(
        {
            "_copies": F.count(F.lit(1)).over(Window.partitionBy(*_BODY, "_run")),
            "_runs": F.max("_run").over(Window.partitionBy(*_BODY)),
        }
    ).withColumn("_repeats", (F.col("_runs") > 1) | (F.col("_copies") > limits["copies_max"]))
    of_queue = Window.partitionBy(*_QUEUE)
    marked = counted.withColumn("_repeating", F.count_if("_repeats").over(of_queue)).join(of_all, [*_QUEUE])
    is_distinctive = (F.col("_all") >= limits["published_min"]) & (
        F.col("_repeating") <= F.col("_all") * limits["repeating_max"]
    )
    other_request = ~F.col("request_end").eqNullSafe(F.col("_before")["request_end"]) | F.col("request_end").isNull()
    same = [
        ~F.coalesce(F.col(name) != F.col("_before")[name], F.lit(False)) for name in ("trace_id", "deduplication_key")
    ]
    twice = marked.where(is_distinctive & ~F.col("_repeats") & F.col("_close") & other_request & same[0] & same[1])
    return twice.select(
        "device",
        "root",
        "epoch",
        "event",
        F.lit("published").alias("outcome"),
        "queue",
        "message",
        F.col("_before")["message"].alias("first_message"),
        F.col("_before")["event"].alias("first_event"),
        "apart_ms",
        "payload_digest",
        "client",
        "wall_at",
    )


def _recognised(answered: DataFrame, published: DataFrame) -> DataFrame:
    reply = F.get_json_object("ext", "$.reply.of")
    answered = materialized(answered.withColumn("first_message", reply).where("first_message is not null"))
    named = F.broadcast(answered.select("device", "root", F.col("first_message").alias("message")).distinct())
    first = published.join(named, ["device", "root", "message"], "left_semi").select(
        "device",
        "root",
        F.col("message").alias("first_message"),
        F.struct("event", "queue", "engine_ms", "payload_digest").alias("_first"),
    )
    first = first.groupBy("device", "root", "first_message").agg(F.min("_first").alias("_first"))
    matched = answered.join(first, ["device", "root", "first_message"], "left")
    return matched.select(
        "device",
        "root",
        "epoch",
        "event",
        F.lit("recognised").alias("outcome"),
        F.col("_first")["queue"].alias("queue"),
        F.col("first_message").alias("message"),
        "first_message",
        F.col("_first")["event"].alias("first_event"),
        (F.col("engine_ms") - F.col("_first")["engine_ms"]).alias("apart_ms"),
        F.col("_first")["payload_digest"].alias("payload_digest"),
        "client",
        "wall_at",
    )
