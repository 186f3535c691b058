"""Redaction of bodies and attributes: lengths, digests and shapes, names only, or everything."""

from __future__ import annotations

import binascii
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from hashlib import blake2b
from itertools import islice
from typing import Any, Final

import orjson

#: Limits of a shape: nesting, characters, and members of each object and array.
SHAPE_LEVELS: Final = 6
SHAPE_CHARACTERS: Final = 1000
SHAPE_MEMBERS: Final = 100
#: Number of cached shapes.
_SHAPES_LIMIT: Final = 1000
#: Values outside of bodies are cut at this nesting.
_VALUE_LEVELS: Final = 100
#: The content type that answers give to a binary body without one.
_BINARY_TYPE: Final = "application/octet-stream"
_INTEGERS: Final = (-(2**63), 2**63 - 1)
#: Field names under which events have bodies and attributes inside of other values, such as schedules.
_BODIES: Final = frozenset({"message", "messages", "parts", "payload", "body"})


class Redaction(StrEnum):
    """What is omitted, as ``--redact`` takes it."""

    PAYLOAD = "payload"
    ATTRIBUTES = "attributes"
    NONE = "none"


class Redactor:
    """Makes the fields of bodies and attributes. ``hidden`` are patterns of attribute names whose values are omitted,
    as of file names: ``*`` and ``?``, case-sensitive."""

    def __init__(self, redaction: Redaction, hidden: Sequence[str] = ()) -> None:
        self.redaction = redaction
        self.hidden = tuple(hidden)
        self._is_hidden: dict[str, bool] = {}
        self._shapes: dict[tuple[str | type, ...], str] = {}

    def body(self, part: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a body that ``part`` has as ``text``, ``json`` or ``base64``."""
        fields: dict[str, Any] = {}
        if "contentType" in part:
            fields["contentType"] = fit(part["contentType"])
        if "base64" in part:
            try:
                data = binascii.a2b_base64(part["base64"])
            except ValueError:
                return fields
            shape, text = "binary", part["base64"]
            fields.setdefault("contentType", _BINARY_TYPE)
        else:
            data = part["text"].encode("utf-8", "replace") if "text" in part else _json(part.get("json"))
            value = _parsed(data) if "text" in part else part.get("json")
            shape = "text" if value is _NO_JSON else self._shape_of(value)
            text = None
        fields["payloadBytes"] = len(data)
        fields["payloadDigest"] = blake2b(data, digest_size=16).hexdigest()
        fields["payloadShape"] = shape
        if self.redaction is Redaction.NONE:
            fields["payload"] = data.decode() if text is None else text
        return fields

    def _shape_of(self, value: Any) -> str:
        """The shape of a value, cached for flat objects: the bodies of a queue are alike, and computing it takes most
        of the time."""
        if type(value) is not dict or len(value) > SHAPE_MEMBERS:
            return shape_of(value)
        types = tuple(map(type, value.values()))
        if dict in types or list in types:
            return shape_of(value)
        members = (*value, *types)
        shape = self._shapes.get(members)
        if shape is None:
            shape = shape_of(value)
            if len(self._shapes) < _SHAPES_LIMIT and len(shape) < SHAPE_CHARACTERS:
                self._shapes[members] = shape
        return shape

    def attributes(self, value: Any) -> Any:
        """The attributes of a message after redaction; None for none."""
        if type(value) is str:
            value = _parsed(value.encode("utf-8", "replace"))
        if type(value) is not dict:
            return None
        if not value:
            return None
        if self.redaction is not Redaction.ATTRIBUTES and not self.hidden:
            return fit(value)
        hides = self._hides
        return {fit(name): None if hides(name) else fit(one) for name, one in value.items()}

    def _hides(self, name: str) -> bool:
        if self.redaction is Redaction.ATTRIBUTES:
            return True
        if not self.hidden:
            return False
        found = self._is_hidden.get(name)
        if found is None:
            if len(self._is_hidden) > 10_000:  # the names are not limited
                self._is_hidden.clear()
            found = self._is_hidden[name] = any(fnmatchcase(name, pattern) for pattern in self.hidden)
        return found

    def rest(self, value: Any) -> Any:
        """Another value of an event, without the bodies and attributes inside of it."""
        return fit(value if self.redaction is Redaction.NONE and not self.hidden else self._without(value))

    def _without(self, value: Any, level: int = 0) -> Any:
        if level > _VALUE_LEVELS:
            return None
        if type(value) is list:
            return [self._without(one, level + 1) for one in value]
        if type(value) is not dict:
            return value
        kept: dict[str, Any] = {}
        for name, one in value.items():
            if name == "attributes":
                kept[name] = self.attributes(one.get("json", one.get("text")) if type(one) is dict else one)
            elif self.redaction is Redaction.NONE or name not in _BODIES or type(one) is int:
                kept[name] = self._without(one, level + 1)
        return kept


def shape_of(value: Any) -> str:
    """The structure of a JSON value without its values. It goes less deep where it would become too long."""
    if type(value) in (dict, list):
        for levels in range(SHAPE_LEVELS, 0, -1):
            text = _json(_shape(value, levels)).decode()
            if len(text) <= SHAPE_CHARACTERS:
                return text
    return _NAMES.get(type(value), "object")


def _shape(value: Any, levels: int) -> Any:
    name = _NAMES.get(type(value), "object")
    if not levels or name not in ("object", "array"):
        return name
    if name == "object":
        members = value.items() if len(value) <= SHAPE_MEMBERS else islice(value.items(), SHAPE_MEMBERS)
        return {member: _shape(one, levels - 1) for member, one in members}
    shapes: list[Any] = []
    for one in value[:SHAPE_MEMBERS]:
        shape = _shape(one, levels - 1)
        if shape not in shapes:
            shapes.append(shape)
    return shapes


_NAMES: Final[dict[type, str]] = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


class _NoJson:
    pass


_NO_JSON: Final = _NoJson()


def _parsed(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:  # also for too deep a nesting
        return _NO_JSON


def _json(value: Any) -> bytes:
    """A JSON value as the daemon stores it."""
    try:
        return orjson.dumps(value)
    except TypeError:  # a number or a nesting beyond orjson's limits
        try:
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        except (RecursionError, ValueError):
            return b""
        return text.encode("utf-8", "replace")


def fit(value: Any, level: int = 0) -> Any:
    """A JSON value that every reader of snapshots accepts: 64-bit integers, finite numbers, complete characters, and no
    nesting beyond the limits of parsers."""
    kind = type(value)
    if kind is str:
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if kind is int:
        return value if _INTEGERS[0] <= value <= _INTEGERS[1] else float(value) if abs(value) < 2**1000 else None
    if kind is float:
        return value if value - value == 0 else None
    if kind is dict:
        return None if level > _VALUE_LEVELS else {fit(name): fit(one, level + 1) for name, one in value.items()}
    if kind is list:
        return None if level > _VALUE_LEVELS else [fit(one, level + 1) for one in value]
    return value


def as_part(payload: Any, encoding: Any, content_type: Any, length: Any) -> dict[str, Any]:
    """The part that an answer shows as ``payload``. ``length`` distinguishes a text from a JSON value."""
    part: dict[str, Any]
    if encoding == "base64":
        part = {"base64": payload}
    elif type(payload) is str and len(payload.encode("utf-8", "replace")) == length:
        part = {"text": payload}
    else:
        part = {"json": payload}
    if type(content_type) is str and content_type:
        part["contentType"] = content_type
    return part
