"""The tail: journal and traffic, followed or held."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from ...data.filters import Filter, FilterError
from ...data.text import figure, size
from ...data.views import record_columns, record_row
from ...i18n import tr
from ..keys import BACK, TAIL, Key
from ..view import View
from ..widgets.row_list import RowList
from .confirm import Ask, Field


class Tail(View):
    """Follows until the cursor is moved up; then the same lines stay, and what has come since is counted."""

    KEYS: ClassVar[tuple[Key, ...]] = TAIL
    BINDINGS: ClassVar[list[BindingType]] = [key.binding() for key in (*TAIL, *BACK)]

    def __init__(self) -> None:
        super().__init__()
        self._follows = True
        self._hides_own = True
        self._end = 0  # number of the last record that is shown while it is held
        self._search: Filter | None = None

    def compose_body(self) -> ComposeResult:
        yield TailList(record_columns(), tr("nothing has happened yet"), name="tail")

    def tell_body(self) -> None:
        ring = self.console.ring
        listed = self.query_one("#tail", TailList)
        if self._follows:
            self._end = ring.taken
        pairs = ring.window(self._end, max(1, listed.size.height - 1) if self._follows else 2000)
        listed.show([record_row(number, record) for number, record in pairs], self.console.tail_problem or None)
        if self._follows:
            listed.action_last()

    def summary(self) -> str:
        ring = self.console.ring
        behind = ring.taken - self._end
        words = [tr("FOLLOW") if self._follows else f"{tr('HELD')} +{figure(behind)}", f"{figure(len(ring.shown))}"]
        if self.console.skipped_bytes:
            words.append(f"{tr('skipped')} {size(self.console.skipped_bytes)}")
        if self.console.bad_lines:
            words.append(f"{tr('bad lines')} {figure(self.console.bad_lines)}")
        if self.console.missing_events:
            words.append(f"{tr('missing')} {figure(self.console.missing_events)}")
        if ring.problem:
            words.append(ring.problem)
        return " ".join(words)

    def filtered(self, text: str) -> str:
        try:
            self.console.ring.filter(text, self._hides_own)
        except FilterError as error:
            return str(error)
        return ""

    def hold(self) -> None:
        """Let the same lines stay."""
        if self._follows:
            self._follows = False
            self.tell()

    def action_follow(self) -> None:
        self._follows = not self._follows
        self.tell()

    def action_own(self) -> None:
        self._hides_own = not self._hides_own
        self.filtered(self.filter_text)
        self.tell()

    def action_search(self) -> None:
        def answered(told: dict[str, str] | None) -> None:
            if told:
                try:
                    self._search = Filter(told["text"])
                except FilterError as error:
                    self.console.say(str(error))
                    return
                self.action_next(-1)

        self.app.push_screen(Ask(tr("SEARCH"), [Field("text", tr("what a line must have, as in a filter:"))]), answered)

    def action_next(self, step: int) -> None:
        listed = self.query_one("#tail", TailList)
        if self._search is None or listed.current is None:
            return
        number = self.console.ring.search(self._search, int(str(listed.current.key)), step)
        if number is None:
            self.console.say(self._search.problem or tr("no more hits"))
            return
        self._follows = False
        self._end = max(self._end, number)
        self.tell()
        listed.go_to(number)

    def on_row_list_opened(self, event: RowList.Opened) -> None:
        event.stop()
        from .message import MessageView

        pair = next((pair for pair in self.console.ring.shown if pair[0] == event.row.key), None)
        if pair and pair[1].key:
            self.app.push_screen(MessageView(pair[1].key, pair[1]))
        elif pair:
            self.app.push_screen(MessageView("", pair[1]))


class TailList(RowList):
    """Moving up in it holds the tail."""

    def _hold(self) -> None:
        if isinstance(self.screen, Tail):
            self.screen.hold()

    def action_move(self, step: int) -> None:
        if step < 0:
            self._hold()
        super().action_move(step)

    def action_page(self, step: int) -> None:
        if step < 0:
            self._hold()
        super().action_page(step)

    def action_first(self) -> None:
        self._hold()
        super().action_first()

    def go_to(self, number: int) -> None:
        """Put the cursor on a record."""
        self._go(next((at for at, row in enumerate(self.rows) if row.key == number), 0))
