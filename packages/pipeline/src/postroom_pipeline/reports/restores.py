"""The epochs of roots that were restored: roots that have more than one."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ..schema.table import Frames, Table
from . import epochs
from .thresholds import Given, Threshold, chosen

SCHEMA: Final = epochs.SCHEMA
KEY: Final = epochs.KEY
PARTITION: Final = ()
TABLE: Final = Table("restores", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("epochs",)
THRESHOLDS: Final[tuple[Threshold, ...]] = ()
TROUBLE: Final = "false"


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """The rows of `epochs` whose root has another one. In most fleets there are none, and reports then leave out what
    restores need.
    """
    chosen(THRESHOLDS, given)
    many = F.count(F.lit(1)).over(Window.partitionBy("device", "root"))
    return frames["epochs"].withColumn("_many", many).where("_many > 1").select(*SCHEMA.names)
