"""The messages, as their events describe them."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.columns import is_suspect, time_of
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
#: The order in which events are put: those of a message meet, in the order in which they happened. Within a part, most
#: rows differ in the first column, a number, so that texts that begin alike are rarely compared.
_MEETING: Final = ("_root", "message", "device", "root")
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
    rows = _narrowed(events.where(F.col("message").isNotNull()))
    rows = rows.repartition(parts, *MESSAGES.key) if parts else rows.repartition(*MESSAGES.key)
    # Of events in order, the first and the last value of each column is what to keep: no row is compared with another
    # one. Spark leaves rows in the order in which they are put right before such sums, and sorts no second time.
    ordered = rows.select("*", F.xxhash64("device", "root").alias("_root")).sortWithinPartitions(*_MEETING, *_ORDER)
    type_, event = F.col("type"), F.col("event")
    is_publish, is_lease, removes = type_ == "published", F.col("is_lease"), F.col("removes")
    # What is asked of an event is computed here: in sums, it would be computed by slower code.
    told = ordered.select(
        *_MEETING,
        "day",
        "attempt",
        "state",
        "fate",
        F.struct("event", "queue", "day", "wall_ms").alias("birth"),
        F.struct("event", F.coalesce("to", "queue").alias("queue"), "type", "wall_ms", "removes").alias("end"),
        F.when(is_publish, F.struct("event", "engine_ms", "wall_ms", "day", "queue", "content")).alias("publish"),
        F.when(is_publish, event).alias("published"),
        F.when(is_lease, F.struct("engine_ms", "consumer")).alias("lease"),
        F.when(type_ == "acked", F.struct("event", "engine_ms")).alias("ack"),
        F.when(type_ == "died", F.struct("event", "engine_ms", "why")).alias("death"),
        F.when(F.col("drops"), F.struct("event", "why")).alias("drop"),
        F.when(removes, event).alias("removal"),
        (type_ == "retried").alias("is_retry"),
        (type_ == "reprocessed").alias("is_return"),
    )
    messages = told.groupBy(*_MEETING).agg(
        F.first("birth").alias("birth"),
        F.last("end").alias("end"),
        _first("publish").alias("publish"),
        _last("published").alias("last_publish"),
        F.count("published").alias("published_count"),
        _first("lease").alias("first_lease"),
        _last("lease").alias("last_lease"),
        F.count("lease").alias("leases"),
        _last("ack").alias("ack"),
        _last("death").alias("death"),
        _last("drop").alias("drop"),
        _first("removal").alias("removal"),
        _last("removal").alias("last_removal"),
        F.count("removal").alias("ended_count"),
        _last("state").alias("state"),
        _last("fate").alias("fate"),
        F.count_if(F.col("fate") == "dead").alias("dead_events"),
        F.coalesce(F.max("attempt"), F.lit(0)).alias("attempts"),
        F.count_if("is_retry").alias("retries"),
        F.count_if("is_return").alias("reprocessed"),
        F.min("day").alias("first_day"),
        F.max("day").alias("last_day"),
    )
    is_ended_twice = F.col("ended_count") > 1
    wall_ms = F.when(F.col("publish").isNull(), F.col("birth.wall_ms")).otherwise(F.col("publish.wall_ms"))
    return messages.select(
        *MESSAGES.key,
        F.coalesce("publish.queue", "birth.queue").alias("queue"),
        F.col("end.queue").alias("last_queue"),
        "publish.content.priority",
        F.col("publish.event").alias("published_event"),
        F.col("publish.engine_ms").alias("published_engine_ms"),
        F.col("publish.wall_ms").alias("published_wall_ms"),
        time_of(F.col("publish.wall_ms")).alias("published_at"),
        "publish.content.payload_digest",
        "publish.content.payload_bytes",
        "publish.content.deduplication_key",
        "publish.content.client",
        F.col("first_lease.engine_ms").alias("first_leased_engine_ms"),
        F.col("last_lease.engine_ms").alias("last_leased_engine_ms"),
        "leases",
        "attempts",
        "retries",
        F.col("ack.event").alias("acked_event"),
        F.col("ack.engine_ms").alias("acked_engine_ms"),
        F.col("death.event").alias("died_event"),
        F.col("death.engine_ms").alias("died_engine_ms"),
        "death.why.reason_code",
        "death.why.reason_message",
        "death.why.cause",
        F.col("drop.event").alias("dropped_event"),
        F.col("drop.why.reason_code").alias("dropped_reason"),
        "reprocessed",
        "published_count",
        F.when(F.col("published_count") > 1, F.col("last_publish")).alias("published_again_event"),
        "ended_count",
        F.col("removal").alias("ended_event"),
        F.when(is_ended_twice, F.col("last_removal")).alias("ended_again_event"),
        F.col("last_lease.consumer").alias("last_consumer"),
        F.coalesce("state", F.lit("open")).alias("state"),
        "fate",
        (F.col("dead_events") > 0).alias("was_dead"),
        # If one event removed it, and not the last one, something came after it.
        (is_ended_twice | ((F.col("ended_count") == 1) & ~F.col("end.removes"))).alias("went_on"),
        F.col("birth.event").alias("first_event"),
        F.col("end.event").alias("last_event"),
        F.col("end.type").alias("last_type"),
        time_of(F.col("end.wall_ms")).alias("last_at"),
        is_suspect(wall_ms).alias("clock_suspect"),
        "first_day",
        "last_day",
        F.coalesce("publish.day", "birth.day").alias("day"),
    )


def _narrowed(events: DataFrame) -> DataFrame:
    """What is kept of events, in fewer columns: a null takes as much room as a number when rows are moved and sorted,
    and most columns belong to one type of event."""
    type_, of_dead = F.col("type"), F.coalesce("of_dead", F.lit(False))
    is_lease = (type_ == "leased") & ~of_dead
    state = F.coalesce(*(F.when(type_ == name, F.lit(after)) for name, after in _STATES.items()))
    # A message that was done was acknowledged before, and stays so in `state` when it is removed later.
    drops = (type_ == "dropped") & ~F.coalesce(F.col("state") == "done", F.lit(False))
    content = F.struct("priority", "payload_digest", "payload_bytes", "deduplication_key", "client")
    return events.select(
        *MESSAGES.key,
        *_ORDER,
        *("type", "queue", "to", "engine_ms", "wall_ms", "day"),
        F.when(~of_dead, F.col("attempt")).alias("attempt"),
        F.when(is_lease, F.col("consumer")).alias("consumer"),
        F.when(type_ == "published", content).alias("content"),
        F.when(type_.isin("died", "dropped"), F.struct("reason_code", "reason_message", "cause")).alias("why"),
        F.when((type_ == "dropped") & ~drops, "acked").otherwise(state).alias("state"),
        fate().alias("fate"),
        is_lease.alias("is_lease"),
        drops.alias("drops"),
        F.coalesce(removed(), F.lit(False)).alias("removes"),
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


def _first(column: str) -> Column:
    return F.first(column, ignorenulls=True)


def _last(column: str) -> Column:
    return F.last(column, ignorenulls=True)
