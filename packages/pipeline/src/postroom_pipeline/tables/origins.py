"""Which file each snapshot was taken from; ``snapshots`` does not depend on how they were carried."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from . import columns as c

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.SNAPSHOT,
        c.column("sha256", c.TEXT, "of the file's bytes"),
        c.column("path", c.TEXT, "where it lay"),
        c.column("digest", c.TEXT, "SHA-256 of its lines, as its trailer says"),
        c.column("batch", c.TEXT, "id of the batch in which it came"),
    ]
)
KEY: Final = ("device", "snapshot")
PARTITION: Final = ()
TABLE: Final = c.table("origins", SCHEMA, KEY, PARTITION)


def build(frames: c.Frames) -> DataFrame:
    """The snapshots of ``known`` rows of this table, and those that are ``accepted``, which go before."""
    fresh = frames["accepted"].select(*SCHEMA.names)
    return frames["known"].join(fresh, list(KEY), "left_anti").select(*SCHEMA.names).unionByName(fresh)
