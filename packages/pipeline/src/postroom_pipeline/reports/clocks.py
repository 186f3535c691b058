"""The events at which something about the clocks changes, by day, and those at both ends of each range of events of a
day. ``clock_trouble`` puts the days together and need not read all events."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.columns import is_suspect
from ..schema.table import Frames, Table
from .lineage import native
from .scope import Scope
from .thresholds import Given, Threshold, chosen

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("epoch", c.INTEGER, "epoch of the event"),
        c.column("event", c.INTEGER, "event id"),
        c.column("wall_ms", c.INTEGER, "wall clock, Unix ms"),
        c.column("engine_ms", c.INTEGER, "engine time"),
        c.column("clean", c.FLAG, "whether the event says that the daemon was stopped gracefully"),
        c.column("boot_id", c.TEXT, "id of the boot; null if the event does not mark the clocks"),
        c.column("begins", c.FLAG, "whether the id before is of no event of that day: the columns below are null"),
        c.column("wall_before_ms", c.INTEGER, "wall clock of the event before"),
        c.column("engine_before_ms", c.INTEGER, "engine time of the event before"),
        c.column("clean_before", c.FLAG, "`clean` of the event before"),
        c.DAY,
    ]
)
KEY: Final = ("device", "root", "epoch", "event")
PARTITION: Final = ("day",)
TABLE: Final = Table("clocks", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("events", "imports")
SCOPE: Final = Scope(by_day_of=("events",), any_day_if=("imports",))
THRESHOLDS: Final = (
    Threshold("step_ms", 5_000, "minimum difference between wall clock and engine time from one event to the next"),
)
TROUBLE: Final = "false"
#: The user sets the thresholds of that report.
GIVEN_OF: Final = "clock_trouble"

#: The columns of events that are read: plans of few columns are prepared faster.
_READ: Final = (
    "device",
    "root",
    "epoch",
    "event",
    "request_end",
    "type",
    "boot_id",
    "clean",
    "wall_ms",
    "engine_ms",
    "day",
)
_DAY: Final = ("device", "root", "epoch", "day")
#: Types of events that a start writes before its ``clock_marked``.
_BEFORE_MARK: Final = ("gap", "epoch_started")
_BEFORE: Final = {"wall_before_ms": "wall_ms", "engine_before_ms": "engine_ms", "clean_before": "clean"}


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """The events of each day are compared with the one before, where its id is the one before."""
    limits = chosen(THRESHOLDS, given)
    own = native(frames["events"].select(*_READ), frames["imports"]).where(~F.col("type").isin(*_BEFORE_MARK))
    own = own.withColumn("boot_id", F.when(F.col("type") == "clock_marked", F.col("boot_id")))
    order = Window.partitionBy(*_DAY).orderBy("event")
    clocks = own.drop("type", "request_end").withColumns(
        {"_event_before": F.lag("event").over(order), "_event_after": F.lead("event").over(order)}
        | {before: F.lag(name).over(order) for before, name in _BEFORE.items()}
    )
    begins = F.coalesce(F.col("event") - F.col("_event_before") > 1, F.lit(True))
    ends = F.coalesce(F.col("_event_after") - F.col("event") > 1, F.lit(True))
    apart = F.col("wall_ms") - F.col("wall_before_ms") - (F.col("engine_ms") - F.col("engine_before_ms"))
    changes = (
        (F.abs(apart) >= limits["step_ms"])
        | (F.col("engine_ms") < F.col("engine_before_ms"))
        | (is_suspect(F.col("wall_ms")) != is_suspect(F.col("wall_before_ms")))
        | F.col("boot_id").isNotNull()
    )
    rows = clocks.where(begins | ends | F.coalesce(changes, F.lit(False))).withColumn("begins", begins)
    return rows.withColumns({name: F.when(~F.col("begins"), F.col(name)) for name in _BEFORE}).select(*SCHEMA.names)
