"""Columns that several tables have, and how tables are put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..table import Table

#: What a table is built from, by name: kinds of lines (``event``) and tables (``events``).
Frames = Mapping[str, DataFrame]

TEXT: Final = StringType()
INTEGER: Final = LongType()
NUMBER: Final = DoubleType()
FLAG: Final = BooleanType()
MOMENT: Final = TimestampType()
DATE: Final = DateType()


def column(name: str, kind: DataType, meaning: str) -> StructField:
    """A column with what it means, which the documents show."""
    return StructField(name, kind, metadata={"comment": meaning})


DEVICE: Final = column("device", TEXT, "the device's name")
SNAPSHOT: Final = column("snapshot", TEXT, "id of the snapshot")
ROOT: Final = column("root", TEXT, "id of the data directory")
WALL_AT: Final = column("wall_at", MOMENT, "`wall_ms` as a time; null where the clock is suspect")
CLOCK_SUSPECT: Final = column("clock_suspect", FLAG, "whether the wall clock is outside 2015 to 2100")
DAY: Final = column("day", DATE, "day of the wall clock, UTC; of the file's arrival where the clock is suspect")

#: Of a snapshot, in each table that has rows of one: who, when, as of what.
OF_SNAPSHOT: Final = (
    DEVICE,
    SNAPSHOT,
    ROOT,
    column("epoch", INTEGER, "its epoch when the snapshot was taken"),
    column("as_of_event", INTEGER, "event as of which the row is"),
    column("wall_ms", INTEGER, "the device's wall clock when the snapshot was taken, Unix ms"),
    column("engine_ms", INTEGER, "the root's engine time then"),
    WALL_AT,
    CLOCK_SUSPECT,
)


def table(name: str, schema: StructType, key: tuple[str, ...], partition: tuple[str, ...]) -> Table:
    """The table of a module's data."""
    return Table(name, schema, key, partition)


def of_snapshot(*own: StructField) -> StructType:
    """The columns of a table with rows of snapshots: whose, then its own, then the day."""
    return StructType([*OF_SNAPSHOT, *own, DAY])
