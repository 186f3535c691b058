"""What the traffic log and the daemon's answers say, as the fields of a snapshot's lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from postroom_common.events import Event
from postroom_common.snapshot import FIELDS, Kind, Type

from .redaction import Redactor, as_part, fit

Fields = dict[str, Any]

#: What values of these types are, once they are read.
PYTHON: Final = {Type.INTEGER: int, Type.STRING: str, Type.BOOLEAN: bool}
_TRAFFIC: Final = {"bytes": "requestBytes"}
_TRAFFIC_TYPES: Final = {field.name: field.type for field in FIELDS[Kind.TRAFFIC]}
#: Parts of `metrics` that are divided by something, and what that is called.
_DIVIDED: Final = {"commands": "command", "errorCodes": "code", "errors": "error"}
#: Of a daemon's health, what is a figure.
_DISK: Final = ("freeBytes", "reserveBytes", "heldBackBytes", "quarantineBytes")


def of_traffic(told: Mapping[str, Any], root: str) -> Fields | None:
    """The line of a request in the traffic log; None for what is none."""
    line: Fields = {"root": root}
    for name, value in told.items():
        column = _TRAFFIC.get(name, name)
        kind = _TRAFFIC_TYPES.get(column)
        if (kind is Type.NUMBER and type(value) in (int, float)) or (
            kind and type(value) is PYTHON.get(kind) and value != ""
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
        "reasonCode": text(told.get("reasonCode")),
        "reasonMessage": text(told.get("reason")),
        "cause": text(failure.get("cause")),
        "diedMs": number(told.get("dlqAt")),
        "attempt": told.get("attempt"),
        "consumer": text(told.get("consumerId")),
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
        "reasonCode": text(failure.get("reasonCode")),
        "reasonMessage": text(failure.get("reasonMessage")),
        "cause": text(failure.get("cause")),
        "diedMs": event["wallMs"],
        "attempt": failure.get("attempt"),
        "consumer": text(failure.get("consumerId")),
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


def text(value: Any) -> str | None:
    """A text that says something."""
    return value if type(value) is str and value else None


def number(value: Any) -> int | None:
    """An integer."""
    return value if type(value) is int else None
