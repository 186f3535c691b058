"""What was not taken in, and why: a snapshot of a file, or the file."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from . import columns as c

SCHEMA: Final = StructType(
    [
        c.column("path", c.TEXT, "where the file lay"),
        c.column("sha256", c.TEXT, "of its bytes; empty where they could not be read"),
        c.column("device", c.TEXT, "the device's name; empty where the row is about the file"),
        c.column("snapshot", c.TEXT, "id of the snapshot; empty where the row is about the file"),
        c.column("reason", c.TEXT, "why, for machines"),
        c.column("detail", c.TEXT, "the same for people, with the numbers that made it so"),
        c.column("lines", c.INTEGER, "lines that were read of it"),
        c.column("retryable", c.FLAG, "whether another try or another copy may be whole"),
        c.column("batch", c.TEXT, "id of the batch that it was in"),
    ]
)
KEY: Final = ("path", "sha256", "device", "snapshot", "reason")
PARTITION: Final = ()
TABLE: Final = c.table("rejects", SCHEMA, KEY, PARTITION)


def build(frames: c.Frames) -> DataFrame:
    """The rows of ``known`` but for those of the ``files`` that were looked at, and the ``fresh`` ones of these.

    ``files`` are told by ``path`` and ``sha256``, empty for what could not be read.
    """
    others = frames["known"].join(frames["files"], ["path", "sha256"], "left_anti")
    return others.select(*SCHEMA.names).unionByName(frames["fresh"].select(*SCHEMA.names))
