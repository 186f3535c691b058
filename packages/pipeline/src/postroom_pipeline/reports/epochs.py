"""The epochs of a root, and where each begins.

A restore begins one, and undoes the events from there on. So does a node of a cluster that takes the lead: the events
of its predecessor from there on, which a snapshot of that node may show, were never confirmed.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.table import Frames, Table
from .scope import OF_DEVICE
from .thresholds import Given, Threshold, chosen

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("epoch", c.INTEGER, "number of the epoch"),
        c.column("begins", c.INTEGER, "its first known event"),
        c.column("ends", c.INTEGER, "its last known event"),
    ]
)
KEY: Final = ("device", "root", "epoch")
PARTITION: Final = ()
TABLE: Final = Table("epochs", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("hours",)
SCOPE: Final = OF_DEVICE
THRESHOLDS: Final[tuple[Threshold, ...]] = ()
TROUBLE: Final = "false"


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """One row per epoch with a known event."""
    chosen(THRESHOLDS, given)
    begins = F.coalesce(F.min("started_event"), F.min("first_event"))
    return frames["hours"].groupBy(*KEY).agg(begins.alias("begins"), F.max("last_event").alias("ends"))
