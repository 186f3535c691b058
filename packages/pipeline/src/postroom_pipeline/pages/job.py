"""The run that makes a report for people: pages, or files of the tables."""

from __future__ import annotations

from pyspark.sql import SparkSession

from ..errors import UsageError
from ..io import Warehouse
from ..progress import Progress
from ..storage import Storage
from .export import export
from .lines import Lines
from .scope import Scope, frames_in
from .sections import DEVICES, SECTIONS
from .series import courses, span_of
from .site import Site, page_name

#: Where pages of devices lie below the page of the fleet.
DEVICES_BELOW = "devices"
FLEET = "index.html"


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
    of_devices = Lines(frames, SECTIONS, series, top, by_device=True)
    site = Site(span, of_devices.names | {DEVICES.name} if "device_health" in frames else of_devices.names, scope.days)
    if scope.device:
        for name, parts in of_devices.of_devices():
            path = storage.join(page_name(name))
            storage.write_text(path, site.device(name, parts, ""))
            return path
        raise UsageError(f"no report tells of a device {scope.device!r}")
    pages = {}
    with progress.stage("report: devices"):
        for name, parts in of_devices.of_devices():
            pages[name] = f"{DEVICES_BELOW}/{page_name(name)}"
            storage.write_text(storage.join(pages[name]), site.device(name, parts, f"../{FLEET}"))
    with progress.stage("report: fleet"):
        parts = Lines(frames, (DEVICES, *SECTIONS), series, top, by_device=False).of_fleet()
        storage.write_text(storage.join(FLEET), site.fleet(parts, pages))
    return storage.join(FLEET)
