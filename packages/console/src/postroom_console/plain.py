"""The console without a screen: one reading as tables or JSON, and the tail as lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import orjson

from .data.filters import Filter
from .data.link import Link, Refused, Unreachable
from .data.live import now_ms
from .data.model import Model
from .data.records import Record
from .data.replay import Replay
from .data.rows import Placed, layout, line, plain
from .data.tails import Reader
from .data.text import age, clean, cut, figure, size
from .data.times import date_and_time, unix_ms
from .data.updates import Answer, Failure, Lines
from .data.views import (
    dead_columns,
    dead_rows,
    lease_columns,
    lease_rows,
    queue_columns,
    queue_rows,
    queues_words,
    record_columns,
    record_row,
)
from .i18n import tr, trn
from .paths import DaemonPaths

#: Dead letters per queue in a reading.
LETTERS: Final = 20
_WAIT_S: Final = 0.1


class Reading(NamedTuple):
    """The state at a moment, ``now_ms`` in the model's time. ``wall_ms`` is the Unix time of a recorded one, otherwise
    None."""

    model: Model
    now_ms: int
    wall_ms: int | None = None


def read_once(places: DaemonPaths) -> Reading:
    """One reading of everything. Raises ``Unreachable`` and ``Refused``."""
    link = Link(places.make_client, lambda: False)
    model = Model()
    try:
        for name, command, payload in (("health", "health", {}), ("queues", "list_queues", {"limit": 1000})):
            _take(model, link.ask(name, command, payload))
        _take(model, link.ask("leases", "list_inflight", {"limit": 500}))
        for queue in model.queues.values():
            if queue.dead:
                letters = {"queue": queue.name, "limit": LETTERS, "previewBytes": 0}
                _take(model, link.ask(f"dead:{queue.name}", "list_dlq", letters))
    finally:
        link.close()
    return Reading(model, now_ms())


def _take(model: Model, answer: Answer | Failure) -> None:
    if isinstance(answer, Failure):
        raise Refused(f"{answer.code}: {answer.text}") if answer.code else Unreachable(answer.text)
    model.take(answer.name, answer.data, now_ms())


def read_last(replay: Replay) -> Reading:
    """The last state of a recording."""
    replay.seek(replay.length_ms)
    model = Model()
    for at_ms, update in replay.drain():
        if isinstance(update, Answer):
            model.take(update.name, update.data, at_ms)
        elif isinstance(update, Failure):
            model.fail(update.name, update.code, update.text, at_ms)
    return Reading(model, replay.now_ms(), replay.wall_ms + replay.now_ms())


def as_table(reading: Reading, width: int) -> Iterator[str]:
    """A reading for people."""
    model = reading.model
    if reading.wall_ms is not None:
        yield cut(f"{tr('REPLAY')} {date_and_time(reading.wall_ms)}", width)
    if model.problem:
        yield cut(clean(model.problem), width)
    yield cut(headline(model), width)
    yield ""
    yield from plain(queue_columns(), queue_rows(model), width)
    leases = lease_rows(model, reading.now_ms)
    if leases:
        yield ""
        yield trn("{n} LEASE", "{n} LEASES", len(leases))
        yield from plain(lease_columns(), leases, width)
    letters = letters_of(model)
    if letters:
        yield ""
        dead = sum(queue.dead for queue in model.queues.values())
        yield trn("{n} DEAD LETTER", "{n} DEAD LETTERS", dead)
        now_ms = unix_ms() if reading.wall_ms is None else reading.wall_ms
        yield from plain(dead_columns(), dead_rows(letters, now_ms), width)


def letters_of(model: Model) -> list[dict[str, Any]]:
    """The dead letters of all answers."""
    answers = [answer for name, answer in sorted(model.answers.items()) if name == "dead" or name.startswith("dead:")]
    return [letter for answer in answers for letter in answer.data.get("messages", [])]


def headline(model: Model) -> str:
    """The state of the daemon in one line."""
    health = model.data("health")
    queues = list(model.queues.values())
    paused = sum(queue.is_paused for queue in queues)
    dead = sum(queue.dead for queue in queues)
    oldest = max((queue.oldest_ready_ms or 0 for queue in queues), default=0)
    disk = (health.get("checks") or {}).get("disk") or {}
    state = tr("DRAINING") if health.get("draining") else tr("RUN") if health.get("status") == "ok" else tr("DEGRADED")
    parts = [
        f"{clean(str(health.get('nodeId') or ''))} {state}",
        *([model.member.words()] if model.member else []),
        queues_words(model) + (f", {trn('{n} paused', '{n} paused', paused)}" if paused else ""),
        f"{tr('dead')} {figure(dead)}{'!' if dead else ''}",
        f"{tr('oldest')} {age(oldest)}",
    ]
    if "freeBytes" in disk:
        parts.append(f"{tr('disk free')} {size(int(disk['freeBytes']))}")
    return " | ".join(parts)


def as_json(reading: Reading) -> bytes:
    """reading for programs: the daemon's answers as they came, in an object with the fields

    - ``format``: 1; rises when a field changes its meaning,
    - ``health``: the answer to ``health``,
    - ``queues``: the entries of ``list_queues``, at most 10,000,
    - ``inflight``: the entries of ``list_inflight``, at most 2,000,
    - ``deadLetters``: the first 20 entries of ``list_dlq`` per queue, without bodies,
    - ``more``: which of the lists are incomplete,
    - ``asOfEvent``, ``engineNowMs``: the event and the engine time that ``queues`` reflects,
    - ``recordedAtMs``: the Unix time of a reading from a recording, otherwise null.
    """
    model = reading.model
    queues, leases = model.data("queues"), model.data("leases")
    letters = letters_of(model)
    is_cut = {
        "queues": bool(queues.get("next")),
        "inflight": bool(leases.get("next")),
        "deadLetters": len(letters) < sum(queue.dead for queue in model.queues.values()),
    }
    return orjson.dumps(
        {
            "format": 1,
            "health": model.data("health"),
            "queues": queues.get("queues", []),
            "inflight": leases.get("messages", []),
            "deadLetters": letters,
            "more": [name for name, is_more in is_cut.items() if is_more],
            "asOfEvent": queues.get("asOfEvent", 0),
            "engineNowMs": queues.get("engineNowMs", 0),
            "recordedAtMs": reading.wall_ms,
        }
    )


def watch(
    reader: Reader,
    queue: str,
    wanted: str,
    width: int,
    write: Callable[[str], None],
    warn: Callable[[str], None],
    is_left: Callable[[], bool],
    raw: bool = False,
    follow: bool = True,
) -> None:
    """Write the tail line by line until ``is_left()``, or without ``follow`` only the existing lines. ``raw`` writes
    them as they are in the files. What was skipped goes to ``warn``.

    Raises ``FilterError``, and at the beginning ``Unreachable`` or ``Refused`` if nothing can be read.
    """
    means = Filter(wanted)
    shown = layout(record_columns(), width - 1)
    warned = ""
    lines = reader.read()
    if reader.is_blind:
        raise Unreachable(lines.problem) if reader.is_missing else Refused(lines.problem)
    while not is_left():
        for record in lines.records:
            if (not queue or record.queue == queue) and means(record):
                write(record.raw.decode() if raw else record_line(record, shown))
        problem = "; ".join(filter(None, (lines.problem, means.problem)))
        if problem and problem != warned:
            warn(problem)
        warned = problem
        if left_out := "; ".join(_left_out(lines)):
            warn(left_out)
        if not follow and not lines.records and not lines.bad_lines:
            return
        if follow and not lines.records:
            time.sleep(_WAIT_S)
        lines = reader.read()


def _left_out(lines: Lines) -> Iterator[str]:
    if lines.skipped_bytes:
        yield f"{tr('skipped')} {size(lines.skipped_bytes)}"
    if lines.bad_lines:
        yield f"{tr('bad lines')} {figure(lines.bad_lines)}"
    if lines.missing_events:
        yield f"{tr('missing')} {figure(lines.missing_events)}"


def record_line(record: Record, shown: Sequence[Placed]) -> str:
    """A record on one line."""
    row = record_row(0, record, unix_ms())
    return (row.flag + "".join(cell.text for cell in line(row, shown))).rstrip()
