"""Dead letters: of which queue and why, and what to do with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final
from zlib import crc32

from textual.app import ComposeResult
from textual.binding import BindingType

from ...data import actions
from ...data.filters import FilterError
from ...data.message_filter import message_filter
from ...data.model import Queue
from ...data.rows import Row
from ...data.text import clean
from ...data.updates import Save
from ...data.views import dead_columns, dead_rows, origin_columns, origin_row
from ...i18n import tr
from ..keys import BACK, DEAD, Key
from ..paged import Pages
from ..saving import save_path
from ..view import View
from ..widgets.row_list import RowList
from .confirm import Ask, Field

_PAGE: Final = 500
#: Queues with dead letters of which it is asked how fast they die.
_COUNTED: Final = 20


class DeadLetters(View):
    """Above the queues that have dead letters, with their reasons; below the letters of what the cursor is on."""

    KEYS: ClassVar[tuple[Key, ...]] = DEAD
    BINDINGS: ClassVar[list[BindingType]] = [key.binding() for key in (*DEAD, *BACK)]

    def __init__(self) -> None:
        super().__init__()
        self._queue = ""
        self._reason = ""  # empty: all reasons
        self._pages = Pages()
        self._counted: dict[str, str] = {}  # question -> queue
        self._seen: dict[tuple[str, str], int] = {}  # letters when they were seen first

    def compose_body(self) -> ComposeResult:
        yield RowList(origin_columns(), tr("no dead letters"), name="origins")
        yield RowList(dead_columns(), tr("no dead letters that fit"), name="letters")

    def focus_body(self) -> None:
        self.query_one("#letters", RowList).focus()

    # --- what is asked ----------------------------------------------------------------------------------------

    def wants(self) -> None:
        if self._queue:
            self.console.source.want("dead", "list_dlq", self._question(), 3000)

    def forgets(self) -> None:
        for name in ("dead", *self._counted):
            self.console.source.forget(name)
        self._counted = {}

    def _want_counts(self, queues: list[Queue]) -> None:
        wanted = {count_name(queue.name): queue.name for queue in queues[:_COUNTED]}
        for name in self._counted.keys() - wanted.keys():
            self.console.source.forget(name)
        for name in wanted.keys() - self._counted.keys():
            self.console.source.want(name, "count_dlq", {"queue": wanted[name]}, 10_000)
        self._counted = wanted

    def _question(self) -> dict[str, Any]:
        page = {"after": self._pages.after} if self._pages.after else {}
        return {"queue": self._queue, "limit": _PAGE, "previewBytes": 0, **self._filter(), **page}

    def _filter(self) -> dict[str, Any]:
        wanted = message_filter(self.filter_text)
        if self._reason:
            wanted = {"reasonCode": self._reason, **wanted}
        return {"filter": wanted} if wanted else {}

    def filtered(self, text: str) -> str:
        try:
            message_filter(text)
        except FilterError as error:
            return str(error)
        self.filter_text = text
        self._pages.begin()
        self.wants()
        return ""

    # --- what is shown ----------------------------------------------------------------------------------------

    def tell_body(self) -> None:
        queues = [queue for queue in self.console.model.queues.values() if queue.dead]
        queues.sort(key=lambda queue: (-queue.dead, queue.name))
        self._want_counts(queues)
        origins = self.query_one("#origins", RowList)
        origins.show([row for queue in queues for row in self._origins(queue)])
        if origins.current and not self._queue:
            self._choose(*_origin(origins.current))
        self.query_one("#letters", RowList).show(dead_rows(self._told().get("messages", [])))

    def _origins(self, queue: Queue) -> Iterator[Row]:
        """A row for the queue, and one for each of its reasons where there are several."""
        slices = self.console.model.slices
        name = next((name for name, told in self._counted.items() if told == queue.name and name in slices), "")
        counts: Mapping[str, Any] = slices[name].data if name else {}
        several = len(queue.reasons) > 1
        only = "" if several else next(iter(queue.reasons), "")
        yield origin_row(queue.name, "", queue.dead, only, self._growth(queue.name, "", queue.dead), counts)
        if several:
            for reason, number in sorted(queue.reasons.items(), key=lambda pair: (-pair[1], pair[0])):
                yield origin_row(queue.name, reason, number, reason, self._growth(queue.name, reason, number), {})

    def _growth(self, queue: str, reason: str, number: int) -> int:
        """How many more there are than when the console saw them first."""
        return number - self._seen.setdefault((queue, reason), number)

    def _told(self) -> Mapping[str, Any]:
        told = self.console.model.slices.get("dead")
        return told.data if told and told.data.get("queue") == self._queue else {}

    def summary(self) -> str:
        marked = len(self.query_one("#letters", RowList).marks)
        words = [clean(self._queue), clean(self._reason), self._pages.words(self._told())]
        words.append(f"{tr('marked')} {marked}" if marked else "")
        return " ".join(filter(None, words))

    def copyable(self) -> str:
        row = self.query_one("#letters", RowList).current
        return str(row.key) if row else ""

    def _choose(self, queue: str, reason: str) -> None:
        self._queue, self._reason = queue, reason
        self._pages.begin()
        self.query_one("#letters", RowList).show([])
        self.wants()

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        event.stop()
        if event.row_list.id == "origins" and event.row and event.row_list.has_focus:
            self._choose(*_origin(event.row))
            self.tell()

    def on_row_list_opened(self, event: RowList.Opened) -> None:
        event.stop()
        if event.row_list.id == "origins":
            self._choose(*_origin(event.row))
            self.query_one("#letters", RowList).focus()
            return
        from .message import MessageView

        self.app.push_screen(MessageView(str(event.row.key)))

    # --- keys -------------------------------------------------------------------------------------------------

    def action_more(self) -> None:
        if self._pages.more(self._told()):
            self.wants()
        else:
            self.console.say(tr("there are no more"))

    def action_less(self) -> None:
        if self._pages.less():
            self.wants()

    def _keys(self) -> list[str]:
        return [str(row.key) for row in self.query_one("#letters", RowList).chosen]

    def action_reprocess(self) -> None:
        if keys := self._keys():
            self.console.propose(actions.reprocess(self._queue, keys))

    def action_reprocess_to(self) -> None:
        keys, queue = self._keys(), self._queue

        def answered(told: dict[str, str] | None) -> None:
            if told and told["to"]:
                self.console.propose(actions.reprocess(queue, keys, told["to"]))

        if keys:
            title = f"{tr('REPROCESS to another queue')}: {len(keys)} {tr('of')} {clean(queue)}"
            self.app.push_screen(Ask(title, [Field("to", tr("to the queue:"))]), answered)

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
            is_dry = told["dry"].casefold().startswith("y")
            self.console.propose(actions.reprocess_all(queue, wanted, told["to"], rate, is_dry))

        fields = [
            Field("to", tr("to another queue (empty: back to their own):")),
            Field("rate", tr("messages a second at most (empty: no limit):")),
            Field("dry", tr("only count them (y):")),
        ]
        self.app.push_screen(Ask(f"{tr('REPROCESS all that fit of')} {clean(queue)}", fields), answered)

    def action_quarantine(self) -> None:
        if keys := self._keys():
            apart = {one["messageKey"] for one in self._told().get("messages", []) if one.get("quarantined")}
            self.console.propose(actions.quarantine(self._queue, keys, not apart.issuperset(keys)))

    def action_drop(self) -> None:
        if keys := self._keys():
            path = save_path(self.console, self._queue, "dead")
            self.console.propose(actions.drop(self._queue, keys, path))

    def action_purge(self) -> None:
        if self._queue:
            path = save_path(self.console, self._queue, "dead")
            self.console.propose(actions.purge(self._queue, "dead", path))

    def action_export(self) -> None:
        if self._queue:
            path = save_path(self.console, self._queue, "dead")
            asked = ({"queue": self._queue, "limit": 100, "fullBodies": True, **self._filter()},)
            effect = tr("Dead letters with their bodies are written to {file}.").format(file=clean(str(path)))
            save = (Save(path, "list_dlq", asked, "messages"),)
            self.console.propose(actions.Plan("export", self._queue, effect, save))


def count_name(queue: str) -> str:
    """The question how many dead letters a queue has."""
    return f"dead.{crc32(queue.encode('utf-8', 'replace')):08x}"


def _origin(row: Row) -> tuple[str, str]:
    """Queue and reason of a row of the upper list."""
    assert isinstance(row.key, tuple)
    return str(row.key[0]), str(row.key[1])
