"""The messages, as their events describe them."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.columns import time_of
from ..schema.table import Table

MESSAGES: Final = Table(
    "messages",
    StructType(
        [
            c.DEVICE,
            c.ROOT,
            c.column("message", c.TEXT, "its key"),
            c.column("queue", c.TEXT, "queue in which it was published; of its first event where that is not known"),
            c.column("last_queue", c.TEXT, "queue in which it was last"),
            c.column("priority", c.INTEGER, "its priority"),
            c.column("published_event", c.INTEGER, "null: no snapshot tells of its publishing"),
            c.column("published_engine_ms", c.INTEGER, "engine time of it"),
            c.column("published_wall_ms", c.INTEGER, "wall clock of it, Unix ms"),
            c.column("published_at", c.MOMENT, "the same as a time; null where the clock is suspect"),
            c.column("payload_digest", c.TEXT, "of its body"),
            c.column("payload_bytes", c.INTEGER, "length of its body"),
            c.column("deduplication_key", c.TEXT, "what it was not to be published twice by"),
            c.column("client", c.TEXT, "client that published it"),
            c.column("first_leased_engine_ms", c.INTEGER, "engine time of its first lease"),
            c.column("last_leased_engine_ms", c.INTEGER, "engine time of its last lease"),
            c.column("leases", c.INTEGER, "how often it was leased, leases of the dead letter left out"),
            c.column("attempts", c.INTEGER, "the highest attempt that an event tells"),
            c.column("retries", c.INTEGER, "failed deliveries after which it was tried again"),
            c.column("acked_event", c.INTEGER, "last event that acked it"),
            c.column("acked_engine_ms", c.INTEGER, "engine time of it"),
            c.column("died_event", c.INTEGER, "last event by which it became a dead letter"),
            c.column("died_engine_ms", c.INTEGER, "engine time of it"),
            c.column("reason_code", c.TEXT, "why it died"),
            c.column("reason_message", c.TEXT, "the same in words"),
            c.column("cause", c.TEXT, "reason of the last failure, where attempts were spent"),
            c.column("dropped_event", c.INTEGER, "last event that dropped it"),
            c.column("dropped_reason", c.TEXT, "why"),
            c.column("reprocessed", c.INTEGER, "how often it was made ready again as a dead letter"),
            c.column("published_count", c.INTEGER, "events that published it: more than 1 is a fault"),
            c.column("ended_count", c.INTEGER, "events that acked or dropped it: more than 1 is a fault"),
            c.column("last_consumer", c.TEXT, "who leased it last"),
            c.column("state", c.TEXT, "`open`, `acked`, `dead` or `dropped`"),
            c.column("clock_suspect", c.FLAG, "whether the wall clock of the event that gave `day` is suspect"),
            c.column("first_day", c.DATE, "least day of its events"),
            c.column("last_day", c.DATE, "greatest day of its events"),
            c.column("day", c.DATE, "day on which it was published; of its first event where that is not known"),
        ]
    ),
    key=("device", "root", "message"),
    partition=("day",),
    about="Every message, as its events tell it.",
)

#: The state of a message after an event of this type; other types leave the state as it was.
_STATES: Final = {"published": "open", "acked": "acked", "died": "dead", "dropped": "dropped", "reprocessed": "open"}
#: The order of events: greater for a later one.
_ORDER: Final = ("epoch", "event")


def build(events: DataFrame) -> DataFrame:
    """One row for each message.

    :param events: all events of every message that any of them is about.
    """
    type_ = F.col("type")
    is_lease = (type_ == "leased") & ~F.coalesce("of_dead", F.lit(False))
    state = F.coalesce(*(F.when(type_ == name, F.lit(after)) for name, after in _STATES.items()))
    rows = events.where("message IS NOT NULL").groupBy(*MESSAGES.key)
    messages = rows.agg(
        _first(F.lit(True), "queue", "day", "clock_suspect").alias("birth"),
        _first(
            type_ == "published",
            "engine_ms",
            "wall_ms",
            "day",
            "clock_suspect",
            "queue",
            "priority",
            "payload_digest",
            "payload_bytes",
            "deduplication_key",
            "client",
        ).alias("publish"),
        _last(F.lit(True), F.coalesce("to", "queue").alias("queue")).alias("end"),
        _last(state.isNotNull(), state.alias("state")).alias("fate"),
        _first(is_lease, "engine_ms").alias("first_lease"),
        _last(is_lease, "engine_ms", "consumer").alias("last_lease"),
        _last(type_ == "acked", "engine_ms").alias("ack"),
        _last(type_ == "died", "engine_ms", "reason_code", "reason_message", "cause").alias("death"),
        _last(type_ == "dropped", "reason_code").alias("drop"),
        F.count_if(is_lease).alias("leases"),
        F.coalesce(F.max(F.when(~F.coalesce("of_dead", F.lit(False)), F.col("attempt"))), F.lit(0)).alias("attempts"),
        F.count_if(type_ == "retried").alias("retries"),
        F.count_if(type_ == "reprocessed").alias("reprocessed"),
        F.count_if(type_ == "published").alias("published_count"),
        F.count_if(type_.isin("acked", "dropped")).alias("ended_count"),
        F.min("day").alias("first_day"),
        F.max("day").alias("last_day"),
    )
    return messages.select(
        *MESSAGES.key,
        F.coalesce("publish.queue", "birth.queue").alias("queue"),
        F.col("end.queue").alias("last_queue"),
        "publish.priority",
        F.col("publish.event").alias("published_event"),
        F.col("publish.engine_ms").alias("published_engine_ms"),
        F.col("publish.wall_ms").alias("published_wall_ms"),
        time_of(F.col("publish.wall_ms")).alias("published_at"),
        "publish.payload_digest",
        "publish.payload_bytes",
        "publish.deduplication_key",
        "publish.client",
        F.col("first_lease.engine_ms").alias("first_leased_engine_ms"),
        F.col("last_lease.engine_ms").alias("last_leased_engine_ms"),
        "leases",
        "attempts",
        "retries",
        F.col("ack.event").alias("acked_event"),
        F.col("ack.engine_ms").alias("acked_engine_ms"),
        F.col("death.event").alias("died_event"),
        F.col("death.engine_ms").alias("died_engine_ms"),
        "death.reason_code",
        "death.reason_message",
        "death.cause",
        F.col("drop.event").alias("dropped_event"),
        F.col("drop.reason_code").alias("dropped_reason"),
        "reprocessed",
        "published_count",
        "ended_count",
        F.col("last_lease.consumer").alias("last_consumer"),
        F.coalesce("fate.state", F.lit("open")).alias("state"),
        F.coalesce("publish.clock_suspect", "birth.clock_suspect").alias("clock_suspect"),
        "first_day",
        "last_day",
        F.coalesce("publish.day", "birth.day").alias("day"),
    )


def _first(condition: Column, *columns: str | Column) -> Column:
    return F.min(F.when(condition, F.struct(*_ORDER, *columns)))


def _last(condition: Column, *columns: str | Column) -> Column:
    return F.max(F.when(condition, F.struct(*_ORDER, *columns)))
