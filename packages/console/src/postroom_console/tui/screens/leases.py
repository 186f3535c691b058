"""Who holds which message, and for how long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from ...data import actions
from ...data.rows import Tone
from ...data.views import lease_columns, lease_rows
from ...i18n import tr, trn
from ..keys import BACK, LEASES, Key
from ..view import View
from ..widgets.row_list import RowList


class Leases(View):
    """All leases, the one that ends first in front."""

    KEYS: ClassVar[tuple[Key, ...]] = LEASES
    BINDINGS: ClassVar[list[BindingType]] = [key.binding() for key in (*LEASES, *BACK)]

    def compose_body(self) -> ComposeResult:
        yield RowList(lease_columns(), tr("nothing is in flight"), name="leases")

    def wants(self) -> None:
        self.console.source.want("leases", "list_inflight", {"limit": 500}, 2000)

    def forgets(self) -> None:
        self.console.source.forget("leases")

    def tell_body(self) -> None:
        rows = lease_rows(self.console.model, self.console.clock())
        wanted = self.filter_text.casefold()
        self.query_one("#leases", RowList).show(
            [row for row in rows if any(wanted in cell.text.casefold() for cell in row.cells)]
        )

    def summary(self) -> str:
        rows = lease_rows(self.console.model, self.console.clock())
        overdue = sum(row.cells[-1].tone is Tone.BAD for row in rows)
        words = trn("{n} lease", "{n} leases", len(rows))
        return f"{words} {overdue} {tr('OVERDUE')}!" if overdue else words

    def _chosen(self) -> list[Mapping[str, Any]]:
        told = self.console.model.slices.get("leases")
        keys = {row.key for row in self.query_one("#leases", RowList).chosen}
        return [one for one in (told.data.get("messages", []) if told else []) if one["messageKey"] in keys]

    def action_settle(self, verb: str) -> None:
        leases = self._chosen()
        if leases:
            queues = sorted({str(one["queue"]) for one in leases})
            self.console.propose(actions.settle(verb, ", ".join(queues), leases))

    def on_row_list_opened(self, event: RowList.Opened) -> None:
        event.stop()
        from .message import MessageView

        self.app.push_screen(MessageView(str(event.row.key)))
