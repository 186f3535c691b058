"""The text and the fields of a log record, without control characters, and its forms: lines for people, and JSON."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any, Final

import orjson

#: Maximum length (characters) of a text or traceback, and of a field: a record must fit into a datagram.
TEXT_LIMIT: Final = 16_384
FIELD_LIMIT: Final = 1_024
_FORMATTER: Final = logging.Formatter()


def about(**fields: Any) -> dict[str, dict[str, Any]]:
    """Fields that say what a record is about, as the argument ``extra`` of ``logging``; empty ones are left out."""
    return {"fields": {name: value for name, value in fields.items() if value not in ("", None)}}


def text_of(record: logging.LogRecord) -> str:
    """The record's text on one line, with the number of suppressed records of its kind."""
    count = suppressed(record)
    more = f" (and {count} more like it in the last minute)" if count else ""
    return escaped(record.getMessage()) + more


def suppressed(record: logging.LogRecord) -> int:
    """How many suppressed records of the same kind this one represents, beside itself."""
    return getattr(record, "suppressed", 0)


def fields_of(record: logging.LogRecord) -> dict[str, int | str]:
    """The record's fields: numbers unchanged, everything else as text."""
    fields: dict[str, Any] = getattr(record, "fields", {})
    return {name: value if type(value) is int else escaped(str(value), FIELD_LIMIT) for name, value in fields.items()}


def trace_of(record: logging.LogRecord) -> list[str]:
    """The lines of the record's traceback; only the last ones if it is long."""
    if not record.exc_info:
        return []
    text = _FORMATTER.formatException(record.exc_info)
    return [escaped(line) for line in text[-TEXT_LIMIT:].splitlines()]


def escaped(text: str, limit: int = TEXT_LIMIT) -> str:
    """The beginning of a text with its control characters escaped, so that it can neither forge a record nor control a
    terminal."""
    text = text[:limit]
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)[:limit]


class LineFormatter(logging.Formatter):
    """``LEVEL text`` on every line; with ``timed`` after the local time."""

    def __init__(self, timed: bool) -> None:
        super().__init__()
        self._timed = timed

    def format(self, record: logging.LogRecord) -> str:
        start = record.levelname
        if self._timed:
            when = datetime.fromtimestamp(record.created).astimezone()
            start = f"{when.isoformat(timespec='milliseconds')} {start}"
        return "\n".join(f"{start} {line}" for line in [text_of(record), *trace_of(record)])


class JsonFormatter(logging.Formatter):
    """One JSON object: ``time`` (UTC), ``level``, ``message``, ``logger``, ``source``; then ``suppressed`` and
    ``traceback`` if there are any, and the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        return json_line(record).decode()


def json_line(record: logging.LogRecord) -> bytes:
    """A record as a JSON object, without a newline."""
    when = datetime.fromtimestamp(record.created, UTC)
    line: dict[str, int | str] = {
        "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "message": text_of(record),
        "logger": record.name,
        "source": f"{record.filename}:{record.lineno}",
    }
    if suppressed(record):
        line["suppressed"] = suppressed(record)
    trace = trace_of(record)
    if trace:
        line["traceback"] = "\n".join(trace)
    return orjson.dumps(fields_of(record) | line)
