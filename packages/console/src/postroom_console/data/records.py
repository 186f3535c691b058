"""Lines of the journal and of the traffic log as records of one tail.

A record is small: it keeps the line's bytes, and of its fields what is filtered and shown again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import intern
from typing import Any, Final, NamedTuple

import orjson

from postroom_common.errors import DamagedRecord
from postroom_common.events import decode_event

from .text import age, clean, size

#: Characters of a body that a record shows.
_PREVIEW: Final = 400
#: Events that tell of trouble.
TROUBLE: Final = frozenset({"retried", "died", "dropped", "quarantined", "gap", "loss_accepted", "paused"})


class Record(NamedTuple):
    """One line of the tail. ``kind`` is the type of an event, or the command of a request; ``code`` is empty for an
    event. ``detail`` is one line for people, cleaned; all other texts are as they came."""

    wall_ms: int
    engine_ms: int
    is_event: bool
    kind: str
    queue: str
    key: str
    client: str
    code: str
    request: str
    number: int
    is_trouble: bool
    detail: str
    raw: bytes

    def fields(self) -> dict[str, Any]:
        """The whole line."""
        fields: dict[str, Any] = orjson.loads(self.raw)
        return fields


def from_event(line: bytes) -> Record | None:
    """The record of a line of the journal; None when it is no event, or not as it was written."""
    try:
        fields = decode_event(line)
    except DamagedRecord:
        return None
    by = fields.get("by")
    by = by if type(by) is dict else {}
    kind = fields["type"]
    return Record(
        wall_ms=fields["wallMs"],
        engine_ms=fields["engineMs"],
        is_event=True,
        kind=intern(kind),
        queue=intern(_text(fields, "queue")),
        key=_text(fields, "key"),
        client=intern(_text(by, "client") or _text(fields, "consumer")),
        code="",
        request=_text(by, "request"),
        number=fields["id"],
        is_trouble=kind in TROUBLE,
        detail=_detail(_detail_of_event, fields),
        raw=line,
    )


def from_request(line: bytes) -> Record | None:
    """The record of a line of the traffic log; None when it is none."""
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if type(fields) is not dict or any(type(fields.get(name)) is not int for name in ("wallMs", "engineMs")):
        return None
    command, code = _text(fields, "command"), _text(fields, "code")
    if not command or not code:
        return None
    return Record(
        wall_ms=fields["wallMs"],
        engine_ms=fields["engineMs"],
        is_event=False,
        kind=intern(command),
        queue=intern(_text(fields, "queue")),
        key="",
        client=intern(_text(fields, "client")),
        code=intern(code),
        request=_text(fields, "request"),
        number=0,
        is_trouble=code != "OK",
        detail=_detail(_detail_of_request, fields),
        raw=line,
    )


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if type(value) is str else ""


def _detail(tell: Callable[[dict[str, Any]], str], fields: dict[str, Any]) -> str:
    """What a line tells in words; empty for one that a newer daemon has made otherwise."""
    try:
        return clean(tell(fields)[:_PREVIEW])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return ""


def _detail_of_request(fields: dict[str, Any]) -> str:
    return f"{fields['code']} {fields['ms']:.1f}ms {size(fields['bytes'])} uid {fields['uid']}"


def _detail_of_event(fields: dict[str, Any]) -> str:
    match fields["type"]:
        case "published":
            body = fields.get("body")
            text = f"[{size(body['bytes'])}]" if body else body_text(fields.get("message"))
            return f"p{int(fields.get('priority') or 0)} {text}"
        case "leased":
            left = int(fields["untilEngineMs"]) - fields["engineMs"]
            return f"{fields.get('consumer', '')} try {fields.get('attempt')} for {age(left)}"
        case "acked":
            return f"after {age(int(fields.get('heldMs') or 0))}"
        case "died" | "retried" | "dropped":
            failure = fields.get("failure") or {}
            reason = f"{failure.get('reasonCode', '')} {failure.get('reasonMessage', '')}".strip()
            return f"try {failure.get('attempt', '-')} {reason or fields.get('reason', '')}"
        case "moved" | "reprocessed" if fields.get("to"):
            return f"to {fields['to']}"
        case "policy_set":
            return orjson.dumps(fields.get("policy")).decode()
        case _:
            return ""


def body_text(message: Any) -> str:
    """The body of a message as an event has it, as text; a binary one as base64."""
    part = _first_part(message)
    if "json" in part:
        return orjson.dumps(part["json"]).decode()
    return str(part.get("text", part.get("base64", "")))


def body_json(record: Record) -> Any:
    """The JSON body of a message that the record tells of; None without one."""
    part = _first_part(record.fields().get("message")) if record.kind == "published" else {}
    if "json" in part:
        return part["json"]
    try:
        return orjson.loads(part.get("text", ""))
    except (orjson.JSONDecodeError, TypeError):
        return None


def _first_part(message: Any) -> dict[str, Any]:
    parts = message.get("parts") if type(message) is dict else None
    part = parts[0] if type(parts) is list and parts else None
    return part if type(part) is dict else {}
