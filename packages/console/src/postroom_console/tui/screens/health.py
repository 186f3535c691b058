"""The health of the daemon, its journal, store and disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, NamedTuple, TypeGuard

from textual.app import ComposeResult
from textual.containers import VerticalScroll

from ...data.member import Member
from ...data.text import age, clean, figure, fit, size, width
from ...data.times import moment
from ...i18n import mark, tr
from ..view import View
from ..widgets import Line

#: Metrics that are shown elsewhere, or are of no use here.
_CLOCKS: Final = frozenset({"timestamp", "uptimeMs", "asOfEvent", "engineNowMs"})
#: Metrics that are Unix times in milliseconds, and the first value that is one: in daemons before 0.2 it is a duration.
_TIMES: Final = frozenset({"lastRequestMs"})
_FIRST_TIME_MS: Final = 1_000_000_000_000

_NAME: Final = 13
_BETWEEN: Final = "   "


class _Part(NamedTuple):
    name: str
    words: list[str]


class HealthView(View):
    """One line per part, with problems marked."""

    FILTERS: ClassVar[bool] = False

    def compose_body(self) -> ComposeResult:
        with VerticalScroll(id="health", can_focus=True):
            yield Line(name="report")

    def focus_body(self) -> None:
        self.query_one("#health").focus()

    def update_body(self) -> None:
        cells = max(self.size.width - 1, _NAME * 2)
        self.query_one("#report", Line).show(
            "\n".join(line for part in self._lines() for line in _laid_out(part, cells))
        )

    def _lines(self) -> list[_Part]:
        console = self.console
        health, metrics = console.model.data("health"), console.model.data("metrics")
        heard_ms = console.model.age_ms(console.clock())
        lines = [
            _daemon_line(health, metrics, heard_ms, console.is_stale),
            *_check_lines(health),
            *_metric_lines(metrics, console.wall_ms()),
            _cluster_line(console.model.member),
            self._console_line(),
        ]
        if console.tail_problem:
            lines.append(_line(tr("tail"), [console.tail_problem], True))
        if console.model.problem:
            lines.append(_line(tr("problem"), [f"{console.model.problem_code} {console.model.problem}"], True))
        return lines

    def _console_line(self) -> _Part:
        console, ring = self.console, self.console.ring
        words = [
            "RO" if console.read_only else "RW",
            f"{figure(len(ring))} {tr('records')}",
            f"{figure(ring.dropped)} {tr('dropped')}",
            f"{size(console.skipped_bytes)} {tr('skipped')}",
            f"{figure(console.bad_lines)} {tr('bad lines')}",
        ]
        return _line(tr("console"), words)


def _daemon_line(health: Mapping[str, Any], metrics: Mapping[str, Any], heard_ms: int | None, is_stale: bool) -> _Part:
    words = [
        tr("not heard yet") if heard_ms is None else f"{tr('heard')} {age(heard_ms)} {tr('ago')}",
        f"{tr('running for')} {age(metrics['uptimeMs'])}" if "uptimeMs" in metrics else "",
        f"{tr('version')} {health.get('version', '-')}",
        f"{tr('draining')} {tr('yes') if health.get('draining') else tr('no')}",
    ]
    return _line(tr("daemon"), words, is_stale)


def _check_lines(health: Mapping[str, Any]) -> Iterator[_Part]:
    """A line for the journal, the store and the disk each, and for the mailbox if it is not ok."""
    checks: Mapping[str, Any] = health.get("checks") or {}
    for name, words_of in (
        (mark("journal"), _journal_words),
        (mark("store"), _store_words),
        (mark("disk"), _disk_words),
    ):
        check: Mapping[str, Any] = checks.get(name) or {}
        words = [tr("ok") if check.get("ok") else str(check.get("error") or tr("not known")), *words_of(health, check)]
        yield _line(tr(name), words, not check.get("ok", True))
    mailbox: Mapping[str, Any] = checks.get("mailbox") or {}
    if not mailbox.get("ok", True):
        yield _line(tr("mailbox"), [str(mailbox.get("error") or tr("not known"))], True)


def _journal_words(health: Mapping[str, Any], check: Mapping[str, Any]) -> Iterator[str]:
    yield f"{tr('last event')} {figure(int(health.get('asOfEvent') or 0))}"
    for first, last in check.get("missingEvents") or ():
        yield f"{tr('missing')} {first}-{last}"


def _store_words(health: Mapping[str, Any], check: Mapping[str, Any]) -> Iterator[str]:
    yield str(health.get("backend", ""))
    yield str(health.get("durability", ""))


def _disk_words(health: Mapping[str, Any], check: Mapping[str, Any]) -> Iterator[str]:
    if "freeBytes" in check:
        yield f"{size(int(check['freeBytes']))} {tr('free')}"
        yield f"{tr('publish refused below')} {size(int(check.get('reserveBytes') or 0))}"
        if check.get("quarantineBytes"):
            yield f"{tr('quarantine')} {size(int(check['quarantineBytes']))}"


def _cluster_line(member: Member | None) -> _Part:
    if member is None:
        return _line(tr("replication"), [tr("not configured")])
    return _line(
        tr("replication"), [member.cluster, member.words(), member.address, member.problem], bool(member.problem)
    )


def _metric_lines(metrics: Mapping[str, Any], now_ms: int) -> list[_Part]:
    flat = [
        f"{name} {_shown(name, value, now_ms)}"
        for name, value in metrics.items()
        if _is_number(value) and name not in _CLOCKS
    ]
    nested = [
        _line(name, [f"{key} {_shown(key, value, now_ms)}" for key, value in values.items() if _is_number(value)])
        for name, values in metrics.items()
        if isinstance(values, dict) and any(_is_number(value) for value in values.values())
    ]
    return ([_line(tr("figures"), flat)] if flat else []) + nested


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float)


def _shown(name: str, value: float, now_ms: int) -> str:
    return moment(int(value), now_ms) if name in _TIMES and value >= _FIRST_TIME_MS else figure(value)


def _line(name: str, words: list[str], is_wrong: bool = False) -> _Part:
    return _Part(f"{'!' if is_wrong else ' '}{fit(clean(name), _NAME)}", [clean(word) for word in words if word])


def _laid_out(part: _Part, cells: int) -> Iterator[str]:
    """A name and its words, on as many lines as they need."""
    text = part.name
    for word in part.words:
        if width(text) + len(_BETWEEN) + width(word) > cells and text.strip():
            yield text
            text = " " * (_NAME + 1)
        text += (" " if width(text) == _NAME + 1 else _BETWEEN) + word
    yield text
