"""The dead letters that a device had when a snapshot was taken."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from postroom_common.snapshot import Kind

from ..contract.schema import columns_of
from . import columns as c
from .clock import time_of
from .state import of_snapshots

SCHEMA: Final = c.of_snapshot(
    *columns_of(Kind.DEAD), c.column("died_at", c.MOMENT, "`died_ms` as a time; null where no clock says that")
)
KEY: Final = ("device", "snapshot", "queue", "message")
PARTITION: Final = ("day",)
TABLE: Final = c.table("dead_letters", SCHEMA, KEY, PARTITION)

#: The lines that it is made of.
KIND: Final = Kind.DEAD


def build(frames: c.Frames) -> DataFrame:
    """Rows of the snapshots of ``taken``, from ``lines`` of the kind."""
    return of_snapshots(frames["lines"], frames["taken"], SCHEMA, died_at=time_of(F.col("died_ms")))
