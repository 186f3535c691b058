"""What is not taken in: a row for each snapshot and each file that has something wrong, whatever was found in it."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from postroom_common.snapshot import Kind
from postroom_common.snapshot_reader import Reason

from . import landing
from .landing import EMPTY, TOO_LARGE, UNREADABLE, VANISHED

#: Reasons beside those of ``Reason`` and of ``admission``, of files and of bundles.
MISSING: Final = "missing"
#: Another try, or another copy, may be whole.
RETRYABLE: Final = (Reason.TRUNCATED.value, UNREADABLE, VANISHED)

_OF: Final = ["file", "snapshot"]


def rejects(judged: DataFrame, lines: DataFrame, files: DataFrame, refused: DataFrame) -> DataFrame:
    """The rows of ``rejects`` but for ``batch``: snapshots that are not taken, and files that have something wrong.

    :param judged: rows of ``admission.judged``; ``lines``: of ``raw.bronze``; ``files``: of ``endings.read_files``;
        ``refused``: of ``inventory.refused``.
    """
    snapshots = judged.where("reason IS NOT NULL").select(
        "path", "sha256", "device", "snapshot", "reason", "detail", "lines"
    )
    rows = snapshots.unionByName(_faults(judged, files)).unionByName(by_name(refused))
    rows = rows.unionByName(_missing(judged, lines, files))
    return rows.withColumn("retryable", F.col("reason").isin(list(RETRYABLE)))


def _faults(judged: DataFrame, files: DataFrame) -> DataFrame:
    """What is wrong with a file beside its snapshots: one row for each that has something, with the first reason."""
    found = judged.groupBy("file").agg(
        F.sum(F.coalesce("copies", F.lit(1))).alias("snapshots"),
        F.count_if(F.col("reason") == Reason.TRUNCATED.value).alias("truncated"),
    )
    rows = files.join(found, "file", "left")
    zero = F.lit(0)
    seen = F.coalesce("snapshots", zero) + F.coalesce("bundles", zero)
    lost = F.greatest(F.col("members") - seen, zero)
    has_rows = F.coalesce("snapshots", "orphans", "bundles", zero) > 0
    is_gz = F.endswith("name", F.lit(".gz"))
    nothing = F.when(F.col("length") == 0, EMPTY).when(is_gz & ~F.col("is_gzip"), Reason.NOT_GZIP.value)
    nothing = nothing.when((is_gz & (F.col("size_mark") == 0)) | F.col("read_bytes").isNotNull(), EMPTY)
    nothing = nothing.when(is_gz, Reason.TRUNCATED.value).otherwise(UNREADABLE)
    cut = (lost > 0) | ((F.col("ending") == "cut") & (F.coalesce("truncated", zero) == 0))
    reason = (
        F.when(~has_rows, nothing)
        .when(F.col("orphans").isNotNull() & F.col("snapshots").isNull(), Reason.NOT_JSON.value)
        .when(cut, Reason.TRUNCATED.value)
        .when(F.col("orphans").isNotNull(), Reason.CORRUPT_LINES.value)
    )
    detail = (
        F.when(~has_rows, F.format_string("no line could be read of its %s bytes", "length"))
        .when(
            (reason == Reason.TRUNCATED.value) & (lost > 0), F.format_string("%s snapshots of it were not read", lost)
        )
        .when(reason == Reason.TRUNCATED.value, F.lit("its end is damaged or missing: what stood there was not read"))
        .otherwise(F.format_string("%s lines that are of no snapshot, one is: %s", "orphans", "shown"))
    )
    told = rows.select(
        "path",
        "sha256",
        F.lit("").alias("device"),
        F.lit("").alias("snapshot"),
        reason.alias("reason"),
        detail.alias("detail"),
        F.coalesce("orphans", zero).cast("bigint").alias("lines"),
    )
    return told.where("reason IS NOT NULL")


def _missing(judged: DataFrame, lines: DataFrame, files: DataFrame) -> DataFrame:
    """Snapshots that a bundle names and does not hold."""
    named = lines.where(F.col("kind") == Kind.BUNDLE.value).select(
        "file", F.explode(F.from_json("members", "array<string>")).alias("snapshot")
    )
    absent = named.join(judged.select(*_OF), _OF, "left_anti").distinct()
    return absent.join(files.select("file", "path", "sha256"), "file").select(
        "path",
        "sha256",
        F.lit("").alias("device"),
        "snapshot",
        F.lit(MISSING).alias("reason"),
        F.lit("the bundle names it and does not hold it").alias("detail"),
        F.lit(0).cast("bigint").alias("lines"),
    )


def by_name(refused: DataFrame) -> DataFrame:
    """Files that were not looked into."""
    detail = (
        F.when(F.col("reason").isin("archive", "unknown_name"), landing.advice(F.col("reason")))
        .when(F.col("reason") == TOO_LARGE, F.format_string("%s bytes; make bundles of 16 to 64 MB", "length"))
        .when(F.col("reason") == VANISHED, F.lit("it was there when the directory was listed, and then no more"))
        .when(F.col("reason") == EMPTY, F.lit("there is no byte in it"))
        .when(F.contains("name", F.lit(":")), F.lit("Hadoop reads no name with a colon: rename it"))
        .otherwise(F.lit("it could not be read: see to its rights, or the disk"))
    )
    return refused.select(
        "path",
        F.lit("").alias("sha256"),
        F.lit("").alias("device"),
        F.lit("").alias("snapshot"),
        "reason",
        detail.alias("detail"),
        F.lit(0).cast("bigint").alias("lines"),
    )
