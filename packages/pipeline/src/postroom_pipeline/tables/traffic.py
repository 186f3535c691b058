"""Requests, of those that the traffic log has: it may be sampled."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from postroom_common.snapshot import Kind

from ..contract.schema import columns_of
from . import columns as c
from .clock import day_of
from .state import one_of_each, with_clock

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        *columns_of(Kind.TRAFFIC),
        c.column("content_digest", c.TEXT, "of the line: a request has no number"),
        c.WALL_AT,
        c.CLOCK_SUSPECT,
        c.DAY,
    ]
)
KEY: Final = ("device", "root", "engine_ms", "content_digest")
PARTITION: Final = ("day",)
TABLE: Final = c.table("traffic", SCHEMA, KEY, PARTITION)

#: The lines that it is made of.
KIND: Final = Kind.TRAFFIC
_TOLD: Final = ["device", *(column.name for column in columns_of(Kind.TRAFFIC))]


def build(frames: c.Frames) -> DataFrame:
    """Rows of the snapshots of ``taken``, from ``lines`` of the kind; two that are alike in everything are one."""
    arrivals = frames["taken"].select("file", "snapshot", "arrival")
    rows = frames["lines"].select("file", "snapshot", *_TOLD).join(F.broadcast(arrivals), ["file", "snapshot"])
    text = F.to_json(F.struct(*_TOLD))
    rows = rows.withColumns(
        with_clock(rows)
        | {"content_digest": F.md5(text.cast("binary")), "day": day_of(F.col("wall_ms"), F.col("arrival"))}
    )
    return one_of_each(rows.select(*SCHEMA.names), KEY)


def merged(known: DataFrame, fresh: DataFrame) -> DataFrame:
    """Rows of this table and fresh ones; two that are alike are one."""
    return one_of_each(known.unionByName(fresh), KEY)
