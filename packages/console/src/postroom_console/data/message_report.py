"""A message as lines for people: headers, body (JSON indented, bytes in hex, other text as it is), failures,
history."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from ..i18n import tr
from .text import age, clean, figure, size
from .times import date_and_time

#: Characters of a body that are shown, and lines.
BODY_CHARACTERS: Final = 65_536
BODY_LINES: Final = 4000
#: Bytes that are shown in hex.
BODY_BYTES: Final = 16_384
_HEX: Final = 16
#: Headers that are Unix milliseconds.
_TIMES: Final = frozenset({"createdAt", "dlqAt", "deliverAt", "leaseUntil", "timestamp"})


def report_lines(data: Mapping[str, Any]) -> Iterator[str]:
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
    yield tr("HISTORY") + (f" ({tr('older events omitted')})" if data.get("cut") else "")
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
    by = event.get("by") or {}
    more |= {name: by[name] for name in ("principal", "door") if name in by}
    trace = str(by.get("traceparent") or "")
    if trace:
        more["trace"] = trace[3:35]
    text = json.dumps(more, ensure_ascii=False) if more else ""
    client = by.get("client", "")
    return clean(f"{date_and_time(int(event['wallMs']))} {event['type']:14} {event['id']} {client} {text}".rstrip())


def body_lines(body: Any, is_binary: bool = False) -> Iterator[str]:
    """A body, cleaned. Of a long body the beginning, and how much is omitted."""
    if is_binary and isinstance(body, str):
        try:
            data = base64.b64decode(body, validate=True)
        except (binascii.Error, ValueError):
            pass
        else:
            yield from _hex_lines(data)
            return
    yield from _text_lines(_indented(body))


def json_lines(value: Any) -> Iterator[str]:
    """A value as JSON, indented and cleaned."""
    yield from _text_lines(json.dumps(value, ensure_ascii=False, indent=2))


def _indented(body: Any) -> str:
    """JSON indented, and any other text as it is, also JSON that is nested too deeply."""
    try:
        return json.dumps(json.loads(body) if isinstance(body, str) else body, ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return str(body)


def _text_lines(text: str) -> Iterator[str]:
    lines = text[:BODY_CHARACTERS].split("\n")
    for line in islice(lines, BODY_LINES):
        yield f"  {clean(line)}"
    shown = sum(len(line) + 1 for line in islice(lines, BODY_LINES)) - 1
    if shown < len(text):
        yield "  " + tr("... and {n} more characters: save it to see them").format(n=figure(len(text) - shown))


def _hex_lines(data: bytes) -> Iterator[str]:
    for at in range(0, min(len(data), BODY_BYTES), _HEX):
        part = data[at : at + _HEX]
        shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        yield f"  {at:06x}  {part.hex(' '):{_HEX * 3}} {shown}"
    if len(data) > BODY_BYTES:
        yield "  " + tr("... and {size} more: save it to see them").format(size=size(len(data) - BODY_BYTES))
