"""What has changed since the reports were built: devices, days, and both together."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from datetime import date, timedelta
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..local.settled import BEHIND
from ..reports import BUILT
from ..reports.scope import Changed, Scope
from ..schema import columns as c
from ..schema.columns import is_one_of
from ..schema.table import Frames, Table
from ..silver import ALL as SILVER
from ..silver.snapshots import SNAPSHOTS
from ..spark.session import lightly, materialized
from ..spark.storage import Entry
from ..spark.warehouse import Warehouse
from .silver import DAY

#: Devices with rows that the reports do not cover. ``BEHIND`` is its directory; a file of that name means all devices.
TOUCHED: Final = Table(
    f"{BEHIND}/devices",
    StructType([c.DEVICE, c.column("since", c.DATE, "first day with rows that have come; null if it is not known")]),
    key=("device",),
)
#: So many devices are named in a condition, which skips parts of sorted files; more are joined.
_FEW: Final = 500
#: If this share of the devices is touched, it does not pay to leave the others out.
_MOST: Final = 0.75


def table_of(name: str) -> Table:
    """A table by its name: of silver, or of a report."""
    return SILVER[name] if name in SILVER else BUILT[name].TABLE


class Listing:
    """The files of the tables in which reports look for changed days, by name and partition; each is listed once."""

    def __init__(self, warehouse: Warehouse) -> None:
        scopes = [report.SCOPE for report in BUILT.values()]
        #: The names of these tables.
        self.names: Final = {name for scope in scopes for name in scope.watched}
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
            self._parts[name] = dict(self._warehouse.parts(table_of(name)))
        return self._parts[name]


class Devices:
    """Some devices of the fleet."""

    def __init__(self, names: DataFrame, number: int, of: int, *, most: float = 1) -> None:
        """:param names: ``number`` devices, out of ``of``; if this is a share of at least ``most``, all are meant."""
        self.names: Final = names
        self.number: Final = number
        self.share: Final = number / of if of else 1.0
        self.is_all: Final = self.share >= most
        few = [row["device"] for row in names.limit(_FEW + 1).collect()]
        self._is_named = F.col("device").isin(few) if len(few) <= _FEW else None

    def only(self, frame: DataFrame) -> DataFrame:
        """The rows of these devices."""
        if self.is_all:
            return frame
        if self._is_named is not None:
            return frame.where(self._is_named)
        return frame.join(self.names, "device", "left_semi")

    def others(self, frame: DataFrame) -> DataFrame:
        """The rows of all other devices."""
        if self._is_named is not None:
            return frame.where(~self._is_named)
        return frame.join(self.names, "device", "left_anti")


class Touched:
    """The devices and days with rows that may have changed."""

    def __init__(self, warehouse: Warehouse, listing: Listing, before: Mapping[str, Mapping[str, str]]) -> None:
        """:param before: the digests of the files of which the reports were built."""
        self._listing = listing
        self._before = before
        snapshots = warehouse.read(SNAPSHOTS)
        with lightly(snapshots.sparkSession, warehouse.size(SNAPSHOTS)):
            since = F.when(F.count("since") == F.count("*"), F.min("since"))
            names = materialized(warehouse.read(TOUCHED).groupBy("device").agg(since.alias("since")))
            known = snapshots.select("device").distinct()
            marked = known.join(names.select("device", F.lit(True).alias("_touched")), "device", "left")
            row = marked.agg(F.count("*").alias("all"), F.count("_touched").alias("touched")).first()
            assert row is not None  # an aggregate has one row
            self.devices: Final = Devices(names, row["touched"], row["all"], most=_MOST)
        self._all: Final = row["all"]

    def parted(self, some: DataFrame) -> tuple[Devices, Devices]:
        """The touched devices that are named in ``some``, and the others."""
        names = self.devices.names
        parts = (materialized(names.join(some, "device", how)) for how in ("left_semi", "left_anti"))
        first, second = (Devices(part, part.count(), self._all) for part in parts)
        return first, second

    def marked(self, frame: DataFrame, days: Collection[str]) -> DataFrame:
        """The rows of touched devices, with ``is_new``: whether rows of the device may have changed on the row's day.

        :param days: the days on which rows of any device have changed.
        """
        begun = self.devices.names.select("device", F.col("since").alias("_since"))
        is_new = is_one_of(days) & F.coalesce(F.col("day") >= F.col("_since"), F.lit(True))
        return frame.join(F.broadcast(begun), "device").withColumn("is_new", is_new).drop("_since")

    def days(self, scope: Scope) -> Collection[str] | None:
        """The days of a report on which its rows may have changed; None if these may be any."""
        if not scope.by_day_of or any(map(self._changed, scope.any_day_if)):
            return None
        return moved(self.changed_days(scope.by_day_of), range(scope.days_before + 1))

    def changed_days(self, names: Iterable[str]) -> set[str]:
        """The days on which any of these tables has other files than before."""
        return {day for name in names for day in self._changed(name)}

    def changed(self, scope: Scope, frames: Frames) -> Changed | None:
        """What has changed in the tables of ``by_past_of``; None if nothing has."""
        days = self.changed_days(scope.by_past_of)
        if not days:
            return None
        seen = [frames[name].where(is_one_of(days)).select("device", "day") for name in scope.by_past_of]
        # An event of these devices may have gone to a later day, and have left none on its own.
        unsure = (frames["conflicts"], frames["clock_trouble"].where("trouble = 'wrong_year'"))
        seen += [frame.select("device", F.to_date(F.lit(min(days))).alias("day")) for frame in unsure]
        rows = self.devices.only(reduce(DataFrame.unionByName, seen))
        return Changed(days, materialized(rows.groupBy("device").agg(F.min("day").alias("since"))))

    def _changed(self, name: str) -> set[str]:
        """The days with other files than before; one without a name for a table without days."""
        before, now = self._before.get(name, {}), self._listing.digests_of(name)
        return {part.removeprefix(DAY) for part in before.keys() | now.keys() if before.get(part) != now.get(part)}


def moved(days: Collection[str], by: Iterable[int]) -> set[str]:
    """Days, and those that are so many days later."""
    return {str(date.fromisoformat(day) + timedelta(number)) for number in by for day in days}
