"""The queues, and the end of the tail below them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from ...data import actions
from ...data.model import Queue
from ...data.text import clean
from ...data.views import SORTS, queue_columns, queue_rows, record_columns, record_row
from ...i18n import tr
from ..keys import BACK, QUEUES, Key
from ..view import View
from ..widgets.row_list import RowList
from .confirm import Ask, Field


class Queues(View):
    """One row for each queue, those with trouble first."""

    KEYS: ClassVar[tuple[Key, ...]] = QUEUES
    BINDINGS: ClassVar[list[BindingType]] = [key.binding() for key in (*QUEUES, *BACK)]

    def __init__(self) -> None:
        super().__init__()
        self._sort = SORTS[0]

    def compose_body(self) -> ComposeResult:
        yield RowList(queue_columns(), tr("no queues yet"), name="queues")
        tail = RowList(record_columns(), tr("nothing has happened yet"), name="recent")
        tail.can_focus = False
        yield tail

    def tell_body(self) -> None:
        self.query_one("#queues", RowList).show(queue_rows(self.console.model, self._sort, self.filter_text))
        recent = self.query_one("#recent", RowList)
        shown = self.console.ring.window(self.console.ring.taken, max(0, recent.size.height - 1))
        recent.show([record_row(number, record) for number, record in shown], self.console.tail_problem or None)

    def filtered(self, text: str) -> str:
        return ""

    def summary(self) -> str:
        return "" if self._sort == SORTS[0] else f"{tr('by')} {tr(self._sort)}"

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
            self.console.propose(
                actions.purge(queue.name, "ready", save_path(self.console.save_root, queue.name, "ready"))
            )

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


def save_path(root: Path, queue: str, what: str) -> Path:
    """A file for messages that are removed or saved; its name tells the queue, what they are, and the time."""
    safe = "".join(character if character.isalnum() else "-" for character in queue)[:60]
    return root / f"{safe}-{what}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.jsonl"
