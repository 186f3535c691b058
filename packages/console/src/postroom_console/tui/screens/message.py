"""One message: headers, body, failures, history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll

from ...data import actions
from ...data.message_report import json_lines, report_lines
from ...data.records import Record
from ...data.text import clean
from ...data.updates import Save
from ...i18n import tr
from ..keys import BACK, MESSAGE, Key
from ..view import View
from ..widgets import Line


class MessageView(View):
    """A message, and a line of the tail that it was opened from."""

    KEYS: ClassVar[tuple[Key, ...]] = MESSAGE
    BINDINGS: ClassVar[list[BindingType]] = [key.binding() for key in (*MESSAGE, *BACK)]
    FILTERS: ClassVar[bool] = False

    def __init__(self, key: str, record: Record | None = None) -> None:
        super().__init__()
        self._key = key
        self._record = record

    def compose_body(self) -> ComposeResult:
        with VerticalScroll(id="message", can_focus=True):
            yield Line(name="report")

    def subscribe(self) -> None:
        if self._key:
            self.poll("message", "get_message", {"messageKey": self._key, "events": 200}, 5000)

    def unsubscribe(self) -> None:
        self.console.source.unsubscribe("message")

    def focus_body(self) -> None:
        self.query_one("#message").focus()

    def update_body(self) -> None:
        answer = self._answer()
        waits = clean(self.console.model.refusals.get("message", "")) or tr("loading...")
        lines = list(report_lines(answer)) if answer else [waits] if self._key else []
        if self._record:
            lines += [*[""] * bool(lines), tr("THE LINE"), *json_lines(self._record.fields())]
        self.query_one("#report", Line).show("\n".join(lines))

    def _answer(self) -> Mapping[str, Any]:
        answer = self.console.model.data("message")
        return answer if answer.get("messageKey") == self._key else {}

    def summary(self) -> str:
        return clean(self._key)

    def copy_text(self) -> str:
        return self._key or (self._record.request if self._record else "")

    def action_back(self) -> None:
        self.app.pop_screen()

    def action_export(self) -> None:
        """Save the message with its complete body."""
        queue = str((self._answer().get("message") or {}).get("queue") or "")
        if not queue:
            self.console.say(tr("there is no message to save"))
        else:
            path = self.save_path(queue, "message")
            self.console.propose(actions.export(queue, Save(path, "get_message", ({"messageKey": self._key},), "")))

    def action_top(self) -> None:
        self.query_one("#message", VerticalScroll).scroll_home(animate=False)
