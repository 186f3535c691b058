"""One message: its body, its headers, its failures, and its whole history."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll

from ...data import actions
from ...data.bodies import body_lines, json_lines
from ...data.records import Record
from ...data.text import age, clean
from ...data.times import date_and_time
from ...data.updates import Save
from ...i18n import tr
from ..keys import BACK, MESSAGE, Key
from ..saving import save_path
from ..view import View
from ..widgets.line import Line

#: Headers that are Unix milliseconds.
_TIMES: Final = frozenset({"createdAt", "dlqAt", "deliverAt", "leaseUntil", "timestamp"})


class MessageView(View):
    """What the daemon tells of a message; of a line of the tail without one, the line itself."""

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

    def wants(self) -> None:
        if self._key:
            self.ask("message", "get_message", {"messageKey": self._key, "events": 200}, 5000)

    def forgets(self) -> None:
        self.console.source.forget("message")

    def focus_body(self) -> None:
        self.query_one("#message").focus()

    def tell_body(self) -> None:
        told = self._told()
        waits = clean(self.console.model.refusals.get("message", "")) or tr("asking...")
        lines = list(_report(told)) if told else [waits] if self._key else []
        if self._record:
            lines += [*[""] * bool(lines), tr("THE LINE"), *json_lines(self._record.fields())]
        self.query_one("#report", Line).tell("\n".join(lines))

    def _told(self) -> Mapping[str, Any]:
        told = self.console.model.slices.get("message")
        return told.data if told and told.data.get("messageKey") == self._key else {}

    def summary(self) -> str:
        return clean(self._key)

    def copyable(self) -> str:
        return self._key or (self._record.request if self._record else "")

    def action_back(self) -> None:
        self.app.pop_screen()

    def action_export(self) -> None:
        """Save the message, with the whole of its body."""
        queue = str((self._told().get("message") or {}).get("queue") or "")
        if not queue:
            self.console.say(tr("there is no message to save"))
        else:
            path = save_path(self.console, queue, "message")
            self.console.propose(actions.export(queue, Save(path, "get_message", ({"messageKey": self._key},), "")))

    def action_top(self) -> None:
        self.query_one("#message", VerticalScroll).scroll_home(animate=False)


def _report(data: Mapping[str, Any]) -> Iterator[str]:
    message = dict(data.get("message") or {})
    body = message.pop("payload", None)
    encoding = message.get("payloadEncoding") or message.get("encoding")
    yield f"{clean(str(data.get('messageKey')))}  {clean(str(data.get('state')))}"
    for name, value in message.items():
        if name not in ("messageKey", "state"):
            yield f"  {clean(name)}: {clean(_header(name, value))}"
    if body is not None:
        yield ""
        yield tr("BODY")
        yield from body_lines(body, encoding == "base64")
    failures = data.get("failures") or []
    if failures:
        yield ""
        yield tr("FAILURES")
        for failure in failures:
            yield "  " + _failure_line(failure)
    yield ""
    yield tr("HISTORY") + (f" ({tr('older events were not looked for')})" if data.get("cut") else "")
    for event in data.get("events") or []:
        yield "  " + _event_line(event)


def _header(name: str, value: Any) -> str:
    """A header's value; times and spans also in words."""
    if name in _TIMES and type(value) is int:
        return f"{value} ({date_and_time(value)})"
    if name == "ageMs" and type(value) is int:
        return f"{value} ({age(value)})"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _failure_line(failure: Mapping[str, Any]) -> str:
    more = dict(failure)
    at = more.pop("failedAtMs", None)
    words = [date_and_time(at) if type(at) is int else "", json.dumps(more, ensure_ascii=False)]
    return clean(" ".join(filter(None, words)))


def _event_line(event: Mapping[str, Any]) -> str:
    common = (
        "id",
        "epoch",
        "req",
        "grp",
        "engineMs",
        "wallMs",
        "type",
        "queue",
        "key",
        "n",
        "gn",
        "reply",
        "crc",
        "by",
    )
    more = {name: value for name, value in event.items() if name not in common}
    by = (event.get("by") or {}).get("client", "")
    trace = str((event.get("by") or {}).get("traceparent") or "")
    if trace:
        more["trace"] = trace[3:35]
    text = json.dumps(more, ensure_ascii=False) if more else ""
    return clean(f"{date_and_time(int(event['wallMs']))} {event['type']:14} {event['id']} {by} {text}".rstrip())
