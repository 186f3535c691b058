"""Writes the reports: all of their rows, or only those that follow from rows that have changed since the last time.

What may have changed are rows of the devices that runs have named before they wrote (``mark_behind``), on days whose
files are not those of which the reports were built. Each report says what that means for it (``reports.scope``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from datetime import date, timedelta
from importlib.metadata import version
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..local.settled import BEHIND
from ..reports import BUILT, Report
from ..reports.scope import Scope
from ..reports.thresholds import Given
from ..schema import columns as c
from ..schema.table import Table
from ..silver import ALL as SILVER
from ..silver.events import EVENTS
from ..silver.snapshots import SNAPSHOTS
from ..spark.runlog import Run
from ..spark.session import lightly, materialized
from ..spark.storage import Entry
from ..spark.warehouse import Warehouse
from .silver import DAY, is_one_of

#: A note beside the tables: how, and of which files, all reports were built. Without it they are rebuilt completely.
NOTE: Final = "_reports.json"
#: Devices with rows that the reports do not cover. ``BEHIND`` is its directory; a file of that name means all devices.
TOUCHED: Final = Table(f"{BEHIND}/devices", StructType([c.DEVICE]), key=("device",))
#: So many devices are named in a condition, which skips parts of sorted files; more are joined.
_FEW: Final = 500
#: If this share of the devices is touched, it does not pay to leave the others out.
_MOST: Final = 0.75


def mark_behind(warehouse: Warehouse, changing: DataFrame) -> None:
    """Record that tables are about to change, until the reports cover that.

    :param changing: has the column ``device``: all rows that change are of these devices.
    """
    storage = warehouse.storage
    if storage.exists(storage.join(NOTE)):
        if not _is_unknown(warehouse):
            warehouse.append(TOUCHED, changing.select("device").distinct())
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
    listing, touched = _Listing(warehouse), None
    if is_known and note.get("how") == how and all(warehouse.exists(report.TABLE) for report in BUILT.values()):
        touched = _Touched(warehouse, listing, note["files"])
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
        storage.write_text(storage.join(NOTE), json.dumps(note | {"files": _Listing(warehouse).digests()}))


def _note_in(warehouse: Warehouse) -> dict[str, Any]:
    """The note; empty if there is none."""
    path = warehouse.storage.join(NOTE)
    return dict(json.loads(warehouse.storage.read_text(path))) if warehouse.storage.exists(path) else {}


def _table(name: str) -> Table:
    return SILVER[name] if name in SILVER else BUILT[name].TABLE


class _Listing:
    """The files of the tables in which reports look for changed days, by name and partition; each is listed once."""

    def __init__(self, warehouse: Warehouse) -> None:
        scopes = [report.SCOPE for report in BUILT.values()]
        #: The names of these tables.
        self.names: Final = {name for scope in scopes for name in (*scope.by_day_of, *scope.any_day_if)}
        self._warehouse = warehouse
        self._parts: dict[str, dict[str, list[Entry]]] = {}

    def digests(self) -> dict[str, dict[str, str]]:
        """A digest of the files of each partition."""
        return {name: self.digests_of(name) for name in sorted(self.names)}

    def digests_of(self, name: str) -> dict[str, str]:
        """A digest of the files of each partition of a table. A file never changes: another one has another name."""
        texts = {part: "\n".join(file.name for file in files) for part, files in self._listed(name).items()}
        return {part: hashlib.sha256(text.encode()).hexdigest()[:16] for part, text in texts.items()}

    def bytes_of(self, name: str, days: Collection[str]) -> int:
        """The bytes of such days of a table."""
        parts = self._listed(name).items()
        return sum(file.size for part, files in parts if part.removeprefix(DAY) in days for file in files)

    def forget(self, name: str) -> None:
        """The table is about to be written."""
        self._parts.pop(name, None)

    def _listed(self, name: str) -> dict[str, list[Entry]]:
        if name not in self._parts:
            self._parts[name] = dict(self._warehouse.parts(_table(name)))
        return self._parts[name]


class _Touched:
    """The devices and days with rows that may have changed."""

    def __init__(self, warehouse: Warehouse, listing: _Listing, before: Mapping[str, Mapping[str, str]]) -> None:
        """:param before: the digests of the files of which the reports were built."""
        self._listing = listing
        self._before = before
        snapshots = warehouse.read(SNAPSHOTS)
        with lightly(snapshots.sparkSession, warehouse.size(SNAPSHOTS)):
            self._devices = materialized(warehouse.read(TOUCHED).distinct())
            known = snapshots.select("device").distinct()
            marked = known.join(self._devices.withColumn("_touched", F.lit(True)), "device", "left")
            row = marked.agg(F.count("*").alias("all"), F.count("_touched").alias("touched")).first()
            few = self._devices.limit(_FEW + 1).collect()
        assert row is not None  # an aggregate has one row
        #: The share of devices that are touched.
        self.share = row["touched"] / row["all"] if row["all"] else 1.0
        #: Whether rows of all devices are built.
        self.is_all = self.share >= _MOST
        self._is_named = F.col("device").isin([one["device"] for one in few]) if len(few) <= _FEW else None

    def only(self, frame: DataFrame) -> DataFrame:
        """The rows of touched devices."""
        if self.is_all:
            return frame
        if self._is_named is not None:
            return frame.where(self._is_named)
        return frame.join(self._devices, "device", "left_semi")

    def others(self, frame: DataFrame) -> DataFrame:
        """The rows of all other devices."""
        if self._is_named is not None:
            return frame.where(~self._is_named)
        return frame.join(self._devices, "device", "left_anti")

    def days(self, scope: Scope) -> Collection[str] | None:
        """The days of a report on which its rows may have changed; None if these may be any."""
        if not scope.by_day_of or any(map(self._changed, scope.any_day_if)):
            return None
        changed = {day for name in scope.by_day_of for day in self._changed(name)}
        return _moved(changed, range(scope.days_before + 1))

    def _changed(self, name: str) -> set[str]:
        """The days with other files than before; one without a name for a table without days."""
        before, now = self._before.get(name, {}), self._listing.digests_of(name)
        return {part.removeprefix(DAY) for part in before.keys() | now.keys() if before.get(part) != now.get(part)}


def _moved(days: Collection[str], by: Iterable[int]) -> set[str]:
    """Days, and those that are so many days later."""
    return {str(date.fromisoformat(day) + timedelta(number)) for number in by for day in days}


class _Writer:
    """Writes one report after the other, in the order of ``BUILT``."""

    def __init__(
        self,
        warehouse: Warehouse,
        run: Run,
        given: Mapping[str, Given],
        listing: _Listing,
        touched: _Touched | None,
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
                self._frames[need] = self._warehouse.read(_table(need))
                self._sizes[need] = self._warehouse.size(_table(need))
        session, frames = self._frames[report.NEEDS[0]].sparkSession, self._frames
        sizes = {need: self._sizes[need] for need in report.NEEDS if need not in getattr(report, "SELDOM", ())}
        days: Collection[str] | None = None
        if touched and scope.by_device:
            days = touched.days(scope)
            if days is not None and not days:
                return
            frames = {need: touched.only(self._frames[need]) for need in report.NEEDS}
            if days is not None:
                read = _moved(days, range(-scope.days_before, 1))
                for need in scope.by_day_of:
                    frames[need] = frames[need].where(is_one_of(read))
                    sizes[need] = self._listing.bytes_of(need, read)
            sizes = {need: int(size * touched.share) for need, size in sizes.items()}
        with self._run.stage(f"report {name}"), lightly(session, sum(sizes.values())):
            built = report.build(
                {need: frames[need] for need in report.NEEDS}, self._given.get(getattr(report, "GIVEN_OF", name))
            )
            self._listing.forget(name)
            if touched and scope.by_device:
                self._write_touched(report, built, days, touched)
            else:
                self._write_whole(report, built)

    def _write_whole(self, report: Report, built: DataFrame) -> None:
        in_order = getattr(report, "IS_ORDERED", False) and self._warehouse.writes_in_order(EVENTS)
        self._warehouse.write(report.TABLE, built, replacing="all", as_it_comes=in_order)

    def _write_touched(self, report: Report, built: DataFrame, days: Collection[str] | None, touched: _Touched) -> None:
        """Replace the rows of the touched devices, on such days; other rows of their files are copied."""
        table = report.TABLE
        old = self._warehouse.read(table)
        is_watched = days is None and table.name in self._listing.names
        if is_watched:  # reports that are built of it by day need to know which days are not as before
            built = built.persist()
            days = _differing(table, touched.only(old), built)
        try:
            if is_watched and not days:
                return
            if table.partition and days is not None:
                old, built = (frame.where(is_one_of(days)) for frame in (old, built))
            rows = built
            if not touched.is_all:
                rows = touched.others(old).unionByName(table.fitted(built))
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
