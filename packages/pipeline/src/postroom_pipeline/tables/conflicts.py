"""Events of one key that snapshots tell differently: a data directory was copied or set back without a new epoch."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import StructType

from . import columns as c

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("epoch", c.INTEGER, "epoch of the event"),
        c.column("event", c.INTEGER, "its id"),
        c.column("content_digest", c.TEXT, "of what happened"),
        c.column("kept", c.FLAG, "whether `events` has this one: the least digest of its key"),
        c.column("snapshot", c.TEXT, "least id of the snapshots that told it so"),
        c.column("type", c.TEXT, "what happened"),
        c.column("engine_ms", c.INTEGER, "engine time"),
        c.column("wall_ms", c.INTEGER, "wall clock, Unix ms"),
        c.column("queue", c.TEXT, "queue of the message"),
        c.column("message", c.TEXT, "its key"),
    ]
)
KEY: Final = ("device", "root", "epoch", "event", "content_digest")
PARTITION: Final = ()
TABLE: Final = c.table("conflicts", SCHEMA, KEY, PARTITION)
