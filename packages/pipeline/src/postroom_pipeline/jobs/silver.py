"""Writes the silver tables from the lines of a batch; of each table only the days that these lines touch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from postroom_common.snapshot import Kind

from ..bronze.lines import of_kind
from ..schema.columns import OF_SNAPSHOT, is_one_of
from ..schema.table import Table
from ..silver import events, messages, overlaps, snapshots, state, traffic
from ..silver.events import CONFLICTS, EVENTS
from ..silver.messages import MESSAGES
from ..silver.snapshots import ORIGINS, SNAPSHOTS
from ..silver.state import STATE, one_of_each
from ..silver.traffic import TRAFFIC
from ..spark.runlog import Run
from ..spark.session import lightly, materialized
from ..spark.warehouse import Warehouse

#: How the names of partitions by day begin.
DAY: Final = "day="
#: The partition of lines that has one for each snapshot.
TRAILERS: Final = f"kind={Kind.TRAILER.value}"

#: As many bytes of events are about what a task can sort by message without writing a part to the disk.
_PART_BYTES: Final = 8 * 1024 * 1024
#: The bytes of messages are about so many times those of the columns that are read to find those which have changed.
_TO_KEYS: Final = 3
#: Messages of so few days are written where they are built: each part makes a file for each day.
_FEW_DAYS: Final = 4


class SilverWriter:
    """Writes one batch. ``write`` can be repeated after a kill: rows that are already there are not added twice."""

    def __init__(
        self, warehouse: Warehouse, run: Run, lines: DataFrame, accepted: DataFrame, sizes: Mapping[str, int]
    ) -> None:
        """:param lines: rows of ``lines.bronze``; ``accepted``: rows of ``admission.verdicts`` without a reason.
        :param sizes: the bytes of the lines of each kind, by ``Warehouse.sizes``.
        """
        self._warehouse = warehouse
        self._run = run
        self._lines = lines
        self._sizes = sizes
        self._session = accepted.sparkSession
        self._accepted = materialized(snapshots.described(accepted))
        self._snapshots = self._accepted.select(*SNAPSHOTS.schema.names)
        self._taken = self._accepted.select("file", "arrival", *(field.name for field in OF_SNAPSHOT), "day")
        self._has_copies = False
        #: How many days the events may be of.
        self._span = 0

    def write(self) -> None:
        """Write all tables. The one that says which snapshots are taken in comes last."""
        rows = [F.coalesce(F.sum(f"n_{kind.value}"), F.lit(0)).alias(kind.value) for kind in Kind if _is_counted(kind)]
        span = (F.datediff(F.max("greatest_day"), F.min("least_day")) + 1).alias("span")
        total = self._accepted.agg(*rows, F.max("copies").alias("copies"), span).first()
        counts = total.asDict() if total else {}
        self._span = counts.pop("span", 0) or 0
        self._has_copies = (counts.pop("copies", 1) or 1) > 1
        if counts.get(Kind.EVENT.value):
            self._write_events()
        with self._run.stage("state"):
            for kind, table in STATE.items():
                if counts.get(kind.value):
                    with lightly(self._session, self._bytes(kind, table)):
                        fresh = state.build(kind, self._lines_of(kind), self._taken)
                        self._write_state(table, one_of_each(fresh, table.key) if self._has_copies else fresh)
            if counts.get(Kind.TRAFFIC.value):
                with lightly(self._session, self._bytes(Kind.TRAFFIC, TRAFFIC)):
                    self._write_traffic()
            for table in (EVENTS, MESSAGES, CONFLICTS, TRAFFIC, *STATE.values()):
                if not self._warehouse.exists(table):  # readers find the columns, though there is no row yet
                    self._warehouse.create(table)
        with self._run.stage("snapshots"), self._lightly():
            existing = self._warehouse.read(SNAPSHOTS)
            others = existing.join(self._snapshots.select(*SNAPSHOTS.key), list(SNAPSHOTS.key), "left_anti")
            self._warehouse.write(SNAPSHOTS, others.select(*existing.columns).unionByName(self._snapshots))
            self._warehouse.write(ORIGINS, snapshots.origins(self._warehouse.read(ORIGINS), self._accepted))
        self._run.count("rows", sum(counts.values()))

    def _write_events(self) -> None:
        lines, existing = self._lines_of(Kind.EVENT), self._warehouse.read(SNAPSHOTS)
        fresh = events.fresh(lines, self._taken)
        days: Collection[str] = ()
        with self._run.stage("events"):
            with self._lightly():
                shared = materialized(overlaps.overlaps(self._snapshots, existing))
            existing_days = self._days(EVENTS)
            if existing_days or self._days(MESSAGES):
                with lightly(self._session, self._bytes(Kind.EVENT)):
                    days = _listed(fresh.select("day").distinct())
                    existing_days &= {*days, *_listed(overlaps.days_of(shared, existing))}
            with lightly(self._session, self._bytes(Kind.EVENT) + self._bytes_of_days(EVENTS, existing_days)):
                in_conflict = self._merge_events(lines, existing, shared, existing_days)
        changed = fresh.select(*MESSAGES.key)
        if in_conflict:
            changed = changed.unionByName(in_conflict)
        read = self._bytes(Kind.EVENT) + self._warehouse.size(MESSAGES) // _TO_KEYS
        read += sum(self._bytes_of_days(table, days) for table in (EVENTS, MESSAGES))
        with self._run.stage("messages"), lightly(self._session, read):
            self._write_messages(changed.where("message IS NOT NULL").distinct(), days)

    def _merge_events(
        self, lines: DataFrame, existing: DataFrame, shared: DataFrame, days: Collection[str]
    ) -> DataFrame | None:
        """Write the events, with those that are stored on these days. The keys of messages that conflicts are about: a
        content that no longer counts is in no new event, but its message has to be rebuilt without it. None if there
        cannot be any."""
        of_killed = None
        if days:
            of_killed = materialized(overlaps.unrecorded(self._of_days(EVENTS, days), existing))
        shared, taken = self._contests(lines, existing, shared, of_killed)
        rows, in_conflict = events.fresh(lines, taken, alone=True), None
        if days or not shared.isEmpty() or not taken.where("is_doubtful").isEmpty():
            # Most events come once. Only the others are compared with each other, which sorts them several times.
            contested = events.fresh(lines, taken, alone=False)
            if days:
                others, rest = overlaps.parted(self._of_days(EVENTS, days), shared, taken)
                contested, rows = contested.unionByName(others), rows.unionByName(rest)
            if not shared.isEmpty():
                self._write_conflicts(overlaps.within(contested, shared))
                in_conflict = self._warehouse.read(CONFLICTS).select(*MESSAGES.key)
            rows = rows.unionByName(events.latest(contested))
        # To put them into the order of the key takes as long as to write them. They are in that of their lines.
        at_once = self._span <= self._warehouse.partitions_at_once
        self._write(EVENTS, rows, days, as_it_comes=at_once and not days)
        return in_conflict

    def _contests(
        self, lines: DataFrame, existing: DataFrame, shared: DataFrame, of_killed: DataFrame | None
    ) -> tuple[DataFrame, DataFrame]:
        """The ranges of events that snapshots may report differently, and rows of ``overlaps.contests``."""
        with self._lightly():
            assessed = materialized(overlaps.assessed(self._accepted, of_killed))
            seams = materialized(overlaps.seams(assessed, existing, shared))
        repeats = overlaps.repeats(seams, lines)
        repeats = repeats.where("false") if seams.isEmpty() else materialized(repeats)
        with self._lightly():
            rest = materialized(shared.join(repeats, overlaps.SPAN, "left_anti"))
            return rest, materialized(overlaps.contests(assessed, rest, repeats))

    def _write_conflicts(self, rows: DataFrame) -> None:
        conflicts = materialized(events.conflicts(self._warehouse.read(CONFLICTS), rows))
        if not conflicts.isEmpty():
            self._warehouse.write(CONFLICTS, conflicts)

    def _write_messages(self, changed: DataFrame, days: Collection[str]) -> None:
        """Rebuild the messages that the batch's events name, from all of their events."""
        if not self._days(MESSAGES):
            parts = self._warehouse.size(EVENTS) // _PART_BYTES
            is_many = parts > int(self._session.conf.get("spark.sql.shuffle.partitions") or 0)
            built = messages.build(self._warehouse.read(EVENTS), parts if is_many else None)
            self._warehouse.write(MESSAGES, built, as_it_comes=self._span <= _FEW_DAYS)
            return
        key = list(MESSAGES.key)
        changed = changed.persist()
        try:
            existing = self._warehouse.read(MESSAGES)
            before = existing.join(changed, key, "left_semi").select("day", "first_day", "last_day").persist()
            spans = before.select(F.explode(F.sequence("first_day", "last_day")).alias("day")).distinct()
            event_days = {*days, *_listed(spans)} & self._days(EVENTS)
            old_days = {*_listed(before.select("day").distinct())}
            before.unpersist()
            built = messages.build(self._of_days(EVENTS, event_days).join(changed, key, "left_semi")).persist()
            touched = {*old_days, *_listed(built.select("day").distinct())} & self._days(MESSAGES)
            others = self._of_days(MESSAGES, touched).join(changed, key, "left_anti")
            self._write(MESSAGES, others.unionByName(built), touched)
            built.unpersist()
        finally:
            changed.unpersist()

    def _write_state(self, table: Table, fresh: DataFrame) -> None:
        touched = self._days(table)
        if touched:
            touched &= {*_listed(self._taken.select("day").distinct())}
        if touched:
            key = ["device", "snapshot"]
            others = self._of_days(table, touched).join(F.broadcast(self._taken.select(*key)), key, "left_anti")
            fresh = others.select(*fresh.columns).unionByName(fresh)
        self._write(table, fresh, touched)

    def _write_traffic(self) -> None:
        """Several snapshots may report one request; it has the same day in all of them, where the clock is sane."""
        fresh = traffic.build(self._lines_of(Kind.TRAFFIC), self._taken)
        touched = self._days(TRAFFIC)
        if touched:
            touched &= {*_listed(fresh.select("day").distinct())}
        if touched:
            fresh = traffic.merged(self._of_days(TRAFFIC, touched), fresh)
        self._write(TRAFFIC, fresh, touched)

    def _lines_of(self, kind: Kind) -> DataFrame:
        rows = self._lines.where(F.col("kind") == kind.value)
        return rows if kind is Kind.EVENT else of_kind(rows, kind)

    def _lightly(self) -> AbstractContextManager[None]:
        """For steps with a row for each snapshot."""
        return lightly(self._session, self._sizes.get(TRAILERS, 0))

    def _bytes(self, kind: Kind, *tables: Table) -> int:
        """The bytes of the lines of a kind, and of tables."""
        existing = sum(map(self._warehouse.size, tables))
        return self._sizes.get(f"kind={kind.value}", 0) + existing

    def _bytes_of_days(self, table: Table, days: Collection[str]) -> int:
        sizes = self._warehouse.sizes(table) if days else {}
        return sum(sizes.get(f"{DAY}{day}", 0) for day in days)

    def _days(self, table: Table) -> set[str]:
        """The days that a table has."""
        entries = self._warehouse.storage.entries(self._warehouse.path(table))
        return {entry.name.removeprefix(DAY) for entry in entries if entry.name.startswith(DAY)}

    def _of_days(self, table: Table, days: Collection[str]) -> DataFrame:
        return self._warehouse.read(table).where(is_one_of(days))

    def _write(self, table: Table, rows: DataFrame, days: Collection[str], *, as_it_comes: bool = False) -> None:
        replacing = [{"day": day} for day in sorted(days)]
        self._warehouse.write(table, rows, replacing=replacing, as_it_comes=as_it_comes)


def _is_counted(kind: Kind) -> bool:
    return kind not in (Kind.TRAILER, Kind.BUNDLE)


def _listed(days: DataFrame) -> Sequence[str]:
    """The values of a column of days; there are as many as the fleet has lived."""
    return [str(row["day"]) for row in days.collect()]
