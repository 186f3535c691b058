"""Renders the pages from their parts, with the templates."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..errors import EnvironmentProblem
from . import charts
from .charts import Chart
from .findings import worded
from .lines import FINDINGS, Part, Section
from .rules import SEVERITIES
from .sections import DEVICES, SECTIONS
from .series import Span
from .text import count, formatted, moment, shown

if TYPE_CHECKING:
    from jinja2 import Template

#: Parts by name.
Parts = Mapping[str, Part]
_SLUG: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
#: Names that Windows reserves, with any suffix.
_RESERVED: Final = frozenset(
    {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(1, 10))}
)
#: How many queues the latency chart shows.
_RANGES: Final = 8


class Site:
    """Renders pages. Equal parts give equal pages."""

    def __init__(self, span: Span | None, has: Sequence[str] | frozenset[str], days: str) -> None:
        """
        :param span: the time that charts show; None for no charts.
        :param has: names of the parts that have tables.
        :param days: the days of the report in words; empty for all.
        :raises EnvironmentProblem: the packages that draw pages are not installed.
        """
        self._span, self._has, self._days = span, has, days
        self._page = _template()

    def fleet(self, parts: Parts, pages: Mapping[str, str]) -> str:
        """The page of the fleet.

        :param pages: relative path of each device's page.
        """
        devices = count(parts[DEVICES.name].total) if DEVICES.name in parts else count(len(pages))
        about = self._about(f"{devices} devices")
        return self._render("The fleet", about, (DEVICES, *SECTIONS), parts, pages=pages, index=sorted(pages))

    def device(self, name: str, parts: Parts, back: str) -> str:
        """The page of one device.

        :param back: relative path of the fleet's page; empty if there is none.
        """
        return self._render(f"Device {shown(name)}", self._about(""), SECTIONS, parts, back=back)

    def _render(
        self, title: str, about: str, sections: Sequence[Section], parts: Parts, back: str = "", **more: Any
    ) -> str:
        parts = {name: parts.get(name, Part()) for name in self._has}
        part = parts.get(FINDINGS, Part())
        findings = [worded(row) for row in part.rows]
        return self._page.render(
            {
                "title": title,
                "about": about,
                "back": back,
                "sections": sections,
                "parts": parts,
                "charts": self._charts(parts),
                "findings": findings,
                "verdict": _verdict(Counter(one.grade for one in findings), part),
                "pages": None,
                "index": (),
            }
            | more
        )

    def _about(self, of: str) -> str:
        span = self._span
        covered = f"known from {moment(span.begin)} to {moment(span.end)}" if span else ""
        days = f"days asked for: {self._days}" if self._days else ""
        return "; ".join(filter(None, [of, covered, days, "all times are UTC"]))

    def _charts(self, parts: Parts) -> dict[str, list[tuple[str, Chart]]]:
        drawn: dict[str, list[tuple[str, Chart | None]]] = {}
        if self._span is not None:
            per = "hour" if self._span.unit == "hour" else "day"
            depth, dead, flow = (self._rows(parts, f"{name}-course") for name in ("depth", "dead", "flow"))
            title = f"Most messages in each {per}, dead letters left out: the deepest queues"
            drawn["depth"] = [(title, charts.lines("Depth of queues", depth, self._span, holds=True))]
            title = "Deaths by day: the most frequent reasons"
            drawn["dead"] = [(title, charts.bars("Deaths", dead, self._span))]
            title = f"Messages in each {per}"
            drawn["throughput"] = [(title, charts.lines("Throughput", flow, self._span, holds=False))]
        rows = [(f"{row['c0']}: {row['c1']}", row["c3"], row["c4"], row["c5"]) for row in self._rows(parts, "latency")]
        title = "From the middle to the 99th percentile; the mark is at nine of ten"
        drawn["latency"] = [(title, charts.ranges("Latency", rows[:_RANGES]))]
        return {name: [(title, one) for title, one in pictures if one] for name, pictures in drawn.items()}

    @staticmethod
    def _rows(parts: Parts, name: str) -> list[dict[str, Any]]:
        return parts[name].rows if name in parts else []


def page_name(device: str) -> str:
    """A file name for a device, whatever its name contains. Two devices never share one, on any file system."""
    if _SLUG.fullmatch(device) and device.partition(".")[0] not in _RESERVED:
        return f"{device}.html"
    plain = re.sub(r"[^a-z0-9_-]+", "-", device.lower()).strip("-")[:40]
    # No plain name has a tilde, so no other device gets this name.
    return f"{plain or 'device'}~{hashlib.sha256(device.encode()).hexdigest()[:16]}.html"


def _verdict(grades: Counter[str], part: Part) -> str:
    if not part.rows:
        return "Nothing is wrong: the audit balances, nothing is lost or stuck, and no figure stands out."
    counts = ", ".join(f"{grades[grade]} {grade}" for grade in SEVERITIES.values() if grades[grade])
    return f"{count(part.total)} findings, the worst first ({counts})."


def _template() -> Template:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise EnvironmentProblem(f"{charts.MISSING} ({error})") from None
    environment = Environment(
        loader=PackageLoader("postroom_pipeline.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"shown": shown, "formatted": formatted, "is_number": _is_number}
    environment.globals["dashes"] = charts.DASHES_OF_LEGEND
    return environment.get_template("page.html")


def _is_number(part: Part, column: int) -> bool:
    """Whether a column of a part has only numbers."""
    values: list[Any] = [value for row in part.rows if (value := row[f"c{column}"]) is not None]
    is_number: Callable[[Any], bool] = lambda value: isinstance(value, int | float) and not isinstance(value, bool)  # noqa: E731
    return bool(values) and all(map(is_number, values))
