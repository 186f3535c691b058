"""The queues, and the end of the tail below them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical

from ...data import actions
from ...data.bursts import collapsed
from ...data.detail_pane import detail_lines
from ...data.model import Queue
from ...data.rows import Row
from ...data.text import clean
from ...data.views import SORTS, queue_columns, queue_rows, record_columns, tail_rows
from ...i18n import tr
from ..dialogs import Ask, Field
from ..keys import BACK, QUEUES, Key
from ..row_list import RowList
from ..view import View
from ..widgets import Line

#: Records from which the last lines are made.
_RECORDS: Final = 2000
#: The queries about the queue under the cursor, by their commands. Their names are in recordings and stay.
_DETAIL_QUERIES: Final = {"side.status": "status", "side.leases": "list_inflight", "side.dead": "count_dlq"}


class QueuesView(View):
    """One row per queue, those with problems first."""

    KEYS: ClassVar[tuple[Key, ...]] = QUEUES
    BINDINGS: ClassVar[list[BindingType]] = [key.binding() for key in (*QUEUES, *BACK)]

    def __init__(self) -> None:
        super().__init__()
        self._sort = SORTS[0]
        self._rows_made: Sequence[Row] = ()
        self._made_of: tuple[object, ...] = ()
        self._described = ""  # the queue that the detail pane describes

    def compose_body(self) -> ComposeResult:
        self._sort = self.console.config.sort
        with Horizontal():
            with Vertical(id="lists"):
                yield RowList(queue_columns(), tr("no queues yet"), name="queues")
                tail = RowList(record_columns(), tr("nothing has happened yet"), name="recent")
                tail.can_focus = False
                yield tail
            yield Line(name="detail")

    def subscribe(self) -> None:
        """Query what the detail pane shows, while it is visible."""
        queue = self._queue()
        wanted = queue.name if queue and self.has_class("-wide") else ""
        if wanted == self._described:
            return
        self.unsubscribe()
        self._described = wanted
        if wanted:
            source = self.console.source
            source.subscribe("side.status", "status", {"queue": wanted}, 4000)
            source.subscribe("side.leases", "list_inflight", {"queue": wanted, "limit": 10}, 2000)
            source.subscribe("side.dead", "count_dlq", {"queue": wanted}, 4000)

    def unsubscribe(self) -> None:
        self._described = ""
        for name in _DETAIL_QUERIES:
            self.console.source.unsubscribe(name)

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        event.stop()
        self.subscribe()
        self._update_detail()

    def _update_detail(self) -> None:
        queue, pane = self._queue(), self.query_one("#detail", Line)
        if not self.has_class("-wide"):
            return
        console = self.console
        known = console.model.answers
        answers = {
            command: known[name].data
            for name, command in _DETAIL_QUERIES.items()
            if queue and name in known and known[name].data.get("queue") == queue.name
        }
        now = console.clock()
        engine_now = console.model.engine_now("side.leases", now)
        entries = console.action_log.entries
        cells = max(pane.size.width, 1)
        lines = (
            detail_lines(queue, answers, console.admin_events, entries, engine_now, console.wall_ms(), cells)
            if queue
            else []
        )
        pane.show("\n".join(lines))

    def update_body(self) -> None:
        self.query_one("#queues", RowList).show(self._rows())
        self.subscribe()
        self._update_detail()
        recent = self.query_one("#recent", RowList)
        rows = max(1, recent.size.height - 1)
        shown = collapsed(self.console.ring.window(self.console.ring.taken, _RECORDS), rows=rows)
        recent.show(
            tail_rows(shown, self.console.wall_ms()), self.console.tail_problem or tr("nothing has happened yet")
        )

    def _rows(self) -> Sequence[Row]:
        """The rows of the queues, made once per answer: there may be thousands."""
        answer = self.console.model.answers.get("queues")
        made_of = (self.console.model, answer and answer.at_ms, self._sort, self.filter_text)
        if made_of != self._made_of:
            self._made_of = made_of
            self._rows_made = queue_rows(self.console.model, self._sort, self.filter_text)
        return self._rows_made

    def apply_filter(self, text: str) -> str:
        return ""

    def summary(self) -> str:
        return "" if self._sort == SORTS[0] else f"{tr('by', 'sort')} {tr(self._sort)}"

    def copy_text(self) -> str:
        queue = self._queue()
        return queue.name if queue else ""

    def _queue(self) -> Queue | None:
        row = self.query_one("#queues", RowList).current
        return self.console.model.queues.get(str(row.key)) if row else None

    def action_sort(self) -> None:
        self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        self.refresh_view()

    def action_pause(self) -> None:
        queue = self._queue()
        if queue:
            plan = actions.resume if queue.consume_paused else None
            self.console.propose(plan(queue.name, ("consume",)) if plan else actions.pause(queue.name, "consume"))

    def action_pause_publish(self) -> None:
        queue = self._queue()
        if queue:
            plan = actions.resume if queue.publish_paused else None
            self.console.propose(plan(queue.name, ("publish",)) if plan else actions.pause(queue.name, "publish"))

    def action_purge(self) -> None:
        queue = self._queue()
        if queue:
            self.console.propose(actions.purge(queue.name, "ready", self.save_path(queue.name, "ready")))

    def action_move_messages(self) -> None:
        queue = self._queue()
        if queue is None:
            return
        name = queue.name

        def answered(values: dict[str, str] | None) -> None:
            if values and values["to"]:
                self.console.propose(actions.move(name, values["to"]))

        title = tr("MOVE the waiting messages of {queue}").format(queue=clean(name))
        self.app.push_screen(Ask(title, [Field("to", tr("to the queue:"))]), answered)

    def on_row_list_opened(self, event: RowList.Opened) -> None:
        event.stop()
        from .queue import QueueView

        self.app.push_screen(QueueView(str(event.row.key)))
