"""What is not taken in: a row for each snapshot and each file with a fault, whatever else of it could be used."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from postroom_common.snapshot import Kind
from postroom_common.snapshot_reader import Reason

from ..files import ARCHIVE, EMPTY, MISSING, TOO_LARGE, UNKNOWN_NAME, UNREADABLE, VANISHED
from ..schema import columns as c
from ..schema.table import Table
from .lines import of_kind

REJECTS: Final = Table(
    "rejects",
    StructType(
        [
            c.column("path", c.TEXT, "path of the file"),
            c.column("sha256", c.TEXT, "SHA-256 of its bytes; empty if they could not be read"),
            c.column("device", c.TEXT, "name of the device; empty if the row is about the file"),
            c.column("snapshot", c.TEXT, "id of the snapshot; empty if the row is about the file"),
            c.column("reason", c.TEXT, "reason, for programs"),
            c.column("detail", c.TEXT, "the same as a text for people, with the figures behind it"),
            c.column("lines", c.INTEGER, "number of lines read from it"),
            c.column("retryable", c.FLAG, "whether another try or another copy may be complete"),
            c.column("batch", c.TEXT, "id of its batch"),
        ]
    ),
    key=("path", "sha256", "device", "snapshot", "reason"),
    about="What was refused, and why: a snapshot of a file, or the file.",
)

#: Reasons that may go away: another try, or another copy, may be complete.
RETRYABLE: Final = (Reason.TRUNCATED.value, UNREADABLE, VANISHED)


def rejects(verdicts: DataFrame, lines: DataFrame, files: DataFrame, unread: DataFrame) -> DataFrame:
    """The rows of ``REJECTS`` of a batch, without ``batch``.

    :param verdicts: rows of ``admission.verdicts``; ``files``: of ``admission.with_endings``.
    :param lines: rows of ``lines.bronze``; ``unread``: of ``inventory.unread``.
    """
    snapshots = verdicts.where("reason IS NOT NULL").select(
        "path", "sha256", "device", "snapshot", "reason", "detail", "lines"
    )
    rows = snapshots.unionByName(_faults(verdicts, files)).unionByName(_of_unread(unread))
    return _with_retryable(rows.unionByName(_missing(verdicts, lines, files)))


def of_unread(unread: DataFrame) -> DataFrame:
    """The rows of ``REJECTS``, without ``batch``, of a run that had no file to read.

    :param unread: rows of ``inventory.unread``.
    """
    return _with_retryable(_of_unread(unread))


def updated(existing: DataFrame, files: DataFrame, fresh: DataFrame) -> DataFrame:
    """The rows of ``REJECTS`` after a batch: those of its files are replaced, the others stay.

    :param existing: the rows before; ``fresh``: those of the batch.
    :param files: the files that were examined, as ``path`` and ``sha256``, which is empty for unread ones.
    """
    columns = REJECTS.schema.names
    rest = existing.join(files, ["path", "sha256"], "left_anti")
    return rest.select(*columns).unionByName(fresh.select(*columns))


def _with_retryable(rows: DataFrame) -> DataFrame:
    return rows.withColumn("retryable", F.col("reason").isin(list(RETRYABLE)))


def _faults(verdicts: DataFrame, files: DataFrame) -> DataFrame:
    """What is wrong with a file apart from its snapshots: one row for each file with a fault, with the first reason."""
    counted = verdicts.groupBy("file").agg(
        F.sum(F.coalesce("copies", F.lit(1))).alias("snapshots"),
        F.count_if(F.col("reason") == Reason.TRUNCATED.value).alias("truncated"),
    )
    rows = files.join(counted, "file", "left")
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
        F.when(~has_rows, F.format_string("no line could be read; the file has %s bytes", "length"))
        .when(
            (reason == Reason.TRUNCATED.value) & (lost > 0),
            F.format_string("%s snapshots of the file were not read", lost),
        )
        .when(reason == Reason.TRUNCATED.value, F.lit("the end of the file is damaged or missing and was not read"))
        .otherwise(F.format_string("%s lines belong to no snapshot; one is: %s", "orphans", "shown"))
    )
    faults = _rows(rows, F.col("sha256"), F.lit(""), reason, detail, F.coalesce("orphans", zero))
    return faults.where("reason IS NOT NULL")


def _missing(verdicts: DataFrame, lines: DataFrame, files: DataFrame) -> DataFrame:
    """The snapshots that a bundle lists and does not contain."""
    whose = ["file", "snapshot"]
    listed = of_kind(lines.where(F.col("kind") == Kind.BUNDLE.value), Kind.BUNDLE).select(
        "file", F.explode(F.from_json("members", "array<string>")).alias("snapshot")
    )
    absent = listed.join(verdicts.select(*whose), whose, "left_anti").distinct()
    rows = absent.join(files.select("file", "path", "sha256"), "file")
    detail = F.lit("the bundle lists this snapshot and does not contain it")
    return _rows(rows, F.col("sha256"), F.col("snapshot"), F.lit(MISSING), detail, F.lit(0))


def _of_unread(unread: DataFrame) -> DataFrame:
    reason = F.col("reason")
    detail = (
        F.when(
            reason == ARCHIVE,
            "archives are not read: unpack it (tar -xf FILE, unzip FILE) and put the .jsonl.gz files here",
        )
        .when(
            reason == UNKNOWN_NAME,
            "only files named *.jsonl.gz, *.jsonl or *.jsonl.zst are read: rename it if it is one of these",
        )
        .when(reason == TOO_LARGE, F.format_string("%s bytes; make bundles of 16 to 64 MB", "length"))
        .when(reason == VANISHED, F.lit("the file disappeared after the directory was listed"))
        .when(reason == EMPTY, F.lit("the file has no bytes"))
        .when(F.contains("name", F.lit(":")), F.lit("Hadoop cannot read a name with a colon: rename the file"))
        .otherwise(F.lit("the file cannot be read: check its permissions and the disk"))
    )
    return _rows(unread, F.lit(""), F.lit(""), reason, detail, F.lit(0))


def _rows(of: DataFrame, sha256: Column, snapshot: Column, reason: Column, detail: Column, lines: Column) -> DataFrame:
    """Rows about files, or about snapshots whose device is not known."""
    return of.select(
        "path",
        sha256.alias("sha256"),
        F.lit("").alias("device"),
        snapshot.alias("snapshot"),
        reason.alias("reason"),
        detail.alias("detail"),
        lines.cast("bigint").alias("lines"),
    )
