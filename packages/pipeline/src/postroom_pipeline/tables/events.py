"""Every event of every journal, once."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import StructType

from postroom_common.snapshot import Kind

from ..contract.schema import columns_of
from . import columns as c

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        *columns_of(Kind.EVENT),
        c.column("content_digest", c.TEXT, "of what happened; two of them for one key are a conflict"),
        c.column("snapshot", c.TEXT, "least id of the snapshots that told of it"),
        c.WALL_AT,
        c.CLOCK_SUSPECT,
        c.DAY,
    ]
)
KEY: Final = ("device", "root", "epoch", "event")
PARTITION: Final = ("day",)
TABLE: Final = c.table("events", SCHEMA, KEY, PARTITION)
