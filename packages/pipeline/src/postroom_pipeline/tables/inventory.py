"""Every file that was looked at, once by its content, and what became of it."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
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

#: A file that another try may read whole is read in so many runs.
TRIES: Final = 3


def build(frames: c.Frames) -> DataFrame:
    """The rows of ``known``, but for the ``files`` of this run: these are told anew, with their ``batch``, what of them
    was ``accepted``, and their ``rejects``."""
    files = frames["files"]
    accepted = frames["accepted"].groupBy("sha256").agg(F.count("*").alias("accepted"), F.sum("lines").alias("lines"))
    rejects = (
        frames["rejects"]
        .groupBy("sha256")
        .agg(
            F.count("*").alias("rejected"),
            F.sum("lines").alias("lost_lines"),
            F.max("retryable").alias("retryable"),
        )
    )
    before = frames["known"].select("sha256", F.col("tries").alias("tries_before"), F.col("path").alias("first_path"))
    rows = files.join(accepted, "sha256", "left").join(rejects, "sha256", "left").join(before, "sha256", "left")
    zero = F.lit(0)
    tries = F.coalesce("tries_before", zero) + 1
    told = rows.select(
        "sha256",
        F.coalesce("first_path", "path").alias("path"),
        "length",
        "mtime_ms",
        "batch",
        F.coalesce("accepted", zero).cast("bigint").alias("accepted"),
        F.coalesce("rejected", zero).cast("bigint").alias("rejected"),
        (F.coalesce("lines", zero) + F.coalesce("lost_lines", zero)).cast("bigint").alias("lines"),
        tries.cast("bigint").alias("tries"),
        (~F.coalesce("retryable", F.lit(False)) | (tries >= TRIES)).alias("settled"),
    )
    others = frames["known"].join(files.select("sha256"), "sha256", "left_anti").select(*SCHEMA.names)
    return others.unionByName(told)
