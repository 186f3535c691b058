"""What of bodies and attributes a snapshot tells: lengths, digests and shapes, names, or all of it."""

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

#: A shape goes so deep, has so many characters, and looks at so many members of each object and array.
SHAPE_LEVELS: Final = 6
SHAPE_CHARACTERS: Final = 1000
SHAPE_MEMBERS: Final = 100
#: Shapes that are kept in mind.
_SHAPES_LIMIT: Final = 1000
#: Values beside bodies that go deeper are not told.
_VALUE_LEVELS: Final = 100
#: What answers call a binary body whose publisher did not say what it is.
_BINARY_TYPE: Final = "application/octet-stream"
_INTEGERS: Final = (-(2**63), 2**63 - 1)
#: Names under which the journal keeps bodies and attributes inside of other things, such as schedules.
_BODIES: Final = frozenset({"message", "messages", "parts", "payload", "body"})


class Redaction(StrEnum):
    """What is left out. As ``--redact`` has it."""

    PAYLOAD = "payload"
    ATTRIBUTES = "attributes"
    NONE = "none"


class Redactor:
    """Makes the fields that tell of bodies and attributes. ``hidden`` are patterns of names of attributes whose values
    are left out, as of file names: ``*`` and ``?``, upper and lower case apart."""

    def __init__(self, redaction: Redaction, hidden: Sequence[str] = ()) -> None:
        self.redaction = redaction
        self.hidden = tuple(hidden)
        self._is_hidden: dict[str, bool] = {}
        self._shapes: dict[tuple[str | type, ...], str] = {}

    def body(self, part: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a body: ``part`` has it as ``text``, ``json`` or ``base64``."""
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
        """As ``shape_of``; many bodies of a queue are alike, and looking at a flat one again takes most of its time."""
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
        """The attributes of a message, as far as they are told; None for nothing."""
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
            if len(self._is_hidden) > 10_000:  # names can be anything
                self._is_hidden.clear()
            found = self._is_hidden[name] = any(fnmatchcase(name, pattern) for pattern in self.hidden)
        return found

    def rest(self, value: Any) -> Any:
        """Something else that the journal says, without the bodies and attributes that may be inside of it."""
        return fit(value if self.redaction is Redaction.NONE and not self.hidden else self._without(value))

    def _without(self, value: Any, level: int = 0) -> Any:
        if level > _VALUE_LEVELS:
            return None
        if type(value) is list:
            return [self._without(one, level + 1) for one in value]
        if type(value) is not dict:
            return value
        told: dict[str, Any] = {}
        for name, one in value.items():
            if name == "attributes":
                told[name] = self.attributes(one.get("json", one.get("text")) if type(one) is dict else one)
            elif self.redaction is Redaction.NONE or name not in _BODIES or type(one) is int:
                told[name] = self._without(one, level + 1)
        return told


def shape_of(value: Any) -> str:
    """The structure of a JSON value without its values, bounded. Where it would be too long it goes less deep."""
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
    told: list[Any] = []
    for one in value[:SHAPE_MEMBERS]:
        shape = _shape(one, levels - 1)
        if shape not in told:
            told.append(shape)
    return told


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
    except orjson.JSONDecodeError:  # also where it goes too deep
        return _NO_JSON


def _json(value: Any) -> bytes:
    """A JSON value as the daemon keeps it."""
    try:
        return orjson.dumps(value)
    except TypeError:  # a number that it does not have, or deeper than it goes
        try:
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        except (RecursionError, ValueError):
            return b""
        return text.encode("utf-8", "replace")


def fit(value: Any, level: int = 0) -> Any:
    """A JSON value that any reader of snapshots takes: integers of 64 bits, finite numbers, whole characters, and no
    deeper than parsers go."""
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
    """The part that an answer of the daemon shows as ``payload``, told by ``length`` where that could be two."""
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
