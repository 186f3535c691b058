"""What the readers of the C++ system's data have in common: a message, what cannot be used, and how values are read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import orjson

from postroom_common.body import CARRIED

from ..foreign_data import Unusable, UnusableRow, shown_row

#: Bytes of a file that cannot be used that go into quarantine; the file itself stays.
_SHOWN_BYTES: Final = 65536
#: Keys that an envelope has at least one of.
_ENVELOPE: Final = {"messageId", "payload", "payloadPath", "queue"}


@dataclass(frozen=True, slots=True)
class CppMessage:
    """A message as the C++ system stored it. Times are Unix milliseconds; 0: none. ``lease_id`` and ``consumer`` are
    empty where it did not record them; ``headers`` are those that an envelope carried."""

    key: str
    queue: str
    state: str
    priority: int
    available_at: int
    lease_until: int
    attempt: int
    dlq_reason: str
    dlq_at: int
    target: str
    created_at: int
    payload: str
    attributes: str
    lease_id: str = ""
    consumer: str = ""
    headers: Mapping[str, str | int | float] = field(default_factory=dict)


class CppSource(Protocol):
    """A reader of data of the C++ system. All methods may raise ``StoreError`` or ``OSError``."""

    def open(self) -> None:
        """Raises ``StoreBusy`` while another process uses the data."""

    def close(self) -> None:
        """Close it; others may open it then."""

    def oldest(self) -> int | None:
        """When the oldest message was published (Unix ms)."""

    def policies(self) -> Iterator[tuple[str, dict[str, Any]] | UnusableRow]:
        """The policies by queue, as JSON objects."""

    def messages(self) -> Iterator[CppMessage | UnusableRow]:
        """All messages in the order of publishing."""


def number_of(value: Any, name: str) -> int:
    """An integer; 0 for null. Raises ``Unusable``."""
    if value is None:
        return 0
    if type(value) is not int:
        raise Unusable(f"{name} is no integer")
    return value


def object_of(value: Any) -> dict[str, Any]:
    """A JSON object. Raises ``Unusable``."""
    try:
        tree = orjson.loads(value)
    except (TypeError, ValueError):
        tree = None
    if type(tree) is not dict:
        raise Unusable("its value is no JSON object")
    return tree


def body_of(tree: dict[str, Any], source: bytes) -> tuple[str, str]:
    """The payload and attributes of a message, of which ``source`` is the JSON text. Earlier versions stored objects
    instead of texts, and bodies without an envelope: they become the text that stands there. Raises ``Unusable``."""
    if not tree.keys() & _ENVELOPE:
        return source.decode(), "{}"
    texts = []
    for name in ("payload", "attributes"):
        value = tree.get(name, {} if name == "attributes" else None)
        if type(value) is dict or (type(value) is list and name == "payload"):
            value = _member(source.decode(), name) if name in tree else "{}"
        if type(value) is not str:
            raise Unusable("its payload or its attributes are no text")
        texts.append(value)
    return texts[0], texts[1]


def headers_of(tree: dict[str, Any]) -> dict[str, str | int | float]:
    """The headers in an envelope, such as ``type``; the C++ system stored them where a client had sent them so."""
    return {name: tree[name] for name in CARRIED if type(tree.get(name)) in (str, int, float)}


def _member(text: str, name: str) -> str:
    """The text of the last member ``name`` of a JSON object, byte for byte: to parse and write it would change
    numbers."""
    decoder, found, end = json.JSONDecoder(), "", text.index("{") + 1
    while True:
        start = _next(text, end)
        if text[start] == ",":
            start = _next(text, start + 1)
        if text[start] == "}":
            return found
        key, end = decoder.raw_decode(text, start)
        start = _next(text, _next(text, end) + 1)  # behind the colon
        _, end = decoder.raw_decode(text, start)
        found = text[start:end] if key == name else found


def _next(text: str, start: int) -> int:
    while text[start] in " \t\r\n":
        start += 1
    return start


def reason_of(value: Any) -> str:
    """Why a message died, as far as a value says it; it may be cut in a character."""
    if type(value) is bytes:
        return value.decode(errors="replace")
    return value if type(value) is str else ""


def shown_file(path: Path, content: bytes) -> bytes:
    """A file as JSON; only the beginning of a large one."""
    return shown_row(("file", "content"), (str(path), content[:_SHOWN_BYTES]))
