"""Rows of snapshots: what the tables of a device's state have in common."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, StructType

from .clock import is_suspect, time_of
from .columns import OF_SNAPSHOT


def of_snapshots(lines: DataFrame, taken: DataFrame, schema: StructType, **own: Column) -> DataFrame:
    """The rows of a table: lines of one kind of the snapshots that are taken. A file may hold a snapshot twice.

    :param lines: with ``file`` and ``snapshot``.
    :param taken: the snapshots, with the same two, the header's columns, ``clock_suspect`` and ``day``.
    :param own: columns that are computed from those of the line.
    """
    whose = [field.name for field in OF_SNAPSHOT]
    told = [name for name in schema.names if name not in (*whose, *own, "day")]
    heads = taken.select("file", *whose, "day")
    rows = lines.select("file", "snapshot", *told).join(F.broadcast(heads), ["file", "snapshot"])
    return rows.withColumns(own).select(*schema.names)


def one_of_each(rows: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Of rows with one key the one that is least in all its columns: whoever counts them gets the same one."""
    rest = [name for name in rows.columns if name not in key]
    order = F.struct(*(_ordered(rows, name) for name in rest))
    chosen = rows.groupBy(*key).agg(F.min_by(F.struct(*rest), order).alias("row"))
    return chosen.select(*key, "row.*").select(*rows.columns)


def with_clock(rows: DataFrame) -> dict[str, Column]:
    """What is said of the wall clock of each row."""
    wall = F.col("wall_ms")
    return {"wall_at": time_of(wall), "clock_suspect": is_suspect(wall)}


def _ordered(rows: DataFrame, name: str) -> Column:
    """A column that can be compared: a map cannot."""
    if isinstance(rows.schema[name].dataType, MapType):
        return F.array_sort(F.map_entries(name)).alias(name)
    return F.col(name)
