"""The body of a message as lines for people: JSON indented, bytes in hex, text as it stands. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from ..i18n import tr
from .text import clean, figure, size

#: Characters of a body that are shown, and lines of one that has many short ones.
BODY_CHARACTERS: Final = 65_536
BODY_LINES: Final = 4000
#: Bytes that are shown in hex.
BODY_BYTES: Final = 16_384
_HEX: Final = 16


def body_lines(body: Any, is_binary: bool = False) -> Iterator[str]:
    """A body, cleaned. Of a long one the beginning, and how much is left out."""
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
    """JSON for people, and any other text as it is. So is one that is nested more deeply than can be read."""
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
