"""The state of a device at each snapshot: one table for each kind of line, one row for each line."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, StructField

from postroom_common.snapshot import Kind

from ..schema import columns as c
from ..schema.columns import OF_SNAPSHOT, time_of
from ..schema.snapshot import columns_of
from ..schema.table import Table


def _state(name: str, kind: Kind, key: tuple[str, ...], about: str, *own: StructField) -> Table:
    """A table with the lines of one kind of all snapshots."""
    schema = c.of_snapshot(*columns_of(kind), *own)
    return Table(name, schema, ("device", "snapshot", *key), ("day",), about)


QUEUE_DEPTH: Final = _state(
    "queue_depth", Kind.QUEUE, ("queue",), "The counts of each queue when a snapshot was taken."
)
LEASES: Final = _state("leases", Kind.LEASE, ("queue", "message"), "Leased messages when a snapshot was taken.")
DEAD_LETTERS: Final = _state(
    "dead_letters",
    Kind.DEAD,
    ("queue", "message"),
    "The dead letters of a device when a snapshot was taken.",
    c.column("died_at", c.MOMENT, "`died_ms` as a time; null if it is not a valid clock"),
)
CONSUMERS: Final = _state("consumers", Kind.CONSUMER, ("queue", "consumer"), "Who consumed when a snapshot was taken.")
METRICS: Final = _state("metrics", Kind.METRIC, ("name", "labels"), "The daemon's metrics when a snapshot was taken.")

#: The tables of this module by the kind of line that they are made of.
STATE: Final = {
    Kind.QUEUE: QUEUE_DEPTH,
    Kind.LEASE: LEASES,
    Kind.DEAD: DEAD_LETTERS,
    Kind.CONSUMER: CONSUMERS,
    Kind.METRIC: METRICS,
}


def build(kind: Kind, lines: DataFrame, taken: DataFrame) -> DataFrame:
    """The rows of ``STATE[kind]``. A file that contains a snapshot twice gives its rows twice.

    :param lines: the lines of this kind, with ``file`` and ``snapshot``.
    :param taken: the snapshots that are taken in: ``file``, the columns ``OF_SNAPSHOT`` and ``day``.
    """
    columns = STATE[kind].schema.names
    of_snapshot = [field.name for field in OF_SNAPSHOT]
    of_line = [name for name in columns if name not in (*of_snapshot, "died_at", "day")]
    heads = taken.select("file", *of_snapshot, "day")
    rows = lines.select("file", "snapshot", *of_line).join(F.broadcast(heads), ["file", "snapshot"])
    return (rows.withColumn("died_at", time_of(F.col("died_ms"))) if kind is Kind.DEAD else rows).select(*columns)


def one_of_each(rows: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """One row for each key: the smallest by all other columns, so that the choice does not depend on the order."""
    rest = [name for name in rows.columns if name not in key]
    order = F.struct(*(_comparable(rows, name) for name in rest))
    chosen = rows.groupBy(*key).agg(F.min_by(F.struct(*rest), order).alias("row"))
    return chosen.select(*key, "row.*").select(*rows.columns)


def _comparable(rows: DataFrame, name: str) -> Column:
    """The column in a form that can be compared, which a map cannot."""
    if isinstance(rows.schema[name].dataType, MapType):
        return F.array_sort(F.map_entries(name)).alias(name)
    return F.col(name)
