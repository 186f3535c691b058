"""The requests in the traffic logs."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from postroom_common.snapshot import Kind

from ..schema import columns as c
from ..schema.columns import clock_columns, day_of
from ..schema.snapshot import columns_of
from ..schema.table import Table
from .state import one_of_each

TRAFFIC: Final = Table(
    "traffic",
    StructType(
        [
            c.DEVICE,
            *columns_of(Kind.TRAFFIC),
            c.column("content_digest", c.TEXT, "digest of the line, because a request has no id"),
            c.WALL_AT,
            c.CLOCK_SUSPECT,
            c.DAY,
        ]
    ),
    key=("device", "root", "engine_ms", "content_digest"),
    partition=("day",),
    about="Requests in the traffic log, which may be sampled.",
)
_OF_LINE: Final = ["device", *(column.name for column in columns_of(Kind.TRAFFIC))]


def build(lines: DataFrame, taken: DataFrame) -> DataFrame:
    """The rows of the snapshots that are taken in; lines that are equal in everything become one row."""
    arrivals = taken.select("file", "snapshot", "arrival")
    rows = lines.select("file", "snapshot", *_OF_LINE).join(F.broadcast(arrivals), ["file", "snapshot"])
    text = F.to_json(F.struct(*_OF_LINE))
    rows = rows.withColumns(
        clock_columns()
        | {"content_digest": F.md5(text.cast("binary")), "day": day_of(F.col("wall_ms"), F.col("arrival"))}
    )
    return one_of_each(rows.select(*TRAFFIC.schema.names), TRAFFIC.key)


def merged(existing: DataFrame, fresh: DataFrame) -> DataFrame:
    """Existing rows and new ones, each request once."""
    return one_of_each(existing.unionByName(fresh), TRAFFIC.key)
