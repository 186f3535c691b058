"""What the journal, the traffic log and the daemon's answers say, as the fields of a snapshot's lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from typing import Any, Final, NamedTuple

from postroom_common.events import Event
from postroom_common.snapshot import EVENT_NAMES, FIELDS, Kind, Type

from .redaction import Redaction, Redactor, as_part, fit

Fields = dict[str, Any]

_PYTHON: Final = {Type.INTEGER: int, Type.STRING: str, Type.BOOLEAN: bool}
#: Fields of an event that are told elsewhere, or are for the daemon alone.
_PASSED: Final = frozenset({"grp", "gn", "n", "crc", "reply", "by", "failure", "message", "body", "root"})
_COLUMNS: Final[dict[str, tuple[str, type]]] = {
    journal: (column, _PYTHON[field.type])
    for field in FIELDS[Kind.EVENT]
    if field.type in _PYTHON
    for column in (field.name,)
    for journal in ({name: of for of, name in EVENT_NAMES.items()}.get(column, column),)
}
_TRAFFIC: Final = {"bytes": "requestBytes"}
_TRAFFIC_TYPES: Final = {field.name: field.type for field in FIELDS[Kind.TRAFFIC]}
#: Parts of `metrics` that are divided by something, and what that is called.
_DIVIDED: Final = {"commands": "command", "errorCodes": "code", "errors": "error"}
#: Of a daemon's health, what is a figure.
_DISK: Final = ("freeBytes", "reserveBytes", "heldBackBytes", "quarantineBytes")


class _Form(NamedTuple):
    """What becomes of the fields of events that have the same ones: those with a column, its name and type, and those
    without."""

    names: tuple[str, ...]
    take: Callable[[Event], tuple[Any, ...]]
    columns: tuple[str, ...]
    types: list[type]
    rest: tuple[str, ...]


#: By the names of the fields, since looking each of them up takes half of the time. Few events have others.
_forms: dict[tuple[str, ...], _Form] = {}
_FORMS_LIMIT: Final = 1000


def _form_of(event: Event) -> _Form:
    fields = tuple(event)
    form = _forms.get(fields)
    if form is None:
        names = tuple(name for name in fields if name in _COLUMNS)
        rest = tuple(name for name in fields if name not in _COLUMNS and name not in _PASSED)
        columns, types = [_COLUMNS[name][0] for name in names], [_COLUMNS[name][1] for name in names]
        form = _Form(names, itemgetter(*names), tuple(columns), types, rest)
        if len(_forms) < _FORMS_LIMIT:
            _forms[fields] = form
    return form


def of_event(event: Event, root: str, redactor: Redactor) -> Fields:
    """The line of an event."""
    form = _form_of(event)
    values = form.take(event)
    rest: Fields = {name: event[name] for name in form.rest}
    if list(map(type, values)) == form.types and "" not in values:
        line: Fields = {"root": root, **dict(zip(form.columns, values, strict=True))}
    else:
        line = {"root": root}
        for name, column, kind in zip(form.names, form.columns, form.types, strict=True):
            if type(event[name]) is not kind:
                rest[name] = event[name]
            elif event[name] != "":
                line[column] = event[name]
    if "by" in event:
        _take_who(line, event["by"])
    if "failure" in event:
        _take_failure(line, event["failure"])
    header: Fields = {}
    if "message" in event:
        header = _take_message(line, event["message"], redactor)
    elif "body" in event and type(event["body"]) is dict:
        line["payloadBytes"] = _number(event["body"].get("bytes"))
    if rest or header:
        told = redactor.rest(rest)
        line["ext"] = {**told, "message": fit(header)} if header else told
    return line


def _take_who(line: Fields, by: Any) -> None:
    if type(by) is dict:
        for name, kind in (("client", str), ("request", str), ("uid", int)):
            value = by.get(name)
            if type(value) is kind and value != "":
                line[name] = value


def _take_failure(line: Fields, failure: Any) -> None:
    if type(failure) is not dict:
        return
    for name in ("reasonCode", "reasonMessage", "cause"):
        line[name] = _text(failure.get(name))
    line.setdefault("attempt", _number(failure.get("attempt")))
    line.setdefault("consumer", _text(failure.get("consumerId")))


def _take_message(line: Fields, message: Any, redactor: Redactor) -> Fields:
    """Put what is told of a message into its line; what its publisher said besides, by its names."""
    if type(message) is not dict:
        return {}
    more: Fields = {}
    for name, value in message.items():
        if name == "parts":
            if type(value) is list and value and type(value[0]) is dict:
                line.update(redactor.body(value[0]))
        elif name == "attributes":
            line["attributes"] = redactor.attributes(value.get("json", value.get("text")))
        elif name in ("traceId", "deduplicationKey") and type(value) is str:
            line[name] = value
        else:
            more[name] = value
    return {} if redactor.redaction is Redaction.ATTRIBUTES else more


def of_traffic(told: Mapping[str, Any], root: str) -> Fields | None:
    """The line of a request in the traffic log; None for what is none."""
    line: Fields = {"root": root}
    for name, value in told.items():
        column = _TRAFFIC.get(name, name)
        kind = _TRAFFIC_TYPES.get(column)
        if (kind is Type.NUMBER and type(value) in (int, float)) or (
            kind and type(value) is _PYTHON.get(kind) and value != ""
        ):
            line[column] = fit(value)
    has_all = all(field.name in line for field in FIELDS[Kind.TRAFFIC] if field.required)
    return line if has_all else None


def of_queue(told: Mapping[str, Any]) -> Fields:
    """The line of an entry of ``list_queues``, without its policy."""
    paused = told.get("paused") or {}
    return {
        "queue": told["queue"],
        "ready": told["ready"],
        "inflight": told["inflight"],
        "delayed": told["delayed"],
        "held": told.get("held", 0),
        "dead": told["dlq"],
        "oldestReadyAgeMs": told.get("oldestReadyAgeMs"),
        "oldestLeaseAgeMs": told.get("oldestLeaseAgeMs"),
        "oldestDeadAgeMs": told.get("oldestDeadAgeMs"),
        "queueBytes": told.get("bytes"),
        "publishPaused": bool(paused.get("publish")),
        "consumePaused": bool(paused.get("consume")),
        "reasons": dict(told.get("reasons") or {}),
        "totals": dict(told.get("totals") or {}),
    }


def of_lease(told: Mapping[str, Any]) -> Fields:
    """The line of an entry of ``list_inflight``."""
    return {
        "queue": told["queue"],
        "message": told["messageKey"],
        "consumer": told.get("consumerId"),
        "uid": told.get("uid"),
        "attempt": told.get("attempt"),
        "leasedEngineMs": told.get("leasedAtEngineMs"),
        "untilEngineMs": told.get("leaseUntilEngineMs"),
        "ofDead": True if told.get("state") == "dead" else None,
    }


def of_leased(event: Event) -> Fields:
    """The line of a lease, by the event that gave it."""
    return {
        "queue": event["queue"],
        "message": event["key"],
        "lease": event["lease"],
        "consumer": event["consumer"],
        "uid": event.get("uid"),
        "attempt": event["attempt"],
        "leasedEngineMs": event["engineMs"],
        "untilEngineMs": event["untilEngineMs"],
        "ofDead": event.get("ofDead"),
    }


def of_letter(told: Mapping[str, Any], redactor: Redactor) -> Fields:
    """The line of an entry of ``list_dlq`` that shows whole bodies."""
    failure = told.get("failure") or {}
    line = {
        "queue": told["queue"],
        "message": told["messageKey"],
        "reasonCode": _text(told.get("reasonCode")),
        "reasonMessage": _text(told.get("reason")),
        "cause": _text(failure.get("cause")),
        "diedMs": _number(told.get("dlqAt")),
        "attempt": told.get("attempt"),
        "consumer": _text(told.get("consumerId")),
        "quarantined": told.get("quarantined"),
        "leased": told.get("leased"),
        "history": fit(told.get("failures")) or None,
    }
    original = told.get("originalMessage")
    if original:
        line |= of_body(original, told.get("bytes"), redactor)
    return line


def of_body(shown: Mapping[str, Any], length: Any, redactor: Redactor) -> Fields:
    """What is told of the body and attributes of a message that an answer shows whole."""
    part = as_part(shown.get("payload"), shown.get("encoding"), shown.get("contentType"), length)
    return redactor.body(part) | {"attributes": redactor.attributes(shown.get("attributes"))}


def of_death(event: Event) -> Fields:
    """The line of a dead letter, by the event that made it one: without its body."""
    failure = event["failure"]
    return {
        "queue": event["queue"],
        "message": event["key"],
        "reasonCode": _text(failure.get("reasonCode")),
        "reasonMessage": _text(failure.get("reasonMessage")),
        "cause": _text(failure.get("cause")),
        "diedMs": event["wallMs"],
        "attempt": failure.get("attempt"),
        "consumer": _text(failure.get("consumerId")),
        "quarantined": True if event.get("phase") == "quarantined" else None,
    }


def of_consumer(told: Mapping[str, Any]) -> Fields:
    """The line of an entry of ``list_consumers``."""
    return {
        "queue": told["queue"],
        "consumer": told["consumerId"],
        "inflight": told["inflight"],
        "delivered": told.get("delivered"),
        "askedEngineMs": told.get("lastAskedEngineMs"),
        "deliveredEngineMs": told.get("lastDeliveredEngineMs"),
    }


def of_metrics(metrics: Mapping[str, Any], health: Mapping[str, Any]) -> Iterator[Fields]:
    """The lines of the daemon's figures."""
    disk = (health.get("checks") or {}).get("disk") or {}
    yield from _figures("disk", {name: disk[name] for name in _DISK if name in disk})
    for name, value in metrics.items():
        if name in ("timestamp", "asOfEvent", "engineNowMs"):
            continue
        label = _DIVIDED.get(name)
        if label and type(value) is dict:
            for of, count in value.items():
                yield {"name": name, "value": count, "labels": {label: of}}
        else:
            yield from _figures(name, value)


def _figures(name: str, value: Any) -> Iterator[Fields]:
    if type(value) is dict:
        for inner, one in value.items():
            yield from _figures(f"{name}.{inner}", one)
    elif type(value) in (int, float):
        yield {"name": name, "value": fit(value)}


def _text(value: Any) -> str | None:
    return value if type(value) is str and value else None


def _number(value: Any) -> int | None:
    return value if type(value) is int else None
