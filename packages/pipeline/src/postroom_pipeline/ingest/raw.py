"""Reads the lines of snapshots: once as columns, once as text, whose sums show whether a line was changed or lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from postroom_common.snapshot import Kind

from ..contract.schema import snake, wide_schema
from ..contract.upgrade import CORRUPT, boundless_number, known_names, reading_schema, upgraded_columns
from ..table import Table
from .landing import GLOB

#: Kinds of rows beside those of lines: what is no line, and kinds that this version does not know.
BROKEN: Final = "broken"
OTHER: Final = "other"
#: As many names are told to the reader one by one; more are sorted out of what it has read.
_NAMED_FILES: Final = 2_000
_KINDS: Final = [kind.value for kind in Kind]
#: Enough for the device and the snapshot at the head of a line.
_HEAD_CHARACTERS: Final = 400


@dataclass(frozen=True)
class Files:
    """The files of a run: all finished ones of a directory, or some of them."""

    session: SparkSession
    landing: str
    #: With a column ``file``.
    wanted: DataFrame
    #: Names of them; None where there are many.
    names: tuple[str, ...] | None
    is_all: bool

    def reader(self) -> DataFrameReader:
        """A reader that takes lines as devices write them."""
        return (
            self.session.read.option("recursiveFileLookup", True)
            .option("ignoreMissingFiles", True)
            .option("pathGlobFilter", GLOB)
            .option("lineSep", "\n")
        )

    def only(self, frame: DataFrame) -> DataFrame:
        """What was read of the wanted files alone, with a column ``file``."""
        named = frame.select("*", F.col("_metadata.file_path").alias("file"))
        if self.is_all:
            return named
        if self.names is not None:
            return named.where(F.col("file").isin(list(self.names)))
        return named.join(F.broadcast(self.wanted.select("file")), "file", "left_semi")


def files_of(session: SparkSession, landing: str, wanted: DataFrame, count: int, finished: int) -> Files:
    """The files to be read: ``count`` of the ``finished`` ones of the landing directory."""
    few = count <= _NAMED_FILES and count < finished
    names = tuple(row["file"] for row in wanted.select("file").collect()) if few else None
    return Files(session, landing, wanted, names, count == finished)


def bronze(batch: str) -> Table:
    """The table of a batch's lines: columns of every kind, and ``line``, the text of what is broken."""
    columns = [StructField(snake(field.name), field.dataType) for field in wide_schema().fields if field.name != "kind"]
    schema = StructType([StructField("file", StringType()), *columns, StructField("line", StringType())])
    return Table(f"bronze/batch={batch}", schema.add("kind", StringType()), ("file", "snapshot"), ("kind",))


def unknown(batch: str) -> Table:
    """The table of a batch's lines with what this version does not know: ``names`` are the fields."""
    names = {"file": StringType(), "snapshot": StringType(), "names": ArrayType(StringType()), "line": StringType()}
    schema = StructType([StructField(name, kind) for name, kind in names.items()])
    return Table(f"unknown/batch={batch}", schema, ("file", "snapshot", "line"))


def lines(files: Files) -> DataFrame:
    """The rows of ``bronze``: one for each line but blank ones."""
    read = files.reader().schema(reading_schema()).option("columnNameOfCorruptRecord", CORRUPT)
    frame = read.option("allowNonNumericNumbers", False).option("allowSingleQuotes", False).json(files.landing)
    whole = F.col(CORRUPT).isNull() & F.col("snapshot").isNotNull() & ~boundless_number()
    kind = F.when(~whole, BROKEN).when(F.col("kind").isin(_KINDS), F.col("kind")).otherwise(OTHER)
    rows = files.only(frame).select(
        "file",
        *upgraded_columns(),
        F.coalesce(CORRUPT, F.when(kind == BROKEN, F.lit(""))).alias("line"),
        kind.alias("row_kind"),
    )
    owner = F.coalesce("snapshot", _sane_id(_owner(F.col("line"))))
    return rows.withColumns({"snapshot": owner, "kind": F.col("row_kind")}).drop("row_kind")


def sums(files: Files) -> DataFrame:
    """What the text of each snapshot of each file sums up to, of all lines but trailers where it is not said otherwise.

    ``crc`` and ``text_lines``; ``bytes`` with the trailer and newlines; ``glued``: lines that are not one object alone;
    ``unknown_fields``; ``last``: greater for what stands further back in the file.
    """
    frame = files.only(files.reader().text(files.landing))
    kind = _told_kind(F.col("value"))
    is_body = ~F.coalesce(kind == Kind.TRAILER.value, F.lit(False))
    rows = frame.select(
        "file",
        F.when(F.coalesce(kind == Kind.BUNDLE.value, F.lit(False)), None)
        .otherwise(_owner(F.col("value")))
        .alias("snapshot"),
        is_body.alias("is_body"),
        "value",
        F.monotonically_increasing_id().alias("place"),
    )
    value = F.col("value")
    glued = ~F.endswith(F.rtrim(value, F.lit(" \t\r")), F.lit("}")) | F.contains(value, F.lit('}{"'))
    return rows.groupBy("file", "snapshot").agg(
        F.sum(F.when(F.col("is_body"), F.crc32(value)).otherwise(0)).alias("crc"),
        F.count_if(F.col("is_body")).alias("text_lines"),
        F.sum(F.octet_length(value) + 1).alias("bytes"),
        F.count_if((value != "") & glued).alias("glued"),
        F.coalesce(F.sum(F.size(_unknown_names(value))), F.lit(0)).alias("unknown_fields"),
        F.max("place").alias("last"),
    )


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
