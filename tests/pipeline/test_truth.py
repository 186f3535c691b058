"""The judge of a fleet's report: what is kept quiet, what is told without a cause, and a fleet of nobody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.pipeline.truth import complaints

POISON = {"name": "poison", "happened": True, "reports": ["poison_messages"], "also": ["anomalies"]}


def lived(fleet: Path, *faults: dict[str, Any]) -> Path:
    (fleet / "one").mkdir()
    (fleet / "one" / "truth.json").write_text(json.dumps({"faults": faults}))
    return fleet


def test_a_reported_fault_is_no_complaint_nor_are_its_consequences(tmp_path: Path) -> None:
    assert complaints(lived(tmp_path, POISON), {"one": {"poison_messages", "anomalies"}}) == []


def test_an_unreported_fault_is_a_complaint_unless_it_did_not_happen(tmp_path: Path) -> None:
    fleet = lived(tmp_path, POISON, POISON | {"name": "later", "happened": False})
    assert complaints(fleet, {"one": {"anomalies"}}) == ["one: poison is in none of poison_messages"]


def test_a_finding_about_a_healthy_device_is_a_complaint(tmp_path: Path) -> None:
    assert complaints(lived(tmp_path), {"one": {"audit"}}) == ["one: nothing happened that audit tells of"]


def test_a_fleet_of_no_devices_is_no_success(tmp_path: Path) -> None:
    assert complaints(tmp_path, {}) == [f"{tmp_path}: no device lived here"]
