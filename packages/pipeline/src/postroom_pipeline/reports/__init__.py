"""The reports: tables that answer questions. One module for each, which has the attributes of ``Report``.

``ALL`` has the reports by name. ``GROUNDS`` are tables that several reports read. ``BUILT`` has both, each after those
that it needs. Frames of other reports are read back from where they were written: plans that contain the plans of other
reports would grow without bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from pyspark.sql import DataFrame

from ..schema.table import Frames, Table
from . import (
    anomalies,
    audit,
    audit_messages,
    clock_trouble,
    clocks,
    consumer_health,
    dead_reasons_daily,
    deliveries,
    depth,
    depth_hourly,
    device_health,
    duplicate_publishes,
    epochs,
    fates,
    flows,
    hours,
    imports,
    journal_gaps,
    latency_daily,
    poison_messages,
    rare_events,
    restores,
    retry_storms,
    stuck_leases,
    throughput,
)
from .scope import Changed, Scope
from .thresholds import Given, Threshold


class Report(Protocol):
    """The attributes of a module with a report, as ``ALL`` and ``GROUNDS`` have them."""

    @property
    def TABLE(self) -> Table:
        """The table of the report."""

    @property
    def NEEDS(self) -> Sequence[str]:
        """Names of the tables from which it is built."""

    @property
    def SCOPE(self) -> Scope:
        """Which rows must be rebuilt when rows of these tables have changed."""

    @property
    def THRESHOLDS(self) -> Sequence[Threshold]:
        """The numbers that the user may set; none in ``GROUNDS``."""

    @property
    def TROUBLE(self) -> str:
        """A predicate in SQL: the rows that somebody should look at. A healthy fleet has none."""

    def build(self, frames: Frames, given: Given | None = None) -> DataFrame:
        """The rows of the table.

        :param frames: the tables of ``NEEDS`` by name; ``given``: the user's thresholds.
        """


class ReportOfPast(Report, Protocol):
    """A report with ``Scope.by_past_of``."""

    def build(self, frames: Frames, given: Given | None = None, changed: Changed | None = None) -> DataFrame:
        """The rows of the table; if given, only those that follow from what has changed."""

    def in_change(self, rows: DataFrame, changed: Changed) -> DataFrame:
        """Rows of the table with ``is_in_change``: whether they follow from what has changed."""


class ReportThatGoesOn(Report, Protocol):
    """A report with ``Scope.by_end_of``.

    Frames with a ``day`` have ``is_new`` as well: whether rows of the device may have changed on that day.
    """

    def ends(self, old: DataFrame) -> DataFrame:
        """What is known behind all other days, from the table as it was."""

    def going_on(self, frames: Frames, ends: DataFrame) -> DataFrame:
        """The devices (one column, ``device``) of which nothing on other days follows from these days."""

    def build_on(self, frames: Frames, ends: DataFrame) -> DataFrame:
        """The rows of these days of such devices."""


def _by_name(*reports: Report) -> dict[str, Report]:
    return {report.TABLE.name: report for report in reports}


GROUNDS: Final = _by_name(hours, rare_events, epochs, restores, imports, clocks, deliveries, fates, flows, depth)
ALL: Final = _by_name(
    dead_reasons_daily,
    depth_hourly,
    latency_daily,
    throughput,
    retry_storms,
    poison_messages,
    stuck_leases,
    consumer_health,
    clock_trouble,
    journal_gaps,
    audit,
    audit_messages,
    duplicate_publishes,
    anomalies,
    device_health,
)
#: ``clock_trouble`` comes early: ``consumer_health`` reads the starts of the machine there.
BUILT: Final = GROUNDS | _by_name(clock_trouble) | ALL
