"""The daemon's figures when a snapshot was taken."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from postroom_common.snapshot import Kind

from ..contract.schema import columns_of
from . import columns as c
from .state import of_snapshots

SCHEMA: Final = c.of_snapshot(*columns_of(Kind.METRIC))
KEY: Final = ("device", "snapshot", "name", "labels")
PARTITION: Final = ("day",)
TABLE: Final = c.table("metrics", SCHEMA, KEY, PARTITION)

#: The lines that it is made of.
KIND: Final = Kind.METRIC


def build(frames: c.Frames) -> DataFrame:
    """Rows of the snapshots of ``taken``, from ``lines`` of the kind."""
    return of_snapshots(frames["lines"], frames["taken"], SCHEMA)
