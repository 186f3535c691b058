"""What a fleet of ``examples/fleet`` should show in its report, and what it does; ``scripts/check-fleet`` asks."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from postroom_pipeline.pages.rules import BY_KIND, RULES

#: Reports that people are told of; the others have courses and numbers, and say of nothing that it is wrong.
TOLD = {rule.report for rule in RULES}


def complaints(fleet: Path, shown: Mapping[str, set[str]]) -> list[str]:
    """What a report keeps quiet about, and what it tells without a cause; empty where it is right.

    :param shown: the reports in which findings of a device stand, by device.
    """
    truths = sorted(fleet.glob("*/truth.json"))
    wrong = [] if truths else [f"{fleet}: no device lived here"]
    for path in truths:
        device = path.parent.name
        faults = [fault for fault in json.loads(path.read_text())["faults"] if fault["happened"]]
        reported = shown.get(device, set())
        allowed = {report for fault in faults for report in (*fault["reports"], *fault["also"])}
        wrong += [f"{device}: nothing happened that {report} tells of" for report in sorted(reported - allowed)]
        for fault in faults:
            where = {*fault["reports"]} & TOLD or {*fault["also"]} & TOLD
            if fault["reports"] and not where & reported:
                wrong.append(f"{device}: {fault['name']} is in none of {', '.join(sorted(where))}")
    return wrong


def main() -> None:
    """Judge a report that ``postroom-pipeline report --format json`` has written: FLEET REPORT."""
    fleet, report = Path(sys.argv[1]), Path(sys.argv[2])
    shown: dict[str, set[str]] = {}
    for line in (report / "findings.json").read_text().splitlines():
        row = json.loads(line)
        shown.setdefault(row["device"], set()).add(BY_KIND[row["kind"]].report)
    wrong = complaints(fleet, shown)
    for one in wrong:
        print(one)
    print(f"{len(list(fleet.glob('*/truth.json')))} devices, {len(wrong)} complaints")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
