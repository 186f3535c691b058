"""Requests, of those that the traffic log has: it may be sampled."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import StructType

from postroom_common.snapshot import Kind

from ..contract.schema import columns_of
from . import columns as c

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
