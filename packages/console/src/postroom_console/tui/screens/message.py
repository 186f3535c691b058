"""One message: its body, its headers, its failures, and its whole history."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll

from ...data.records import Record
from ...data.text import age, clean
from ...data.views import date_and_time, moment
from ...i18n import tr
from ..keys import BACK, MESSAGE, Key
from ..view import View
from ..widgets.line import Line

#: Characters of a body that are shown.
_BODY: Final = 65_536
_HEX: Final = 16
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
            self.console.source.want("message", "get_message", {"messageKey": self._key, "events": 200}, 5000)

    def forgets(self) -> None:
        self.console.source.forget("message")

    def focus_body(self) -> None:
        self.query_one("#message").focus()

    def tell_body(self) -> None:
        told = self.console.model.slices.get("message")
        is_told = bool(told and told.data.get("messageKey") == self._key)
        lines = list(_report(told.data) if told and is_told else [tr("asking...") if self._key else ""])
        if self._record:
            lines += ["", tr("THE LINE"), *_pretty(self._record.fields())]
        self.query_one("#report", Line).tell("\n".join(lines))

    def summary(self) -> str:
        return clean(self._key)

    def copyable(self) -> str:
        return self._key or (self._record.request if self._record else "")

    def action_back(self) -> None:
        self.app.pop_screen()

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
            yield "  " + clean(json.dumps(failure, ensure_ascii=False))
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
    text = json.dumps(more, ensure_ascii=False) if more else ""
    return clean(f"{moment(int(event['wallMs']))} {event['type']:14} {event['id']} {by} {text}".rstrip())


def body_lines(body: Any, is_binary: bool = False) -> Iterator[str]:
    """A body for people: JSON indented, bytes in hex beside their characters, text by its lines."""
    if is_binary and isinstance(body, str):
        try:
            yield from _hex_lines(base64.b64decode(body, validate=True)[: _BODY // 4])
            return
        except (binascii.Error, ValueError):
            pass
    if isinstance(body, str):
        try:
            value = json.loads(body)
        except ValueError:
            yield from (f"  {clean(line)}" for line in body[:_BODY].split("\n"))
            return
        yield from _pretty(value)
    else:
        yield from _pretty(body)
    if isinstance(body, str) and len(body) > _BODY:
        yield "  ..."


def _pretty(value: Any) -> Iterator[str]:
    for line in json.dumps(value, ensure_ascii=False, indent=2)[:_BODY].split("\n"):
        yield "  " + clean(line)


def _hex_lines(data: bytes) -> Iterator[str]:
    for at in range(0, len(data), _HEX):
        part = data[at : at + _HEX]
        shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        yield f"  {at:06x}  {part.hex(' '):{_HEX * 3}} {shown}"
