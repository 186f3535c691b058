"""Which files there are, and which of them are new: by what they hold, whatever they are called."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from .landing import is_finished, refusal

#: A file is one value while it is hashed, so it must fit into the heap a few times over.
LARGEST_FILE_BYTES: Final = 256 * 1024 * 1024
#: How each member of a file begins that the product has written: gzip, no name, no time, level 6, no system.
_MEMBER: Final = bytes.fromhex("1f8b08000000000000ff")


def listed(session: SparkSession, landing: str) -> DataFrame:
    """All files of a directory and those below it, but names that begin with a dot or ``_``. It is listed once, now.

    ``file`` is what Spark calls one, ``path`` what people do.
    """
    files = (
        session.read.format("binaryFile")
        .option("recursiveFileLookup", True)
        .option("ignoreMissingFiles", True)
        .load(landing)
    )
    return files.select(
        F.col("_metadata.file_path").alias("file"),
        "path",
        F.col("_metadata.file_name").alias("name"),
        F.col("length"),
        F.unix_millis("modificationTime").alias("mtime_ms"),
        "content",
    )


def hashed(files: DataFrame) -> DataFrame:
    """The finished files with their ``sha256``, and what else their bytes tell without being unpacked.

    ``is_gzip``; ``size_mark``, length of what the last member of a gzip file holds, modulo 2**32; ``members``, how many
    members that the product has written begin in it. A file that cannot be read is left out.
    """
    content = F.col("content")
    text = content.cast("string")
    mark = F.conv(F.concat(*(F.hex(F.substring(content, -place, 1)) for place in range(1, 5))), 16, 10)
    without = F.replace(text, F.lit(_MEMBER).cast("string"), F.lit(""))
    return files.where(is_finished(F.col("name")) & (F.col("length") <= LARGEST_FILE_BYTES)).select(
        "file",
        "path",
        "name",
        "length",
        "mtime_ms",
        F.to_date(F.timestamp_millis("mtime_ms")).alias("arrival"),
        F.sha2(content, 256).alias("sha256"),
        (F.substring(content, 1, 2) == F.lit(_MEMBER[:2])).alias("is_gzip"),
        mark.cast("bigint").alias("size_mark"),
        ((F.octet_length(text) - F.octet_length(without)) / len(_MEMBER)).cast("bigint").alias("members"),
    )


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


def refused(files: DataFrame, seen: DataFrame) -> DataFrame:
    """Files that were listed and not hashed, with a ``reason``: by their names, too large, or not readable.

    A name that is still being copied is passed over: it is no file yet.
    """
    named = files.drop("content").withColumn("reason", refusal(F.col("name")))
    unread = named.where(is_finished(F.col("name"))).join(seen.select("file"), "file", "left_anti")
    too_large: Column = F.when(F.col("length") > LARGEST_FILE_BYTES, "too_large").otherwise("unreadable")
    return named.where("reason IS NOT NULL").unionByName(unread.withColumn("reason", too_large))
