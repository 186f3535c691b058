"""Records as lines: for people, and as JSON."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import orjson

from .records import fields_of, suppressed, text_of, trace_of


class LineFormatter(logging.Formatter):
    """``LEVEL text`` on every line, behind the local time where that is wanted."""

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
    ``traceback`` where there is something to say, and what the record is about."""

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
