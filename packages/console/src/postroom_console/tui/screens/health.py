"""How the daemon, its journal, its store and its disk are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from textual.app import ComposeResult
from textual.containers import VerticalScroll

from ...data.text import age, clean, figure, fit, size, width
from ...i18n import mark, tr
from ..view import View
from ..widgets.line import Line

#: What the daemon tells for programs; it is shown in other words, or of no use here.
_CLOCKS: Final = frozenset({"timestamp", "uptimeMs", "asOfEvent", "engineNowMs"})

_NAME: Final = 13
_BETWEEN: Final = "   "


class _Told(NamedTuple):
    name: str
    words: list[str]


class Health(View):
    """One line for each part; what is wrong is marked."""

    FILTERS: ClassVar[bool] = False

    def compose_body(self) -> ComposeResult:
        with VerticalScroll(id="health", can_focus=True):
            yield Line(name="report")

    def focus_body(self) -> None:
        self.query_one("#health").focus()

    def tell_body(self) -> None:
        cells = max(self.size.width - 1, _NAME * 2)
        self.query_one("#report", Line).tell(
            "\n".join(line for told in self._lines() for line in _laid_out(told, cells))
        )

    def _lines(self) -> list[_Told]:
        console = self.console
        slices = console.model.slices
        health = slices["health"].data if "health" in slices else {}
        metrics = slices["metrics"].data if "metrics" in slices else {}
        checks: Mapping[str, Any] = health.get("checks") or {}
        heard = console.model.age_ms(console.clock())
        lines = [
            _line(
                tr("daemon"),
                [
                    tr("not heard yet") if heard is None else f"{tr('heard')} {age(heard)} {tr('ago')}",
                    f"{tr('running for')} {age(metrics['uptimeMs'])}" if "uptimeMs" in metrics else "",
                    f"{tr('version')} {health.get('version', '-')}",
                    f"{tr('draining')} {tr('yes') if health.get('draining') else tr('no')}",
                ],
                console.is_stale,
            )
        ]
        for name in (mark("journal"), mark("store"), mark("disk")):
            check: Mapping[str, Any] = checks.get(name) or {}
            words = [tr("ok") if check.get("ok") else str(check.get("error") or tr("not known"))]
            if name == "journal":
                words.append(f"{tr('last event')} {figure(int(health.get('asOfEvent') or 0))}")
                words += [f"{tr('missing')} {first}-{last}" for first, last in check.get("missingEvents") or ()]
            if name == "store":
                words += [str(health.get("backend", "")), str(health.get("durability", ""))]
            if name == "disk" and "freeBytes" in check:
                words.append(f"{size(int(check['freeBytes']))} {tr('free')}")
                words.append(f"{tr('publishes are refused below')} {size(int(check.get('reserveBytes') or 0))}")
                if check.get("quarantineBytes"):
                    words.append(f"{tr('quarantine')} {size(int(check['quarantineBytes']))}")
            lines.append(_line(tr(name), words, not check.get("ok", True)))
        lines += _metric_lines(metrics)
        lines.append(_line(tr("replication"), [tr("not configured")]))
        ring = console.ring
        words = [
            "RO" if console.read_only else "RW",
            f"{figure(len(ring))} {tr('records kept')}",
            f"{figure(ring.dropped)} {tr('let go')}",
            f"{size(console.skipped_bytes)} {tr('skipped')}",
            f"{figure(console.bad_lines)} {tr('bad lines')}",
        ]
        lines.append(_line(tr("console"), words))
        if console.tail_problem:
            lines.append(_line(tr("tail"), [console.tail_problem], True))
        if console.model.problem:
            lines.append(_line(tr("trouble"), [f"{console.model.problem_code} {console.model.problem}"], True))
        return lines


def _metric_lines(metrics: Mapping[str, Any]) -> list[_Told]:
    flat = [
        f"{name} {figure(value)}"
        for name, value in metrics.items()
        if isinstance(value, int | float) and name not in _CLOCKS
    ]
    nested = [
        _line(name, [f"{key} {figure(value)}" for key, value in told.items() if isinstance(value, int | float)])
        for name, told in metrics.items()
        if isinstance(told, dict) and any(isinstance(value, int | float) for value in told.values())
    ]
    return ([_line(tr("figures"), flat)] if flat else []) + nested


def _line(name: str, words: list[str], is_wrong: bool = False) -> _Told:
    return _Told(f"{'!' if is_wrong else ' '}{fit(clean(name), _NAME)}", [clean(word) for word in words if word])


def _laid_out(told: _Told, cells: int) -> Iterator[str]:
    """A name and its words, on as many lines as they need."""
    text = told.name
    for word in told.words:
        if width(text) + len(_BETWEEN) + width(word) > cells and text.strip():
            yield text
            text = " " * (_NAME + 1)
        text += (" " if width(text) == _NAME + 1 else _BETWEEN) + word
    yield text
