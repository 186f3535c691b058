"""What each queue held when a snapshot was taken."""

from __future__ import annotations

from typing import Final

from postroom_common.snapshot import Kind

from ..contract.schema import columns_of
from . import columns as c

SCHEMA: Final = c.of_snapshot(*columns_of(Kind.QUEUE))
KEY: Final = ("device", "snapshot", "queue")
PARTITION: Final = ("day",)
TABLE: Final = c.table("queue_depth", SCHEMA, KEY, PARTITION)
