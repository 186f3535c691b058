"""Lines of the journal and of the traffic log, as a daemon writes them."""

from __future__ import annotations

import json
from typing import Any

from postroom_common.events import encode_line
from postroom_console.data.records import Record, from_event, from_request


def event_line(number: int, kind: str = "published", group: int = 0, **fields: Any) -> bytes:
    """A line of the journal with its newline, of a group that ends with event ``group``, by default itself."""
    whole = {
        "id": number,
        "epoch": 1,
        "req": number,
        "grp": group or number,
        "engineMs": number * 10,
        "wallMs": 1_795_857_482_000 + number,
        "type": kind,
        **fields,
    }
    return encode_line(whole)


def request_line(command: str = "publish", code: str = "OK", **fields: Any) -> bytes:
    """A line of the traffic log with its newline."""
    whole = {
        "wallMs": 1_795_857_482_000,
        "engineMs": 10,
        "client": "app",
        "uid": 1000,
        "command": command,
        "queue": "alarms",
        "code": code,
        "ms": 0.5,
        "bytes": 183,
        "request": "request-1",
        **fields,
    }
    return json.dumps(whole, ensure_ascii=False).encode() + b"\n"


def event(number: int = 1, kind: str = "published", **fields: Any) -> Record:
    """The record of an event."""
    record = from_event(event_line(number, kind, **fields).rstrip(b"\n"))
    assert record
    return record


def request(command: str = "publish", code: str = "OK", **fields: Any) -> Record:
    """The record of a request."""
    record = from_request(request_line(command, code, **fields).rstrip(b"\n"))
    assert record
    return record


def published(body: Any, number: int = 1, **fields: Any) -> Record:
    """The record of a published message with a body of text or JSON."""
    part = {"text": body} if isinstance(body, str) else {"json": body}
    return event(number, message={"parts": [part]}, **fields)
