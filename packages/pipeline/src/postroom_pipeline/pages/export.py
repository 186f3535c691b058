"""The reports as CSV or JSON files, one for each, complete and sorted by key."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from ..reports import ALL
from ..schema.table import Frames
from ..spark.storage import Storage
from .findings import ORDER, findings, worded
from .lines import FINDINGS

FORMATS: Final = ("csv", "json")
#: A spreadsheet takes a text that begins with one of these for a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_FINDING: Final = ("severity", "grade", "device", "queue", "kind", "title", "since", "said", "do", "run", "facts")


def export(frames: Frames, storage: Storage, form: str) -> Iterator[str]:
    """Write each report and the findings; yields the path of each file when it is complete.

    Rows are written one by one: tables may be larger than memory.

    :param form: ``csv`` or ``json``.
    """
    all_findings = findings(frames)
    if all_findings is not None:
        rows = all_findings.orderBy(*(F.expr(one) for one in ORDER)).toLocalIterator()
        yield _write(storage, FINDINGS, form, _FINDING, map(_finding, rows))
    for name, frame in frames.items():
        key = ALL[name].TABLE.key
        yield _write(storage, name, form, frame.columns, (row.asDict(recursive=True) for row in _ordered(frame, key)))


def _ordered(frame: DataFrame, key: Iterable[str]) -> Iterator[Row]:
    return frame.orderBy(*key).toLocalIterator()


def _finding(row: Row) -> dict[str, Any]:
    finding = worded(row)
    return {name: getattr(finding, name) for name in _FINDING}


def _write(storage: Storage, name: str, form: str, columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> str:
    path = storage.join(f"{name}.{form}")
    lines = _csv([*columns], rows) if form == "csv" else (f"{_json(dict(row))}\n" for row in rows)
    storage.write_lines(path, lines)
    return path


def _csv(columns: list[str], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    line = io.StringIO()
    writer = csv.writer(line, lineterminator="\r\n")
    cells: Iterator[list[Any]] = ([_cell(row[name]) for name in columns] for row in rows)
    head: list[Any] = [*columns]
    for values in chain([head], cells):
        writer.writerow(values)
        yield line.getvalue()
        line.seek(0)
        line.truncate()


def _cell(value: Any) -> str | int | float:
    """A value for CSV: times in ISO 8601, nested values as JSON, null as an empty text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return value
    if isinstance(value, dt.date):
        return str(_plain(value))
    text = value if isinstance(value, str) else _json(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, default=_plain, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    if isinstance(value, dt.date):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not a value of a table")
