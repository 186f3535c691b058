"""The requests that imported messages: their events have the times of another root."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.table import Frames, Table
from .scope import OF_DEVICE
from .thresholds import Given, Threshold, chosen

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("epoch", c.INTEGER, "epoch of the import"),
        c.column("request_end", c.INTEGER, "last event of its request, which all of its events name"),
    ]
)
KEY: Final = ("device", "root", "epoch", "request_end")
PARTITION: Final = ()
TABLE: Final = Table("imports", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("rare_events",)
SCOPE: Final = OF_DEVICE
THRESHOLDS: Final[tuple[Threshold, ...]] = ()
TROUBLE: Final = "false"


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """One row per import."""
    chosen(THRESHOLDS, given)
    return frames["rare_events"].where("type = 'imported' and request_end is not null").select(*KEY).distinct()
