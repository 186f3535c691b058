"""The dead letters that a device had when a snapshot was taken."""

from __future__ import annotations

from typing import Final

from postroom_common.snapshot import Kind

from ..contract.schema import columns_of
from . import columns as c

SCHEMA: Final = c.of_snapshot(
    *columns_of(Kind.DEAD), c.column("died_at", c.MOMENT, "`died_ms` as a time; null where no clock says that")
)
KEY: Final = ("device", "snapshot", "queue", "message")
PARTITION: Final = ("day",)
TABLE: Final = c.table("dead_letters", SCHEMA, KEY, PARTITION)
