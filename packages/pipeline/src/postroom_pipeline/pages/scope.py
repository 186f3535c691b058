"""Which rows of the reports a report for people is about: of one device, of some days."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..errors import EnvironmentProblem
from ..io import Warehouse
from ..reports import ALL
from ..tables.columns import Frames

#: First and last moment (SQL) of what a row is about, by report; those that have a ``day`` are taken by that. A row
#: whose moment is not known is kept, and so is what is about the whole time.
_WHEN: Final = {
    "retry_storms": ("from_at", "to_at"),
    "poison_messages": ("from_at", "to_at"),
    "stuck_leases": ("seen_at", "seen_at"),
    "consumer_health": ("from_at", "last_active_at"),
    "clock_trouble": ("wall_at", "wall_at"),
    "journal_gaps": ("before_at", "after_at"),
    "audit": ("if(span = 'all', null, to_at)", "if(span = 'all', null, to_at)"),
    "audit_messages": ("last_at", "last_at"),
    "duplicate_publishes": ("wall_at", "wall_at"),
    "device_health": ("null", "null"),
}


@dataclass(frozen=True)
class Scope:
    """What is asked for; days are inclusive, in UTC."""

    device: str = ""
    since: dt.date | None = None
    until: dt.date | None = None

    def of(self, report: str, frame: DataFrame) -> DataFrame:
        """The rows of a report that are asked for."""
        if self.device:
            frame = frame.where(F.col("device") == self.device)
        first, last = ("day", "day") if "day" in frame.columns else _WHEN[report]
        if self.since:
            frame = frame.where(F.coalesce(F.expr(last).cast("date") >= F.lit(self.since), F.lit(True)))
        if self.until:
            frame = frame.where(F.coalesce(F.expr(first).cast("date") <= F.lit(self.until), F.lit(True)))
        return frame

    @property
    def days(self) -> str:
        """The days for people; empty where all are asked for."""
        if not (self.since or self.until):
            return ""
        return f"{self.since or 'the first day'} to {self.until or 'the last'}"


def frames_in(warehouse: Warehouse, scope: Scope, progress: Callable[[str], None]) -> Frames:
    """The reports that are there, by name, cut to the scope; which are missing is told.

    :raises EnvironmentProblem: there is none of them.
    """
    missing = [name for name, module in ALL.items() if not warehouse.exists(module.TABLE)]
    if len(missing) == len(ALL):
        raise EnvironmentProblem(
            f"{warehouse.storage.location}: there are no reports here; postroom-pipeline ingest --out makes them"
        )
    if missing:
        progress(f"not there, and left out: {', '.join(missing)}")
    return {name: scope.of(name, warehouse.read(module.TABLE)) for name, module in ALL.items() if name not in missing}
