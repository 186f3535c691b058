"""Who consumed when a snapshot was taken."""

from __future__ import annotations

from typing import Final

from postroom_common.snapshot import Kind

from ..contract.schema import columns_of
from . import columns as c

SCHEMA: Final = c.of_snapshot(*columns_of(Kind.CONSUMER))
KEY: Final = ("device", "snapshot", "queue", "consumer")
PARTITION: Final = ("day",)
TABLE: Final = c.table("consumers", SCHEMA, KEY, PARTITION)
