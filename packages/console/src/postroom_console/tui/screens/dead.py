"""Dead letters by queue and reason, and the actions on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final
from zlib import crc32

from textual.app import ComposeResult
from textual.binding import BindingType

from ...data import actions
from ...data.message_filter import message_filter
from ...data.model import Queue
from ...data.rows import Row
from ...data.text import clean
from ...data.views import dead_columns, dead_rows, reason_columns, reason_row
from ...i18n import tr
from ..dialogs import Ask, Field
from ..keys import BACK, DEAD, Key, with_hangul
from ..paged_view import PagedView
from ..row_list import RowList

_PAGE: Final = 500
#: Queues whose deaths per hour and day are queried.
_COUNTED: Final = 20


class DeadLettersView(PagedView):
    """Above the queues with dead letters and their reasons, below the letters of the selected one."""

    KEYS: ClassVar[tuple[Key, ...]] = DEAD
    BINDINGS: ClassVar[list[BindingType]] = [key.binding() for key in (*DEAD, *BACK)]
    QUERY: ClassVar[str] = "dead"
    LISTED: ClassVar[str] = "letters"

    def __init__(self) -> None:
        super().__init__()
        self._queue = ""
        self._reason = ""  # empty for all reasons
        self._counted: dict[str, str] = {}  # query -> queue
        self._seen: dict[tuple[str, str], int] = {}  # counts when the console first saw them

    def compose_body(self) -> ComposeResult:
        yield RowList(reason_columns(), tr("no dead letters"), name="origins")
        yield RowList(dead_columns(), tr("no matching dead letters"), name="letters")

    def focus_body(self) -> None:
        self.set_focus(self.listed())

    # --- what is asked ----------------------------------------------------------------------------------------

    def subscribe(self) -> None:
        if self._queue:
            self.poll_page("list_dlq", _PAGE, 0)

    def unsubscribe(self) -> None:
        for name in ("dead", *self._counted):
            self.console.source.unsubscribe(name)
        self._counted = {}

    def _want_counts(self, queues: list[Queue]) -> None:
        wanted = {count_name(queue.name): queue.name for queue in queues[:_COUNTED]}
        for name in self._counted.keys() - wanted.keys():
            self.console.source.unsubscribe(name)
        for name in wanted.keys() - self._counted.keys():
            self.console.source.subscribe(name, "count_dlq", {"queue": wanted[name]}, 10_000)
        self._counted = wanted

    def selection(self) -> dict[str, Any]:
        wanted = message_filter(self.filter_text)
        if self._reason:
            wanted = {"reasonCode": self._reason, **wanted}
        return {"queue": self._queue, **({"filter": wanted} if wanted else {})}

    # --- what is shown ----------------------------------------------------------------------------------------

    def update_body(self) -> None:
        queues = [queue for queue in self.console.model.queues.values() if queue.dead]
        queues.sort(key=lambda queue: (-queue.dead, queue.name))
        self._want_counts(queues)
        origins = self.query_one("#origins", RowList)
        rows = [row for queue in queues for row in self._reason_rows(queue)]
        origins.show(rows)
        is_gone = (self._queue, self._reason) not in {row.key for row in rows}
        if is_gone and origins.current and not self.answer().get("messages"):
            self._choose(*_origin(origins.current))
        self.listed().show(dead_rows(self.answer().get("messages", []), self.console.wall_ms()), self._empty_text())

    def _empty_text(self) -> str:
        return self.empty_text(tr("no matching dead letters")) if self._queue else tr("no dead letters")

    def _reason_rows(self, queue: Queue) -> Iterator[Row]:
        """A row for the queue, and one for each of its reasons if there are several."""
        answers = self.console.model.answers
        name = next((name for name, counted in self._counted.items() if counted == queue.name and name in answers), "")
        counts: Mapping[str, Any] = answers[name].data if name else {}
        several = len(queue.reasons) > 1
        only = "" if several else next(iter(queue.reasons), "")
        now_ms = self.console.wall_ms()
        yield reason_row(queue.name, "", queue.dead, only, self._growth(queue.name, "", queue.dead), counts, now_ms)
        if several:
            for reason, number in sorted(queue.reasons.items(), key=lambda pair: (-pair[1], pair[0])):
                yield reason_row(
                    queue.name, reason, number, reason, self._growth(queue.name, reason, number), {}, now_ms
                )

    def _growth(self, queue: str, reason: str, number: int) -> int:
        """The increase since the console first saw them."""
        return number - self._seen.setdefault((queue, reason), number)

    def summary(self) -> str:
        words = [clean(self._queue), clean(self._reason), self.pages.range_text(self.answer()), self.marked_text()]
        return " ".join(filter(None, words))

    def _choose(self, queue: str, reason: str) -> None:
        self._queue, self._reason = queue, reason
        self.first()

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        event.stop()
        if event.row_list.id == "origins" and event.row and event.row_list.has_focus:
            self._choose(*_origin(event.row))
            self.refresh_view()

    def on_row_list_opened(self, event: RowList.Opened) -> None:
        event.stop()
        if event.row_list.id == "origins":
            self._choose(*_origin(event.row))
            self.query_one("#letters", RowList).focus()
            return
        from .message import MessageView

        self.app.push_screen(MessageView(str(event.row.key)))

    # --- keys -------------------------------------------------------------------------------------------------

    def action_reprocess(self) -> None:
        if keys := self.chosen_keys():
            self.console.propose(actions.reprocess(self._queue, keys))

    def action_reprocess_to(self) -> None:
        keys, queue = self.chosen_keys(), self._queue

        def answered(values: dict[str, str] | None) -> None:
            if values and values["to"]:
                self.console.propose(actions.reprocess(queue, keys, values["to"]))

        if keys:
            title = f"{tr('REPROCESS to another queue')}: {len(keys)} {tr('of')} {clean(queue)}"
            self.app.push_screen(Ask(title, [Field("to", tr("to the queue:"))]), answered)

    def action_reprocess_all(self) -> None:
        if not self._queue:
            return
        wanted: Mapping[str, Any] = self.selection().get("filter", {})
        queue = self._queue

        def answered(values: dict[str, str] | None) -> None:
            if values is None:
                return
            try:
                rate = float(values["rate"]) if values["rate"] else None
                if rate is not None and not 0 < rate < 1e6:
                    raise ValueError
            except ValueError:
                self.console.say(tr("the rate must be a number above 0, or empty"))
                return
            is_dry = values["dry"][:1].casefold() in with_hangul("y").split(",")
            self.console.propose(actions.reprocess_all(queue, wanted, values["to"], rate, is_dry))

        fields = [
            Field("to", tr("to another queue (empty: back to their own):")),
            Field("rate", tr("messages per second (empty: no limit):")),
            Field("dry", tr("only count them (y):")),
        ]
        self.app.push_screen(Ask(f"{tr('REPROCESS all matching letters of')} {clean(queue)}", fields), answered)

    def action_quarantine(self) -> None:
        if keys := self.chosen_keys():
            quarantined = {one["messageKey"] for one in self.answer().get("messages", []) if one.get("quarantined")}
            self.console.propose(actions.quarantine(self._queue, keys, not quarantined.issuperset(keys)))

    def action_drop(self) -> None:
        if keys := self.chosen_keys():
            path = self.save_path(self._queue, "dead")
            self.console.propose(actions.drop(self._queue, keys, path))

    def action_purge(self) -> None:
        if self._queue:
            path = self.save_path(self._queue, "dead")
            self.console.propose(actions.purge(self._queue, "dead", path))

    def action_export(self) -> None:
        if self._queue:
            self.save_all("list_dlq", self._queue, "dead")


def count_name(queue: str) -> str:
    """The name of the query for a queue's count."""
    return f"dead.{crc32(queue.encode('utf-8', 'replace')):08x}"


def _origin(row: Row) -> tuple[str, str]:
    """Queue and reason of a row of the upper list."""
    assert isinstance(row.key, tuple)
    return str(row.key[0]), str(row.key[1])
