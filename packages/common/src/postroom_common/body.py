"""Messages as they are inside the daemon, and the two forms of a body in JSON: stored, and in the mailbox.

A message has an ordered list of named parts, whose bodies are bytes. Messages of the mailbox have one part. In a stored
message a part is an object with exactly one of ``text`` (byte for byte), ``json`` (an equal value) or ``base64``
(binary), and optionally ``contentType`` and ``name``. A gathered message has ``gathered``, and each of its parts what
else its publisher sent with it: ``attributes`` (stored like a part) and the ``CARRIED`` fields.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

import orjson

from .errors import CommandError
from .protocol import ErrorCode

#: Payload fields of a publish that are stored in the message unchanged, if present.
CARRIED: Final = (
    "type", "version", "traceId", "traceparent", "correlationId", "replyTo", "deduplicationKey", "timestamp",
)  # fmt: skip

_BINARY_TYPE: Final = "application/octet-stream"


class Form(StrEnum):
    """What the bytes of a part are; the value is the name that a stored part has for them."""

    TEXT = "text"
    JSON = "json"
    BINARY = "base64"


#: The field of a stored message that was gathered from several publishes.
GATHERED: Final = "gathered"
#: The field of a stored message that was drafted: the names of its parts, which are stored beside it.
DRAFT: Final = "draft"
#: Looked up for every message.
_TEXT, _JSON, _BINARY = Form


class Part(NamedTuple):
    """One part of a message: its bytes (UTF-8 for text and JSON), and what they are. A part of a gathered message has
    the ``attributes`` (a part of its own) and the ``CARRIED`` fields of its publish."""

    data: bytes
    form: Form = Form.TEXT
    content_type: str = ""
    name: str = ""
    attributes: Any = None
    carried: Mapping[str, Any] = {}

    def value(self) -> Any:
        """The JSON value of a JSON part."""
        return orjson.loads(self.data)

    def as_json(self) -> Any:
        """The part as a JSON value, for ``orjson``: text, and base64 of a binary part, are strings."""
        if self.form is _JSON:
            return orjson.Fragment(self.data)
        return _base64(self.data) if self.form is _BINARY else self.data.decode()

    def stored(self) -> dict[str, Any]:
        """The part as a stored message has it, for ``orjson``."""
        data, form, content_type, name, attributes, carried = self
        shown: dict[str, Any]
        if form is _TEXT:
            shown = {"text": data.decode()}
        elif form is _JSON:
            shown = {"json": orjson.Fragment(data)}
        else:
            shown = {"base64": _base64(data)}
        if content_type:
            shown["contentType"] = content_type
        if name:
            shown["name"] = name
        if attributes is not None:
            shown["attributes"] = attributes.stored()
        if carried:
            shown.update(carried)
        return shown


#: The body of a message none of whose parts has a value.
NO_PART: Final = Part(b"")


class Message(NamedTuple):
    """What a publisher sent: parts, attributes, and the ``CARRIED`` fields."""

    parts: tuple[Part, ...]
    attributes: Part | None = None
    carried: Mapping[str, Any] = {}

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(len(part.data) for part in self.parts)

    @property
    def body(self) -> Part:
        """The only part of a plain message; the first of several; nothing if there is none."""
        return self.parts[0] if self.parts else NO_PART

    def encode(self) -> bytes:
        """The bytes that events and stores contain."""
        return encode_message(*self)


def encode_gathered(part: Part) -> bytes:
    """The bytes of a message that gathers parts, of which this is the first."""
    return orjson.dumps({"parts": [part.stored()], GATHERED: True})


def encode_message(parts: tuple[Part, ...], attributes: Part | None = None, carried: Mapping[str, Any] = {}) -> bytes:
    """The bytes that events and stores contain of a message; see ``Message``."""
    envelope: dict[str, Any] = {"parts": [part.stored() for part in parts]}
    if attributes:
        envelope["attributes"] = attributes.stored()
    if carried:
        envelope.update(carried)
    return orjson.dumps(envelope)


def encode_text(text: str) -> bytes:
    """As ``encode_message``, for a message that is a text and nothing else."""
    return orjson.dumps({"parts": [{"text": text}]})


def with_parts(envelope: bytes, beside: Sequence[dict[str, Any] | None]) -> bytes:
    """The bytes of a message with the parts that are stored beside it: those that were appended, or the named parts of
    a draft, of which those that are None have no value."""
    message = orjson.loads(envelope)
    message.pop(DRAFT, None)
    message["parts"] += [part for part in beside if part is not None]
    return orjson.dumps(message)


def encode_draft(names: Sequence[str], ttl_ms: int, attributes: Part | None, carried: Mapping[str, Any]) -> bytes:
    """The bytes of a message that is drafted: the names of its parts, which have no value yet, and the milliseconds
    after which it expires once it is ready (0: as its queue says)."""
    draft: dict[str, Any] = {"parts": names}
    if ttl_ms:
        draft["ttlMs"] = ttl_ms
    envelope: dict[str, Any] = {"parts": [], DRAFT: draft}
    if attributes:
        envelope["attributes"] = attributes.stored()
    envelope.update(carried)
    return orjson.dumps(envelope)


def headers_of(envelope: bytes) -> bytes:
    """The bytes of a message without its body, and without its parts: an empty text, with the headers of the whole."""
    message = orjson.loads(envelope)
    message.pop(DRAFT, None)
    message.pop(GATHERED, None)
    message["parts"] = [NO_PART.stored()]
    return orjson.dumps(message)


def draft_of(envelope: bytes) -> dict[str, Any]:
    """What ``encode_draft`` stored of a draft: ``parts``, the names, and perhaps ``ttlMs``; {} of another message."""
    draft: dict[str, Any] = orjson.loads(envelope).get(DRAFT, {})
    return draft


def decode_message(envelope: bytes) -> Message:
    """The message of the bytes that ``Message.encode`` returned."""
    return Message(*open_envelope(envelope))


def open_envelope(envelope: bytes) -> tuple[tuple[Part, ...], Part | None, dict[str, Any]]:
    """What ``decode_message`` returns, as a plain tuple, which is made faster."""
    return open_stored(orjson.loads(envelope))


def text_alone(stored: dict[str, Any]) -> str | None:
    """The text of a stored message that is nothing else; None if it is something else."""
    parts = stored["parts"]
    if len(stored) > 1 or len(parts) != 1 or len(parts[0]) > 1:
        return None
    text: str | None = parts[0].get("text")
    return text


def open_stored(fields: dict[str, Any]) -> tuple[tuple[Part, ...], Part | None, dict[str, Any]]:
    """As ``open_envelope``, for a message that is parsed; its fields are used up."""
    stored = fields.pop("parts")
    if GATHERED in fields:
        return tuple(map(_gathered_part, stored)), None, fields
    if len(stored) == 1:
        parts: tuple[Part, ...] = (_part_from_stored(stored[0]),)
    else:
        parts = tuple(map(_part_from_stored, stored))
        fields.pop(DRAFT, None)
    attributes = _part_from_stored(fields.pop("attributes")) if "attributes" in fields else None
    return parts, attributes, fields


def _part_from_stored(shown: dict[str, Any]) -> Part:
    content_type, name = "", ""
    if len(shown) > 1:
        content_type, name = shown.get("contentType", ""), shown.get("name", "")
    if "text" in shown:
        return Part(shown["text"].encode(), _TEXT, content_type, name)
    if "json" in shown:
        return Part(orjson.dumps(shown["json"]), _JSON, content_type, name)
    return Part(binascii.a2b_base64(shown["base64"]), _BINARY, content_type, name)


def _gathered_part(shown: dict[str, Any]) -> Part:
    part = _part_from_stored(shown)
    attributes = _part_from_stored(shown["attributes"]) if "attributes" in shown else None
    return part._replace(attributes=attributes, carried={name: shown[name] for name in CARRIED if name in shown})


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def check_gathered_part(part: Any) -> str | None:
    """As ``check_part``, for a part of a gathered message."""
    if type(part) is not dict:
        return check_part(part)
    beside = {name: part[name] for name in ("attributes", *CARRIED) if name in part}
    fault = check_part({name: value for name, value in part.items() if name not in beside})
    if not fault and "attributes" in beside:
        fault = check_part(beside.pop("attributes"))
    if not fault and any(type(value) not in (str, int, float) for value in beside.values()):
        fault = f"{', '.join(beside)} of a part must be strings or numbers"
    return fault


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


def part_from_wire(message: Any, encoding: str, content_type: str) -> Part:
    """The part for the ``message``, ``encoding`` and ``contentType`` of a publish.

    Raises ``CommandError`` for an unknown encoding or a text that is not base64.
    """
    if encoding == "base64":
        if type(message) is not str:
            raise CommandError(ErrorCode.PARSE_ERROR, "message must be a string when encoding is base64")
        try:
            return Part(binascii.a2b_base64(message, strict_mode=True), _BINARY, content_type)
        except ValueError as error:
            raise CommandError(ErrorCode.INVALID_REQUEST, f"message is not base64: {error}") from None
    if encoding:
        raise CommandError(ErrorCode.INVALID_REQUEST, "encoding must be base64 or absent")
    return value_from_wire(message, content_type)


def value_from_wire(value: Any, content_type: str = "") -> Part:
    """The part for a JSON value: a string is text, anything else JSON."""
    if type(value) is str:
        return Part(value.encode(), _TEXT, content_type)
    return Part(orjson.dumps(value), _JSON, content_type)


def part_to_wire(part: Part, as_value: bool) -> dict[str, Any]:
    """The reply fields that show a part, for ``orjson``: ``payload``, and ``encoding`` and ``contentType`` if they
    apply."""
    if part.form is _BINARY:
        return {"payload": _base64(part.data), "encoding": "base64", "contentType": part.content_type or _BINARY_TYPE}
    shown = {"payload": value_to_wire(part, as_value)}
    if part.content_type:
        shown["contentType"] = part.content_type
    return shown


def parts_to_wire(
    parts: Sequence[Part], as_value: bool, described: Callable[[Part, bool], dict[str, Any]] = part_to_wire
) -> list[dict[str, Any]]:
    """The parts of a message with several, for ``orjson``; ``described`` shows the body of each as a door does."""
    return [described(part, as_value) | _beside(part, as_value) for part in parts]


def _beside(part: Part, as_value: bool) -> dict[str, Any]:
    """What a part shows beside its body."""
    shown: dict[str, Any] = {"name": part.name, **part.carried}
    if part.attributes is not None:
        shown["attributes"] = value_to_wire(part.attributes, as_value)
    return shown


def value_to_wire(part: Part, as_value: bool) -> Any:
    """A text or JSON part as the consumer asked for it, for ``orjson``: as a string, or as the value itself."""
    return orjson.Fragment(part.data) if as_value and part.form is _JSON else part.data.decode()


def preview(part: Part, limit_bytes: int) -> str:
    """The first ``limit_bytes`` of a part as text; binary is shown in hex."""
    data = part.data[:limit_bytes]
    return data.hex() if part.form is _BINARY else data.decode("utf-8", "ignore")
