"""When a device's clock was set or wrong (wall clock compared with engine time), and starts of its machine."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.table import Frames, Table
from .lineage import native
from .scope import OF_DEVICE
from .thresholds import Given, Threshold, chosen

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("epoch", c.INTEGER, "epoch of the event"),
        c.column("event", c.INTEGER, "the first event with the other time"),
        c.column(
            "trouble",
            c.TEXT,
            "kind of the problem: `step`, `boot_step`, `power_cut`, `boot`, `wrong_year` or `engine_back`",
        ),
        c.column(
            "step_ms",
            c.INTEGER,
            "advance of the wall clock minus that of engine time; for `engine_back` that of engine time",
        ),
        c.column("events", c.INTEGER, "for `wrong_year`: number of consecutive events with such a time; otherwise 1"),
        c.column("wall_ms", c.INTEGER, "wall clock of the event, Unix ms"),
        c.column("wall_before_ms", c.INTEGER, "wall clock of the previous event"),
        c.column("engine_ms", c.INTEGER, "engine time of the event"),
        c.column("engine_before_ms", c.INTEGER, "engine time of the previous event"),
        c.column("boot_id", c.TEXT, "for a start: id of the boot"),
        c.column("wall_at", c.MOMENT, "`wall_ms` as a time; null if the clock is suspect"),
    ]
)
KEY: Final = ("device", "root", "epoch", "event", "trouble")
PARTITION: Final = ()
TABLE: Final = Table("clock_trouble", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("events", "imports")
SCOPE: Final = OF_DEVICE
THRESHOLDS: Final = (
    Threshold("step_ms", 5_000, "minimum difference between wall clock and engine time from one event to the next"),
)
TROUBLE: Final = "trouble <> 'boot'"

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
    "clock_suspect",
    "wall_at",
)
_ROOT: Final = ("device", "root", "epoch")
#: Types of events that a start writes before its ``clock_marked``.
_BEFORE_MARK: Final = ("gap", "epoch_started")


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """One row per event and problem."""
    limits = chosen(THRESHOLDS, given)
    seen = _sequence(frames)
    parted = F.abs(F.col("step_ms")) >= limits["step_ms"]
    suspect = F.col("clock_suspect")
    begins = suspect & ~F.coalesce(F.col("suspect_before"), F.lit(False))
    back = F.col("engine_ms") < F.col("engine_before_ms")
    troubles = F.array_compact(
        F.array(
            F.when(parted & ~F.col("is_boot"), "step"),
            F.when(parted & F.col("is_boot"), "boot_step"),
            F.when(F.col("is_boot"), F.when(F.col("was_clean"), "boot").otherwise("power_cut")),
            F.when(begins, "wrong_year"),
            F.when(back, "engine_back"),
        )
    )
    rows = seen.withColumn("trouble", F.explode(troubles))
    wrong, engine_back = F.col("trouble") == "wrong_year", F.col("trouble") == "engine_back"
    return rows.select(
        *_ROOT,
        "event",
        "trouble",
        F.when(engine_back, F.col("engine_ms") - F.col("engine_before_ms"))
        .otherwise(F.col("step_ms"))
        .alias("step_ms"),
        F.when(wrong, F.col("suspect_run")).otherwise(F.lit(1)).cast("bigint").alias("events"),
        "wall_ms",
        "wall_before_ms",
        "engine_ms",
        "engine_before_ms",
        F.when(F.col("is_boot"), F.col("boot_id")).alias("boot_id"),
        "wall_at",
    )


def _sequence(frames: Frames) -> DataFrame:
    """The events of each root in order, with the clocks of the event before."""
    own = native(frames["events"].select(*_READ), frames["imports"]).where(~F.col("type").isin(*_BEFORE_MARK))
    order = Window.partitionBy(*_ROOT).orderBy("event")
    marked = (F.col("type") == "clock_marked") & F.col("boot_id").isNotNull()
    boot_before = F.last(F.when(marked, F.col("boot_id")), ignorenulls=True).over(
        order.rowsBetween(Window.unboundedPreceding, -1)
    )
    clocks = own.withColumns(
        {
            "is_boot": F.coalesce(marked & (F.col("boot_id") != boot_before), F.lit(False)),
            "was_clean": F.coalesce(F.lag("clean").over(order), F.lit(False)),
            "wall_before_ms": F.lag("wall_ms").over(order),
            "engine_before_ms": F.lag("engine_ms").over(order),
            "suspect_before": F.lag("clock_suspect").over(order),
        }
    )
    stepped = F.col("wall_ms") - F.col("wall_before_ms") - (F.col("engine_ms") - F.col("engine_before_ms"))
    run = F.count_if(F.col("clock_suspect") != F.coalesce("suspect_before", F.lit(False))).over(order)
    numbered = clocks.withColumns({"step_ms": F.coalesce(stepped, F.lit(0)), "_run": run})
    return numbered.withColumn("suspect_run", F.count(F.lit(1)).over(Window.partitionBy(*_ROOT, "_run"))).drop("_run")
