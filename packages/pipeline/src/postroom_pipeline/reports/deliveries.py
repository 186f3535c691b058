"""When consumers got messages, by queue and day. Reports that only ask for this need not read all events."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

from ..schema import columns as c
from ..schema.table import Frames, Table
from .lineage import native
from .scope import Scope
from .thresholds import Given, Threshold, chosen

LEASES: Final = ArrayType(
    StructType([c.column("engine_ms", c.INTEGER, "engine time"), c.column("event", c.INTEGER, "the event")])
)
SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("queue", c.TEXT, "queue of the messages"),
        c.column("consumer", c.TEXT, "id of the consumer; null if it is unknown"),
        c.column("epoch", c.INTEGER, "epoch of the events"),
        c.column("part", c.INTEGER, "which 65,536 event ids: a row has at most so many deliveries"),
        c.column("leases", LEASES, "deliveries in order of engine time, without those of dead letters"),
        c.DAY,
    ]
)
KEY: Final = ("device", "root", "queue", "consumer", "epoch", "part", "day")
PARTITION: Final = ("day",)
TABLE: Final = Table("deliveries", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("events", "imports")
SCOPE: Final = Scope(by_day_of=("events",), any_day_if=("imports",))
THRESHOLDS: Final[tuple[Threshold, ...]] = ()
TROUBLE: Final = "false"

#: The columns of events that are read: plans of few columns are prepared faster.
_READ: Final = (
    "device",
    "root",
    "queue",
    "consumer",
    "epoch",
    "event",
    "request_end",
    "type",
    "of_dead",
    "engine_ms",
    "day",
)
_PART: Final = 65_536


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """One row per consumer, queue and day with a delivery. What an import brought in does not count."""
    chosen(THRESHOLDS, given)
    leased = frames["events"].select(*_READ).where("type = 'leased' and not coalesce(of_dead, false)")
    parted = native(leased, frames["imports"]).withColumn("part", F.expr(f"event div {_PART}"))
    leases = F.sort_array(F.collect_list(F.struct("engine_ms", "event")))
    return parted.groupBy(*KEY).agg(leases.alias("leases"))
