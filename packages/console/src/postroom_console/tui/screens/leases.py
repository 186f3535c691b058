"""Who has leased which message, and until when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from ...data import actions
from ...data.rows import Tone
from ...data.views import LEASE_SORTS, lease_columns, lease_rows
from ...i18n import tr, trn
from ..keys import BACK, LEASES, Key
from ..row_list import RowList
from ..view import View


class LeasesView(View):
    """All leases, by default the one that ends first at the top."""

    KEYS: ClassVar[tuple[Key, ...]] = LEASES
    BINDINGS: ClassVar[list[BindingType]] = [key.binding() for key in (*LEASES, *BACK)]

    def __init__(self) -> None:
        super().__init__()
        self._sort = LEASE_SORTS[0]

    def compose_body(self) -> ComposeResult:
        self._sort = self.console.config.lease_sort
        yield RowList(lease_columns(), tr("nothing is in flight"), name="leases")

    def subscribe(self) -> None:
        self.poll("leases", "list_inflight", {"limit": 500}, 2000)

    def unsubscribe(self) -> None:
        self.console.source.unsubscribe("leases")

    def update_body(self) -> None:
        rows = lease_rows(self.console.model, self.console.clock(), self._sort)
        wanted = self.filter_text.casefold()
        self.query_one("#leases", RowList).show(
            [row for row in rows if any(wanted in cell.text.casefold() for cell in row.cells)]
        )

    def summary(self) -> str:
        rows = lease_rows(self.console.model, self.console.clock())
        tones = [row.cells[-1].tone for row in rows]
        overdue, ending = tones.count(Tone.BAD), tones.count(Tone.WARN)
        answer = self.console.model.data("leases")
        words = [trn("{n} lease", "{n} leases", len(rows)) + ("+" if answer.get("next") else "")]
        words.append(trn("{n} is about to end", "{n} are about to end", ending) if ending else "")
        words.append(f"{overdue} {tr('OVERDUE')}!" if overdue else "")
        words.append("" if self._sort == LEASE_SORTS[0] else f"{tr('by')} {tr(self._sort)}")
        marked = len(self.query_one("#leases", RowList).marks)
        words.append(f"{tr('marked')} {marked}" if marked else "")
        return " ".join(filter(None, words))

    def apply_filter(self, text: str) -> str:
        return ""

    def copy_text(self) -> str:
        row = self.query_one("#leases", RowList).current
        return str(row.key) if row else ""

    def action_sort(self) -> None:
        self._sort = LEASE_SORTS[(LEASE_SORTS.index(self._sort) + 1) % len(LEASE_SORTS)]
        self.refresh_view()

    def _chosen(self) -> list[Mapping[str, Any]]:
        keys = {row.key for row in self.query_one("#leases", RowList).chosen}
        return [one for one in self.console.model.data("leases").get("messages", []) if one["messageKey"] in keys]

    def action_settle(self, verb: str) -> None:
        leases = self._chosen()
        if leases:
            queues = sorted({str(one["queue"]) for one in leases})
            self.console.propose(actions.settle(verb, ", ".join(queues), leases))

    def on_row_list_opened(self, event: RowList.Opened) -> None:
        event.stop()
        from .message import MessageView

        self.app.push_screen(MessageView(str(event.row.key)))
