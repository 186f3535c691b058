"""The queues, and the end of the tail below them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical

from ...data import actions
from ...data.bursts import collapsed
from ...data.model import Queue
from ...data.rows import Row
from ...data.side import side_lines
from ...data.text import clean
from ...data.views import SORTS, queue_columns, queue_rows, record_columns, tail_rows
from ...i18n import tr
from ..keys import BACK, QUEUES, Key
from ..saving import save_path
from ..view import View
from ..widgets.line import Line
from ..widgets.row_list import RowList
from .confirm import Ask, Field

#: Records that are looked at, to show the last of them.
_LOOKED: Final = 2000
#: What is asked of the queue under the cursor.
_SIDE: Final = {"side.status": "status", "side.leases": "list_inflight", "side.dead": "count_dlq"}


class Queues(View):
    """One row for each queue, those with trouble first."""

    KEYS: ClassVar[tuple[Key, ...]] = QUEUES
    BINDINGS: ClassVar[list[BindingType]] = [key.binding() for key in (*QUEUES, *BACK)]

    def __init__(self) -> None:
        super().__init__()
        self._sort = SORTS[0]
        self._made: Sequence[Row] = ()
        self._made_of: tuple[object, ...] = ()
        self._beside = ""  # the queue that is told of at the side

    def compose_body(self) -> ComposeResult:
        self._sort = self.console.config.sort
        with Horizontal():
            with Vertical(id="lists"):
                yield RowList(queue_columns(), tr("no queues yet"), name="queues")
                tail = RowList(record_columns(), tr("nothing has happened yet"), name="recent")
                tail.can_focus = False
                yield tail
            yield Line(name="side")

    def wants(self) -> None:
        """What stands at the side, while it is shown."""
        queue = self._queue()
        wanted = queue.name if queue and self.has_class("-wide") else ""
        if wanted == self._beside:
            return
        self.forgets()
        self._beside = wanted
        if wanted:
            source = self.console.source
            source.want("side.status", "status", {"queue": wanted}, 4000)
            source.want("side.leases", "list_inflight", {"queue": wanted, "limit": 10}, 2000)
            source.want("side.dead", "count_dlq", {"queue": wanted}, 4000)

    def forgets(self) -> None:
        self._beside = ""
        for name in _SIDE:
            self.console.source.forget(name)

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        event.stop()
        self.wants()
        self._tell_side()

    def _tell_side(self) -> None:
        queue, side = self._queue(), self.query_one("#side", Line)
        if not self.has_class("-wide"):
            return
        console = self.console
        slices = console.model.slices
        told = {
            command: slices[name].data
            for name, command in _SIDE.items()
            if queue and name in slices and slices[name].data.get("queue") == queue.name
        }
        now = console.clock()
        engine_now = console.model.engine_now("side.leases", now)
        entries = console.log_of_actions.entries
        cells = max(side.size.width, 1)
        lines = side_lines(queue, told, console.notable, entries, engine_now, console.wall_ms(), cells) if queue else []
        side.tell("\n".join(lines))

    def tell_body(self) -> None:
        self.query_one("#queues", RowList).show(self._rows())
        self.wants()
        self._tell_side()
        recent = self.query_one("#recent", RowList)
        rows = max(1, recent.size.height - 1)
        shown = collapsed(self.console.ring.window(self.console.ring.taken, _LOOKED), rows=rows)
        recent.show(
            tail_rows(shown, self.console.wall_ms()), self.console.tail_problem or tr("nothing has happened yet")
        )

    def _rows(self) -> Sequence[Row]:
        """The queues' rows, made once of each answer: there may be thousands."""
        told = self.console.model.slices.get("queues")
        made_of = (self.console.model, told and told.at_ms, self._sort, self.filter_text)
        if made_of != self._made_of:
            self._made_of = made_of
            self._made = queue_rows(self.console.model, self._sort, self.filter_text)
        return self._made

    def filtered(self, text: str) -> str:
        return ""

    def summary(self) -> str:
        return "" if self._sort == SORTS[0] else f"{tr('by', 'sort')} {tr(self._sort)}"

    def copyable(self) -> str:
        queue = self._queue()
        return queue.name if queue else ""

    def _queue(self) -> Queue | None:
        row = self.query_one("#queues", RowList).current
        return self.console.model.queues.get(str(row.key)) if row else None

    def action_sort(self) -> None:
        self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        self.tell()

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
            self.console.propose(actions.purge(queue.name, "ready", save_path(self.console, queue.name, "ready")))

    def action_move_messages(self) -> None:
        queue = self._queue()
        if queue is None:
            return
        name = queue.name

        def answered(told: dict[str, str] | None) -> None:
            if told and told["to"]:
                self.console.propose(actions.move(name, told["to"]))

        title = tr("MOVE the waiting messages of {queue}").format(queue=clean(name))
        self.app.push_screen(Ask(title, [Field("to", tr("to the queue:"))]), answered)

    def on_row_list_opened(self, event: RowList.Opened) -> None:
        event.stop()
        from .queue import QueueView

        self.app.push_screen(QueueView(str(event.row.key)))
