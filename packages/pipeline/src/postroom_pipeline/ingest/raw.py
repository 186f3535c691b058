"""Reads the lines of snapshots, each once: its columns, and what its text adds to the sums that show what is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, IntegerType, LongType, StringType, StructField, StructType

from postroom_common.snapshot import Kind
from postroom_common.snapshot_reader import LINE_BYTES_LIMIT

from ..contract.schema import snake, wide_schema
from ..contract.upgrade import CORRUPT, boundless_number, known_names, reading_schema, upgraded_columns
from ..table import Table
from .heap import heap_bytes
from .landing import GLOB, IS_PATTERN

#: Kinds of rows beside those of lines: what is no line, kinds that this version does not know, and empty lines.
BROKEN: Final = "broken"
OTHER: Final = "other"
BLANK: Final = "blank"
#: What a line's text adds to the sums of its snapshot, behind the columns of the format.
_OF_TEXT: Final = [
    StructField("crc", LongType(), metadata={"comment": "its CRC-32, as the trailer's lineCrc adds it up"}),
    StructField("bytes", LongType(), metadata={"comment": "its bytes, with the newline"}),
    StructField("place", LongType(), metadata={"comment": "greater for what stands further back in the file"}),
    StructField("is_glued", BooleanType(), metadata={"comment": "it is not one object alone"}),
    StructField("unknown_fields", IntegerType(), metadata={"comment": "its fields that this version does not know"}),
]
#: As many names are told to the reader one by one; where there are more of both, it reads all, and what it has read is
#: sorted out.
_NAMED_FILES: Final = 2_000
#: A line is one value, and so is each of its columns: of all tasks, Spark makes so many copies at most.
_LINE_COPIES: Final = 64
#: What Hadoop's reader of lines leaves out.
_LONGEST_LINE: Final = "mapreduce.input.linerecordreader.line.maxlength"
#: The column of a line's text, beside columns that are named as fields are.
_TEXT: Final = "_text"
#: A line of what may stand between the parts of one alone; and an end of one. Spark's trim takes eight times the line.
_BLANK_LINE: Final = r"^[ \t\r]*\z"
_END_OF_LINE: Final = r"(?:}|^)[ \t\r]*\z"
_KINDS: Final = [kind.value for kind in Kind]
#: Enough for the device and the snapshot at the head of a line.
_HEAD_CHARACTERS: Final = 400


@dataclass(frozen=True)
class Files:
    """The files of a run: finished ones of a directory."""

    session: SparkSession
    landing: str
    #: With a column ``file``.
    wanted: DataFrame
    #: Names of them; None where there are many.
    names: tuple[str, ...] | None = None
    #: Names of the others, which are not opened; None where there are many of both.
    others: tuple[str, ...] | None = None

    def reader(self) -> DataFrameReader:
        """A reader that takes lines as devices write them."""
        return (
            self.session.read.option("recursiveFileLookup", True)
            .option("ignoreMissingFiles", True)
            .option(IS_PATTERN, False)
            .option("pathGlobFilter", GLOB)
            .option("lineSep", "\n")
            .option(_LONGEST_LINE, min(LINE_BYTES_LIMIT, heap_bytes(self.session) // _LINE_COPIES))
        )

    def only(self, frame: DataFrame) -> DataFrame:
        """What was read of the wanted files alone, with a column ``file``."""
        named = frame.select("*", F.col("_metadata.file_path").alias("file"))
        if self.names is not None:
            return named.where(F.col("file").isin(list(self.names)))
        if self.others is not None:
            return named.where(~F.col("file").isin(list(self.others))) if self.others else named
        return named.join(F.broadcast(self.wanted.select("file")), "file", "left_semi")


def files_of(session: SparkSession, landing: str, wanted: DataFrame, count: int, others: DataFrame) -> Files:
    """The files to be read, so many, and the ``others`` of the landing directory that have a finished name, by
    ``file``."""
    left_out = _few(others)
    if left_out is not None and len(left_out) <= count:
        return Files(session, landing, wanted, others=left_out)
    return Files(session, landing, wanted, names=_few(wanted) if count <= _NAMED_FILES else None, others=left_out)


def bronze(batch: str) -> Table:
    """The table of a batch's lines: columns of every kind, ``line``, the text of what is broken, and ``_OF_TEXT``."""
    columns = [StructField(snake(field.name), field.dataType) for field in wide_schema().fields if field.name != "kind"]
    schema = StructType([StructField("file", StringType()), *columns, StructField("line", StringType()), *_OF_TEXT])
    return Table(f"bronze/batch={batch}", schema.add("kind", StringType()), ("file", "snapshot"), ("kind",))


def unknown(batch: str) -> Table:
    """The table of a batch's lines with what this version does not know: ``names`` are the fields."""
    names = {"file": StringType(), "snapshot": StringType(), "names": ArrayType(StringType()), "line": StringType()}
    schema = StructType([StructField(name, kind) for name, kind in names.items()])
    return Table(f"unknown/batch={batch}", schema, ("file", "snapshot", "line"))


def lines(files: Files) -> DataFrame:
    """The rows of ``bronze``: one for each line."""
    read = files.only(files.reader().text(files.landing)).withColumnRenamed("value", _TEXT)
    text = F.col(_TEXT)
    place = F.monotonically_increasing_id().alias("place")
    frame = read.select("file", _TEXT, place, _parsed(text).alias("parsed")).select("file", _TEXT, "place", "parsed.*")
    is_line = F.col(CORRUPT).isNull() & F.col("snapshot").isNotNull() & ~boundless_number()
    no_line = F.when(text.rlike(_BLANK_LINE), BLANK).otherwise(BROKEN)
    kind = F.when(~is_line, no_line).when(F.col("kind").isin(_KINDS), F.col("kind")).otherwise(OTHER)
    rows = frame.withColumn("row_kind", kind).select(
        "file", *upgraded_columns(), *_of_text(text), _TEXT, "row_kind", F.col("kind").alias("told_kind")
    )
    is_broken = F.col("row_kind") == BROKEN
    owner = F.coalesce("snapshot", F.when(is_broken, _sane_id(_owner(text))))
    told_kind = F.when(is_broken, F.coalesce("told_kind", _told_kind(text))).otherwise(F.col("row_kind"))
    is_body = ~F.coalesce(told_kind == Kind.TRAILER.value, F.lit(False))
    return rows.withColumns(
        {
            "snapshot": owner,
            "line": F.when(is_broken, text),
            "crc": F.when(is_body, F.crc32(text)),
            "kind": F.col("row_kind"),
        }
    ).select(*bronze("").schema.names)


def unknown_lines(files: Files, wanted: DataFrame) -> DataFrame:
    """Rows of ``unknown``, of the wanted snapshots: lines with fields or of kinds that this version does not know."""
    text = F.col("value")
    rows = files.only(files.reader().text(files.landing)).select(
        "file",
        _owner(text).alias("snapshot"),
        _unknown_names(text).alias("names"),
        text.alias("line"),
        _told_kind(text).isin(_KINDS).alias("is_known"),
    )
    newer = rows.where((F.size("names") > 0) | ~F.coalesce("is_known", F.lit(False)))
    return newer.join(F.broadcast(wanted), ["file", "snapshot"], "left_semi").drop("is_known")


def _few(files: DataFrame) -> tuple[str, ...] | None:
    found = files.select("file").limit(_NAMED_FILES + 1).collect()
    return tuple(row["file"] for row in found) if len(found) <= _NAMED_FILES else None


def _parsed(text: Column) -> Column:
    """A line as ``reading_schema``; what cannot be one is in its column ``CORRUPT``, with what could be read of it."""
    options = {"columnNameOfCorruptRecord": CORRUPT, "allowNonNumericNumbers": "false", "allowSingleQuotes": "false"}
    return F.from_json(text, reading_schema(), options)


def _of_text(text: Column) -> list[Column]:
    """``bytes``, ``place``, ``is_glued`` and ``unknown_fields`` of a line that stands beside its columns.

    Each look at a text takes about as long as a tenth of its parsing: what is seldom needed is looked for last.
    """
    is_alone = F.endswith(text, F.lit("}")) | text.rlike(_END_OF_LINE)
    return [
        (F.octet_length(text) + F.lit(1).cast("bigint")).alias("bytes"),
        F.col("place"),
        (~is_alone | F.contains(text, F.lit('}{"'))).alias("is_glued"),
        F.greatest(F.size(_unknown_names(text)), F.lit(0)).alias("unknown_fields"),
    ]


def _unknown_names(text: Column) -> Column:
    names = list(known_names())
    return F.filter(F.json_object_keys(text), lambda name: ~name.isin(names))


def _owner(text: Column) -> Column:
    """The snapshot that a line says it belongs to, also where the rest of it cannot be read."""
    head = F.substring_index(F.substring(text, 1, _HEAD_CHARACTERS), '","kind"', 1)
    return F.when(
        F.startswith(text, F.lit('{"device":"')) & F.contains(head, F.lit('"snapshot":"')),
        F.substring_index(head, '"snapshot":"', -1),
    ).otherwise(F.get_json_object(text, "$.snapshot"))


def _sane_id(snapshot: Column) -> Column:
    """What can be an id; what a broken line has in its place need not be one."""
    return F.when(snapshot.rlike("^[A-Za-z0-9_.-]{1,64}$"), snapshot)


def _told_kind(text: Column) -> Column:
    head = F.substring_index(F.substring_index(F.substring(text, 1, _HEAD_CHARACTERS), '"kind":"', 2), '"kind":"', -1)
    return F.when(
        F.startswith(text, F.lit('{"device":"')) & F.contains(text, F.lit('"kind":"')), F.substring_index(head, '"', 1)
    ).otherwise(F.get_json_object(text, "$.kind"))
