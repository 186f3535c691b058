"""Which files there are, and which of them are new: by what they hold, whatever they are called."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ..bundling.members import MEMBER
from ..storage import Storage
from .heap import heap_bytes
from .landing import EMPTY, IS_PATTERN, TOO_LARGE, UNREADABLE, VANISHED, is_finished, refusal

#: Larger ones are not read, however large the heap is.
LARGEST_FILE_BYTES: Final = 256 * 1024 * 1024
#: A file is one value while it is hashed, of which Spark makes so many copies at most.
_COPIES: Final = 12
#: Of files without a row so many are looked for by name: do they hold nothing, or are they gone?
_LOOKED_FOR: Final = 1_000
#: How the same local file begins.
_LOCAL: Final = "file:///"
_LOCAL_OF_METADATA: Final = "file:/"


def listed(session: SparkSession, landing: str) -> DataFrame:
    """All files of a directory and those below it, but names that begin with a dot or ``_``, as Spark tells of them. It
    is listed once, now."""
    return (
        session.read.format("binaryFile")
        .option("recursiveFileLookup", True)
        .option("ignoreMissingFiles", True)
        .option(IS_PATTERN, False)
        .load(landing)
    )


def names(files: DataFrame) -> DataFrame:
    """What is known of the files of ``listed`` without opening one: ``file`` is what Spark calls it, ``path`` what
    people do."""
    return files.select(*_of_names())


def _of_names() -> list[Column]:
    # _metadata.file_path is another copy of the content in memory; it is the same but for this.
    file = F.replace(F.input_file_name(), F.lit(_LOCAL), F.lit(_LOCAL_OF_METADATA))
    return [
        file.alias("file"),
        F.col("path"),
        _name().alias("name"),
        F.col("length"),
        F.unix_millis("modificationTime").alias("mtime_ms"),
    ]


def _name() -> Column:
    return F.substring_index("path", "/", -1)


def hashed(session: SparkSession, files: DataFrame, named: DataFrame) -> DataFrame:
    """The finished files with their ``sha256``, and what else their bytes tell without being unpacked. Of large ones
    no more are hashed at a time than the heap has room for.

    ``is_gzip``; ``size_mark``, length of what the last member of a gzip file holds, modulo 2**32; ``members``, how many
    members that the product has written begin in it. A file that cannot be read is left out.

    :param named: rows of ``names``.
    """
    room = heap_bytes(session) // _COPIES
    is_wanted = is_finished(_name()) & (F.col("length") <= _most_bytes(session))
    largest = named.where(is_wanted).agg(F.max("length")).collect()[0][0]
    at_once = max(1, room // (largest or 1))
    content = F.col("content")
    text = content.cast("string")
    mark = F.conv(F.concat(*(F.hex(F.substring(content, -place, 1)) for place in range(1, 5))), 16, 10)
    without = F.replace(text, F.lit(MEMBER).cast("string"), F.lit(""))
    rows = files.where(is_wanted).select(
        *_of_names(),
        F.to_date("modificationTime").alias("arrival"),
        F.sha2(content, 256).alias("sha256"),
        (F.substring(content, 1, 2) == F.lit(MEMBER[:2])).alias("is_gzip"),
        mark.cast("bigint").alias("size_mark"),
        ((F.octet_length(text) - F.octet_length(without)) / len(MEMBER)).cast("bigint").alias("members"),
    )
    return rows.coalesce(at_once) if at_once < session.sparkContext.defaultParallelism else rows


def fresh(seen: DataFrame, known: DataFrame) -> DataFrame:
    """Of the files that were hashed those whose bytes are not settled; of copies the one with the least path."""
    settled = known.where("settled").select("sha256")
    columns = ["path", *(name for name in seen.columns if name not in ("path", "sha256"))]
    first = F.min(F.struct(*columns)).alias("first")
    return seen.join(settled, "sha256", "left_anti").groupBy("sha256").agg(first).select("sha256", "first.*")


def batch_id(files: DataFrame) -> DataFrame:
    """One row: ``batch``, which depends on what the files hold alone, ``files`` and ``bytes``."""
    return files.agg(
        F.substring(F.sha2(F.array_join(F.array_sort(F.collect_list("sha256")), ""), 256), 1, 16).alias("batch"),
        F.count("*").alias("files"),
        F.coalesce(F.sum("length"), F.lit(0)).alias("bytes"),
    )


def refused(session: SparkSession, files: DataFrame, named: DataFrame, seen: DataFrame) -> DataFrame:
    """Files that were listed and not hashed, with a ``reason``: by their names, empty, too large, gone, not readable.

    A name that is still being copied is passed over: it is no file yet.

    :param named: rows of ``names``; ``seen``: of ``hashed``.
    """
    by_name = named.withColumn("reason", refusal(F.col("name"))).where("reason IS NOT NULL")
    unread = named.where(is_finished(F.col("name"))).join(seen.select("file"), "file", "left_anti")
    reason = F.when(F.col("length") > _most_bytes(session), TOO_LARGE).otherwise(UNREADABLE)
    told = by_name.unionByName(unread.withColumn("reason", reason))
    return told.unionByName(_without_rows(session, files, named), allowMissingColumns=True)


def _most_bytes(session: SparkSession) -> int:
    return min(LARGEST_FILE_BYTES, heap_bytes(session) // _COPIES)


def _without_rows(session: SparkSession, files: DataFrame, named: DataFrame) -> DataFrame:
    """Files of which Spark gives no row: those that hold nothing, and those that went when the directory was listed."""
    listed = files._jdf.inputFiles()
    rows: list[tuple[str, ...]] = []
    if named.count() != len(listed):
        there = {row["file"] for row in named.select("file").collect()}
        for file in sorted({str(one).replace(_LOCAL, _LOCAL_OF_METADATA, 1) for one in listed} - there):
            path = unquote(file)
            is_there = len(rows) < _LOOKED_FOR and Storage(session, path).exists(path)
            rows.append((file, path, file.rpartition("/")[2], EMPTY if is_there else VANISHED))
    told = session.createDataFrame(rows, "file string, path string, name string, reason string")
    return told.where(is_finished(F.col("name")))


def others(seen: DataFrame, files: DataFrame, refused: DataFrame) -> DataFrame:
    """By ``file``, what has a finished name and is not one of the files: it is settled, a copy, or was refused."""
    settled = seen.join(files, "file", "left_anti").select("file")
    return settled.unionByName(refused.where(is_finished(F.col("name"))).select("file"))
