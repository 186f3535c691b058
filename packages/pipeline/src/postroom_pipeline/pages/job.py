"""The run that makes a report for people: pages, or files of the tables."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ..errors import UsageError
from ..io import Warehouse
from ..progress import Progress
from ..storage import Storage
from .export import export
from .lines import FINDINGS, Lines, Part
from .scope import Scope, frames_in
from .sections import DEVICES, SECTIONS
from .series import courses, span_of
from .site import Site, page_name

#: Where pages of devices lie below the page of the fleet.
DEVICES_BELOW = "devices"
FLEET = "index.html"
#: Parts that the page of the fleet takes from the devices: their first rows.
OF_ALL = frozenset({FINDINGS, *(section.name for section in SECTIONS if not section.whole)})


def report(
    session: SparkSession, warehouse: Warehouse, out: str, scope: Scope, form: str, top: int, progress: Progress
) -> str:
    """Write a report of the tables that are there; what to open.

    :param form: ``html``, ``csv`` or ``json``.
    :param top: rows that a part of a page shows at most.
    :raises EnvironmentProblem: there are no reports, or what draws pages is not installed.
    :raises UsageError: the device is not known.
    """
    storage = Storage(session, out)
    frames = frames_in(warehouse, scope, progress.say)
    if form != "html":
        for path in export(frames, storage, form):
            progress.say(f"report: {path}")
        return storage.location
    span = span_of(frames, scope.since, scope.until)
    series = courses(span) if span else ()
    if span and "depth_hourly" in frames:  # how it is now is not told by a clock that was ahead
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
    raise UsageError(f"no report tells of a device {device!r}")


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
