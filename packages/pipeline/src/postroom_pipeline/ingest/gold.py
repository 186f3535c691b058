"""Builds the reports anew from the tables, each after those that it stands on."""

from __future__ import annotations

from collections.abc import Mapping

from ..io import Warehouse
from ..reports import ALL as REPORTS
from ..reports.thresholds import Given
from ..runlog import Run
from ..tables import ALL as TABLES


def write_reports(warehouse: Warehouse, run: Run, given: Mapping[str, Given] | None = None) -> None:
    """Write every report. A day of it may depend on others, so all of its days are made.

    :param given: thresholds that the user sets, by name of the report.
    """
    for name, module in REPORTS.items():
        with run.stage(f"report {name}"):
            known = {**TABLES, **REPORTS}
            frames = {need: warehouse.read(known[need].TABLE) for need in module.NEEDS}
            warehouse.write(module.TABLE, module.build(frames, (given or {}).get(name)), replacing="all")
