"""The epochs of roots that have more than one: they were restored, or nodes of a cluster have taken the lead."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ..schema.table import Frames, Table
from . import epochs
from .scope import OF_DEVICE
from .thresholds import Given, Threshold, chosen

SCHEMA: Final = epochs.SCHEMA
KEY: Final = epochs.KEY
PARTITION: Final = ()
TABLE: Final = Table("restores", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("epochs",)
SCOPE: Final = OF_DEVICE
THRESHOLDS: Final[tuple[Threshold, ...]] = ()
TROUBLE: Final = "false"


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """The rows of `epochs` whose root has another one: it was restored, or another node of its cluster took the lead.
    Without clusters there are mostly none, and reports then leave out what they need.
    """
    chosen(THRESHOLDS, given)
    many = F.count(F.lit(1)).over(Window.partitionBy("device", "root"))
    return frames["epochs"].withColumn("_many", many).where("_many > 1").select(*SCHEMA.names)
