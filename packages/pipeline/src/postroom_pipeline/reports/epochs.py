"""The epochs of a root, and where each begins: a restore begins one, and undoes the events from there on."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.table import Frames, Table
from .thresholds import Given, Threshold, chosen

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("epoch", c.INTEGER, "number of the epoch"),
        c.column("begins", c.INTEGER, "its first known event"),
    ]
)
KEY: Final = ("device", "root", "epoch")
PARTITION: Final = ()
TABLE: Final = Table("epochs", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("events",)
THRESHOLDS: Final[tuple[Threshold, ...]] = ()
TROUBLE: Final = "false"


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """One row per epoch with a known event."""
    chosen(THRESHOLDS, given)
    started = F.min(F.when(F.col("type") == "epoch_started", F.col("event")))
    return frames["events"].groupBy(*KEY).agg(F.coalesce(started, F.min("event")).alias("begins"))
