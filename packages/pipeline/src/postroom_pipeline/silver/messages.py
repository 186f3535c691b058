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
            c.column("message", c.TEXT, "message key"),
            c.column("queue", c.TEXT, "queue of its publish; that of its first event if unknown"),
            c.column("last_queue", c.TEXT, "its last known queue"),
            c.column("priority", c.INTEGER, "priority"),
            c.column("published_event", c.INTEGER, "last event that published it; null if no snapshot has one"),
            c.column("published_engine_ms", c.INTEGER, "engine time of that event"),
            c.column("published_wall_ms", c.INTEGER, "wall clock of that event in Unix ms"),
            c.column("published_at", c.MOMENT, "the same as a time; null if the clock is suspect"),
            c.column("payload_digest", c.TEXT, "digest of the body"),
            c.column("payload_bytes", c.INTEGER, "length of the body"),
            c.column("deduplication_key", c.TEXT, "deduplication key"),
            c.column("client", c.TEXT, "client that published it"),
            c.column("first_leased_engine_ms", c.INTEGER, "engine time of its first lease"),
            c.column("last_leased_engine_ms", c.INTEGER, "engine time of its last lease"),
            c.column("leases", c.INTEGER, "number of leases, without those as a dead letter"),
            c.column("attempts", c.INTEGER, "highest attempt in the events"),
            c.column("retries", c.INTEGER, "number of failed deliveries that were retried"),
            c.column("acked_event", c.INTEGER, "last event that acknowledged it"),
            c.column("acked_engine_ms", c.INTEGER, "engine time of that event"),
            c.column("died_event", c.INTEGER, "last event with which it died"),
            c.column("died_engine_ms", c.INTEGER, "engine time of that event"),
            c.column("reason_code", c.TEXT, "reason code of its death"),
            c.column("reason_message", c.TEXT, "reason text of its death"),
            c.column("cause", c.TEXT, "reason code of the last failure, if no attempt was left"),
            c.column("dropped_event", c.INTEGER, "last event that dropped it"),
            c.column("dropped_reason", c.TEXT, "why"),
            c.column("reprocessed", c.INTEGER, "number of times it was reprocessed"),
            c.column("published_count", c.INTEGER, "number of events that published it: more than 1 is a fault"),
            c.column("ended_count", c.INTEGER, "number of events that ended it: more than 1 is a fault"),
            c.column("last_consumer", c.TEXT, "consumer of its last lease"),
            c.column("state", c.TEXT, "`open`, `acked`, `dead` or `dropped`"),
            c.column("clock_suspect", c.FLAG, "whether the wall clock of the event behind `day` is suspect"),
            c.column("first_day", c.DATE, "first day of its events"),
            c.column("last_day", c.DATE, "last day of its events"),
            c.column("day", c.DATE, "day of its publish; that of its first event if unknown"),
        ]
    ),
    key=("device", "root", "message"),
    partition=("day",),
    about="Every message, derived from its events.",
    varied=(
        *("message", "published_event", "published_engine_ms", "published_wall_ms", "published_at", "payload_digest"),
        *("first_leased_engine_ms", "last_leased_engine_ms", "acked_event", "acked_engine_ms"),
    ),
)

#: The state of a message after an event of this type; other types leave the state as it was.
_STATES: Final = {"published": "open", "acked": "acked", "died": "dead", "dropped": "dropped", "reprocessed": "open"}
#: The columns of events that are read: plans of few columns are prepared faster.
_READ: Final = (
    *("device", "root", "epoch", "event", "type", "queue", "to", "message", "state", "of_dead", "attempt", "consumer"),
    *("engine_ms", "wall_ms", "day", "clock_suspect", "priority", "payload_digest", "payload_bytes"),
    *("deduplication_key", "client", "reason_code", "reason_message", "cause"),
)
#: The order of events: greater for a later one.
_ORDER: Final = ("epoch", "event")


def build(events: DataFrame) -> DataFrame:
    """One row for each message.

    :param events: all events of every message that any of them is about.
    """
    type_ = F.col("type")
    is_lease = (type_ == "leased") & ~F.coalesce("of_dead", F.lit(False))
    state = F.coalesce(*(F.when(type_ == name, F.lit(after)) for name, after in _STATES.items()))
    # What becomes of a message that was done is no end of its own.
    later = (type_ == "dropped") & F.coalesce(F.col("state") == "done", F.lit(False))
    # The events of a message meet first: sums of texts are sorted, so that partial sums would sort everything twice. A
    # hash is sorted faster than texts that begin alike.
    rows = events.select(*_READ).where(F.col("message").isNotNull() & ~later).repartition(*MESSAGES.key)
    messages = rows.groupBy(F.xxhash64(*MESSAGES.key).alias("_hash"), *MESSAGES.key).agg(
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
