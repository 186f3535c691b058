"""The tables that answer questions: ``ALL`` by name, in an order in which each comes after those that it stands on.

A module a question: ``TABLE`` with its ``SCHEMA``, ``KEY`` and ``PARTITION``; ``NEEDS``, the tables that it reads;
``THRESHOLDS``, the numbers that the user may set; ``TROUBLE``, a predicate in SQL for the rows that somebody should
look at (a fleet that is well has none); ``build(frames, given)`` that makes its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Final

from pyspark.sql import DataFrame

from ..errors import UsageError
from ..table import Table
from ..tables.columns import Frames
from . import (
    anomalies,
    audit,
    audit_messages,
    clock_trouble,
    consumer_health,
    dead_reasons_daily,
    depth_hourly,
    device_health,
    duplicate_publishes,
    journal_gaps,
    latency_daily,
    poison_messages,
    retry_storms,
    stuck_leases,
    throughput,
)
from .thresholds import Given

ALL: Final[dict[str, ModuleType]] = {
    module.TABLE.name: module
    for module in (
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
}


def build_all(
    frames: Frames, keep: Callable[[Table, DataFrame], DataFrame], given: Mapping[str, Given] | None = None
) -> dict[str, DataFrame]:
    """Build every report, each from what was kept before: plans that hold other reports' plans grow beyond measure.

    :param frames: the tables of ``tables``.
    :param keep: writes a report, and gives it back as it is read.
    :param given: thresholds that the user sets, by name of the report.
    :raises UsageError: a report or a threshold is not known.
    """
    unknown = sorted(set(given or {}) - set(ALL))
    if unknown:
        raise UsageError(f"no report {', '.join(unknown)}; there are {', '.join(ALL)}")
    known = dict(frames)
    for name, module in ALL.items():
        known[name] = keep(module.TABLE, module.TABLE.fitted(module.build(known, (given or {}).get(name))))
    return {name: known[name] for name in ALL}
