"""Every file that was looked at, once by its content, and what became of it."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import StructType

from . import columns as c

SCHEMA: Final = StructType(
    [
        c.column("sha256", c.TEXT, "of its bytes"),
        c.column("path", c.TEXT, "where it lay when it was first seen"),
        c.column("length", c.INTEGER, "its length in bytes"),
        c.column("mtime_ms", c.INTEGER, "when it was last written, Unix ms: its arrival"),
        c.column("batch", c.TEXT, "id of the batch in which it was last read"),
        c.column("accepted", c.INTEGER, "snapshots taken from it"),
        c.column("rejected", c.INTEGER, "rows of `rejects` that it has"),
        c.column("lines", c.INTEGER, "lines that were read from it"),
        c.column("tries", c.INTEGER, "runs that have read it"),
        c.column("settled", c.FLAG, "whether runs pass it over from now on"),
    ]
)
KEY: Final = ("sha256",)
PARTITION: Final = ()
TABLE: Final = c.table("inventory", SCHEMA, KEY, PARTITION)
