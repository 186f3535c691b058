"""The files of a landing directory: which have new content, whatever their names, and the table of all of them."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from ..files import (
    ARCHIVE,
    ARCHIVES,
    EMPTY,
    FINISHED,
    GZIP_MEMBER,
    STAGED,
    TOO_LARGE,
    UNKNOWN_NAME,
    UNREADABLE,
    VANISHED,
)
from ..schema import columns as c
from ..schema.table import Table
from ..spark.connect import is_connect
from ..spark.location import storage_of
from ..spark.session import frame_of, heap_bytes

INVENTORY: Final = Table(
    "inventory",
    StructType(
        [
            c.column("sha256", c.TEXT, "SHA-256 of its bytes"),
            c.column("path", c.TEXT, "its path when it was first seen"),
            c.column("length", c.INTEGER, "length in bytes"),
            c.column("mtime_ms", c.INTEGER, "time of its last write in Unix ms: its arrival"),
            c.column("batch", c.TEXT, "id of the batch that last read it"),
            c.column("accepted", c.INTEGER, "snapshots admitted from it"),
            c.column("rejected", c.INTEGER, "its rows in `rejects`"),
            c.column("lines", c.INTEGER, "number of lines read from it"),
            c.column("tries", c.INTEGER, "number of runs that have read it"),
            c.column("settled", c.FLAG, "whether later runs skip it"),
        ]
    ),
    key=("sha256",),
    about="Every examined file, once per content, and its result.",
)

#: How many runs read a file that may be complete at another try.
TRIES: Final = 3
#: Larger files are not read, however large the heap is.
LARGEST_FILE_BYTES: Final = 256 * 1024 * 1024
#: Option of Spark's readers: false for a path that is a name whatever characters it has, and not a pattern.
IS_PATTERN: Final = "__globPaths__"
#: A file is one value while it is hashed; Spark makes at most this many copies of it.
_COPIES: Final = 12
#: How many of the files without a row are looked up by name, to tell empty ones from deleted ones.
_LOOKED_UP: Final = 1_000
#: How paths of local files begin in ``input_file_name``, and in ``_metadata.file_path``.
_LOCAL: Final = "file:///"
_LOCAL_OF_METADATA: Final = "file:/"
_WITHOUT_ROWS: Final = StructType([StructField(name, StringType()) for name in ("file", "path", "name", "reason")])


def is_finished(name: Column) -> Column:
    """Whether a file is one to be read, by its name."""
    return _ends_with(name, FINISHED)


def listed(session: SparkSession, landing: str) -> DataFrame:
    """All files in and below a directory, as rows of Spark's ``binaryFile``. The directory is listed once, now.

    Spark leaves out names that begin with a dot or ``_``.
    """
    return (
        session.read.format("binaryFile")
        .option("recursiveFileLookup", True)
        .option("ignoreMissingFiles", True)
        .option(IS_PATTERN, False)
        .load(landing)
    )


def number_of(files: DataFrame) -> int:
    """How many files ``listed`` has found."""
    return len(_input_files(files))


def names(files: DataFrame) -> DataFrame:
    """What is known of the files of ``listed`` without opening any: ``file`` (Spark's name), ``path`` (for people),
    ``name``, ``length`` in bytes and ``mtime_ms``."""
    return files.select(*_name_columns())


def hashed(session: SparkSession, files: DataFrame, named: DataFrame) -> DataFrame:
    """The finished files with their ``sha256``, and what else their packed bytes say; unreadable files are left out.

    ``arrival``: the day of the last write. ``is_gzip``. ``size_mark``: length of the content of the last gzip member,
    modulo 2**32. ``members``: how many gzip members written by Postroom begin in the file.

    No more large files are hashed at a time than the heap has space for.

    :param named: rows of ``names``.
    """
    space = heap_bytes(session) // _COPIES
    is_wanted = is_finished(_name()) & (F.col("length") <= _most_bytes(session))
    largest = named.where(is_wanted).agg(F.max("length")).collect()[0][0]
    at_once = max(1, space // (largest or 1))
    content = F.col("content")
    text = content.cast("string")
    mark = F.conv(F.concat(*(F.hex(F.substring(content, -place, 1)) for place in range(1, 5))), 16, 10)
    without = F.replace(text, F.lit(GZIP_MEMBER).cast("string"), F.lit(""))
    rows = files.where(is_wanted).select(
        *_name_columns(),
        F.to_date("modificationTime").alias("arrival"),
        F.sha2(content, 256).alias("sha256"),
        (F.substring(content, 1, 2) == F.lit(GZIP_MEMBER[:2])).alias("is_gzip"),
        mark.cast("bigint").alias("size_mark"),
        ((F.octet_length(text) - F.octet_length(without)) / len(GZIP_MEMBER)).cast("bigint").alias("members"),
    )
    # How many tasks a server has at a time is not known here: more than there are, coalesce does not make of them.
    is_needed = is_connect(session) or at_once < session.sparkContext.defaultParallelism
    return rows.coalesce(at_once) if is_needed else rows


def fresh(seen: DataFrame, existing: DataFrame) -> DataFrame:
    """The files whose content is not settled, one for each content: of copies the one with the smallest path.

    :param seen: rows of ``hashed``; ``existing``: of ``INVENTORY``.
    """
    settled = existing.where("settled").select("sha256")
    columns = ["path", *(name for name in seen.columns if name not in ("path", "sha256"))]
    first = F.min(F.struct(*columns)).alias("first")
    return seen.join(settled, "sha256", "left_anti").groupBy("sha256").agg(first).select("sha256", "first.*")


def batch_of(files: DataFrame) -> DataFrame:
    """One row: ``batch``, an id that depends only on the content of the files, their number ``files`` and ``bytes``."""
    return files.agg(
        F.substring(F.sha2(F.array_join(F.array_sort(F.collect_list("sha256")), ""), 256), 1, 16).alias("batch"),
        F.count("*").alias("files"),
        F.coalesce(F.sum("length"), F.lit(0)).alias("bytes"),
    )


def unread(session: SparkSession, files: DataFrame, named: DataFrame, seen: DataFrame) -> DataFrame:
    """The files that were listed but not hashed, with a ``reason``. Files that are still being copied are left out.

    :param files: rows of ``listed``; ``named``: of ``names``; ``seen``: of ``hashed``.
    """
    by_name = named.withColumn("reason", _reason_of_name(F.col("name"))).where("reason IS NOT NULL")
    not_hashed = named.where(is_finished(F.col("name"))).join(seen.select("file"), "file", "left_anti")
    reason = F.when(F.col("length") > _most_bytes(session), TOO_LARGE).otherwise(UNREADABLE)
    rows = by_name.unionByName(not_hashed.withColumn("reason", reason))
    return rows.unionByName(_without_rows(session, files, named), allowMissingColumns=True)


def others(seen: DataFrame, files: DataFrame, unread: DataFrame) -> DataFrame:
    """The finished files that are not read in this batch, by ``file``: settled ones, copies, and rejected ones.

    :param seen: rows of ``hashed``; ``files``: of ``fresh``; ``unread``: of ``unread``.
    """
    settled = seen.join(files, "file", "left_anti").select("file")
    return settled.unionByName(unread.where(is_finished(F.col("name"))).select("file"))


def updated(existing: DataFrame, files: DataFrame, accepted: DataFrame, rejects: DataFrame) -> DataFrame:
    """The rows of ``INVENTORY`` after a batch: those of its files are replaced, the others stay.

    :param existing: the rows before; ``files``: the batch's files, with ``batch``.
    :param accepted: its snapshots that were taken in; ``rejects``: its rows of ``REJECTS``.
    """
    taken = accepted.groupBy("sha256").agg(F.count("*").alias("accepted"), F.sum("lines").alias("lines"))
    lost = rejects.groupBy("sha256").agg(
        F.count("*").alias("rejected"), F.sum("lines").alias("lost_lines"), F.max("retryable").alias("retryable")
    )
    before = existing.select("sha256", F.col("tries").alias("tries_before"), F.col("path").alias("first_path"))
    rows = files.join(taken, "sha256", "left").join(lost, "sha256", "left").join(before, "sha256", "left")
    zero = F.lit(0)
    tries = F.coalesce("tries_before", zero) + 1
    read = rows.select(
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
    rest = existing.join(files.select("sha256"), "sha256", "left_anti").select(*INVENTORY.schema.names)
    return rest.unionByName(read)


def _name_columns() -> list[Column]:
    # _metadata.file_path would hold another copy of the content in memory; apart from this prefix it is the same.
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


def _reason_of_name(name: Column) -> Column:
    """Why a file is not read because of its name; null for files to be read, and for those that are being copied."""
    return F.when(_ends_with(F.lower(name), ARCHIVES), ARCHIVE).when(
        ~is_finished(name) & ~_ends_with(name, STAGED), UNKNOWN_NAME
    )


def _ends_with(name: Column, endings: tuple[str, ...]) -> Column:
    any_of = F.endswith(name, F.lit(endings[0]))
    for ending in endings[1:]:
        any_of = any_of | F.endswith(name, F.lit(ending))
    return any_of


def _most_bytes(session: SparkSession) -> int:
    return min(LARGEST_FILE_BYTES, heap_bytes(session) // _COPIES)


def _without_rows(session: SparkSession, files: DataFrame, named: DataFrame) -> DataFrame:
    """The listed files for which Spark returns no row: empty ones, and those deleted after the directory was listed."""
    listed = _input_files(files)
    rows: list[dict[str, str]] = []
    if named.count() != len(listed):
        for file in _absent(session, listed, named):
            path = unquote(file)
            exists = len(rows) < _LOOKED_UP and storage_of(session, path).exists(path)
            reason = EMPTY if exists else VANISHED
            rows.append({"file": file, "path": path, "name": file.rpartition("/")[2], "reason": reason})
    return frame_of(session, rows, _WITHOUT_ROWS).where(is_finished(F.col("name")))


def _input_files(files: DataFrame) -> Any:
    """The names of the files of ``listed``: Java's array, or a list if Java is a server's."""
    return files.inputFiles() if is_connect(files.sparkSession) else files._jdf.inputFiles()


def _absent(session: SparkSession, listed: Any, named: DataFrame) -> list[str]:
    """The listed files that are not in ``named``, sorted. Only these leave Java, if it is in this process.

    :param listed: what ``_input_files`` returns.
    """
    if is_connect(session):
        files = {str(name).replace(_LOCAL, _LOCAL_OF_METADATA) for name in listed}
        return sorted(files - {row["file"] for row in named.select("file").collect()})
    jvm: Any = session.sparkContext._jvm
    texts = getattr(jvm, "org.apache.spark.sql.Encoders").STRING()
    # Py4J passes no array of strings where Java wants one of objects, as Arrays.asList does.
    names_in_java = getattr(jvm, "scala.collection.immutable.ArraySeq").unsafeWrapArray(listed)
    names = DataFrame(session._jsparkSession.createDataset(names_in_java, texts).toDF(), session)
    file = F.replace(F.col("value"), F.lit(_LOCAL), F.lit(_LOCAL_OF_METADATA))
    absent = names.select(file.alias("file")).join(named.select("file"), "file", "left_anti")
    return sorted(row["file"] for row in absent.collect())
