"""Every snapshot that was taken in, once: what its header says, and how much it told."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from postroom_common.snapshot import Kind

from ..contract.schema import columns_of
from . import columns as c
from .clock import day_of
from .state import with_clock

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.SNAPSHOT,
        *columns_of(Kind.HEADER),
        c.column("lines", c.INTEGER, "its lines, without the trailer"),
        c.column("events", c.INTEGER, "lines of events among them"),
        c.column("least_event", c.INTEGER, "least id among its lines of events"),
        c.column("greatest_event", c.INTEGER, "greatest id among its lines of events"),
        c.column("least_day", c.DATE, "least day of its events"),
        c.column("greatest_day", c.DATE, "greatest day of its events"),
        c.column("unknown_lines", c.INTEGER, "lines of kinds that this version does not know"),
        c.column("unknown_fields", c.INTEGER, "fields that this version does not know, in all lines together"),
        c.WALL_AT,
        c.CLOCK_SUSPECT,
        c.DAY,
    ]
)
KEY: Final = ("device", "snapshot")
PARTITION: Final = ()
TABLE: Final = c.table("snapshots", SCHEMA, KEY, PARTITION)


def build(frames: c.Frames) -> DataFrame:
    """Rows of ``accepted``, the snapshots that admission takes: each with its file's ``arrival``."""
    return told(frames["accepted"]).select(*SCHEMA.names)


def told(accepted: DataFrame) -> DataFrame:
    """The same with all that admission says of them; a file that has one twice has its numbers twice."""
    return accepted.withColumns(
        with_clock(accepted)
        | {
            "day": day_of(F.col("wall_ms"), F.col("arrival")),
            "events": (F.col("n_event") / F.col("copies")).cast("bigint"),
            "lines": (F.col("lines") / F.col("copies")).cast("bigint"),
        }
    )
