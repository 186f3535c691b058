"""Curves as SVG, drawn by Vega-Lite from a specification that is plain data. Equal figures give equal bytes.

Vega-Lite also draws the pages of the pipeline; it is installed into an environment of its own (``bench/plots.txt``).
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from .curves import Curve, Panel
from .environment import ROOT, Environment

_ENVIRONMENT: Final = Environment(ROOT / "bench" / "plots.txt", ROOT / "run" / "plots")
_SCHEMA: Final = "https://vega.github.io/schema/vega-lite/v5.json"
_COLOURS: Final = ("#2563a8", "#c2571a", "#3d8b4d")
#: Lines also differ by their dashes, for readers who see no colours, and for paper.
_DASHES: Final = ([1, 0], [6, 2], [2, 2])
_WIDTH: Final = 240
_BUDGET_RULE: Final = {"type": "rule", "color": "#888888", "strokeDash": [2, 4]}
_BUDGET_TEXT: Final = {"type": "text", "text": "budget", "align": "right", "dy": -5, "fontSize": 9, "color": "#666666"}
_DECADES: Final = [10.0**power for power in range(-3, 9)]
_PANELS_A_ROW: Final = 3
_CONFIG: Final = {"background": "white", "font": "sans-serif", "view": {"stroke": None}, "aria": False}
#: A mark without data is not drawn.
_ONCE: Final[dict[str, Any]] = {"values": [{}]}
_DRAW: Final = "import sys, vl_convert; sys.stdout.write(vl_convert.vegalite_to_svg(sys.stdin.read()))"
_TIMEOUT_S: Final = 120


def draw(plots: Mapping[str, dict[str, Any]], directory: Path) -> list[Path]:
    """Write ``NAME.svg`` for each specification. Raises ``CannotInstall`` and ``subprocess.SubprocessError``."""
    python = _ENVIRONMENT.interpreter()
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, plot in plots.items():
        done = subprocess.run(
            [python, "-c", _DRAW],
            input=json.dumps(plot),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=_TIMEOUT_S,
        )
        paths.append(directory / f"{name}.svg")
        paths[-1].write_text(_plain(done.stdout))
    return paths


def _plain(svg: str) -> str:
    """The same picture without what only programs read, one shape in a line."""
    svg = re.sub(r' (?:class|role|aria-[a-z]+|pointer-events|version)="[^"]*"| opacity="1"', "", svg)
    svg = re.sub(r'<path d="(?:M0,0h0v0h0Z)?"[^>]*/>', "", svg)
    svg = re.sub(r"\d+\.\d\d+", lambda found: f"{float(found[0]):.1f}", svg)
    return re.sub(r"(?<=>)(?=<(?!/))", "\n", svg) + "\n"


def specification(curve: Curve) -> dict[str, Any]:
    """All panels of a curve, in the language of Vega-Lite."""
    return {
        "$schema": _SCHEMA,
        "config": _CONFIG,
        "columns": _PANELS_A_ROW,
        "concat": [_panel(curve, panel) for panel in curve.panels],
        "resolve": {"scale": {"color": "independent", "strokeDash": "independent"}},
    }


def bars(title: str, values: Mapping[str, float]) -> dict[str, Any]:
    """A bar for each value, in their order, with the value beside it."""
    rows = [{"name": name, "value": round(value, 2)} for name, value in values.items()]
    name = {"field": "name", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 400}}
    length = {"field": "value", "type": "quantitative", "title": None, "axis": None}
    return {
        "$schema": _SCHEMA,
        "config": _CONFIG,
        "title": {"text": title, "anchor": "start", "fontSize": 12},
        "width": 2 * _WIDTH,
        "data": {"values": rows},
        "encoding": {"y": name, "x": length},
        "layer": [
            {"mark": {"type": "bar", "color": _COLOURS[0]}},
            {"mark": {"type": "text", "align": "left", "dx": 3}, "encoding": {"text": {"field": "value"}}},
        ],
    }


def _panel(curve: Curve, panel: Panel) -> dict[str, Any]:
    values = [
        {"x": point, "y": round(figures[column], 3), "line": line}
        for point, figures in curve.points.items()
        for column, line in panel.lines.items()
        if column in figures
    ]
    legend = {"orient": "bottom", "title": None, "symbolType": "stroke"} if len(panel.lines) > 1 else None
    x = {"values": [*curve.points], "format": ".2~s", "grid": False, "labelOverlap": True}
    y = {"tickCount": 5, "gridOpacity": 0.4} | ({"values": _DECADES} if curve.y_scale == "log" else {})
    lines = {
        "data": {"values": values},
        "mark": {"type": "line", "point": {"size": 14}, "strokeWidth": 1.6},
        "encoding": {
            "x": {
                "field": "x",
                "type": "quantitative",
                "title": curve.axis,
                "scale": {"type": "log", "nice": False},
                "axis": x,
            },
            "y": {"field": "y", "type": "quantitative", "title": None, "scale": {"type": curve.y_scale}, "axis": y},
            "color": _by_line(panel, _COLOURS) | {"legend": legend},
            "strokeDash": _by_line(panel, _DASHES) | {"legend": legend},
        },
    }
    at = {"y": {"datum": panel.budget}}
    budget = {"data": _ONCE, "mark": _BUDGET_RULE, "encoding": at}
    name = {"data": _ONCE, "mark": _BUDGET_TEXT, "encoding": at | {"x": {"value": _WIDTH}}}
    return {
        "title": {"text": ", ".join(filter(None, (panel.title, panel.unit))), "anchor": "start", "fontSize": 12},
        "width": _WIDTH,
        "height": 150,
        "layer": [lines] if panel.budget is None else [lines, budget, name],
    }


def _by_line(panel: Panel, values: Sequence[Any]) -> dict[str, Any]:
    scale = {"domain": [*panel.lines.values()], "range": [*values[: len(panel.lines)]]}
    return {"field": "line", "type": "nominal", "sort": None, "scale": scale}
