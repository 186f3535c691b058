"""The tail of journal and traffic log."""

from __future__ import annotations

from bisect import bisect_left
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType

from ...data.bursts import BURST, collapsed
from ...data.filters import Filter, FilterError
from ...data.records import Record
from ...data.text import figure, size
from ...data.views import record_columns, tail_rows
from ...i18n import tr
from ..dialogs import Ask, Field
from ..keys import BACK, TAIL, Key
from ..row_list import RowList
from ..view import View

#: Records from which the lines are made.
_RECORDS: Final = 4000


class TailView(View):
    """Follows until the cursor is moved up; then the lines stay, and new ones are counted."""

    KEYS: ClassVar[tuple[Key, ...]] = TAIL
    BINDINGS: ClassVar[list[BindingType]] = [key.binding() for key in (*TAIL, *BACK)]

    def __init__(self) -> None:
        super().__init__()
        self._follows = True
        self._hides_own = True
        self._end = 0  # the number of the last record shown while the tail is paused
        self._search: Filter | None = None
        self._collapses = True
        self._opened: set[int] = set()  # bursts that are expanded, by their first record
        self._shown: tuple[object, ...] = ()  # what the lines of a paused tail were made from

    def compose_body(self) -> ComposeResult:
        self._collapses = self.console.config.bursts
        yield TailList(record_columns(), tr("nothing has happened yet"), name="tail")

    def update_body(self) -> None:
        ring = self.console.ring
        listed = self.query_one("#tail", TailList)
        if self._follows:
            self._end = ring.taken
        nothing = tr("no line matches the filter") if self.filter_text and len(ring) else tr("nothing has happened yet")
        empty = self.console.tail_problem or nothing
        first = ring.shown[0][0] if ring.shown else 0
        shown_now = (
            self._end,
            first,
            len(ring.shown) if self._follows else 0,
            self._collapses,
            len(self._opened),
            empty,
        )
        if self._follows or shown_now != self._shown:
            least = BURST if self._collapses else len(ring.shown) + 1
            room = max(1, listed.size.height - 1)
            window = _RECORDS if self._collapses or not self._follows else room
            pairs = ring.window(self._end, window)
            shown = collapsed(pairs, self._opened, least, room if self._follows else 0)
            listed.show(tail_rows(shown, self.console.wall_ms()), empty)
        self._shown = shown_now
        if self._follows:
            listed.action_last()

    def summary(self) -> str:
        ring = self.console.ring
        behind = len(ring.shown) - bisect_left(ring.shown, self._end + 1, key=lambda pair: pair[0])
        words = [
            tr("FOLLOW") if self._follows else f"{tr('PAUSED', 'tail')} +{figure(behind)}",
            f"{figure(len(ring.shown))}",
        ]
        if self.console.skipped_bytes:
            words.append(f"{tr('skipped')} {size(self.console.skipped_bytes)}")
        if self.console.bad_lines:
            words.append(f"{tr('bad lines')} {figure(self.console.bad_lines)}")
        if self.console.missing_events:
            words.append(f"{tr('missing')} {figure(self.console.missing_events)}")
        if ring.problem:
            words.append(ring.problem)
        return " ".join(words)

    def apply_filter(self, text: str) -> str:
        try:
            self.console.ring.filter(text, self._hides_own)
        except FilterError as error:
            return str(error)
        return ""

    @property
    def follows(self) -> bool:
        """Whether the tail follows new lines."""
        return self._follows

    def hold(self) -> None:
        """Stop following."""
        if self._follows:
            self._follows = False
            self.refresh_view()

    def action_follow(self) -> None:
        self._follows = not self._follows
        self.refresh_view()

    def action_bursts(self) -> None:
        self._collapses = not self._collapses
        self._opened.clear()
        self.refresh_view()

    def action_own(self) -> None:
        self._hides_own = not self._hides_own
        self.apply_filter(self.filter_text)
        self.refresh_view()

    def action_search(self) -> None:
        def answered(values: dict[str, str] | None) -> None:
            if values:
                try:
                    self._search = Filter(values["text"])
                except FilterError as error:
                    self.console.say(str(error))
                    return
                self.action_next(-1)

        self.app.push_screen(Ask(tr("SEARCH"), [Field("text", tr("search for (as in a filter):"))]), answered)

    def action_next(self, step: int) -> None:
        listed = self.query_one("#tail", TailList)
        if self._search is None or listed.current is None:
            return
        ring = self.console.ring
        begin = ring.taken + 1 if self._follows else int(str(listed.current.key))
        number = ring.search(self._search, begin, step)
        if number is None:
            self.console.say(self._search.problem or tr("no more hits"))
            return
        self._follows = False
        if number > self._end or number < ring.window(self._end, _RECORDS)[0][0]:
            self._end = number
        self._collapses = False  # a hit may be within a burst
        self.refresh_view()
        listed.go_to(number)

    def on_row_list_opened(self, event: RowList.Opened) -> None:
        event.stop()
        shown = list(self.console.ring.window(self._end, _RECORDS))
        number = int(str(event.row.key))
        burst = next((one for one in collapsed(shown, self._opened) if one.number == number), None)
        if self._collapses and burst and burst.times > 1:
            self._opened.add(number)
            self.hold()
            self.refresh_view()
            return
        record = self._record(number)
        if record:
            from .message import MessageView

            self.app.push_screen(MessageView(self._key_of(record), record))

    def _record(self, number: int) -> Record | None:
        return next((record for at, record in self.console.ring.shown if at == number), None)

    def _key_of(self, record: Record) -> str:
        """The message of a line; for a request, that of an event of the same request."""
        if record.key or not record.request:
            return record.key
        events = (one for _, one in self.console.ring.shown if one.is_event and one.request == record.request)
        return next((one.key for one in events if one.key), "")

    def copy_text(self) -> str:
        row = self.query_one("#tail", TailList).current
        record = self._record(int(str(row.key))) if row else None
        return (record.key or record.request) if record else ""


class TailList(RowList):
    """A list that stops following when the cursor moves up."""

    def _hold(self) -> None:
        if isinstance(self.screen, TailView):
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

    def action_last(self) -> None:
        if isinstance(self.screen, TailView) and not self.screen.follows:
            self.screen.action_follow()
        super().action_last()

    def go_to(self, number: int) -> None:
        """Put the cursor on a record."""
        self._go(next((at for at, row in enumerate(self.rows) if row.key == number), 0))
