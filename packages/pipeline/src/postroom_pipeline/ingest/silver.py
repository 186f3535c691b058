"""Writes the tables of what devices said, from the lines of a batch; of each table only the days that these touch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postroom_common.snapshot import Kind

from ..held import held
from ..io import Warehouse
from ..runlog import Run
from ..table import Table
from ..tables import (
    conflicts,
    consumers,
    dead_letters,
    events,
    leases,
    messages,
    metrics,
    origins,
    queue_depth,
    snapshots,
    traffic,
)
from ..tables.columns import OF_SNAPSHOT
from ..tables.state import one_of_each
from .overlaps import days_of, overlaps, within

_OF_STATE: Final = (queue_depth, leases, dead_letters, consumers, metrics)
_DAY: Final = "day="


class Silver:
    """One batch on its way into the tables. ``write`` may be repeated after a kill: what is there counts once."""

    def __init__(self, warehouse: Warehouse, run: Run, lines: DataFrame, accepted: DataFrame) -> None:
        """:param lines: rows of ``raw.bronze``; ``accepted``: rows of ``admission.judged`` that are taken."""
        self._warehouse = warehouse
        self._run = run
        self._lines = lines
        self._accepted = held(snapshots.told(accepted))
        self._snapshots = self._accepted.select(*snapshots.SCHEMA.names)
        self._taken = self._accepted.select("file", "arrival", *(field.name for field in OF_SNAPSHOT), "day")
        self._has_copies = False

    def write(self) -> None:
        """Write all tables; the one that says which snapshots are in comes last."""
        rows = [F.coalesce(F.sum(f"n_{kind.value}"), F.lit(0)).alias(kind.value) for kind in Kind if _is_counted(kind)]
        told = self._accepted.agg(*rows, F.max("copies").alias("copies")).first()
        counts = told.asDict() if told else {}
        self._has_copies = (counts.pop("copies", 1) or 1) > 1
        if counts.get(Kind.EVENT.value):
            self._write_events()
        with self._run.stage("state"):
            for module in _OF_STATE:
                if counts.get(module.KIND.value):
                    fresh = module.build(self._frames(module.KIND))
                    self._write_state(module.TABLE, one_of_each(fresh, module.KEY) if self._has_copies else fresh)
            if counts.get(Kind.TRAFFIC.value):
                self._write_traffic()
            for module in (events, messages, conflicts, traffic, *_OF_STATE):
                if not self._warehouse.exists(module.TABLE):  # there is no row yet, but there are columns
                    self._warehouse.write(module.TABLE, self._warehouse.read(module.TABLE), replacing="all")
        with self._run.stage("snapshots"):
            known = self._warehouse.read(snapshots.TABLE)
            others = known.join(self._snapshots.select(*snapshots.KEY), list(snapshots.KEY), "left_anti")
            self._warehouse.write(snapshots.TABLE, others.select(*known.columns).unionByName(self._snapshots))
            frames = {"known": self._warehouse.read(origins.TABLE), "accepted": self._accepted}
            self._warehouse.write(origins.TABLE, origins.build(frames))
        self._run.count("rows", sum(counts.values()))

    def _write_events(self) -> None:
        with self._run.stage("events"):
            known = self._warehouse.read(snapshots.TABLE)
            twice = held(overlaps(self._snapshots, known))
            fresh = events.fresh(self._frames(Kind.EVENT))
            days = _listed(fresh.select("day").distinct())
            known_days = {*days, *_listed(days_of(twice, known))} & self._days(events.TABLE)
            there = self._of_days(events.TABLE, known_days)
            rows = there.unionByName(fresh)
            told = fresh.select(*messages.KEY)
            if not twice.isEmpty():
                self._write_conflicts(within(rows, twice))
                # A content that counts no more is told by no fresh event, and its message is another one without it.
                told = told.unionByName(self._warehouse.read(conflicts.TABLE).select(*messages.KEY))
            told = told.where("message IS NOT NULL").distinct()
            self._write(events.TABLE, events.latest(rows), known_days)
        with self._run.stage("messages"):
            self._write_messages(told, days)

    def _write_conflicts(self, rows: DataFrame) -> None:
        known = self._warehouse.read(conflicts.TABLE)
        found = conflicts.build({"known": known, "events": rows})
        if not found.isEmpty():
            self._warehouse.write(conflicts.TABLE, found)

    def _write_messages(self, told: DataFrame, days: Collection[str]) -> None:
        """Build the messages that the batch's events name anew, from all of their events."""
        if not self._days(messages.TABLE):
            built = messages.build({"events": self._warehouse.read(events.TABLE)})
            self._warehouse.write(messages.TABLE, built)
            return
        told = told.persist()
        try:
            known = self._warehouse.read(messages.TABLE)
            before = known.join(told, list(messages.KEY), "left_semi").select("day", "first_day", "last_day").persist()
            spans = before.select(F.explode(F.sequence("first_day", "last_day")).alias("day")).distinct()
            event_days = {*days, *_listed(spans)} & self._days(events.TABLE)
            old_days = {*_listed(before.select("day").distinct())}
            before.unpersist()
            of_them = self._of_days(events.TABLE, event_days).join(told, list(messages.KEY), "left_semi")
            built = messages.build({"events": of_them}).persist()
            touched = {*old_days, *_listed(built.select("day").distinct())} & self._days(messages.TABLE)
            others = self._of_days(messages.TABLE, touched).join(told, list(messages.KEY), "left_anti")
            self._write(messages.TABLE, others.unionByName(built), touched)
            built.unpersist()
        finally:
            told.unpersist()

    def _write_state(self, table: Table, fresh: DataFrame) -> None:
        touched = {*_listed(self._taken.select("day").distinct())} & self._days(table)
        if touched:
            key = ["device", "snapshot"]
            others = self._of_days(table, touched).join(F.broadcast(self._taken.select(*key)), key, "left_anti")
            fresh = others.select(*fresh.columns).unionByName(fresh)
        self._write(table, fresh, touched)

    def _write_traffic(self) -> None:
        """A request may be told by several snapshots, and has one day in all of them where the clock is sane."""
        fresh = traffic.build(self._frames(Kind.TRAFFIC))
        touched = {*_listed(fresh.select("day").distinct())} & self._days(traffic.TABLE)
        if touched:
            there = self._of_days(traffic.TABLE, touched)
            fresh = traffic.merged(there, fresh)
        self._write(traffic.TABLE, fresh, touched)

    def _frames(self, kind: Kind) -> dict[str, DataFrame]:
        return {"lines": self._lines.where(F.col("kind") == kind.value), "taken": self._taken}

    def _days(self, table: Table) -> set[str]:
        """The days that a table has."""
        entries = self._warehouse.storage.entries(self._warehouse.path(table))
        return {entry.name.removeprefix(_DAY) for entry in entries if entry.name.startswith(_DAY)}

    def _of_days(self, table: Table, days: Collection[str]) -> DataFrame:
        return self._warehouse.read(table).where(_is_one_of(days))

    def _write(self, table: Table, rows: DataFrame, days: Collection[str]) -> None:
        self._warehouse.write(table, rows, replacing=[{"day": day} for day in sorted(days)])


def _is_counted(kind: Kind) -> bool:
    return kind not in (Kind.TRAILER, Kind.BUNDLE)


def _listed(days: DataFrame) -> Sequence[str]:
    """A column of days; there are as many as a fleet has lived."""
    return [str(row["day"]) for row in days.collect()]


def _is_one_of(days: Collection[str]) -> Column:
    return F.col("day").isin([F.to_date(F.lit(day)) for day in sorted(days)]) if days else F.lit(False)
