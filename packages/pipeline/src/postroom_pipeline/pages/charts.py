"""Charts as static SVG, drawn by Vega-Lite from specifications that are plain data.

Equal points give equal bytes. Colours are variables of the page's style (``var(--s1)``), so that one picture fits
light, dark and print. A chart has no ids and refers to nothing outside itself.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..errors import EnvironmentProblem
from .series import HOUR_MS, Span
from .text import count, duration, shown

#: How to install the packages that draw.
MISSING: Final = "pages need Jinja2 and vl-convert-python: pip install 'postroom-pipeline[report]'"
#: Lines also differ by their dashes, for readers who see no colours, and for paper.
_DASHES: Final = ([1, 0], [6, 2], [2, 2], [8, 2, 2, 2], [4, 4], [1, 3])
#: The same as attributes of the legend's lines.
DASHES_OF_LEGEND: Final = tuple(" ".join(map(str, dash)) for dash in _DASHES)
_COLOURS: Final = tuple(f"var(--s{number})" for number in range(1, len(_DASHES) + 1))
_NAME_LENGTH: Final = 60
_WIDTH: Final = 720
_CONFIG: Final = {
    "aria": False,
    "background": None,
    "font": "sans-serif",
    "axis": {
        "labelColor": "var(--ink)",
        "titleColor": "var(--ink)",
        "gridColor": "var(--line)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
    },
    "view": {"stroke": None},
}
_SCHEMA: Final = "https://vega.github.io/schema/vega-lite/v5.json"


@dataclass(frozen=True)
class Chart:
    """One picture with its description and legend."""

    svg: str
    #: What it shows, for readers who cannot see it.
    alt: str
    #: Name of each line, in the order of the colours.
    legend: tuple[str, ...]


def lines(what: str, rows: Sequence[Mapping[str, Any]], span: Span, *, holds: bool) -> Chart | None:
    """A line chart over time; None if all values are 0.

    :param what: what the chart shows; ``rows``: ``name`` and ``points`` of each line.
    :param holds: a step without a point has the value of the step before; else it is 0.
    """
    names = _names(row["name"] for row in rows)
    begin = _floored(span.begin, span)
    steps = [*range(begin, _ms(span.end) + 1, span.step_ms)]
    points = []
    for name, row in zip(names, rows, strict=True):
        values = {int(point["at_ms"]): float(point["value"] or 0) for point in row["points"]}
        now = 0.0
        for at in steps:
            now = values.get(at, now if holds else 0.0)
            points.append({"at": at, "n": now, "name": name})
        points.append({"at": steps[-1] + span.step_ms, "n": now, "name": name})
    if not any(point["n"] for point in points):
        return None
    dashes = [*_DASHES[: len(names)]]
    spec = {
        "height": 190,
        "data": {"values": points},
        "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 1.8},
        "encoding": {
            "x": _time_axis(span),
            "y": {"field": "n", "type": "quantitative", "title": None, "axis": {"tickMinStep": 1, "tickCount": 5}},
            "color": _scale(names, _COLOURS[: len(names)]),
            "strokeDash": _scale(names, dashes),
        },
    }
    most = max(points, key=lambda point: (point["n"], -point["at"]))
    alt = f"{what}, {_day(begin)} to {_day(_ms(span.end))}; most: {count(most['n'])} ({most['name']})"
    return Chart(_svg(spec), alt, tuple(names))


def bars(what: str, rows: Sequence[Mapping[str, Any]], span: Span) -> Chart | None:
    """A stacked bar chart of numbers by day; None if there are none."""
    names = _names(row["name"] for row in rows)
    points = [
        {"day": _day(int(point["at_ms"])), "n": point["value"], "name": name}
        for name, row in zip(names, rows, strict=True)
        for point in row["points"]
    ]
    if not points:
        return None
    first, last = _floored(span.begin, span), _ms(span.end)
    days = [_day(at) for at in range(first - first % (24 * HOUR_MS), last + 1, 24 * HOUR_MS)]
    spec = {
        "height": 150,
        "data": {"values": points},
        "mark": {"type": "bar", "stroke": "var(--paper)", "strokeWidth": 1},
        "encoding": {
            "x": {
                "field": "day",
                "type": "ordinal",
                "title": None,
                "scale": {"domain": days, "paddingInner": 0.3},
                "axis": {"labelAngle": 0, "labelOverlap": True},
            },
            "y": {"field": "n", "type": "quantitative", "title": None, "axis": {"tickMinStep": 1, "tickCount": 4}},
            "color": _scale(names, _COLOURS[: len(names)]),
            "order": {"field": "name"},
        },
    }
    total = sum(point["n"] for point in points)
    return Chart(_svg(spec), f"{what}, {days[0]} to {days[-1]}; {count(total)} in all", tuple(names))


def ranges(what: str, rows: Sequence[tuple[str, float, float, float]]) -> Chart | None:
    """A bar for each name from the median to the 99th percentile, with a mark at the 90th; in ms. None without rows."""
    if not rows:
        return None
    names = _names(row[0] for row in rows)
    values = [  # a logarithmic axis has no 0
        {"name": name, "p50": max(p50, 1), "p90": max(p90, 1), "p99": max(p99, 1)}
        for name, (_, p50, p90, p99) in zip(names, rows, strict=True)
    ]
    ticks = [10**power for power in range(1, 10)]
    label = " : ".join(f"datum.value == {tick} ? '{duration(tick)}'" for tick in ticks) + " : ''"
    x = {"type": "quantitative", "title": None, "scale": {"type": "log"}}
    y = {"field": "name", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 260, "grid": False}}
    axis = {"values": ticks, "labelExpr": label, "grid": True}
    spec = {
        "height": {"step": 22},
        "data": {"values": values},
        "encoding": {"y": y},
        "layer": [
            {
                "mark": {"type": "bar", "height": 8, "color": "var(--s1)", "opacity": 0.45},
                "encoding": {"x": {**x, "field": "p50", "axis": axis}, "x2": {"field": "p99"}},
            },
            {
                "mark": {"type": "tick", "thickness": 3, "size": 16, "color": "var(--s2)"},
                "encoding": {"x": {**x, "field": "p90"}},
            },
        ],
    }
    worst = max(rows, key=lambda row: row[2])
    return Chart(_svg(spec), f"{what}; slowest: {shown(worst[0])}, nine of ten within {duration(worst[2])}", ())


def _svg(spec: Mapping[str, Any]) -> str:
    try:
        import vl_convert
    except ImportError as error:
        raise EnvironmentProblem(f"{MISSING} ({error})") from None
    drawn: str = vl_convert.vegalite_to_svg({"$schema": _SCHEMA, "width": _WIDTH, "config": _CONFIG} | dict(spec))
    # Inline SVG needs no namespaces, and the page itself describes the picture.
    drawn = re.sub(r' (?:xmlns(?::xlink)?|version|class|role|aria-[a-z]+|pointer-events)="[^"]*"', "", drawn)
    return drawn.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)


def _names(names: Any) -> list[str]:
    """Names as they are shown; equal ones get a number."""
    distinct: list[str] = []
    for name in names:
        plain = shown(str(name), _NAME_LENGTH)
        same = sum(one == plain or one.startswith(f"{plain} (") for one in distinct)
        distinct.append(f"{plain} ({same + 1})" if same else plain)
    return distinct


def _scale(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    scale = {"domain": [*names], "range": [*values]}
    return {"field": "name", "type": "nominal", "sort": None, "scale": scale, "legend": None}


def _time_axis(span: Span) -> dict[str, Any]:
    labels = "%d %b" if span.step_ms != HOUR_MS else ["%d %b", "%H:%M"]
    axis: dict[str, Any] = {"labelOverlap": True, "tickCount": 10}
    if isinstance(labels, str):
        axis["format"] = labels
    else:
        day, hour = labels
        axis["labelExpr"] = f"utcFormat(datum.value, utchours(datum.value) == 0 ? '{day}' : '{hour}')"
    return {"field": "at", "type": "temporal", "scale": {"type": "utc"}, "title": None, "axis": axis}


def _floored(at: dt.datetime, span: Span) -> int:
    ms = _ms(at)
    return ms - ms % span.step_ms


def _ms(at: dt.datetime) -> int:
    return round(at.replace(tzinfo=dt.UTC).timestamp() * 1000)


def _day(at_ms: int) -> str:
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).strftime("%Y-%m-%d")
