"""When a device's clock was set or wrong (wall clock compared with engine time), and starts of its machine."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.columns import is_suspect, time_of
from ..schema.table import Frames, Table
from . import clocks
from .scope import OF_DEVICE
from .thresholds import Given, chosen

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
NEEDS: Final = ("clocks",)
SCOPE: Final = OF_DEVICE
THRESHOLDS: Final = clocks.THRESHOLDS
TROUBLE: Final = "trouble <> 'boot'"

_ROOT: Final = ("device", "root", "epoch")


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """One row per event and problem."""
    limits = chosen(THRESHOLDS, given)
    seen = _sequence(frames["clocks"])
    parted = F.abs(F.col("step_ms")) >= limits["step_ms"]
    suspect, suspect_before = F.col("is_suspect"), F.col("suspect_before")
    back = F.col("engine_ms") < F.col("engine_before_ms")
    troubles = F.array_compact(
        F.array(
            F.when(parted & ~F.col("is_boot"), "step"),
            F.when(parted & F.col("is_boot"), "boot_step"),
            F.when(F.col("is_boot"), F.when(F.col("was_clean"), "boot").otherwise("power_cut")),
            F.when(suspect & ~suspect_before, "wrong_year"),
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
        time_of(F.col("wall_ms")).alias("wall_at"),
    )


def _sequence(rows: DataFrame) -> DataFrame:
    """The rows of each root in order, with the clocks of the event before: where a range begins, that is the last event
    of another one.
    """
    order = Window.partitionBy(*_ROOT).orderBy("event")
    past = order.rowsBetween(Window.unboundedPreceding, -1)
    begins = F.col("begins")
    before = {"wall_before_ms": "wall_ms", "engine_before_ms": "engine_ms", "clean_before": "clean"}
    seen = rows.withColumns(
        {name: F.when(begins, F.lag(of).over(order)).otherwise(F.col(name)) for name, of in before.items()}
        | {
            "boot_before": F.last("boot_id", ignorenulls=True).over(past),
            "is_first": F.lag("event").over(order).isNull(),
            "passed": F.when(begins, F.lit(1)).otherwise(F.col("event") - F.lag("event").over(order)),
        }
    )
    stepped = F.col("wall_ms") - F.col("wall_before_ms") - (F.col("engine_ms") - F.col("engine_before_ms"))
    seen = seen.withColumns(
        {
            "step_ms": F.coalesce(stepped, F.lit(0)),
            "was_clean": F.coalesce("clean_before", F.lit(False)),
            "is_boot": F.coalesce(F.col("boot_id") != F.col("boot_before"), F.lit(False)),
            "is_suspect": is_suspect(F.col("wall_ms")),
            "suspect_before": ~F.col("is_first") & is_suspect(F.col("wall_before_ms")),
            "number": F.sum("passed").over(order.rowsBetween(Window.unboundedPreceding, 0)),
        }
    )
    following = order.rowsBetween(1, Window.unboundedFollowing)
    turns = F.when(F.col("is_suspect") != F.col("suspect_before"), F.col("number"))
    until = F.coalesce(F.min(turns).over(following), F.max("number").over(following) + 1, F.col("number") + 1)
    return seen.withColumn("suspect_run", until - F.col("number"))
