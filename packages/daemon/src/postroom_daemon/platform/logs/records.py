"""What a record says: its text without control characters, and the fields of what it is about."""

from __future__ import annotations

import logging
from typing import Any, Final

#: Longest text or traceback of a record, and longest field (characters): a record must fit into a datagram.
TEXT_LIMIT: Final = 16_384
FIELD_LIMIT: Final = 1_024
_FORMATTER: Final = logging.Formatter()


def about(**fields: Any) -> dict[str, dict[str, Any]]:
    """What a record is about, for the ``extra`` of a call of ``logging``; what is empty is left out."""
    return {"fields": {name: value for name, value in fields.items() if value not in ("", None)}}


def text_of(record: logging.LogRecord) -> str:
    """The record's text on one line, with how many like it were left out."""
    left_out = suppressed(record)
    more = f" (and {left_out} more like it in the last minute)" if left_out else ""
    return escaped(record.getMessage()) + more


def suppressed(record: logging.LogRecord) -> int:
    """How many records of the same kind this one stands for, beside itself."""
    return getattr(record, "suppressed", 0)


def fields_of(record: logging.LogRecord) -> dict[str, int | str]:
    """What the record is about: numbers as they are, all else as text."""
    fields: dict[str, Any] = getattr(record, "fields", {})
    return {name: value if type(value) is int else escaped(str(value), FIELD_LIMIT) for name, value in fields.items()}


def trace_of(record: logging.LogRecord) -> list[str]:
    """The lines of the record's traceback; the last ones, if it is long."""
    if not record.exc_info:
        return []
    text = _FORMATTER.formatException(record.exc_info)
    return [escaped(line) for line in text[-TEXT_LIMIT:].splitlines()]


def escaped(text: str, limit: int = TEXT_LIMIT) -> str:
    """The beginning of a text, in which no control character is left: none of them can forge a record, or steer a
    terminal."""
    text = text[:limit]
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)[:limit]
