"""The events that are neither published, delivered nor acknowledged messages, as they are: a small part of all. Reports
that only ask for these need not read the others."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema.table import Frames, Table
from ..silver.events import EVENTS
from .scope import Scope
from .thresholds import Given, Threshold, chosen

#: The types of these events.
TYPES: Final = ("retried", "died", "clock_marked", "gap", "imported", "paused", "answered")
_COLUMNS: Final = (
    "device",
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
    "boot_id",
    "clean",
    "engine_ms",
    "wall_at",
    "ext",
    "day",
)

SCHEMA: Final = StructType([EVENTS.schema[name] for name in _COLUMNS])
KEY: Final = EVENTS.key
PARTITION: Final = ("day",)
TABLE: Final = Table("rare_events", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("events",)
SCOPE: Final = Scope(by_day_of=("events",))
THRESHOLDS: Final[tuple[Threshold, ...]] = ()
TROUBLE: Final = "false"


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """One row per event that failed a delivery, ended a message as dead, or is not about the way of a message."""
    chosen(THRESHOLDS, given)
    return frames["events"].where(F.col("type").isin(*TYPES)).select(*_COLUMNS)
