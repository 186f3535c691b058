"""Builds the reports anew from the tables, each after those that it stands on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..io import Warehouse
from ..reports import BUILT
from ..reports.thresholds import Given
from ..runlog import Run
from ..tables import ALL as TABLES

#: There while tables tell of more than the reports do.
_BEHIND: Final = "_reports_are_behind"


def mark_behind(warehouse: Warehouse) -> None:
    """Remember that tables are about to change, until the reports are built anew."""
    warehouse.storage.write_text(warehouse.storage.join(_BEHIND), "")


def are_behind(warehouse: Warehouse) -> bool:
    """Whether tables have changed since the reports were built."""
    return warehouse.storage.exists(warehouse.storage.join(_BEHIND))


def write_reports(warehouse: Warehouse, run: Run, given: Mapping[str, Given] | None = None) -> None:
    """Write every report. A day of it may depend on others, so all of its days are made.

    :param given: thresholds that the user sets, by name of the report.
    """
    known = {**TABLES, **BUILT}
    for name, module in BUILT.items():
        with run.stage(f"report {name}"):
            frames = {need: warehouse.read(known[need].TABLE) for need in module.NEEDS}
            warehouse.write(module.TABLE, module.build(frames, (given or {}).get(name)), replacing="all")
    warehouse.storage.delete(warehouse.storage.join(_BEHIND))
