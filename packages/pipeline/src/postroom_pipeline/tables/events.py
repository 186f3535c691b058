"""Every event of every journal, once."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from postroom_common.snapshot import Kind

from ..contract.schema import columns_of
from . import columns as c
from .clock import day_of, time_of
from .state import with_clock

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        *columns_of(Kind.EVENT),
        c.column("content_digest", c.TEXT, "of what happened; two of them for one key are a conflict"),
        c.column("snapshot", c.TEXT, "least id of the snapshots that told of it"),
        c.WALL_AT,
        c.CLOCK_SUSPECT,
        c.DAY,
    ]
)
KEY: Final = ("device", "root", "epoch", "event")
PARTITION: Final = ("day",)
TABLE: Final = c.table("events", SCHEMA, KEY, PARTITION)

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
_TOLD: Final = [column.name for column in columns_of(Kind.EVENT)]


def build(frames: c.Frames) -> DataFrame:
    """One row for each key, of ``known`` rows of this table and of ``fresh`` ones."""
    return latest(frames["known"].unionByName(frames["fresh"]))


def fresh(frames: c.Frames) -> DataFrame:
    """Rows of the snapshots of ``taken``, from ``lines`` of the kind; a key may have several."""
    arrivals = F.broadcast(frames["taken"].select("file", "snapshot", "arrival"))
    rows = frames["lines"].select("file", "snapshot", "device", *_TOLD).join(arrivals, ["file", "snapshot"])
    return rows.withColumns(
        with_clock(rows) | {"content_digest": content_digest(), "day": day_of(F.col("wall_ms"), F.col("arrival"))}
    ).select(*SCHEMA.names)


def latest(rows: DataFrame) -> DataFrame:
    """One row for each key: of different contents the first by ``contest``, of the same the fullest one, and of those
    the one with the least day. Nothing of it depends on what came first."""
    same = Window.partitionBy(*KEY, "content_digest")
    each = Window.partitionBy(*KEY).orderBy(
        *contest(), F.asc_nulls_last("payload"), F.desc_nulls_last("attributes"), *_rest()
    )
    ranked = rows.withColumns({"least": F.min("snapshot").over(same), "rank": F.row_number().over(each)})
    return ranked.where("rank = 1").withColumn("snapshot", F.col("least")).select(*SCHEMA.names)


def contest() -> list[Column]:
    """The order of several contents of one key: the first counts. It is the latest by a clock that is sane, so that a
    device that was put back to an earlier state is told by what happened since; then the one with the least digest."""
    return [F.desc_nulls_last(time_of(F.col("wall_ms"))), F.asc("content_digest")]


def content_digest() -> Column:
    """Of what happened: 16 hex digits."""
    return F.lower(F.lpad(F.hex(F.xxhash64(*_CONTENT)), 16, "0"))


def _rest() -> list[str]:
    ordered = {*KEY, "content_digest", "payload", "attributes", "day", "wall_at", "snapshot"}
    return ["day", *(name for name in SCHEMA.names if name not in ordered)]
