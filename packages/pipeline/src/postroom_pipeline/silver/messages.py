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
            c.column("published_event", c.INTEGER, "first event that published it; null if no snapshot has one"),
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
            c.column("published_again_event", c.INTEGER, "last event that published it, if there are several"),
            c.column("ended_count", c.INTEGER, "number of events that removed it: more than 1 is a fault"),
            c.column("ended_event", c.INTEGER, "first event that removed it"),
            c.column("ended_again_event", c.INTEGER, "last event that removed it, if there are several"),
            c.column("last_consumer", c.TEXT, "consumer of its last lease"),
            c.column("state", c.TEXT, "`open`, `acked`, `dead` or `dropped`"),
            c.column("fate", c.TEXT, "where it is: `waiting`, `inflight`, `dead`, `done` or `gone`; null if unknown"),
            c.column("was_dead", c.FLAG, "whether it was a dead letter at any time"),
            c.column("went_on", c.FLAG, "whether an event came after one that removed it, which is a fault"),
            c.column("first_event", c.INTEGER, "first event about it"),
            c.column("last_event", c.INTEGER, "last event about it"),
            c.column("last_type", c.TEXT, "type of that event"),
            c.column("last_at", c.MOMENT, "wall clock of that event; null if it is suspect"),
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
        *("first_leased_engine_ms", "last_leased_engine_ms", "acked_event", "acked_engine_ms", "ended_event"),
        *("first_event", "last_event", "last_at"),
    ),
)

#: The state of a message after an event of this type; other types leave the state as it was.
_STATES: Final = {"published": "open", "acked": "acked", "died": "dead", "dropped": "dropped", "reprocessed": "open"}
#: The columns of events that are read: plans of few columns are prepared faster.
_READ: Final = (
    *("device", "root", "epoch", "event", "type", "queue", "to", "message", "state", "of_dead", "attempt", "consumer"),
    *("engine_ms", "wall_ms", "wall_at", "day", "clock_suspect", "priority", "payload_digest", "payload_bytes"),
    *("deduplication_key", "client", "reason_code", "reason_message", "cause", "keep"),
)
#: The order of events: greater for a later one.
_ORDER: Final = ("epoch", "event")
#: Events after which a message is gone, unless it is kept.
ENDS: Final = ("acked", "dropped")
#: Events after which it waits in a queue.
_WAITS: Final = ("published", "retried", "reprocessed", "held", "unheld", "moved", "retargeted", "rescheduled")


def build(events: DataFrame, parts: int | None = None) -> DataFrame:
    """One row for each message.

    :param events: all events of every message that any of them is about.
    :param parts: how many parts they are sorted in, if these are more than Spark would make.
    """
    type_ = F.col("type")
    is_lease = (type_ == "leased") & ~F.coalesce("of_dead", F.lit(False))
    state = F.coalesce(*(F.when(type_ == name, F.lit(after)) for name, after in _STATES.items()))
    # A message that was done was acknowledged before, and stays so in `state` when it is removed later.
    drops = (type_ == "dropped") & ~F.coalesce(F.col("state") == "done", F.lit(False))
    state = F.when((type_ == "dropped") & ~drops, "acked").otherwise(state)
    removes = removed()
    # The events of a message meet first: sums of texts are sorted, so that partial sums would sort everything twice. A
    # hash is sorted faster than texts that begin alike.
    rows = events.select(*_READ).where(F.col("message").isNotNull())
    rows = rows.repartition(parts, *MESSAGES.key) if parts else rows.repartition(*MESSAGES.key)
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
        _last(F.lit(True), F.coalesce("to", "queue").alias("queue"), "type", "wall_at").alias("end"),
        _last(state.isNotNull(), state.alias("state")).alias("state"),
        _last(fate().isNotNull(), fate().alias("is")).alias("fate"),
        F.coalesce(F.max(fate() == "dead"), F.lit(False)).alias("was_dead"),
        _first(removes).alias("removal"),
        _last(removes).alias("last_removal"),
        _last(type_ == "published").alias("last_publish"),
        _first(is_lease, "engine_ms").alias("first_lease"),
        _last(is_lease, "engine_ms", "consumer").alias("last_lease"),
        _last(type_ == "acked", "engine_ms").alias("ack"),
        _last(type_ == "died", "engine_ms", "reason_code", "reason_message", "cause").alias("death"),
        _last(drops, "reason_code").alias("drop"),
        F.count_if(is_lease).alias("leases"),
        F.coalesce(F.max(F.when(~F.coalesce("of_dead", F.lit(False)), F.col("attempt"))), F.lit(0)).alias("attempts"),
        F.count_if(type_ == "retried").alias("retries"),
        F.count_if(type_ == "reprocessed").alias("reprocessed"),
        F.count_if(type_ == "published").alias("published_count"),
        F.count_if(removes).alias("ended_count"),
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
        F.when(F.col("published_count") > 1, F.col("last_publish.event")).alias("published_again_event"),
        "ended_count",
        F.col("removal.event").alias("ended_event"),
        F.when(F.col("ended_count") > 1, F.col("last_removal.event")).alias("ended_again_event"),
        F.col("last_lease.consumer").alias("last_consumer"),
        F.coalesce("state.state", F.lit("open")).alias("state"),
        F.col("fate.is").alias("fate"),
        "was_dead",
        (F.col("removal").isNotNull() & (_place("end") > _place("removal"))).alias("went_on"),
        F.col("birth.event").alias("first_event"),
        F.col("end.event").alias("last_event"),
        F.col("end.type").alias("last_type"),
        F.col("end.wall_at").alias("last_at"),
        F.coalesce("publish.clock_suspect", "birth.clock_suspect").alias("clock_suspect"),
        "first_day",
        "last_day",
        F.coalesce("publish.day", "birth.day").alias("day"),
    )


def removed() -> Column:
    """Whether an event takes a message away, so that nothing of it is kept."""
    return F.col("type").isin(*ENDS) & F.col("keep").isNull()


def fate() -> Column:
    """Where a message is after an event; null if the event does not change it."""
    kind = F.col("type")
    given_back = F.when(F.col("state") == "dead", "dead").otherwise("waiting")
    return (
        F.when((kind == "acked") & F.col("keep").isNotNull(), "done")
        .when(kind.isin(*ENDS), "gone")
        .when(kind.isin(*_WAITS), "waiting")
        .when(kind.isin("died", "quarantined"), "dead")
        .when(kind == "leased", F.when(F.coalesce("of_dead", F.lit(False)), "dead").otherwise("inflight"))
        .when(kind == "released", given_back)
    )


def _place(of: str) -> Column:
    return F.struct(*(F.col(f"{of}.{name}") for name in _ORDER))


def _first(condition: Column, *columns: str | Column) -> Column:
    return F.min(F.when(condition, F.struct(*_ORDER, *columns)))


def _last(condition: Column, *columns: str | Column) -> Column:
    return F.max(F.when(condition, F.struct(*_ORDER, *columns)))
