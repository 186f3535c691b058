"""What the journal says, as lines of a snapshot: of all kinds of line there are most of this one."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final, NamedTuple

import orjson

from postroom_common.events import Event
from postroom_common.snapshot import EVENT_NAMES, FIELDS, Kind
from postroom_common.snapshot_writer import LineEncoder

from .lines import PYTHON, Fields, number, text
from .redaction import Redaction, Redactor, fit

#: Fields of an event that are told elsewhere, or are for the daemon alone.
_PASSED: Final = frozenset({"grp", "gn", "n", "crc", "reply", "by", "failure", "message", "body", "root"})
_COLUMNS: Final[dict[str, tuple[str, type]]] = {
    journal: (column, PYTHON[field.type])
    for field in FIELDS[Kind.EVENT]
    if field.type in PYTHON and field.name != "root"
    for column in (field.name,)
    for journal in ({name: of for of, name in EVENT_NAMES.items()}.get(column, column),)
}


class _Form(NamedTuple):
    """What becomes of the fields of events that have the same ones: those with a column, its name and type, and those
    without. An event is ``plain`` where nothing but who asked is to be told besides."""

    names: tuple[str, ...]
    take: Callable[[Event], tuple[Any, ...]]
    columns: tuple[str, ...]
    types: list[type]
    rest: tuple[str, ...]
    is_plain: bool


#: By the names of the fields, since looking each of them up takes half of the time. Few events have others.
_forms: dict[tuple[str, ...], _Form] = {}
_FORMS_LIMIT: Final = 1000


def _form_of(fields: tuple[str, ...]) -> _Form:
    names = tuple(name for name in fields if name in _COLUMNS)
    rest = tuple(name for name in fields if name not in _COLUMNS and name not in _PASSED)
    columns, types = tuple(_COLUMNS[name][0] for name in names), [_COLUMNS[name][1] for name in names]
    is_plain = not rest and not {"failure", "message", "body"} & {*fields}
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
    """The fields of an event's line, all but the root's; none is None."""
    fields = tuple(event)
    form = _forms.get(fields) or _form_of(fields)
    values = form.take(event)
    # The second look is for those that are 0 alone: it takes longer.
    if [*map(type, values)] == form.types and (all(values) or "" not in values):
        line: Fields = dict(zip(form.columns, values))  # noqa: B905  # of one length: types are
        rest: Fields = {name: event[name] for name in form.rest} if form.rest else {}
    else:
        line, rest = _checked(event, form)
    if "by" in event:
        _take_who(line, event["by"])
    return line if form.is_plain and not rest else _told(event, line, rest, redactor)


def _checked(event: Event, form: _Form) -> tuple[Fields, Fields]:
    """As far as they are of their column's type, and what is not."""
    line: Fields = {}
    rest: Fields = {name: event[name] for name in form.rest}
    for name, column, kind in zip(form.names, form.columns, form.types, strict=True):
        if type(event[name]) is not kind:
            rest[name] = event[name]
        elif event[name] != "":
            line[column] = event[name]
    return line, rest


def _told(event: Event, line: Fields, rest: Fields, redactor: Redactor) -> Fields:
    """With all that is told of an event besides its own fields."""
    if "failure" in event:
        _take_failure(line, event["failure"])
    header: Fields = {}
    if "message" in event:
        header = _take_message(line, event["message"], redactor)
    elif "body" in event and type(event["body"]) is dict:
        line["payloadBytes"] = number(event["body"].get("bytes"))
    if rest or header:
        told = redactor.rest(rest)
        line["ext"] = {**told, "message": fit(header)} if header else told
    return {name: value for name, value in line.items() if value is not None} if None in line.values() else line


def _take_who(line: Fields, by: Any) -> None:
    if type(by) is dict:
        client, request, uid = by.get("client"), by.get("request"), by.get("uid")
        if type(client) is str and client:
            line["client"] = client
        if type(request) is str and request:
            line["request"] = request
        if type(uid) is int:
            line["uid"] = uid


def _take_failure(line: Fields, failure: Any) -> None:
    if type(failure) is not dict:
        return
    for name in ("reasonCode", "reasonMessage", "cause"):
        line[name] = text(failure.get(name))
    line.setdefault("attempt", number(failure.get("attempt")))
    line.setdefault("consumer", text(failure.get("consumerId")))


def _take_message(line: Fields, message: Any, redactor: Redactor) -> Fields:
    """Put what is told of a message into its line; what its publisher said besides, by its names."""
    if type(message) is not dict:
        return {}
    more: Fields = {}
    for name, value in message.items():
        if name == "parts":
            if type(value) is list and value and type(value[0]) is dict:
                line.update(redactor.body(value[0]))
        elif name == "attributes" and type(value) is dict:
            line["attributes"] = redactor.attributes(value.get("json", value.get("text")))
        elif name in ("traceId", "deduplicationKey") and type(value) is str:
            line[name] = value
        else:
            more[name] = value
    return {} if redactor.redaction is Redaction.ATTRIBUTES else more
