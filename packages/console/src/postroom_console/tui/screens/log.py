"""The log of the actions from this console."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from ...data.action_log import LogEntry
from ...data.rows import Cell, Column, Row, Tone
from ...data.text import clean, figure
from ...data.times import moment
from ...data.updates import Result
from ...i18n import tr
from ..keys import BACK, LOG, Key
from ..row_list import RowList
from ..view import View

_TONES = {
    Result.OK: Tone.GOOD,
    Result.REFUSED: Tone.BAD,
    Result.UNKNOWN: Tone.WARN,
    Result.STOPPED: Tone.WARN,
    Result.RUNNING: Tone.DIM,
}


class LogView(View):
    """The actions and their results, newest first."""

    KEYS: ClassVar[tuple[Key, ...]] = LOG
    BINDINGS: ClassVar[list[BindingType]] = [key.binding() for key in (*LOG, *BACK)]
    FILTERS: ClassVar[bool] = False

    def compose_body(self) -> ComposeResult:
        columns = [
            Column(tr("TIME"), 8),
            Column(tr("ACTION"), 9),
            Column(tr("QUEUE"), 10, wide=30),
            Column(tr("RESULT"), 7),
            Column(tr("NUMBER"), 6, right=True),
            Column(tr("WHAT"), 16, grows=True),
        ]
        yield RowList(columns, tr("no actions yet"), name="log")

    def update_body(self) -> None:
        log = self.console.action_log
        entries = [*reversed(log.running), *reversed(log.entries)]
        now_ms = self.console.wall_ms()
        rows = [_row(len(entries) - at, entry, now_ms) for at, entry in enumerate(entries)]
        self.query_one("#log", RowList).show(rows)

    def action_stop(self) -> None:
        """Stop an action: the one under the cursor, or else the newest."""
        log = self.console.action_log
        tickets = log.running_tickets[::-1]
        if not tickets:
            self.console.say(tr("nothing is running"))
            return
        row = self.query_one("#log", RowList).current
        at = len(tickets) + len(log.entries) - int(str(row.key)) if row else 0
        self.console.source.cancel(tickets[at if at < len(tickets) else 0])
        self.console.say(tr("it stops after the current request..."))

    def summary(self) -> str:
        log = self.console.action_log
        return clean(log.problem or (str(log.path) if log.path else ""))


def _row(number: int, entry: LogEntry, now_ms: int) -> Row:
    result = entry.result
    return Row(
        number,
        (
            Cell(moment(entry.wall_ms, now_ms), Tone.DIM),
            Cell(tr(entry.verb)),
            Cell(clean(entry.queue)),
            Cell(tr(result.value) if result else tr("running"), _TONES[result] if result else Tone.DIM),
            Cell(figure(entry.changed)),
            Cell(clean(entry.text or entry.what)),
        ),
    )
