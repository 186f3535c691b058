"""Every message, as its events tell it."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import StructType

from . import columns as c

SCHEMA: Final = StructType(
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
)
KEY: Final = ("device", "root", "message")
PARTITION: Final = ("day",)
TABLE: Final = c.table("messages", SCHEMA, KEY, PARTITION)
