"""Lines of the journal and of the traffic log as records of one tail.

A record is small: it keeps the line's bytes, and of its fields what is filtered and shown again and again.
"""

from __future__ import annotations

from sys import intern
from typing import Any, Final, NamedTuple

import orjson

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
    """The record of a line of the journal; None when it is no event."""
    fields = _object(line)
    if fields is None:
        return None
    try:
        kind, by = fields["type"], fields.get("by") or {}
        return Record(
            wall_ms=int(fields["wallMs"]),
            engine_ms=int(fields["engineMs"]),
            is_event=True,
            kind=intern(kind),
            queue=intern(fields.get("queue") or ""),
            key=fields.get("key") or "",
            client=intern(by.get("client") or fields.get("consumer") or ""),
            code="",
            request=by.get("request") or "",
            number=int(fields["id"]),
            is_trouble=kind in TROUBLE,
            detail=_detail_of_event(kind, fields),
            raw=line,
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def from_request(line: bytes) -> Record | None:
    """The record of a line of the traffic log; None when it is none."""
    fields = _object(line)
    if fields is None:
        return None
    try:
        code = fields["code"]
        return Record(
            wall_ms=int(fields["wallMs"]),
            engine_ms=int(fields["engineMs"]),
            is_event=False,
            kind=intern(fields["command"]),
            queue=intern(fields.get("queue") or ""),
            key="",
            client=intern(fields.get("client") or ""),
            code=intern(code),
            request=fields.get("request") or "",
            number=0,
            is_trouble=code != "OK",
            detail=clean(f"{code} {fields['ms']:.1f}ms {size(int(fields['bytes']))} uid {fields['uid']}"),
            raw=line,
        )
    except (KeyError, TypeError, ValueError):
        return None


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return fields if type(fields) is dict else None


def _detail_of_event(kind: str, fields: dict[str, Any]) -> str:
    match kind:
        case "published":
            return f"p{int(fields.get('priority') or 0)} {body_line(fields.get('message'))}"
        case "leased":
            left = int(fields["untilEngineMs"]) - int(fields["engineMs"])
            return clean(f"{fields.get('consumer', '')} try {fields.get('attempt')} for {age(left)}")
        case "acked":
            return f"after {age(int(fields.get('heldMs') or 0))}"
        case "died" | "retried" | "dropped":
            failure = fields.get("failure") or {}
            reason = f"{failure.get('reasonCode', '')} {failure.get('reasonMessage', '')}".strip()
            return clean(f"try {failure.get('attempt', '-')} {reason or fields.get('reason', '')}")
        case "moved" | "reprocessed" if fields.get("to"):
            return clean(f"to {fields['to']}")
        case "policy_set":
            return clean(orjson.dumps(fields.get("policy")).decode())[:_PREVIEW]
        case _:
            return ""


def body_line(message: Any) -> str:
    """What a message says, on one line: its first part's text or JSON, cleaned."""
    return clean(str(body_text(message))[:_PREVIEW])


def body_text(message: Any) -> str:
    """The body of a message as an event has it, as text; a binary one as base64."""
    part = (message.get("parts") or [{}])[0] if type(message) is dict else {}
    if type(part) is not dict:
        return ""
    if "json" in part:
        return orjson.dumps(part["json"]).decode()
    return str(part.get("text", part.get("data", "")))


def body_json(record: Record) -> Any:
    """The JSON body of a message that the record tells of; None without one."""
    message = record.fields().get("message") if record.kind == "published" else None
    part = (message.get("parts") or [{}])[0] if type(message) is dict else {}
    if type(part) is not dict:
        return None
    if "json" in part:
        return part["json"]
    try:
        return orjson.loads(part.get("text", ""))
    except (orjson.JSONDecodeError, TypeError):
        return None
