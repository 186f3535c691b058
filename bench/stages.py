"""Where the CPU of the daemon goes in a durable publish, consume and ack, by stage.

The daemon's own mailbox and broker work in this process on real files, in groups of an exact size. The functions at the
borders of the stages are wrapped: each stage is charged the thread's CPU time between its borders, less what the
wrapping costs. A group's figure is the sum over its requests; of all groups the lower quartile is shown, since what is
above it is mostly other work on the machine.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Final

from postroom_daemon.broker import group, transaction
from postroom_daemon.broker.broker import Broker
from postroom_daemon.broker.fair_scheduler import FairScheduler
from postroom_daemon.broker.group import Group
from postroom_daemon.broker.transaction import Transaction
from postroom_daemon.doors.mailbox import Mailbox
from postroom_daemon.doors.mailbox import door as mailbox
from postroom_daemon.doors.mailbox.response_dirs import ResponseDirs
from postroom_daemon.doors.mailbox.scanner import Scanner
from postroom_daemon.doors.mailbox.watch import Watch
from postroom_daemon.engine.context import Context
from postroom_daemon.journal.journal import Journal
from postroom_daemon.observe.traffic import TrafficLog
from postroom_daemon.observe.vitals import DaemonVitals
from postroom_daemon.policy.access import Access
from postroom_daemon.stores.sqlite.bodies import SqliteBodies
from postroom_daemon.stores.sqlite.facts import SqliteFacts
from postroom_daemon.stores.sqlite.messages import SqliteMessages
from postroom_daemon.stores.sqlite.store import SqliteStore
from postroom_daemon.stores.sqlite.unwritten import Unwritten

from .inside import COMMANDS, Inside

REST: Final = "the rest: between these"

_INTAKE: Final = "intake: scan, open, fstat, read, close, order"
_ACCESS: Final = "access: response directory (stat), rules"
_TURNS: Final = "turns: fair scheduler"
_TRANSACTION: Final = "transaction: begin, commit of what is in memory"
_STORE: Final = "store: records and entries, in memory"
_COMMIT: Final = "commit: begin, commit, changes for later"
_TRAFFIC: Final = "traffic log"
_COUNTERS: Final = "counters"
_STORE_METHODS: Final = {
    SqliteStore: "get queue queue_for_update add_queue",
    SqliteMessages: "insert update delete next_ready",
    SqliteBodies: "envelope",
    SqliteFacts: "get",
}

#: The borders: where a function is found, its name, and the stage that begins with it.
BORDERS: tuple[tuple[Any, str, str], ...] = (
    (Scanner, "take", _INTAKE),
    (Watch, "arm", "intake: the watch"),
    (mailbox, "decode_request", "parse: strict JSON to a request"),
    (ResponseDirs, "look", _ACCESS),
    (mailbox, "may_use_response_dir", _ACCESS),
    (Access, "refresh", _ACCESS),
    (Access, "check_command", _ACCESS),
    (Context, "require", _ACCESS),
    (Mailbox, "_request_of", "request: digest, object"),
    (Broker, "submit", _TURNS),
    (FairScheduler, "take", _TURNS),
    (Transaction, "__init__", _TRANSACTION),
    (Transaction, "run_periodic_tasks", "periodic tasks: is something due"),
    (Transaction, "_first_answer", "repeats: was it executed before"),
    (transaction, "decide", "decide: fields, verb, ids"),
    (Group, "record", "event: from drafts"),
    (group, "apply_new", "fold: without the store"),
    *((where, name, _STORE) for where, names in _STORE_METHODS.items() for name in names.split()),
    (Unwritten, "write", "store: SQL"),
    (SqliteStore, "flush", "store: SQL"),
    (SqliteStore, "begin", _COMMIT),
    (SqliteStore, "commit", _COMMIT),
    (Broker, "make_space", "space: is there enough"),
    (Group, "encode", "journal: encode, checksum"),
    (Journal, "append", "journal: write"),
    (Journal, "sync", "sync: fdatasync"),
    (Transaction, "commit", _TRANSACTION),
    (transaction, "reply_to", "answer: data from the event"),
    (mailbox, "encode_answer", "answer: encode"),
    (ResponseDirs, "put", "answer: create, write, close, rename"),
    (Scanner, "finish", "unlink of the request"),
    (TrafficLog, "add_all", _TRAFFIC),
    (TrafficLog, "flush", _TRAFFIC),
    (DaemonVitals, "count_answers", _COUNTERS),
    (DaemonVitals, "count_group", _COUNTERS),
)


class Stages:
    """Thread CPU nanoseconds by stage; ``borders`` counts how often one was crossed while in it."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self.borders: Counter[str] = Counter()
        self._now = REST
        self._since = time.thread_time_ns()

    def enter(self, stage: str) -> str:
        """Charge what has passed to the stage that ends here; the stage to come back to."""
        before, now = self._now, time.thread_time_ns()
        self.spent[before] += now - self._since
        self.borders[before] += 1
        self._now = stage
        self._since = time.thread_time_ns()
        return before

    def wrap(self, function: Callable[..., Any], stage: str) -> Callable[..., Any]:
        """``function``, charged to ``stage``."""

        @wraps(function)
        def charged(*arguments: Any, **named: Any) -> Any:
            before = self.enter(stage)
            try:
                return function(*arguments, **named)
            finally:
                self.enter(before)

        return charged


@contextmanager
def _borders_watched(stages: Stages) -> Iterator[None]:
    originals = [(place, name, getattr(place, name)) for place, name, _ in BORDERS]
    for place, name, stage in BORDERS:
        setattr(place, name, stages.wrap(getattr(place, name), stage))
    try:
        yield
    finally:
        for place, name, original in originals:
            setattr(place, name, original)


def _border_ns() -> float:
    """What one crossing costs the stage that is left: calling and returning, and the reading of the clock."""
    probe, count = Stages(), 20_000
    nothing = probe.wrap(lambda: None, "nothing")
    for _ in range(count):
        nothing()
    return min(probe.spent[REST], probe.spent["nothing"]) / count


def measure(place: Path, size: int, cycles: int) -> dict[str, dict[str, float]]:
    """For each command the stages with their CPU microseconds per request in ``cycles`` groups of ``size``, in the
    order of a request's way; the rest and the sum last."""
    stages = Stages()
    border_ns = _border_ns()
    found: dict[str, list[dict[str, float]]] = {command: [] for command in COMMANDS}

    @contextmanager
    def charged(command: str) -> Iterator[None]:
        stages.enter(REST)
        stages.spent.clear()
        stages.borders.clear()
        yield
        stages.enter(REST)
        spent = {stage: ns - border_ns * stages.borders[stage] for stage, ns in stages.spent.items()}
        found[command].append({stage: max(0.0, ns) / size / 1000 for stage, ns in spent.items()})

    with _borders_watched(stages), Inside(place, size) as inside:
        for _ in range(cycles + 1):
            inside.cycle(charged)
    order = dict.fromkeys([stage for _, _, stage in BORDERS] + [REST])
    by_command: dict[str, dict[str, float]] = {}
    for command, groups in found.items():
        del groups[0]  # it makes the response directories and the queue
        by_command[command] = {stage: _quartile([one.get(stage, 0.0) for one in groups]) for stage in order}
        by_command[command]["all"] = _quartile([sum(one.values()) for one in groups])
    return by_command


def _quartile(values: list[float]) -> float:
    return sorted(values)[len(values) // 4]
