"""Reads the lines of snapshots: their columns, and what their text adds to the sums that reveal lost lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, IntegerType, LongType, StringType, StructField, StructType

from postroom_common.snapshot import Kind
from postroom_common.snapshot_reader import LINE_BYTES_LIMIT

from ..files import FINISHED
from ..schema.columns import is_suspect
from ..schema.snapshot import (
    CORRUPT,
    columns_of,
    event_schema,
    has_infinity,
    known_names,
    length_of_event,
    reading_schema,
    schema_of,
    upgraded_columns,
)
from ..schema.table import Table
from ..spark.session import heap_bytes
from .inventory import IS_PATTERN

#: Kinds of rows beside ``Kind``: unreadable lines, kinds that this version does not know, and blank lines.
BROKEN: Final = "broken"
OTHER: Final = "other"
BLANK: Final = "blank"
#: Columns from the text of a line, for the sums of its snapshot; they follow the columns of the format.
_OF_TEXT: Final = [
    StructField("crc", LongType(), metadata={"comment": "its CRC-32, as the trailer's lineCrc adds it up"}),
    StructField("bytes", LongType(), metadata={"comment": "its bytes, with the newline"}),
    StructField("place", LongType(), metadata={"comment": "greater for what stands further back in the file"}),
    StructField("is_glued", BooleanType(), metadata={"comment": "it is not one object alone"}),
    StructField("unknown_fields", IntegerType(), metadata={"comment": "its fields that this version does not know"}),
    StructField("mark", LongType(), metadata={"comment": "the same for an event that two snapshots report alike"}),
]
#: How Parquet is written: lines are read completely, and soon. Nobody asks for the least value of a column.
WRITING: Final = {"parquet.column.statistics.enabled": "false"}
_VARIED: Final = (
    *("crc", "place", "event", "request_end", "engine_ms", "wall_ms", "message", "payload_digest", "lease", "request"),
    *("line", "mark"),
)
#: Names of finished files, as Spark's filter for paths.
_GLOB: Final = "*{" + ",".join(FINISHED) + "}"
#: How many names are passed to the reader. If there are more wanted and other files, it reads all files, and the rows
#: are filtered.
_NAMED_FILES: Final = 2_000
#: A line is one value, and so is each of its columns; Spark makes at most this many copies over all tasks.
_LINE_COPIES: Final = 64
#: Hadoop's line reader skips longer lines.
_LONGEST_LINE: Final = "mapreduce.input.linerecordreader.line.maxlength"
#: The column with the text of a line; no field has this name.
_TEXT: Final = "_text"
#: A line of JSON whitespace only, and the end of a JSON object. Spark's trim would need eight times the line's memory.
_BLANK_LINE: Final = r"^[ \t\r]*\z"
_END_OF_LINE: Final = r"(?:}|^)[ \t\r]*\z"
#: How the line of an event begins: with its device, its snapshot and its kind.
_BEFORE_DEVICE: Final = '{"device":"'
_BEFORE_SNAPSHOT: Final = '","snapshot":"'
_BEFORE_KIND: Final = '","kind":"'
#: How JSON is read: nothing is taken that is not JSON.
_READING: Final = {"allowNonNumericNumbers": "false", "allowSingleQuotes": "false"}
_KINDS: Final = [kind.value for kind in Kind]
#: Enough for the device and the snapshot at the beginning of a line.
_HEAD_CHARACTERS: Final = 400


@dataclass(frozen=True)
class Files:
    """The files that a run reads: finished ones of a landing directory."""

    session: SparkSession
    landing: str
    #: Their names, as column ``file``.
    wanted: DataFrame
    #: Their names; None if there are many.
    names: tuple[str, ...] | None = None
    #: Names of the other files of the directory; None if there are many of both.
    others: tuple[str, ...] | None = None

    def reader(self) -> DataFrameReader:
        """A reader for lines as devices write them."""
        return (
            self.session.read.option("recursiveFileLookup", True)
            .option("ignoreMissingFiles", True)
            .option(IS_PATTERN, False)
            .option("pathGlobFilter", _GLOB)
            .option("lineSep", "\n")
            .option(_LONGEST_LINE, min(LINE_BYTES_LIMIT, heap_bytes(self.session) // _LINE_COPIES))
        )

    def only(self, frame: DataFrame) -> DataFrame:
        """The rows of the wanted files only, with a column ``file``."""
        named = frame.select("*", F.col("_metadata.file_path").alias("file"))
        if self.names is not None:
            return named.where(F.col("file").isin(list(self.names)))
        if self.others is not None:
            return named.where(~F.col("file").isin(list(self.others))) if self.others else named
        return named.join(F.broadcast(self.wanted.select("file")), "file", "left_semi")


def files_of(session: SparkSession, landing: str, wanted: DataFrame, count: int, others: DataFrame) -> Files:
    """The files to read.

    :param wanted: their names, as column ``file``; ``count``: their number.
    :param others: the other finished files of the landing directory, as column ``file``.
    """
    left_out = _few(others)
    if left_out is not None and len(left_out) <= count:
        return Files(session, landing, wanted, others=left_out)
    return Files(session, landing, wanted, names=_few(wanted) if count <= _NAMED_FILES else None, others=left_out)


def bronze(batch: str) -> Table:
    """The table of a batch's lines: the columns of events, ``line`` (the text of what is no event), and ``_OF_TEXT``.

    Nearly all lines are events. Columns of the other kinds would be written for each event, too, though it has none of
    them: ``of_kind`` makes them of the text.
    """
    texts = [StructField(name, StringType()) for name in ("file", "device", "snapshot")]
    columns = [StructField(field.name, field.dataType) for field in columns_of(Kind.EVENT)]
    rest = [StructField("major", LongType()), StructField("line", StringType()), *_OF_TEXT]
    schema = StructType([*texts, *columns, *rest])
    schema.add("kind", StringType())
    return Table(f"bronze/batch={batch}", schema, ("file", "snapshot"), ("kind",), varied=_VARIED)


def unknown(batch: str) -> Table:
    """The table of a batch's lines with fields or kinds that this version does not know; ``names`` are the fields."""
    names = {"file": StringType(), "snapshot": StringType(), "names": ArrayType(StringType()), "line": StringType()}
    schema = StructType([StructField(name, kind) for name, kind in names.items()])
    return Table(f"unknown/batch={batch}", schema, ("file", "snapshot", "line"))


def lines(files: Files) -> DataFrame:
    """The rows of ``bronze``, one for each line.

    Nearly all lines are events that have fields of events alone. The others are read once more, with the fields of all
    kinds: a field of another type breaks a line, whatever kind the field is of. It costs to read every line with so
    many columns.
    """
    text = F.col(_TEXT)
    read = files.only(files.reader().text(files.landing)).withColumnRenamed("value", _TEXT)
    place = F.monotonically_increasing_id().alias("place")
    frame = read.select("file", _TEXT, place, _parsed(text, event_schema()).alias("parsed"))
    frame = frame.select("file", _TEXT, "place", "parsed.*")
    is_exact = _is_exact(text)
    is_plain = F.when(is_exact, True).otherwise(_is_plain(text))  # of an OR, Spark may compute both sides
    full = F.when(~is_plain, _parsed(text, reading_schema()))
    # In one step: of so many columns Spark makes a program of several methods; a single one would not be compiled.
    frame = frame.select("*", is_exact.alias("is_exact"), is_plain.alias("is_plain"), full.alias("full"))
    is_whole = F.col("is_plain") | (F.col(f"full.{CORRUPT}").isNull() & ~has_infinity("full."))
    is_line = is_whole & F.col("snapshot").isNotNull()
    no_line = F.when(text.rlike(_BLANK_LINE), BLANK).otherwise(BROKEN)
    kind = F.when(~is_line, no_line).when(F.col("kind").isin(_KINDS), F.col("kind")).otherwise(OTHER)
    unknown_fields = F.when(F.col("is_plain"), 0).otherwise(F.greatest(F.size(_unknown_names(text)), F.lit(0)))
    computed = [
        F.col("full.major").alias("major"),
        *_of_text(text),
        unknown_fields.alias("unknown_fields"),
        _mark(text),
    ]
    rows = frame.withColumn("row_kind", kind).select(
        "file", "device", "snapshot", *upgraded_columns(Kind.EVENT), *computed, _TEXT, "row_kind", "kind"
    )
    is_broken = F.col("row_kind") == BROKEN
    owner = F.coalesce("snapshot", F.when(is_broken, _sane_id(_owner(text))))
    named_kind = F.when(is_broken, F.coalesce("kind", _named_kind(text))).otherwise(F.col("row_kind"))
    is_body = ~F.coalesce(named_kind == Kind.TRAILER.value, F.lit(False))
    return rows.withColumns(
        {
            "snapshot": owner,
            "line": F.when(~F.col("row_kind").isin(Kind.EVENT.value, BLANK), text),
            "crc": F.when(is_body, F.crc32(text)),
            "kind": F.col("row_kind"),
        }
    ).select(*bronze("").schema.names)


def of_kind(rows: DataFrame, kind: Kind) -> DataFrame:
    """Rows of ``lines`` with the columns of a kind that is not that of events, and ``file``, ``snapshot``, ``device``.

    :param rows: those of this kind, or broken ones that may be meant to be.
    """
    own = ["file", "snapshot", "device"]
    columns = upgraded_columns(kind, "parsed.")
    return rows.select(*own, F.from_json("line", schema_of(kind), _READING).alias("parsed")).select(*own, *columns)


def unknown_lines(files: Files, wanted: DataFrame) -> DataFrame:
    """The rows of ``unknown`` of the wanted snapshots.

    :param wanted: ``file`` and ``snapshot``.
    """
    text = F.col("value")
    rows = files.only(files.reader().text(files.landing)).select(
        "file",
        _owner(text).alias("snapshot"),
        _unknown_names(text).alias("names"),
        text.alias("line"),
        _named_kind(text).isin(_KINDS).alias("is_known"),
    )
    newer = rows.where((F.size("names") > 0) | ~F.coalesce("is_known", F.lit(False)))
    return newer.join(F.broadcast(wanted), ["file", "snapshot"], "left_semi").drop("is_known")


def _few(files: DataFrame) -> tuple[str, ...] | None:
    rows = files.select("file").limit(_NAMED_FILES + 1).collect()
    return tuple(row["file"] for row in rows) if len(rows) <= _NAMED_FILES else None


def _parsed(text: Column, schema: StructType) -> Column:
    """A line in columns, as far as it can be read. An unreadable one is in ``CORRUPT``, if the schema has that."""
    return F.from_json(text, schema, _READING | {"columnNameOfCorruptRecord": CORRUPT})


def _is_plain(text: Column) -> Column:
    """Whether a line is an event with as many names as it has values in the columns of events: all names are known
    then, and all values are of their types. A line that is no object has no names."""
    values = F.expr(" + ".join(f"double(`{name}` IS NOT NULL)" for name in event_schema().names))
    is_event = F.col("kind") == Kind.EVENT.value
    return F.coalesce(is_event & (F.size(F.json_object_keys(text)) <= values), F.lit(False))


def _is_exact(text: Column) -> Column:
    """Whether a line is an event that is as long as its fields, as devices write them: then it has nothing else.

    To look for other names and for a second object in it takes half as long as to parse it.
    """
    is_event = F.col("kind") == Kind.EVENT.value
    return F.coalesce(is_event & (F.octet_length(text) == length_of_event()), F.lit(False))


def _mark(text: Column) -> Column:
    """A hash of what an event's text says behind the name of its snapshot; null if there may be more to its row: if its
    clock is suspect, if it was not written as devices write it, or has other fields."""
    length = F.octet_length("device") + F.octet_length("snapshot") + len(_BEFORE_DEVICE + _BEFORE_SNAPSHOT)
    begin = F.concat(F.lit(_BEFORE_DEVICE), "device", F.lit(_BEFORE_SNAPSHOT), "snapshot", F.lit(_BEFORE_KIND))
    is_sure = F.col("is_plain") & ~is_suspect(F.col("wallMs")) & F.startswith(text, begin)
    return F.when(is_sure, F.xxhash64(F.substr(text.cast("binary"), length + 1))).alias("mark")


def _of_text(text: Column) -> list[Column]:
    """``bytes``, ``place`` and ``is_glued`` of a line.

    Each search in the text takes about a tenth of the time of parsing it: what is rarely needed is searched for last.
    """
    is_alone = F.endswith(text, F.lit("}")) | text.rlike(_END_OF_LINE)
    return [
        (F.octet_length(text) + F.lit(1).cast("bigint")).alias("bytes"),
        F.col("place"),
        (~F.col("is_exact") & (~is_alone | F.contains(text, F.lit('}{"')))).alias("is_glued"),
    ]


def _unknown_names(text: Column) -> Column:
    names = list(known_names())
    return F.filter(F.json_object_keys(text), lambda name: ~name.isin(names))


def _owner(text: Column) -> Column:
    """The snapshot that a line names, even if the rest of the line cannot be read."""
    head = F.substring_index(F.substring(text, 1, _HEAD_CHARACTERS), '","kind"', 1)
    return F.when(
        F.startswith(text, F.lit('{"device":"')) & F.contains(head, F.lit('"snapshot":"')),
        F.substring_index(head, '"snapshot":"', -1),
    ).otherwise(F.get_json_object(text, "$.snapshot"))


def _sane_id(snapshot: Column) -> Column:
    """The text if it can be an id; in a broken line it may be anything."""
    return F.when(snapshot.rlike("^[A-Za-z0-9_.-]{1,64}$"), snapshot)


def _named_kind(text: Column) -> Column:
    """The kind that a line names, even if the rest of the line cannot be read."""
    head = F.substring_index(F.substring_index(F.substring(text, 1, _HEAD_CHARACTERS), '"kind":"', 2), '"kind":"', -1)
    return F.when(
        F.startswith(text, F.lit('{"device":"')) & F.contains(text, F.lit('"kind":"')), F.substring_index(head, '"', 1)
    ).otherwise(F.get_json_object(text, "$.kind"))
