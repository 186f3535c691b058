"""Converts lines of the traffic log and answers of the daemon to the fields of a snapshot's lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from postroom_common.events import Event
from postroom_common.snapshot import FIELDS, Kind, Type

from .redaction import Redactor, as_part, fit

Fields = dict[str, Any]

#: The Python types of column types.
PYTHON: Final = {Type.INTEGER: int, Type.STRING: str, Type.BOOLEAN: bool}
_TRAFFIC: Final = {"bytes": "requestBytes"}
_TRAFFIC_TYPES: Final = {field.name: field.type for field in FIELDS[Kind.TRAFFIC]}
#: Maps in ``metrics``, and the label that their keys become.
_DIVIDED: Final = {"commands": "command", "errorCodes": "code", "errors": "error"}
#: Figures in the daemon's health.
_DISK: Final = ("freeBytes", "reserveBytes", "heldBackBytes", "quarantineBytes")


def of_traffic(request: Mapping[str, Any], root: str) -> Fields | None:
    """The line of a request in the traffic log; None for anything else."""
    line: Fields = {"root": root}
    for name, value in request.items():
        column = _TRAFFIC.get(name, name)
        kind = _TRAFFIC_TYPES.get(column)
        if (kind is Type.NUMBER and type(value) in (int, float)) or (
            kind and type(value) is PYTHON.get(kind) and value != ""
        ):
            line[column] = fit(value)
    has_all = all(field.name in line for field in FIELDS[Kind.TRAFFIC] if field.required)
    return line if has_all else None


def of_queue(entry: Mapping[str, Any]) -> Fields:
    """The line of an entry of ``list_queues``, without its policy, and the readers of a log."""
    paused, log = entry.get("paused") or {}, entry.get("log") or {}
    return {
        "queue": entry["queue"],
        "ready": entry["ready"],
        "inflight": entry["inflight"],
        "delayed": entry["delayed"] + entry.get("gathering", 0),
        "held": entry.get("held", 0) + entry.get("drafting", 0),
        "gathering": entry.get("gathering"),
        "done": entry.get("done"),
        "ordered": entry.get("ordered"),
        "drafting": entry.get("drafting"),
        "dead": entry["dlq"],
        "oldestReadyAgeMs": entry.get("oldestReadyAgeMs"),
        "oldestLeaseAgeMs": entry.get("oldestLeaseAgeMs"),
        "oldestDeadAgeMs": entry.get("oldestDeadAgeMs"),
        "queueBytes": entry.get("bytes"),
        "publishPaused": bool(paused.get("publish")),
        "consumePaused": bool(paused.get("consume")),
        "reasons": dict(entry.get("reasons") or {}),
        "tally": dict(entry["tally"]) if entry.get("tally") else None,
        "totals": dict(entry.get("totals") or {}),
        "records": log.get("records"),
        "recordBytes": log.get("bytes"),
        "firstPosition": log.get("first"),
        "lastPosition": log.get("last"),
    }


def of_lease(entry: Mapping[str, Any]) -> Fields:
    """The line of an entry of ``list_inflight``."""
    return {
        "queue": entry["queue"],
        "message": entry["messageKey"],
        "consumer": entry.get("consumerId"),
        "uid": entry.get("uid"),
        "principal": entry.get("principal"),
        "attempt": entry.get("attempt"),
        "leasedEngineMs": entry.get("leasedAtEngineMs"),
        "untilEngineMs": entry.get("leaseUntilEngineMs"),
        "ofDead": True if entry.get("state") == "dead" else None,
        "phase": entry.get("phase") if entry.get("state") != "dead" else None,
    }


def of_leased(event: Event) -> Fields:
    """The line of a lease, from the event that began it."""
    return {
        "queue": event["queue"],
        "message": event["key"],
        "lease": event["lease"],
        "consumer": event["consumer"],
        "uid": event.get("uid"),
        "principal": event.get("principal"),
        "attempt": event["attempt"],
        "leasedEngineMs": event["engineMs"],
        "untilEngineMs": event["untilEngineMs"],
        "ofDead": event.get("ofDead"),
        "phase": event.get("phase"),
    }


def of_letter(entry: Mapping[str, Any], redactor: Redactor) -> Fields:
    """The line of an entry of ``list_dlq`` that was asked for with whole bodies."""
    failure = entry.get("failure") or {}
    line = {
        "queue": entry["queue"],
        "message": entry["messageKey"],
        "reasonCode": text(entry.get("reasonCode")),
        "reasonMessage": text(entry.get("reason")),
        "cause": text(failure.get("cause")),
        "diedMs": number(entry.get("dlqAt")),
        "attempt": entry.get("attempt"),
        "consumer": text(entry.get("consumerId")),
        "quarantined": entry.get("quarantined"),
        "leased": entry.get("leased"),
        "history": fit(entry.get("failures")) or None,
    }
    original = entry.get("originalMessage")
    if original:
        line |= of_body(original, entry.get("bytes"), redactor)
    return line


def of_body(shown: Mapping[str, Any], length: Any, redactor: Redactor) -> Fields:
    """The fields of the body and the attributes of a whole message."""
    part = as_part(shown.get("payload"), shown.get("encoding"), shown.get("contentType"), length)
    return redactor.body(part) | {"attributes": redactor.attributes(shown.get("attributes"))}


def of_death(event: Event) -> Fields:
    """The line of a dead letter, from the event of its death: without its body."""
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


def of_consumer(entry: Mapping[str, Any]) -> Fields:
    """The line of an entry of ``list_consumers``."""
    return {
        "queue": entry["queue"],
        "consumer": entry["consumerId"],
        "inflight": entry["inflight"],
        "delivered": entry.get("delivered"),
        "askedEngineMs": entry.get("lastAskedEngineMs"),
        "deliveredEngineMs": entry.get("lastDeliveredEngineMs"),
    }


def of_metrics(metrics: Mapping[str, Any], health: Mapping[str, Any]) -> Iterator[Fields]:
    """The lines of the daemon's metrics."""
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
    """A string that is not empty, else None."""
    return value if type(value) is str and value else None


def number(value: Any) -> int | None:
    """An integer, else None."""
    return value if type(value) is int else None
