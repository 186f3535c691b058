"""The tables that answer questions: ``ALL`` by name; ``GROUNDS``, what several of them stand on. ``BUILT`` is both, in
an order in which each comes after those that it needs.

A module a question: ``TABLE`` with its ``SCHEMA``, ``KEY`` and ``PARTITION``; ``NEEDS``, the tables that it reads;
``THRESHOLDS``, the numbers that the user may set; ``TROUBLE``, a predicate in SQL for the rows that somebody should
look at (a fleet that is well has none); ``build(frames, given)`` that makes its rows. A ground
has neither thresholds nor troubles. Frames of other reports are read back from where they were written: plans that
hold other reports' plans grow beyond measure.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

from . import (
    anomalies,
    audit,
    audit_messages,
    clock_trouble,
    consumer_health,
    dead_reasons_daily,
    depth,
    depth_hourly,
    device_health,
    duplicate_publishes,
    epochs,
    imports,
    journal_gaps,
    latency_daily,
    poison_messages,
    retry_storms,
    stuck_leases,
    throughput,
)

GROUNDS: Final[dict[str, ModuleType]] = {module.TABLE.name: module for module in (epochs, imports, depth)}
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
BUILT: Final = GROUNDS | ALL
