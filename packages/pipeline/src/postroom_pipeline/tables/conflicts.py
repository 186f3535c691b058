"""Events of one key that snapshots tell differently: a data directory was copied or set back without a new epoch."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from . import columns as c
from .events import contest

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("epoch", c.INTEGER, "epoch of the event"),
        c.column("event", c.INTEGER, "its id"),
        c.column("content_digest", c.TEXT, "of what happened"),
        c.column(
            "kept",
            c.FLAG,
            "whether `events` has this one: the latest by a clock that is sane, else of the least digest",
        ),
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

_EVENT: Final = KEY[:-1]
_TOLD: Final = [name for name in SCHEMA.names if name != "kept"]


def build(frames: c.Frames) -> DataFrame:
    """All contents of each key that has more than one: of ``known`` rows of this table, and of ``events``, rows of that
    table before one of each was chosen."""
    rows = frames["known"].select(*_TOLD).unionByName(frames["events"].select(*_TOLD))
    rest = [name for name in _TOLD if name not in KEY]
    told = rows.groupBy(*KEY).agg(F.min(F.struct("snapshot", *(n for n in rest if n != "snapshot"))).alias("row"))
    each = Window.partitionBy(*_EVENT)
    counted = told.select(*KEY, "row.*").withColumns(
        {"contents": F.count("*").over(each), "place": F.row_number().over(each.orderBy(*contest()))}
    )
    kept = F.col("place") == 1
    return counted.where("contents > 1").withColumn("kept", kept).select(*SCHEMA.names)
