"""Writes the reports: all of their rows, or only those that follow from rows that have changed since the last time.

What may have changed are rows of the devices that runs have named before they wrote (``mark_behind``), on days whose
files are not those of which the reports were built. Each report says what that means for it (``reports.scope``).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from importlib.metadata import version
from typing import Any, Final, cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..local.settled import BEHIND
from ..reports import BUILT, Report, ReportOfPast, ReportThatGoesOn
from ..reports.scope import Changed
from ..reports.thresholds import Given
from ..schema.columns import is_one_of
from ..schema.table import Frames, Table
from ..silver.events import EVENTS
from ..spark.runlog import Run
from ..spark.session import lightly, materialized
from ..spark.warehouse import Warehouse
from .changes import TOUCHED, Devices, Listing, Touched, moved, table_of

#: A note beside the tables: how, and of which files, all reports were built. Without it they are rebuilt completely.
NOTE: Final = "_reports.json"
#: From so many bytes on, it costs less to find out where a history ends, and to go on from there, than to read it.
_LONG: Final = 32 * 1024 * 1024


def mark_behind(warehouse: Warehouse, changing: DataFrame) -> None:
    """Record that tables are about to change, until the reports cover that.

    :param changing: has columns ``device`` and ``since``: what comes is of these devices, and of no earlier day.
    """
    storage = warehouse.storage
    if storage.exists(storage.join(NOTE)):
        if not _is_unknown(warehouse):
            warehouse.append(TOUCHED, changing.select("device", "since").distinct())
    elif not are_behind(warehouse):
        storage.write_text(storage.join(BEHIND), "")


def are_behind(warehouse: Warehouse) -> bool:
    """Whether tables have changed since the reports were built."""
    return warehouse.storage.exists(warehouse.storage.join(BEHIND))


def _is_unknown(warehouse: Warehouse) -> bool:
    """Whether the mark does not say which devices have changed: it is an empty file."""
    root = warehouse.storage.entries(warehouse.storage.join())
    return any(entry.name == BEHIND and not entry.is_directory for entry in root)


def write_reports(warehouse: Warehouse, run: Run, given: Mapping[str, Given] | None = None) -> None:
    """Bring every report up to date.

    They are rebuilt completely if it is not known what has changed, if one of them is missing, or if they were built by
    another version or with other thresholds.

    :param given: the user's thresholds, by name of the report.
    """
    storage, thresholds = warehouse.storage, {name: dict(values) for name, values in (given or {}).items()}
    how = {"version": version("postroom-pipeline"), "thresholds": thresholds}
    note = _note_in(warehouse)
    is_known = warehouse.exists(TOUCHED) and not _is_unknown(warehouse)
    listing, touched = Listing(warehouse), None
    if is_known and note.get("how") == how and all(warehouse.exists(report.TABLE) for report in BUILT.values()):
        touched = Touched(warehouse, listing, note["files"])
    else:  # a run that is killed from now on leaves reports of both kinds
        storage.delete(storage.join(NOTE))
        if not are_behind(warehouse):
            storage.write_text(storage.join(BEHIND), "")
    writer = _Writer(warehouse, run, thresholds, listing, touched)
    for report in BUILT.values():
        writer.write(report)
    storage.write_text(storage.join(NOTE), json.dumps({"how": how, "files": listing.digests()}))
    storage.delete(storage.join(BEHIND))


def note_rearranged(warehouse: Warehouse) -> None:
    """Record that files were replaced by others with the same rows, if the reports cover these."""
    storage, note = warehouse.storage, _note_in(warehouse)
    if note and not are_behind(warehouse):
        storage.write_text(storage.join(NOTE), json.dumps(note | {"files": Listing(warehouse).digests()}))


def _note_in(warehouse: Warehouse) -> dict[str, Any]:
    """The note; empty if there is none."""
    path = warehouse.storage.join(NOTE)
    return dict(json.loads(warehouse.storage.read_text(path))) if warehouse.storage.exists(path) else {}


class _Writer:
    """Writes one report after the other, in the order of ``BUILT``."""

    def __init__(
        self,
        warehouse: Warehouse,
        run: Run,
        given: Mapping[str, Given],
        listing: Listing,
        touched: Touched | None,
    ) -> None:
        """:param touched: what has changed; None to build all rows."""
        self._warehouse = warehouse
        self._run = run
        self._given = given
        self._listing = listing
        self._touched = touched
        #: Each directory is listed once.
        self._frames: dict[str, DataFrame] = {}
        self._sizes: dict[str, int] = {}

    def write(self, report: Report) -> None:
        """Bring one report up to date."""
        name, scope, touched = report.TABLE.name, report.SCOPE, self._touched
        for need in report.NEEDS:
            if need not in self._frames:
                self._frames[need] = self._warehouse.read(table_of(need))
                self._sizes[need] = self._warehouse.size(table_of(need))
        session, frames = self._frames[report.NEEDS[0]].sparkSession, self._frames
        sizes = {need: self._sizes[need] for need in report.NEEDS if need not in getattr(report, "SELDOM", ())}
        days: Collection[str] | None = None
        if touched and scope.by_device:
            days = touched.days(scope)
            if days is not None and not days:
                return
            frames = {need: touched.devices.only(self._frames[need]) for need in report.NEEDS}
            if days is not None:
                read = moved(days, range(-scope.days_before, 1))
                for need in scope.by_day_of:
                    frames[need] = frames[need].where(is_one_of(read))
                    sizes[need] = self._listing.bytes_of(need, read)
            sizes = {need: int(size * touched.devices.share) for need, size in sizes.items()}
        weight = sum(sizes.values()) * int(getattr(report, "TIMES", 1))
        with self._run.stage(f"report {name}"), lightly(session, weight):
            needed = {need: frames[need] for need in report.NEEDS}
            given = self._given.get(getattr(report, "GIVEN_OF", name))
            self._listing.forget(name)
            if touched and scope.by_past_of:
                if changed := touched.changed(scope, needed):
                    self._write_changed(cast("ReportOfPast", report), needed, given, changed)
            elif touched and scope.by_end_of and sum(sizes.values()) >= _LONG:
                self._write_continued(cast("ReportThatGoesOn", report), touched)
            elif touched and scope.by_device:
                self._write_devices(report, report.build(needed, given), days, touched.devices)
            else:
                self._write_whole(report, report.build(needed, given))

    def _write_whole(self, report: Report, built: DataFrame) -> None:
        in_order = getattr(report, "IS_ORDERED", False) and self._warehouse.writes_in_order(EVENTS)
        self._warehouse.write(report.TABLE, built, replacing="all", as_it_comes=in_order)

    def _write_changed(self, report: ReportOfPast, frames: Frames, given: Given | None, changed: Changed) -> None:
        """Replace the rows of a report of the whole fleet that follow from what has changed."""
        others = report.in_change(self._warehouse.read(report.TABLE), changed).where("NOT is_in_change")
        built = report.TABLE.fitted(report.build(frames, given, changed))
        self._write_whole(report, others.drop("is_in_change").unionByName(built))

    def _write_continued(self, report: ReportThatGoesOn, touched: Touched) -> None:
        """Build the changed days of devices of which they are the last ones, and all days of the others."""
        days, table = touched.changed_days(report.SCOPE.by_end_of), report.TABLE
        if not days:
            return
        frames = {need: self._frames[need] for need in report.NEEDS}
        marked = {name: touched.marked(frame, days) for name, frame in frames.items() if "day" in frame.columns}
        old = touched.marked(self._warehouse.read(table), days)
        ends = materialized(report.ends(old))
        going_on, others = touched.parted(report.going_on(frames | marked, ends))
        if going_on.number:
            known = {name: going_on.only(frame) for name, frame in (frames | marked).items()}
            kept = going_on.only(old).where(is_one_of(days) & ~F.col("is_new")).drop("is_new")
            rows = kept.unionByName(table.fitted(report.build_on(known, going_on.only(ends))))
            self._write_devices(report, rows, days, going_on)
        if others.number:
            built = report.build({name: others.only(frame) for name, frame in frames.items()})
            self._write_devices(report, built, None, others)

    def _write_devices(self, report: Report, built: DataFrame, days: Collection[str] | None, devices: Devices) -> None:
        """Replace the rows of some devices, on such days; other rows of their files are copied."""
        table = report.TABLE
        old = self._warehouse.read(table)
        is_watched = days is None and table.name in self._listing.names
        if is_watched:  # reports that are built of it by day need to know which days are not as before
            built = built.persist()
            days = _differing(table, devices.only(old), built)
        try:
            if is_watched and not days:
                return
            if table.partition and days is not None:
                old, built = (frame.where(is_one_of(days)) for frame in (old, built))
            rows = built
            if not devices.is_all:
                rows = devices.others(old).unionByName(table.fitted(built))
                if together := getattr(report, "together", None):
                    rows = together(rows)
            if table.partition and days is not None:
                self._warehouse.write(table, rows, replacing=[{"day": day} for day in sorted(days)])
            else:
                self._write_whole(report, rows)
        finally:
            if is_watched:
                built.unpersist()


def _differing(table: Table, old: DataFrame, new: DataFrame) -> set[str]:
    """The days on which two states of a table differ; one without a name for a table without days."""
    row = F.xxhash64(*(name for name in table.schema.names if name not in table.partition))
    found = []
    for frame in (old, new):
        sums = frame.groupBy(*table.partition).agg(F.count("*"), F.bit_xor(row))
        found.append({(*map(str, one[:-2]), ""): one[-2:] for one in sums.collect()})
    before, now = found
    return {days[0] for days in before.keys() | now.keys() if before.get(days) != now.get(days)}
