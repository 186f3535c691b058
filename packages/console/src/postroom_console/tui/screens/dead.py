"""Dead letters: of which queue and why, and what to do with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from ...data import actions
from ...data.rows import Cell, Column, Row, Tone
from ...data.text import clean, figure
from ...data.updates import Save
from ...data.views import dead_columns, dead_rows
from ...i18n import tr
from ..keys import BACK, DEAD, Key
from ..view import View
from ..widgets.row_list import RowList
from .confirm import Ask, Field
from .queues import save_path

_PAGE = 500


class DeadLetters(View):
    """Above the queues that have dead letters, with their reasons; below the letters of the one under the cursor."""

    KEYS: ClassVar[tuple[Key, ...]] = DEAD
    BINDINGS: ClassVar[list[BindingType]] = [key.binding() for key in (*DEAD, *BACK)]

    def __init__(self, queue: str = "") -> None:
        super().__init__()
        self._queue = queue

    def compose_body(self) -> ComposeResult:
        columns = [Column(tr("QUEUE"), 16), Column(tr("DEAD"), 6, right=True), Column(tr("REASONS"), 20, grows=True)]
        yield RowList(columns, tr("no dead letters"), name="origins")
        yield RowList(dead_columns(), tr("no dead letters that fit"), name="letters")

    def focus_body(self) -> None:
        self.query_one("#letters", RowList).focus()

    def wants(self) -> None:
        if self._queue:
            self.console.source.want("dead", "list_dlq", self._question(), 3000)

    def forgets(self) -> None:
        self.console.source.forget("dead")

    def _question(self) -> dict[str, Any]:
        return {"queue": self._queue, "limit": _PAGE, "previewBytes": 0, **self._filter()}

    def _filter(self) -> dict[str, Any]:
        return {"filter": {"text": self.filter_text}} if self.filter_text else {}

    def filtered(self, text: str) -> str:
        self.filter_text = text
        self.wants()
        return ""

    def tell_body(self) -> None:
        queues = sorted((queue for queue in self.console.model.queues.values() if queue.dead), key=lambda q: -q.dead)
        origins = self.query_one("#origins", RowList)
        origins.show(
            [
                Row(
                    queue.name,
                    (
                        Cell(clean(queue.name)),
                        Cell(figure(queue.dead), Tone.BAD),
                        Cell("  ".join(f"{clean(reason)} {figure(n)}" for reason, n in _by_count(queue.reasons))),
                    ),
                )
                for queue in queues
            ]
        )
        if origins.current and self._queue != origins.current.key and not origins.has_focus and not self._queue:
            self._choose(str(origins.current.key))
        told = self.console.model.slices.get("dead")
        fits = told and told.data.get("queue") == self._queue
        self.query_one("#letters", RowList).show(dead_rows(told.data.get("messages", [])) if told and fits else [])

    def summary(self) -> str:
        marked = len(self.query_one("#letters", RowList).marks)
        return f"{clean(self._queue)} {tr('marked')} {marked}" if marked else clean(self._queue)

    def _choose(self, queue: str) -> None:
        self._queue = queue
        self.wants()

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        event.stop()
        if event.row_list.id == "origins" and event.row and event.row_list.has_focus:
            self._choose(str(event.row.key))
            self.tell()

    def on_row_list_opened(self, event: RowList.Opened) -> None:
        event.stop()
        if event.row_list.id == "origins":
            self._choose(str(event.row.key))
            self.query_one("#letters", RowList).focus()
            return
        from .message import MessageView

        self.app.push_screen(MessageView(str(event.row.key)))

    def _keys(self) -> list[str]:
        return [str(row.key) for row in self.query_one("#letters", RowList).chosen]

    def action_reprocess(self) -> None:
        keys = self._keys()
        if keys:
            self.console.propose(actions.reprocess(self._queue, keys))

    def action_reprocess_all(self) -> None:
        if not self._queue:
            return
        wanted: Mapping[str, Any] = self._filter().get("filter", {})
        queue = self._queue

        def answered(told: dict[str, str] | None) -> None:
            if told is None:
                return
            try:
                rate = float(told["rate"]) if told["rate"] else None
                if rate is not None and not 0 < rate < 1e6:
                    raise ValueError
            except ValueError:
                self.console.say(tr("the rate is a number above 0, or nothing"))
                return
            self.console.propose(actions.reprocess_all(queue, wanted, told["to"], rate))

        fields = [
            Field("to", tr("to another queue (empty: back to their own):")),
            Field("rate", tr("messages a second at most (empty: no limit):")),
        ]
        self.app.push_screen(Ask(f"{tr('REPROCESS all that fit of')} {clean(queue)}", fields), answered)

    def action_drop(self) -> None:
        keys = self._keys()
        if keys:
            self.console.propose(
                actions.drop(self._queue, keys, save_path(self.console.save_root, self._queue, "dead"))
            )

    def action_purge(self) -> None:
        if self._queue:
            path = save_path(self.console.save_root, self._queue, "dead")
            self.console.propose(actions.purge(self._queue, "dead", path))

    def action_export(self) -> None:
        if self._queue:
            path = save_path(self.console.save_root, self._queue, "dead")
            asked = ({"queue": self._queue, "limit": 100, "fullBodies": True, **self._filter()},)
            effect = tr("Dead letters with their bodies are written to {file}.").format(file=clean(str(path)))
            save = (Save(path, "list_dlq", asked, "messages"),)
            self.console.propose(actions.Plan("export", self._queue, effect, save))


def _by_count(reasons: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0]))
