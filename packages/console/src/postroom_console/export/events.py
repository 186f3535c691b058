"""Converts events of the journal to lines of a snapshot. Most lines of a snapshot are events."""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final, NamedTuple

import orjson

from postroom_common.body import Form
from postroom_common.events import Event
from postroom_common.log_blocks import open_block
from postroom_common.snapshot import EVENT_NAMES, FIELDS, Kind
from postroom_common.snapshot_writer import LineEncoder

from .lines import PYTHON, Fields, number, text
from .redaction import Redaction, Redactor, fit

#: Fields of an event that have columns of other names, or are only for the daemon.
_OMITTED: Final = frozenset(
    {"grp", "gn", "n", "crc", "reply", "by", "failure", "message", "body", "content", "record", "root"}
)
#: Those of them from which columns are made.
_WITH_MORE: Final = frozenset({"failure", "message", "body", "content", "record"})
#: The fields of a part that are its body.
_OF_BODY: Final = frozenset({"text", "json", "base64", "contentType", "name"})
_COLUMNS: Final[dict[str, tuple[str, type]]] = {
    journal: (column, PYTHON[field.type])
    for field in FIELDS[Kind.EVENT]
    if field.type in PYTHON and field.name != "root"
    for column in (field.name,)
    for journal in ({name: of for of, name in EVENT_NAMES.items()}.get(column, column),)
}


class _Form(NamedTuple):
    """How events with the same field names are converted: the fields with a column, the names and types of the columns,
    and the fields without a column. An event is ``plain`` if nothing but its principal is to be added."""

    names: tuple[str, ...]
    take: Callable[[Event], tuple[Any, ...]]
    columns: tuple[str, ...]
    types: list[type]
    rest: tuple[str, ...]
    is_plain: bool


#: By field names: looking up each field takes half of the time, and few events have other fields.
_forms: dict[tuple[str, ...], _Form] = {}
_FORMS_LIMIT: Final = 1000


def _form_of(fields: tuple[str, ...]) -> _Form:
    names = tuple(name for name in fields if name in _COLUMNS)
    rest = tuple(name for name in fields if name not in _COLUMNS and name not in _OMITTED)
    columns, types = tuple(_COLUMNS[name][0] for name in names), [_COLUMNS[name][1] for name in names]
    is_plain = not rest and _WITH_MORE.isdisjoint(fields)
    form = _Form(names, itemgetter(*names), columns, types, rest, is_plain)
    if len(_forms) < _FORMS_LIMIT:
        _forms[fields] = form
    return form


class EventLines:
    """Makes the lines of a root's events."""

    def __init__(self, encoder: LineEncoder, root: str, redactor: Redactor) -> None:
        self._opening = encoder.opening(Kind.EVENT, {"root": root})
        self._redactor = redactor

    def encode(self, event: Event) -> bytes:
        """The line of an event, without its newline."""
        return self._opening + orjson.dumps(of_event(event, self._redactor))[1:]


def of_event(event: Event, redactor: Redactor) -> Fields:
    """The fields of an event's line without the root; no value is None."""
    fields = tuple(event)
    form = _forms.get(fields) or _form_of(fields)
    values = form.take(event)
    # ``0`` makes ``all`` false as well, so a slower check follows.
    if [*map(type, values)] == form.types and (all(values) or "" not in values):
        line: Fields = dict(zip(form.columns, values))  # noqa: B905  # of one length: types are
        rest: Fields = {name: event[name] for name in form.rest} if form.rest else {}
    else:
        line, rest = _checked(event, form)
    if "by" in event:
        by = event["by"]
        _add_principal(line, by)
        if type(by) is dict and ("principal" in by or "door" in by):  # of a gateway
            rest["by"] = {name: by[name] for name in ("principal", "door") if name in by}
    return line if form.is_plain and not rest else _completed(event, line, rest, redactor)


def _checked(event: Event, form: _Form) -> tuple[Fields, Fields]:
    """The fields that have the type of their column, and those that do not."""
    line: Fields = {}
    rest: Fields = {name: event[name] for name in form.rest}
    for name, column, kind in zip(form.names, form.columns, form.types, strict=True):
        if type(event[name]) is not kind:
            rest[name] = event[name]
        elif event[name] != "":
            line[column] = event[name]
    return line, rest


def _completed(event: Event, line: Fields, rest: Fields, redactor: Redactor) -> Fields:
    """The line with the failure, the message and the fields without a column."""
    if "failure" in event:
        _add_failure(line, event["failure"])
    header: Fields = {}
    if "message" in event:
        header = _add_message(line, event["message"], redactor)
        if (event.get("reply") or {}).get("as") == "appendedLater":  # the body is a record
            _add_record(line, event["message"]["parts"][0]["base64"], redactor)
    elif "content" in event:
        header = _add_part(line, event["content"], redactor)
    elif "record" in event:
        _add_record(line, event["record"], redactor)
    elif "body" in event and type(event["body"]) is dict:
        line["payloadBytes"] = number(event["body"].get("bytes"))
    if rest or header:
        more = redactor.rest(rest)
        line["ext"] = {**more, "message": fit(header)} if header else more
    return {name: value for name, value in line.items() if value is not None} if None in line.values() else line


def _add_principal(line: Fields, by: Any) -> None:
    if type(by) is dict:
        client, request, uid = by.get("client"), by.get("request"), by.get("uid")
        if type(client) is str and client:
            line["client"] = client
        if type(request) is str and request:
            line["request"] = request
        if type(uid) is int:
            line["uid"] = uid


def _add_failure(line: Fields, failure: Any) -> None:
    if type(failure) is not dict:
        return
    for name in ("reasonCode", "reasonMessage", "cause"):
        line[name] = text(failure.get(name))
    line["attempt"] = number(failure.get("attempt"))  # not the one that a nack has given back
    line.setdefault("consumer", text(failure.get("consumerId")))


def _add_part(line: Fields, part: Any, redactor: Redactor) -> Fields:
    """Add a body to a line. A part of a gathered message has more: its attributes, and the publisher's other headers,
    which are returned."""
    if type(part) is not dict:
        return {}
    line.update(redactor.body(part))
    return _add_message(line, {name: value for name, value in part.items() if name not in _OF_BODY}, redactor)


def _add_record(line: Fields, record: Any, redactor: Redactor) -> None:
    """Add the body and the attributes of a log's record to a line."""
    try:
        part, attributes = open_block(a2b_base64(record))
    except (ValueError, TypeError):
        return
    line.pop("contentType", None)
    shown: Fields = {"contentType": part.content_type} if part.content_type else {}
    if part.form is Form.BINARY:
        shown["base64"] = part.as_json()
    else:
        shown[part.form.value] = part.value() if part.form is Form.JSON else part.as_json()
    line.update(redactor.body(shown), attributes=redactor.attributes(attributes))


def _add_message(line: Fields, message: Any, redactor: Redactor) -> Fields:
    """Add the body and the attributes of a message to its line; returns the publisher's other headers."""
    if type(message) is not dict:
        return {}
    more: Fields = {}
    for name, value in message.items():
        if name == "parts":
            if type(value) is list and value:
                more |= _add_part(line, value[0], redactor)
        elif name == "attributes" and type(value) is dict:
            line["attributes"] = redactor.attributes(value.get("json", value.get("text")))
        elif name in ("traceId", "deduplicationKey") and type(value) is str:
            line[name] = value
        else:
            more[name] = value
    return {} if redactor.redaction is Redaction.ATTRIBUTES else more
