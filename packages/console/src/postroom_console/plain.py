"""The console without a screen: one reading as a table or as JSON, and the tail as lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import orjson

from .data.filters import compile_filter
from .data.link import Link
from .data.live import Live, now_ms
from .data.model import Model
from .data.records import Record
from .data.rows import layout, line, plain
from .data.text import age, clean, figure, size
from .data.updates import Answer, Failure, Lines
from .data.views import (
    dead_columns,
    dead_rows,
    lease_columns,
    lease_rows,
    queue_columns,
    queue_rows,
    record_columns,
    record_row,
)
from .i18n import tr, trn
from .places import Places

#: Dead letters of a queue that one reading shows.
LETTERS: Final = 20
_WAIT_S: Final = 0.1


class Unreachable(Exception):
    """No daemon answers; the text says why."""


class Refused(Exception):
    """The daemon refused a question; the text says why."""


def read_once(places: Places) -> Model:
    """One reading of everything. Raises ``Unreachable`` and ``Refused``."""
    link = Link(places.make_client, lambda: False)
    model = Model()
    try:
        for name, command, payload in (("health", "health", {}), ("queues", "list_queues", {"limit": 500})):
            _take(model, link.ask(name, command, payload))
        _take(model, link.ask("leases", "list_inflight", {"limit": 500}))
        for queue in model.queues.values():
            if queue.dead:
                letters = {"queue": queue.name, "limit": LETTERS, "previewBytes": 0}
                _take(model, link.ask(f"dead:{queue.name}", "list_dlq", letters))
    finally:
        link.close()
    return model


def _take(model: Model, answer: Answer | Failure) -> None:
    if isinstance(answer, Failure):
        raise Refused(f"{answer.code}: {answer.text}") if answer.code else Unreachable(answer.text)
    model.take(answer.name, answer.data, now_ms())


def as_table(model: Model, width: int) -> Iterator[str]:
    """A reading for people."""
    yield cut_to(headline(model), width)
    yield ""
    yield from plain(queue_columns(), queue_rows(model), width)
    leases = lease_rows(model, now_ms())
    if leases:
        yield ""
        yield trn("{n} LEASE", "{n} LEASES", len(leases))
        yield from plain(lease_columns(), leases, width)
    letters = letters_of(model)
    if letters:
        yield ""
        dead = sum(queue.dead for queue in model.queues.values())
        yield trn("{n} DEAD LETTER", "{n} DEAD LETTERS", dead)
        yield from plain(dead_columns(), dead_rows(letters), width)


def letters_of(model: Model) -> list[dict[str, Any]]:
    """The dead letters of all answers."""
    answers = [told for name, told in sorted(model.slices.items()) if name.startswith("dead:")]
    return [letter for told in answers for letter in told.data.get("messages", [])]


def headline(model: Model) -> str:
    """One line: how the daemon is."""
    health = model.slices["health"].data
    queues = list(model.queues.values())
    paused = sum(queue.is_paused for queue in queues)
    dead = sum(queue.dead for queue in queues)
    oldest = max((queue.oldest_ready_ms or 0 for queue in queues), default=0)
    disk = (health.get("checks") or {}).get("disk") or {}
    state = tr("DRAINING") if health.get("draining") else tr("RUN") if health.get("status") == "ok" else tr("DEGRADED")
    parts = [
        f"{clean(str(health.get('nodeId') or ''))} {state}",
        trn("{n} queue", "{n} queues", len(queues))
        + (f", {trn('{n} paused', '{n} paused', paused)}" if paused else ""),
        f"{tr('dead')} {figure(dead)}{'!' if dead else ''}",
        f"{tr('oldest')} {age(oldest)}",
    ]
    if "freeBytes" in disk:
        parts.append(f"{tr('disk free')} {size(int(disk['freeBytes']))}")
    return " | ".join(parts)


def cut_to(text: str, width: int) -> str:
    from .data.text import cut

    return cut(text, width)


def as_json(model: Model) -> bytes:
    """A reading for programs: the daemon's answers as they came."""
    return orjson.dumps(
        {
            "health": model.slices["health"].data,
            "queues": model.slices["queues"].data.get("queues", []),
            "inflight": model.slices["leases"].data.get("messages", []),
            "deadLetters": letters_of(model),
            "asOfEvent": model.slices["queues"].as_of,
        }
    )


def watch(places: Places, queue: str, wanted: str, width: int, write: Callable[[str], None], raw: bool) -> None:
    """Write the tail line by line, until interrupted. ``raw``: as the lines stand in the files.

    Raises ``FilterError``, and ``Unreachable`` when the files cannot be read.
    """
    means = compile_filter(wanted)
    live = Live(places.make_client, places.journal, places.traffic)
    places_ = layout(record_columns(), width - 1)
    live.start()
    try:
        for number, record in enumerate(_records(live)):
            if (not queue or record.queue == queue) and means(record):
                write(record.raw.decode("utf-8", "replace") if raw else _line(number, record, places_))
    finally:
        live.stop()


def _line(number: int, record: Record, places: Any) -> str:
    row = record_row(number, record)
    return (row.flag + "".join(cell.text for cell in line(row, places))).rstrip()


def _records(live: Live) -> Iterator[Record]:
    while True:
        updates = live.drain()
        for _, update in updates:
            if isinstance(update, Lines):
                if update.problem:
                    raise Unreachable(update.problem)
                yield from sorted(update.records, key=lambda record: record.engine_ms)
        if not updates:
            time.sleep(_WAIT_S)
