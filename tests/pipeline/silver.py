"""The tables that reports read, from what devices would write: without files, without the job that reads them."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from postroom_common.snapshot import Kind
from postroom_pipeline.schema.snapshot import snake
from postroom_pipeline.silver import ALL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]
Rows = dict[str, list[Row]]
Lines = Sequence[tuple[Kind, Row]]

_TABLE_OF = {
    Kind.QUEUE: "queue_depth",
    Kind.LEASE: "leases",
    Kind.DEAD: "dead_letters",
    Kind.CONSUMER: "consumers",
    Kind.METRIC: "metrics",
    Kind.EVENT: "events",
    Kind.TRAFFIC: "traffic",
}
_SANE = (dt.datetime(2015, 1, 1, tzinfo=dt.UTC), dt.datetime(2100, 1, 1, tzinfo=dt.UTC))
#: Events after which a message waits.
_WAITS = ("published", "retried", "reprocessed", "held", "unheld", "moved", "retargeted", "rescheduled")
#: When files arrived whose clock is none.
ARRIVAL = dt.date(2026, 12, 1)


def rows_of(snapshots: Iterable[tuple[str, str, Lines]]) -> Rows:
    """Rows by table, of snapshots: each the device's name, its own id and its lines."""
    rows: Rows = {name: [] for name in ALL}
    seen: set[tuple[Any, ...]] = set()
    for device, snapshot, lines in snapshots:
        header = {snake(name): value for name, value in lines[0][1].items()}
        whose: Row = {"device": device, "snapshot": snapshot}
        rows["snapshots"].append(whose | _texts(header) | _clock(header["wall_ms"]))
        state = {name: header[name] for name in ("root", "epoch", "as_of_event", "wall_ms", "engine_ms")}
        for kind, fields in lines[1:]:
            row = whose | _texts({snake(name): value for name, value in fields.items()})
            if kind is Kind.EVENT:
                key = (device, row["root"], row["epoch"], row["event"])
                if key in seen:
                    continue
                seen.add(key)
            if kind in (Kind.EVENT, Kind.TRAFFIC):
                row |= _clock(row["wall_ms"])
            else:
                row |= state | _clock(header["wall_ms"])
            rows[_TABLE_OF[kind]].append(row)
    rows["messages"] = messages_of(rows["events"])
    return rows


def frames_of(spark: SparkSession, rows: Mapping[str, Sequence[Row]]) -> dict[str, DataFrame]:
    """Rows as frames of the tables; a column that a row does not name is null."""
    frames = {}
    for name, table in ALL.items():
        names = table.schema.names
        unknown = {column for row in rows.get(name, ()) for column in row} - set(names) - {"snapshot"}
        assert not unknown, f"{name} has no {unknown}"
        reported = [tuple(row.get(column) for column in names) for row in rows.get(name, ())]
        frames[name] = spark.createDataFrame(reported, table.schema)
    return frames


def messages_of(events: Iterable[Row]) -> list[Row]:
    """Rows of ``messages``, computed again in plain Python."""
    made: dict[tuple[str, str, str], Row] = {}
    for event in sorted(events, key=lambda row: (row["epoch"], row["event"])):
        if not event.get("message"):
            continue
        key = (event["device"], event["root"], event["message"])
        row = made.setdefault(key, _new_message(event))
        row["last_queue"] = event.get("to") or event["queue"]
        row["went_on"] = row["ended_count"] > 0
        row |= {"last_event": event["event"], "last_type": event["type"], "last_at": event["wall_at"]}
        row["fate"] = _fate(event) or row["fate"]
        row["was_dead"] = row["was_dead"] or _fate(event) == "dead"
        row["last_day"] = max(row["last_day"], event["day"])
        row["attempts"] = max(row["attempts"], event.get("attempt") or 0)
        _take(row, event)
    return list(made.values())


def _new_message(event: Row) -> Row:
    row = {name: event[name] for name in ("device", "root", "message", "queue", "day", "clock_suspect")}
    counts = dict.fromkeys(("leases", "attempts", "retries", "reprocessed", "published_count", "ended_count"), 0)
    days = {"first_day": event["day"], "last_day": event["day"]}
    return row | counts | days | {"state": "open", "fate": None, "was_dead": False, "first_event": event["event"]}


def _fate(event: Row) -> str | None:
    kind = event["type"]
    if kind == "leased":
        return "dead" if event.get("of_dead") else "inflight"
    if kind in ("acked", "dropped"):
        return "gone"
    return {"died": "dead"}.get(kind) or ("waiting" if kind in _WAITS else None)


def _take(row: Row, event: Row) -> None:
    number, engine, kind = event["event"], event["engine_ms"], event["type"]
    if kind == "published":
        row["published_count"] += 1
        if row["published_count"] > 1:
            row["published_again_event"] = number
            return
        row |= {"published_event": number, "published_engine_ms": engine, "published_wall_ms": event["wall_ms"]}
        row |= {name: event.get(name) for name in ("payload_digest", "payload_bytes", "priority", "client")}
        row["published_at"] = event["wall_at"]
    elif kind == "leased" and not event.get("of_dead"):
        row["leases"] += 1
        row.setdefault("first_leased_engine_ms", engine)
        row |= {"last_leased_engine_ms": engine, "last_consumer": event.get("consumer")}
    elif kind == "retried":
        row["retries"] += 1
    elif kind == "reprocessed":
        row["reprocessed"] += 1
        row["state"] = "open"
    elif kind == "acked":
        _end(row, number)
        row |= {"acked_event": number, "acked_engine_ms": engine, "state": "acked"}
    elif kind == "died":
        row |= {"died_event": number, "died_engine_ms": engine, "state": "dead"}
        row |= {name: event.get(name) for name in ("reason_code", "reason_message", "cause")}
    elif kind == "dropped":
        _end(row, number)
        row |= {"dropped_event": number, "dropped_reason": event.get("reason_code"), "state": "dropped"}


def _end(row: Row, number: int) -> None:
    row["ended_count"] += 1
    row["ended_event" if row["ended_count"] == 1 else "ended_again_event"] = number


def _clock(wall_ms: int) -> Row:
    at = dt.datetime.fromtimestamp(wall_ms / 1000, dt.UTC) if 0 <= wall_ms < 2**42 else _SANE[1]
    sane = _SANE[0] <= at < _SANE[1]
    return {"wall_at": at if sane else None, "clock_suspect": not sane, "day": at.date() if sane else ARRIVAL}


def _texts(row: Row) -> Row:
    """Fields of any shape as their text, as files have them."""
    return {
        name: json.dumps(value, separators=(",", ":"))
        if name in ("holes", "ext", "policy", "labels") and value is not None
        else value
        for name, value in row.items()
    }
