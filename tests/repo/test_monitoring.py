"""The dashboard and the alerts name metrics of the daemon and of the gateway, and load."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from postroom_daemon.observe.metrics.table import METRICS
from postroom_gateway.observe.pages import METRICS as GATEWAY_METRICS

#: Labels that Prometheus adds, and that histograms and summaries have.
ADDED = {"instance", "job", "le", "quantile"}
FOLDER = Path(__file__).resolve().parents[2] / "packaging" / "monitoring"
ALERTS, ALERT_TESTS, DASHBOARD = (
    FOLDER / name for name in ("postroom-alerts.yml", "postroom-alerts.test.yml", "postroom-dashboard.json")
)
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("", "_sum", "_count")}
#: Every series by name, with the labels that it may have.
SERIES = {
    metric.name + suffix: {*metric.labels, *ADDED}
    for metric in (*METRICS, *GATEWAY_METRICS)
    for suffix in SUFFIXES.get(metric.type, ("",))
}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    found: list[dict[str, Any]] = [rule for group in groups for rule in group["rules"]]
    return found


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression, with its place."""
    yield from ((rule["alert"], rule["expr"]) for rule in rules())
    yield from ((one["title"], target["expr"]) for one in panels() for target in one.get("targets", ()))


@pytest.mark.parametrize(("place", "expression"), list(expressions()))
def test_an_expression_names_only_metrics_that_there_are(place: str, expression: str) -> None:
    named = re.findall(r"(postroom_\w+)(?:\{([^}]*)\})?", expression)
    assert named, place
    for name, selector in named:
        assert name in SERIES, f"{place}: {name}"
        assert set(re.findall(r"(\w+)\s*[=!]~?\"", selector)) <= SERIES[name], f"{place}: {name}"
    grouped = re.findall(r"\b(?:by|on) \(([^)]*)\)", expression)
    known = set().union(*(SERIES[name] for name, _ in named))
    assert {label.strip() for labels in grouped for label in labels.split(",")} <= known, place


def test_every_alert_has_a_severity_a_description_and_advice() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert "instance" in rule["annotations"]["summary"] and rule["annotations"]["action"].endswith(".")


def test_the_dashboard_places_all_panels_and_lets_the_user_choose_its_source() -> None:
    board = json.loads(DASHBOARD.read_text())
    assert len({one["id"] for one in panels()}) == len(panels())
    taken: set[tuple[int, int]] = set()
    for one in panels():
        place = one["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken and place["x"] + place["w"] <= 24, one["title"]
        taken |= cells
    variables = {one["name"] for one in board["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(board))) - {"__rate_interval", "__all"} <= variables


def test_promtool_takes_rules_tests_and_expressions_where_it_is_installed(tmp_path: Path) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        return  # what they name is checked above; this is about the language
    recorded = [
        {"record": f"panel:{number}", "expr": re.sub(r"\$__rate_interval", "5m", expression).replace("$", "")}
        for number, (_, expression) in enumerate(expressions())
    ]
    (tmp_path / "panels.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": recorded}]}))
    for words in (["check", "rules", ALERTS, tmp_path / "panels.yml"], ["test", "rules", ALERT_TESTS]):
        done = subprocess.run([tool, *map(str, words)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
