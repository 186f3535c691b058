"""The daemon's figures when a snapshot was taken."""

from __future__ import annotations

from typing import Final

from postroom_common.snapshot import Kind

from ..contract.schema import columns_of
from . import columns as c

SCHEMA: Final = c.of_snapshot(*columns_of(Kind.METRIC))
KEY: Final = ("device", "snapshot", "name", "labels")
PARTITION: Final = ("day",)
TABLE: Final = c.table("metrics", SCHEMA, KEY, PARTITION)
