"""The events that are neither published, delivered nor acknowledged messages, as they are: a small part of all. Reports
that only ask for these need not read the others."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from postroom_common.snapshot import Kind

from ..schema import columns as c
from ..schema.snapshot import columns_of
from ..schema.table import Frames, Table
from .scope import Scope
from .thresholds import Given, Threshold, chosen

#: The types of these events.
TYPES: Final = ("retried", "died", "dropped", "gap", "imported", "paused", "answered")
_OF_EVENT: Final = (
    "root",
    "epoch",
    "event",
    "request_end",
    "type",
    "queue",
    "message",
    "consumer",
    "client",
    "reason_code",
    "cause",
    "engine_ms",
    "ext",
)
_COLUMNS: Final = {column.name: column for column in columns_of(Kind.EVENT)}

SCHEMA: Final = StructType([c.DEVICE, *(_COLUMNS[name] for name in _OF_EVENT), c.WALL_AT, c.DAY])
KEY: Final = ("device", "root", "epoch", "event")
PARTITION: Final = ("day",)
TABLE: Final = Table("rare_events", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("events",)
SCOPE: Final = Scope(by_day_of=("events",))
THRESHOLDS: Final[tuple[Threshold, ...]] = ()
TROUBLE: Final = "false"


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """One row per event that failed a delivery, ended a message as dead or dropped it, or is not about the way of a
    message."""
    chosen(THRESHOLDS, given)
    return frames["events"].where(F.col("type").isin(*TYPES)).select(*SCHEMA.names)
