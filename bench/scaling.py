"""``scripts/bench scaling``: what a message costs the daemon behind a backlog, among many queues, with many clients and
with large bodies; its memory and its start with each backlog and number of queues.

All of it is measured on a real daemon with requests through the mailbox. Only the backlogs and queues are made by the
engine in this process, before the daemon starts.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from . import engine
from .box import MEMORY_MB, NO_BOX, small_box
from .curves import Curve, Panel
from .daemon import Daemon, running
from .figures import Report
from .floor import GROUP, Floor
from .inside import COMMANDS
from .lean import Call, LeanClients, Outcome, payload_text
from .load import MESSAGE

#: The budgets are for publishes.
_PUBLISH: Final = COMMANDS[0]
#: Clients that share the requests of full groups.
_SHARING: Final = 8
#: Bytes of the bodies of one command in one round; with large ones, a round has fewer messages.
_ROUND_BYTES: Final = 32 << 20

_FLOOR_REQUESTS: Final = 5_120
#: Calls of each command by each of many clients, in one round.
_CALLS_A_CLIENT: Final = 4
#: Leases last as long as the longest round on a slow machine.
_LEASE_S: Final = 600
#: Steps between queues that are used one after the other; it shares no factor with their number.
_STRIDE: Final = 7919

#: Starts a daemon on a root, with settings as flags, for the length of a block.
Start = Callable[..., AbstractContextManager[Daemon]]
_GROUPS: Final = ("--limits-group-requests", str(GROUP))


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: the points of each curve; full groups of each command in a round, rounds, calls of each
    command in a round by one client, starts of the daemon, and how long it is watched while idle."""

    backlogs: tuple[int, ...]
    queues: tuple[int, ...]
    clients: tuple[int, ...]
    bodies: tuple[int, ...]
    groups: int
    rounds: int
    calls: int
    starts: int
    idle_s: float
    limit_s: int


_BODIES: Final = (100, 1_000, 10_000, 100_000, 1 << 20)
TINY = Size((10,), (1, 10), (1, 2), (100,), 1, 1, 2, 1, 0.0, 120)
QUICK = Size(
    (100, 1_000, 10_000, 100_000), (1, 10, 100, 1_000, 10_000), (1, 8, 50, 200, 500), _BODIES, 10, 2, 60, 1, 4.0, 600
)
NORMAL = Size(
    (100, 1_000, 10_000, 100_000, 1_000_000),
    (1, 10, 100, 1_000, 10_000, 100_000),
    (1, 2, 5, 10, 20, 50, 100, 200, 500),
    _BODIES,
    20,
    3,
    100,
    3,
    10.0,
    3600,
)


def _costs(floor_us: float | None, budgets: bool = True) -> list[Panel]:
    full, one, p50 = (2.2 * floor_us if floor_us else None, 250.0, 0.6) if budgets else (None, None, None)
    return [
        Panel(f"Daemon's CPU a message, groups of {GROUP}", "µs", _lines(f"groups of {GROUP}"), full, _PUBLISH),
        Panel("Daemon's CPU a message, groups of one", "µs", _lines("groups of one"), one, _PUBLISH),
        Panel("p50 of one client", "ms", _lines("p50"), p50, _PUBLISH),
    ]


def _lines(how: str) -> dict[str, str]:
    return {f"{command}, {how}": command for command in COMMANDS}


_CROWD: Final = [
    Panel("Daemon's CPU a message", "µs", _lines("closed loop")),
    Panel("p50", "ms", _lines("p50")),
    Panel("Requests a group", "", {"requests a group": "requests"}),
]
_STANDING: Final = [
    Panel("Resident memory", "MB", {"memory after the start": "after the start", "memory": "after work"}, 80),
    Panel("Start to READY", "ms", {"start to READY": "by the clock", "start, CPU": "CPU"}, 1000),
    Panel("CPU while idle", "% of a core", {"idle": "idle"}, 0.3),
]


@contextmanager
def starting(in_box: bool = False) -> Iterator[Start]:
    """What starts daemons, for the length of a block; ``in_box`` with little memory and CPU. Raises ``NoBox``."""
    with small_box() if in_box else nullcontext(NO_BOX) as box:
        if in_box:
            print(f"the daemon has {MEMORY_MB} MB and half a core, by {box.how}", flush=True)
        yield partial(running, box=box)


def measure(report: Report, size: Size, place: Path, floor: Floor | None, start: Start) -> list[Curve]:
    """All curves. ``place`` is an empty directory for the roots."""
    floor_us = None
    if floor:
        report.section("The floor (bench/floor.c)")
        runs = [floor.requests(_FLOOR_REQUESTS)[0] for _ in range(3)]
        floor_us = min(runs)
        report.add("floor: CPU a request", runs, "us")
    curves: list[Curve] = []
    parts: list[tuple[str, Callable[[], Curve]]] = [
        ("A backlog in one queue", lambda: _backlogs(report, size, place / "backlogs", floor_us, start)),
        ("Queues with one message each", lambda: _queues(report, size, place / "queues", floor_us, start)),
        ("Clients, each of which waits for its answer", lambda: _clients(report, size, place / "clients", start)),
        ("Sizes of bodies", lambda: _bodies(report, size, place / "bodies", start)),
    ]
    for title, measured in parts:
        report.section(title)
        curves.append(measured())
        curves[-1].print(report)
    return curves


def _backlogs(report: Report, size: Size, root: Path, floor_us: float | None, start: Start) -> Curve:
    curve = Curve("backlog", "Messages in the queue", [*_costs(floor_us), *_STANDING])
    for before, backlog in itertools.pairwise((0, *size.backlogs)):
        engine.fill(root, "deep", backlog - before)
        with _started(root, size, start) as (daemon, figures):
            figures |= _cycles(daemon, size, ["deep"], MESSAGE)
            figures |= _standing(daemon, size)
        curve.add(report, backlog, figures)
    return curve


def _queues(report: Report, size: Size, root: Path, floor_us: float | None, start: Start) -> Curve:
    curve = Curve("queues", "Queues", [*_costs(floor_us), *_STANDING])
    for before, count in itertools.pairwise((0, *size.queues)):
        names = [f"line-{one:06}" for one in range(count)]
        engine.fill_queues(root, names[before:])
        with _started(root, size, start) as (daemon, figures):
            # Neighbours in this order are far from each other in the store.
            figures |= _cycles(daemon, size, [names[one * _STRIDE % count] for one in range(count)], MESSAGE)
            figures |= _standing(daemon, size)
        curve.add(report, count, figures)
    return curve


def _clients(report: Report, size: Size, root: Path, start: Start) -> Curve:
    curve = Curve("clients", "Clients", _CROWD)
    with start(root) as daemon:
        for count in size.clients:
            with LeanClients(daemon, count, f"of-{count}") as clients:
                calls = max(size.calls, _CALLS_A_CLIENT * count)
                cycle(clients.closed_loop, count, itertools.repeat("load"), MESSAGE)  # makes what is remembered
                groups = daemon.groups()
                rounds = [
                    cycle(clients.closed_loop, calls, itertools.repeat("load"), MESSAGE) for _ in range(size.rounds)
                ]
                after = daemon.groups()
            figures = _summary(rounds, "closed loop")
            requests = after["requests"] - groups["requests"]
            figures["requests a group"] = requests / max(1, after["count"] - groups["count"])
            curve.add(report, count, figures)
    return curve


def _bodies(report: Report, size: Size, root: Path, start: Start) -> Curve:
    memory = Panel("Resident memory", "MB", {"memory": "after work"})
    curve = Curve("body", "Bytes of the body", [*_costs(None, budgets=False), memory], y_scale="log")
    with start(root, *_GROUPS) as daemon:
        for count in size.bodies:
            figures = _cycles(daemon, size, [f"body-{count}"], body(count))
            figures["memory"] = daemon.resident_mb()
            curve.add(report, count, figures)
    return curve


@contextmanager
def _started(root: Path, size: Size, start: Start) -> Iterator[tuple[Daemon, dict[str, float]]]:
    """A daemon, after some starts of it, and their figures."""
    ready_ms, cpu_ms = [], []
    for last in [False] * (size.starts - 1) + [True]:
        with start(root, *_GROUPS) as daemon:
            ready_ms.append(daemon.ready_s * 1000)
            cpu_ms.append(daemon.scheduled_s() * 1000)
            if last:
                yield (
                    daemon,
                    {
                        "start to READY": statistics.median(ready_ms),
                        "start, CPU": min(cpu_ms),
                        "memory after the start": daemon.resident_mb(),
                    },
                )


def _standing(daemon: Daemon, size: Size) -> dict[str, float]:
    """What it takes when it has worked and does nothing now."""
    figures = {"memory": daemon.resident_mb()}
    if size.idle_s:
        used_s = daemon.scheduled_s()
        time.sleep(size.idle_s)
        daemon.wait_until_idle()
        figures["idle"] = (daemon.scheduled_s() - used_s) / size.idle_s * 100
    return figures


def _cycles(daemon: Daemon, size: Size, queues: Sequence[str], message: str) -> dict[str, float]:
    """CPU of the daemon in full groups and in groups of one, and p50 of one client, for each command."""
    turns = itertools.cycle(queues)
    most = max(GROUP, _ROUND_BYTES // len(message) // GROUP * GROUP)
    with LeanClients(daemon, _SHARING, "sharing") as clients, LeanClients(daemon, 1, "single") as client:
        cycle(clients.full_groups, GROUP, turns, message)  # makes what is remembered
        full = [cycle(clients.full_groups, min(most, size.groups * GROUP), turns, message) for _ in range(size.rounds)]
        single = [cycle(client.closed_loop, min(most, size.calls), turns, message) for _ in range(size.rounds)]
    return _summary(full, f"groups of {GROUP}") | _summary(single, "groups of one")


def cycle(
    run: Callable[[Sequence[Call]], Outcome], count: int, queues: Iterator[str], message: str
) -> tuple[Outcome, Outcome, Outcome]:
    """Publish, consume and acknowledge ``count`` messages, one request for each."""
    names = list(itertools.islice(queues, count))
    published = run([("publish", payload_text({"queue": name, "message": message})) for name in names])
    consumed = run(
        [("consume_next", payload_text({"queue": name, "visibilityTimeoutSec": _LEASE_S})) for name in names]
    )
    leases = [data["lease"] for data in consumed.data]
    acks = [payload_text({"messageKey": one["messageKey"], "leaseId": one["leaseId"]}) for one in leases]
    return published, consumed, run([("ack", payload) for payload in acks])


def _summary(rounds: list[tuple[Outcome, Outcome, Outcome]], how: str) -> dict[str, float]:
    """The least CPU of all rounds, since what is above it is mostly other work on the machine; the median of times."""
    figures: dict[str, float] = {}
    for command, outcomes in zip(COMMANDS, zip(*rounds, strict=True), strict=True):
        figures[f"{command}, {how}"] = min(one.cpu_us for one in outcomes)
        latencies_ms = [took for one in outcomes for took in one.latencies_ms]
        if latencies_ms:
            figures[f"{command}, p50"] = statistics.median(latencies_ms)
    return figures


def body(count: int) -> str:
    """JSON of exactly ``count`` bytes: as many readings as there is space for, and a text."""
    readings = ",".join([MESSAGE] * max(0, (count - len('[""]')) // (len(MESSAGE) + 1)))
    text = f'[{readings + "," if readings else ""}"'
    return text + "x" * (count - len(text) - 2) + '"]'
