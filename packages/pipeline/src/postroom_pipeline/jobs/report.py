"""The run that makes a report for people: pages, or the reports as files."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..errors import EnvironmentProblem, UsageError
from ..pages.export import export
from ..pages.lines import FINDINGS, Lines, Part
from ..pages.sections import DEVICES, SECTIONS
from ..pages.series import span_of, time_series
from ..pages.site import Site, page_name
from ..reports import ALL
from ..schema.table import Frames
from ..spark.location import storage_of
from ..spark.runlog import Progress
from ..spark.storage import Storage
from ..spark.warehouse import Warehouse

#: First and last moment (SQL) of what a row is about, for reports without a column ``day``. A row without a moment, or
#: about the whole time, is always in the scope.
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
    """Which rows the report is about. Days are UTC, and included."""

    device: str = ""
    since: dt.date | None = None
    until: dt.date | None = None

    def of(self, report: str, frame: DataFrame) -> DataFrame:
        """The rows of a report that are in the scope."""
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
        """The days for people; empty for all."""
        if not (self.since or self.until):
            return ""
        return f"{self.since or 'the first day'} to {self.until or 'the last'}"


def frames_in(warehouse: Warehouse, scope: Scope, progress: Callable[[str], None]) -> Frames:
    """The reports that exist, by name, reduced to the scope; ``progress`` shows which are missing.

    :raises EnvironmentProblem: none of them exists.
    """
    missing = [name for name, module in ALL.items() if not warehouse.exists(module.TABLE)]
    if len(missing) == len(ALL):
        raise EnvironmentProblem(
            f"{warehouse.storage.location}: there are no reports; postroom-pipeline ingest --out builds them"
        )
    if missing:
        progress(f"missing reports, left out: {', '.join(missing)}")
    return {name: scope.of(name, warehouse.read(module.TABLE)) for name, module in ALL.items() if name not in missing}


#: The directory of the devices' pages, beside the page of the fleet.
DEVICES_BELOW = "devices"
FLEET = "index.html"
#: Parts of the fleet's page that are the first rows of the devices' parts.
OF_ALL = frozenset({FINDINGS, *(section.name for section in SECTIONS if not section.whole)})


def report(
    session: SparkSession, warehouse: Warehouse, out: str, scope: Scope, form: str, top: int, progress: Progress
) -> str:
    """Write a report; the path to open.

    :param form: ``html``, ``csv`` or ``json``.
    :param top: maximum rows in a section of a page.
    :raises EnvironmentProblem: there are no reports, or the packages that draw pages are not installed.
    :raises UsageError: no report has rows of the device.
    """
    storage = storage_of(session, out)
    frames = frames_in(warehouse, scope, progress.say)
    if form != "html":
        for path in export(frames, storage, form):
            progress.say(f"report: {path}")
        return storage.location
    span = span_of(frames, scope.since, scope.until)
    series = time_series(span) if span else ()
    if span and "depth_hourly" in frames:  # hours of a clock that was ahead are not "now"
        frames = {**frames, "depth_hourly": frames["depth_hourly"].where(F.col("hour") <= F.lit(span.end))}
    lines = Lines(frames, (DEVICES, *SECTIONS), series, top, with_fleet=not scope.device)
    site = Site(span, lines.names, scope.days)
    with progress.stage("report: pages"):
        if scope.device:
            return _one(lines, site, storage, scope.device)
        return _all(lines, site, storage)


def _one(lines: Lines, site: Site, storage: Storage, device: str) -> str:
    for name, parts in lines:
        if name == device:
            path = storage.join(page_name(name))
            storage.write_text(path, site.device(name, parts, ""))
            return path
    raise UsageError(f"no report has a device {device!r}")


def _all(lines: Lines, site: Site, storage: Storage) -> str:
    pages: dict[str, str] = {}
    fleet: dict[str, Part] = {}
    for name, parts in lines:
        if name is not None:
            pages[name] = f"{DEVICES_BELOW}/{page_name(name)}"
            storage.write_text(storage.join(pages[name]), site.device(name, parts, f"../{FLEET}"))
        for part, rows in parts.items():
            if name is None or part in OF_ALL:
                fleet.setdefault(part, Part()).take(rows, lines.top)
    path = storage.join(FLEET)
    storage.write_text(path, site.fleet(fleet, pages))
    return path
