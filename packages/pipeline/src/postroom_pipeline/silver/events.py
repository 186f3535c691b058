"""Every event of every journal once, and the conflicts: events that snapshots report differently."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from postroom_common.snapshot import Kind

from ..schema import columns as c
from ..schema.columns import clock_columns, day_of, time_of
from ..schema.snapshot import columns_of
from ..schema.table import Table

EVENTS: Final = Table(
    "events",
    StructType(
        [
            c.DEVICE,
            *columns_of(Kind.EVENT),
            c.column("content_digest", c.TEXT, "digest of the content; two different ones for a key are a conflict"),
            c.column("snapshot", c.TEXT, "smallest id of the snapshots with it"),
            c.WALL_AT,
            c.CLOCK_SUSPECT,
            c.DAY,
        ]
    ),
    key=("device", "root", "epoch", "event"),
    partition=("day",),
    about="Every event of every journal, once.",
    varied=(
        *("event", "engine_ms", "wall_ms", "request_end", "message", "lease", "request", "payload_digest"),
        *("content_digest", "wall_at"),
    ),
)

CONFLICTS: Final = Table(
    "conflicts",
    StructType(
        [
            c.DEVICE,
            c.ROOT,
            c.column("epoch", c.INTEGER, "epoch of the event"),
            c.column("event", c.INTEGER, "event id"),
            c.column("content_digest", c.TEXT, "digest of the content"),
            c.column(
                "kept",
                c.FLAG,
                "whether `events` has this one: the latest by a valid clock, otherwise that with the smallest digest",
            ),
            c.column("snapshot", c.TEXT, "smallest id of the snapshots with this content"),
            c.column("type", c.TEXT, "type of the event"),
            c.column("engine_ms", c.INTEGER, "engine time"),
            c.column("wall_ms", c.INTEGER, "wall clock, Unix ms"),
            c.column("queue", c.TEXT, "queue of the message"),
            c.column("message", c.TEXT, "message key"),
        ]
    ),
    key=("device", "root", "epoch", "event", "content_digest"),
    about="Events with one key and different contents: a root was copied or restored by hand, without a new epoch.",
)

#: What happened, apart from who asked for it and from what redaction leaves out: the same in every export.
_CONTENT: Final = (
    "type",
    "engine_ms",
    "wall_ms",
    "queue",
    "message",
    "lease",
    "consumer",
    "attempt",
    "reason_code",
    "to",
    "payload_digest",
    "payload_bytes",
)
_OF_LINE: Final = [column.name for column in columns_of(Kind.EVENT)]
_OF_CONFLICT: Final = [name for name in CONFLICTS.schema.names if name != "kept"]


def fresh(lines: DataFrame, taken: DataFrame, *, alone: bool | None = None) -> DataFrame:
    """The rows of ``EVENTS`` from lines of the snapshots that are taken in; a key may have several rows.

    :param alone: only rows whose key has no other row, or only those that have to be compared; ``taken`` is from
        ``overlaps.contests``.
    """
    columns = [] if alone is None else ["alone_from", "alone_until", "needed_from", "needed_until"]
    of_snapshots = F.broadcast(taken.select("file", "snapshot", "arrival", *columns))
    rows = lines.select("file", "snapshot", "device", *_OF_LINE).join(of_snapshots, ["file", "snapshot"])
    if alone is not None:
        event = F.col("event")
        is_alone = F.coalesce(event.between(F.col("alone_from"), F.col("alone_until")), F.lit(False))
        is_needed = F.coalesce(event.between(F.col("needed_from"), F.col("needed_until")), F.lit(True))
        rows = rows.where(is_alone if alone else ~is_alone & is_needed)
    return rows.withColumns(
        clock_columns() | {"content_digest": content_digest(), "day": day_of(F.col("wall_ms"), F.col("arrival"))}
    ).select(*EVENTS.schema.names)


def latest(rows: DataFrame) -> DataFrame:
    """One row for each key, chosen independently of the order in which the rows came.

    Of different contents the first by ``contest`` is chosen, of equal contents the most complete row, and of those the
    one with the earliest day.
    """
    same = Window.partitionBy(*EVENTS.key, "content_digest")
    each = Window.partitionBy(*EVENTS.key).orderBy(
        *contest(), F.asc_nulls_last("payload"), F.desc_nulls_last("attributes"), *_tie_breakers()
    )
    ranked = rows.withColumns({"least": F.min("snapshot").over(same), "rank": F.row_number().over(each)})
    return ranked.where("rank = 1").withColumn("snapshot", F.col("least")).select(*EVENTS.schema.names)


def contest() -> list[Column]:
    """The order of several contents of one key; the first one counts.

    That is the latest by a sane clock, so that a device which was set back to an earlier state is described by what
    happened since; then the one with the smallest digest.
    """
    return [F.desc_nulls_last(time_of(F.col("wall_ms"))), F.asc("content_digest")]


def content_digest() -> Column:
    """The digest of what happened: 16 hex digits."""
    return F.lower(F.lpad(F.hex(F.xxhash64(*_CONTENT)), 16, "0"))


def _tie_breakers() -> list[str]:
    ordered = {*EVENTS.key, "content_digest", "payload", "attributes", "day", "wall_at", "snapshot"}
    return ["day", *(name for name in EVENTS.schema.names if name not in ordered)]


def conflicts(existing: DataFrame, events: DataFrame) -> DataFrame:
    """The rows of ``CONFLICTS``: all contents of each event that has more than one.

    :param existing: existing rows of ``CONFLICTS``.
    :param events: rows of ``EVENTS`` before ``latest`` has chosen one for each key.
    """
    key = CONFLICTS.key
    rows = existing.select(*_OF_CONFLICT).unionByName(events.select(*_OF_CONFLICT))
    rest = [name for name in _OF_CONFLICT if name not in key]
    contents = rows.groupBy(*key).agg(F.min(F.struct("snapshot", *(n for n in rest if n != "snapshot"))).alias("row"))
    each = Window.partitionBy(*EVENTS.key)
    counted = contents.select(*key, "row.*").withColumns(
        {"contents": F.count("*").over(each), "place": F.row_number().over(each.orderBy(*contest()))}
    )
    kept = F.col("place") == 1
    return counted.where("contents > 1").withColumn("kept", kept).select(*CONFLICTS.schema.names)
