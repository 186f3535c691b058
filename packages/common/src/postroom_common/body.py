"""Message bodies: their stored form, and their form in the mailbox.

A stored message is an ordered list of named parts. Messages of the mailbox have one part. A part is an object with
exactly one of ``text`` (stored byte for byte), ``json`` (stored as an equal value) or ``base64`` (binary), and
optionally ``contentType`` and ``name``.
"""

from __future__ import annotations

import binascii
from typing import Any, Final

import orjson

from .errors import CommandError
from .protocol import ErrorCode

Part = dict[str, Any]

#: Payload fields of a publish that are stored in the message unchanged, if present.
CARRIED: Final = (
    "type", "version", "traceId", "traceparent", "correlationId", "replyTo", "deduplicationKey", "timestamp",
)  # fmt: skip

_BINARY_TYPE = "application/octet-stream"


def part_from_wire(message: Any, encoding: str, content_type: str) -> Part:
    """The part for the ``message``, ``encoding`` and ``contentType`` of a publish.

    Raises ``CommandError`` for an unknown encoding or a text that is not base64.
    """
    part: Part
    if encoding == "base64":
        if type(message) is not str:
            raise CommandError(ErrorCode.PARSE_ERROR, "message must be a string when encoding is base64")
        try:
            binascii.a2b_base64(message, strict_mode=True)
        except ValueError as error:
            raise CommandError(ErrorCode.INVALID_REQUEST, f"message is not base64: {error}") from None
        part = {"base64": message}
    elif encoding:
        raise CommandError(ErrorCode.INVALID_REQUEST, "encoding must be base64 or absent")
    else:
        part = {"text" if type(message) is str else "json": message}
    if content_type:
        part["contentType"] = content_type
    return part


def check_part(part: Any) -> str | None:
    """What is wrong with a part from an external source, or None."""
    if type(part) is not dict or set(part) - {"text", "json", "base64", "contentType", "name"}:
        return "a part must be an object with text, json or base64"
    kinds = [kind for kind in ("text", "json", "base64") if kind in part]
    if len(kinds) != 1:
        return "a part must have exactly one of text, json and base64"
    if any(type(part.get(name, "")) is not str for name in ("text", "base64", "contentType", "name")):
        return "text, base64, contentType and name of a part must be strings"
    if "base64" in part:
        try:
            binascii.a2b_base64(part["base64"], strict_mode=True)
        except ValueError as error:
            return f"base64 of a part: {error}"
    return None


def part_to_wire(part: Part, as_value: bool) -> dict[str, Any]:
    """The answer's fields for a part: ``payload``, and if applicable ``encoding`` and ``contentType``."""
    shown: dict[str, Any]
    if "base64" in part:
        shown = {"payload": part["base64"], "encoding": "base64"}
        shown["contentType"] = part.get("contentType", _BINARY_TYPE)
        return shown
    shown = {"payload": value_to_wire(part, as_value)}
    if "contentType" in part:
        shown["contentType"] = part["contentType"]
    return shown


def value_to_wire(part: Part, as_value: bool) -> Any:
    """A text or JSON part in the requested form: as a string, or with ``as_value`` as the value itself."""
    if "text" in part:
        return part["text"]
    return part["json"] if as_value else orjson.dumps(part["json"]).decode()


def part_bytes(part: Part) -> bytes:
    """The bytes of a part, on which limits and digests are computed."""
    if "text" in part:
        return str(part["text"]).encode()
    if "json" in part:
        return orjson.dumps(part["json"])
    return binascii.a2b_base64(part["base64"])


def preview(part: Part, limit_bytes: int) -> str:
    """The first ``limit_bytes`` bytes of a part as text; binary data in hex."""
    data = part_bytes(part)[:limit_bytes]
    return data.hex() if "base64" in part else data.decode("utf-8", "ignore")
