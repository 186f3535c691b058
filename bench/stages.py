"""``scripts/bench stages``: the CPU of the daemon in a durable publish, by stage.

The daemon's own mailbox and broker work in this process on real files, in groups of an exact size. The functions at the
borders of the stages are wrapped: each stage is charged the thread's CPU time between its borders, less what the
wrapping costs. A group's figure is the sum over its requests; of all groups the lower quartile is shown, since what is
above it is mostly other work on the machine.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from postroom_daemon.broker import group, transaction
from postroom_daemon.broker.group import Group
from postroom_daemon.config.config import load
from postroom_daemon.doors.mailbox import Mailbox
from postroom_daemon.doors.mailbox import door as mailbox
from postroom_daemon.doors.mailbox.response_dirs import ResponseDirs
from postroom_daemon.doors.mailbox.scanner import Scanner
from postroom_daemon.doors.mailbox.watch import Watch
from postroom_daemon.journal.journal import Journal
from postroom_daemon.observe.traffic import TrafficLog
from postroom_daemon.observe.vitals import DaemonVitals
from postroom_daemon.platform.files import Files
from postroom_daemon.root.open_root import Sources, open_root
from postroom_daemon.stores.sqlite.store import SqliteStore

from .load import write_requests

GROUPS = (32, 6, 1)
CLIENTS = 8

#: The borders: where a function is found, its name, and the stage that begins with it.
BORDERS: tuple[tuple[Any, str, str], ...] = (
    (Watch, "arm", "watch: re-armed"),
    (Scanner, "take", "intake: scan, open, fstat, read, close, order"),
    (mailbox, "decode_request", "decode: strict JSON to a request"),
    (ResponseDirs, "look", "response directory: owner and mode (stat)"),
    (Mailbox, "_request_of", "request: digest, object"),
    (transaction, "decide", "decide: fields, verb, ids"),
    (Group, "record", "record: events from drafts"),
    (group, "apply", "apply: fold, without SQL"),
    (SqliteStore, "_write_changes", "apply: SQL"),
    (SqliteStore, "commit", "commit of the store, without SQL"),
    (transaction, "reply_to", "reply: data from the event"),
    (Group, "encode", "journal: encode, checksum"),
    (Journal, "append", "journal: write"),
    (Journal, "sync", "journal: fdatasync"),
    (mailbox, "encode_answer", "respond: encode"),
    (ResponseDirs, "put", "respond: create, write, close, rename"),
    (Scanner, "finish", "respond: stat, unlink of the request"),
    (DaemonVitals, "count_answer", "counters, traffic line"),
    (DaemonVitals, "count_group", "counters, traffic line"),
    (TrafficLog, "flush", "traffic: write"),
)
REST = "the rest: loop, group, answers"


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


def measure(place: Path, size: int, groups: int) -> list[tuple[str, float]]:
    """Stages with their CPU microseconds per request in ``groups`` groups of ``size``, in the order of a request's
    way; the rest and the sum last."""
    flags = {"limits.groupRequests": str(size)}
    config = load(place, None, {}, flags)
    root = open_root(config, Sources())
    stages = Stages()
    border_ns = _border_ns()
    found: list[dict[str, float]] = []
    try:
        with _borders_watched(stages):
            box = Mailbox(config.settings, Files(), root.vitals.count_unanswered)
            writers = [write_requests(config.settings.ipc_root, f"stage-{number}") for number in range(CLIENTS)]
            responses = config.settings.ipc_root / "responses"
            for number in range(groups + 1):
                ids = [(one % CLIENTS, next(writers[one % CLIENTS])) for one in range(size)]
                stages.enter(REST)
                stages.spent.clear()
                stages.borders.clear()
                for call in box.collect():
                    root.broker.submit(call)
                root.broker.run_group()
                if root.traffic:
                    root.traffic.flush()
                stages.enter(REST)
                for client, request_id in ids:
                    (responses / f"stage-{client}" / f"{request_id}.json").unlink()
                if number:  # the first makes the boxes and the queue
                    spent = {stage: ns - border_ns * stages.borders[stage] for stage, ns in stages.spent.items()}
                    found.append({stage: max(0.0, ns) / size / 1000 for stage, ns in spent.items()})
            box.close()
    finally:
        root.close()
        shutil.rmtree(place, ignore_errors=True)
    order = dict.fromkeys([stage for _, _, stage in BORDERS] + [REST])
    rows = [(stage, _quartile([one.get(stage, 0.0) for one in found])) for stage in order]
    rows.append(("all", _quartile([sum(one.values()) for one in found])))
    return rows


def _quartile(values: list[float]) -> float:
    return sorted(values)[len(values) // 4]
