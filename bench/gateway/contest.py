"""The rounds: every server in turn, so that all meet the same conditions; and the check of what they did."""

from __future__ import annotations

import itertools
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from .. import daemon as daemons
from .. import load
from ..figures import Report, percentile
from ..floor import Floor
from ..stores.queue import WrongMessages
from . import simplemq, smss, tables, websocket_mq
from .driver import Connections, Outcome, body_of, number_of
from .peers import PEERS, Missing, running
from .systems import Contestant, Ours, messages_in, ours
from .tables import ONE, SIXTEEN, WINDOW, Idle, Row, Syncs
from .wires import Refused, Wire


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: ``seconds`` for each row in a round, after a warm-up; the floor before each server;
    ``consumers`` wait for one message, and so many messages are pushed to a subscriber of SimpleMQ; one of smss reads
    ``backlog`` messages."""

    rounds: int
    seconds: float
    warm_up_s: float
    floor_ms: int
    idle_s: float
    consumers: int
    backlog: int
    limit_s: int


TINY = Size(1, 0.2, 0.05, 50, 0.2, 150, 2_500, 120)
QUICK = Size(2, 1.0, 0.3, 200, 5.0, 3000, 200_000, 420)
NORMAL = Size(5, 3.0, 0.5, 300, 10.0, 3000, 1_000_000, 1800)

#: How many messages are in flight on a connection; a protocol that is not listed is measured with all of them.
_PUSHES: Final = {"LMQ over HTTP": (ONE, SIXTEEN), "LMQ over MessagePack-RPC": (ONE, WINDOW)}
_PULLS: Final = {"LMQ over MessagePack-RPC": (ONE,)}
#: The lane: processes, kind of client (see ``bench/load.py``), the rate that is aimed at, the peers' row beside it.
_LANE: Final = (
    ("1 process", 1, "lane", None, ONE),
    ("8 processes", 8, "lane", 9_000.0, SIXTEEN),
    (f"8 processes, {load.WINDOW} in flight each", 8, "window", 30_000.0, WINDOW),
)
_RATES: Final = {("LMQ over HTTP", SIXTEEN): 8_000.0, ("LMQ over MessagePack-RPC", WINDOW): 15_000.0}
_LANE_P50_MS: Final = 0.5
#: WebSocket MQ: callers, their connections, and the rate that is aimed at.
_CYCLES: Final = (
    ("1 caller", 1, 1, None),
    ("16 callers, 1 connection", 16, 1, None),
    ("16 callers, 16 connections", 16, 16, 2_000.0),
)
_CYCLE: Final = "cycle (draft, set, order, get, complete)"
#: Messages of which each is delivered to one of the consumers that wait, and how long that may take.
_DELIVERIES: Final = 20
_DELIVERY_MS: Final = 5.0
#: SimpleMQ's doors for publishes.
_SIMPLEMQ: Final[tuple[tuple[str, Callable[[str], Wire]], ...]] = (
    ("SimpleMQ over REST", simplemq.Rest),
    ("SimpleMQ over TCP", simplemq.Tcp),
)
#: smss: connections that publish, and the rate that is aimed at if every answer is durable.
_PUBLISHERS: Final = ((1, 3_000.0), (16, 15_000.0), (256, 20_000.0))
#: Messages of a batch, and the rate of one subscriber that is aimed at.
_BATCHES: Final = ((1, None), (10, None), (100, None), (255, 300_000.0))
#: How long a server may take to count what it has acknowledged.
_COUNT_S: Final = 10.0
#: After the start of all servers, until they are idle.
_SETTLE_S: Final = 2.0


def measure(report: Report, size: Size, place: Path, floor: Floor | None, with_peers: bool) -> None:
    """All figures. ``place`` is an empty directory for the data. Raises ``WrongMessages`` when a server loses, doubles
    or changes a message, or counts wrongly."""
    with ExitStack() as stack:
        mine = stack.enter_context(ours(place / "root", place / "gateway.toml"))
        contestants = [*mine.doors, *(_opened(report, stack, place) if with_peers else ())]
        report.conditions["messageBytes"] = len(body_of(0))
        report.conditions.setdefault("versions", {})
        tables.print_head(report, contestants)
        idle = _idle(mine, contestants, size.idle_s)
        found: dict[Row, list[Outcome]] = {row: [] for row in (*_lane_rows(), *_cycle_rows(), *_simplemq_rows())}
        for contestant in contestants:
            found |= {row: [] for row in _rows(contestant)}
        syncs: list[Syncs] = []
        for number in range(size.rounds):
            syncs.append(Syncs())
            first = number % (len(contestants) + 1)  # nobody always comes behind the same one
            order: list[Contestant | None] = [None, *contestants]  # None is the lane
            for contestant in order[first:] + order[:first]:
                if floor:
                    syncs[-1].add(*floor.syncs(size.floor_ms))
                if contestant is None:
                    _lane_round(mine, size, found)
                    _cycle_round(mine, f"cycles-{number}", size, found)
                    _simplemq_round(mine, f"simplemq-{number}", size, found)
                    continue
                try:
                    _round(contestant, f"{contestant.queue}-{number}", size, found)
                except (OSError, Refused, RuntimeError) as error:
                    if contestant.is_ours:
                        raise
                    report.missing(f"{contestant.name} after {number} rounds", str(error))
                    contestants.remove(contestant)
        resident_mb = {name: daemons.resident_mb(pid) for name, pid in _processes(mine, contestants).items()}
        tables.print_idle(report, idle, resident_mb)
        if not floor:
            report.missing("floor", "no C compiler (cc, gcc, clang) on the PATH")
        tables.print_rows(report, found, syncs if floor else [])
        _print_deliveries(report, mine, size.consumers)
        _print_pushes(report, mine, size)
        report.section("smss: publishes of 200 bytes, each answered before the next one of its connection")
        _print_publishes(report, mine, "durable", size)
        with ours(place / "interval", place / "interval.toml", "--journal-durability", "interval") as other:
            _print_publishes(report, other, "durability interval", size)
        _print_reading(report, mine, size)
        tables.print_ratios(report, found)


def _opened(report: Report, stack: ExitStack, place: Path) -> Iterator[Contestant]:
    """The peers that are there; those that are not are reported."""
    versions: dict[str, str] = report.conditions.setdefault("versions", {})
    for peer in PEERS:
        try:
            contestant, versions[peer.name] = stack.enter_context(running(peer, place / peer.program))
            yield contestant
        except (Missing, RuntimeError) as lacking:
            report.missing(peer.name, str(lacking))


def _rows(contestant: Contestant) -> Iterator[Row]:
    name = contestant.name
    for work, shapes in (
        ("push", _PUSHES.get(name, (ONE, SIXTEEN, WINDOW))),
        ("pull and ack", _PULLS.get(name, (ONE, SIXTEEN))),
    ):
        for shape in shapes:
            budget = _RATES.get((name, shape)) if work == "push" else None
            yield Row(
                name, work, shape.name, shape, tuple(contestant.pids), contestant.is_ours, contestant.is_durable, budget
            )


def _lane_rows() -> Iterator[Row]:
    for name, processes, _, budget, beside in _LANE:
        p50_ms = _LANE_P50_MS if processes == 1 else None
        yield Row("lane", "push", name, beside, ("daemon",), True, True, budget, p50_ms)


def _cycle_rows() -> Iterator[Row]:
    for name, callers, _, budget in _CYCLES:
        shape = ONE if callers == 1 else SIXTEEN
        yield Row("WebSocket MQ", _CYCLE, name, shape, ("daemon", "gateway"), True, True, budget)


def _round(contestant: Contestant, queue: str, size: Size, found: dict[Row, list[Outcome]]) -> None:
    """One round of a server, on a queue of its own."""
    numbers = itertools.count()
    pulled: list[bytes] = []
    for row in _rows(contestant):
        shape = row.shape
        with Connections(contestant.address, lambda: contestant.wire(queue), shape.connections) as connections:
            if row.work == "push":
                outcome = connections.push(numbers, shape.window, contestant.read_cpu, size.warm_up_s, size.seconds)
            else:
                outcome = connections.pull(pulled, contestant.read_cpu, size.warm_up_s, size.seconds)
        if outcome:
            found[row].append(outcome)
    pushed, until = next(numbers), time.monotonic() + _COUNT_S
    while (left := contestant.left(queue)) != pushed - len(pulled) and time.monotonic() < until:
        time.sleep(0.1)  # some servers count later than they answer
    check(contestant.name, pushed, pulled, left)


def check(name: str, pushed: int, pulled: Sequence[bytes], left: int) -> None:
    """Raises ``WrongMessages`` unless what was pulled was pushed, nothing came twice, and the rest is ``left``. The
    messages that were pushed have the numbers from 0."""
    numbers = Counter(map(number_of, pulled))
    for body in pulled:
        if not 0 <= number_of(body) < pushed or body != body_of(number_of(body)):
            raise WrongMessages(f"{name}: {body!r} is not what was pushed")
    twice = [number for number, count in numbers.items() if count > 1]
    if twice:
        raise WrongMessages(f"{name}: message {twice[0]} was delivered twice")
    if left != pushed - len(pulled):
        raise WrongMessages(f"{name} has {left} messages and should have {pushed - len(pulled)}")


def _lane_round(mine: Ours, size: Size, found: dict[Row, list[Outcome]]) -> None:
    """One round of the lane, with the clients of ``scripts/bench mailbox``. They end with requests in flight, so that
    the daemon must have at least what they were answered."""
    for row, (_, processes, kind, _, _) in zip(_lane_rows(), _LANE, strict=True):
        before = messages_in(mine.daemon, load.QUEUE)
        outcome = load.run(mine.daemon, processes, kind, size.seconds)
        added = messages_in(mine.daemon, load.QUEUE) - before
        if added < outcome.requests:
            raise WrongMessages(
                f"the lane answered {outcome.requests} requests, and the daemon has {added} messages more"
            )
        found[row].append(Outcome(outcome.requests, outcome.seconds, outcome.latencies_ms, [outcome.cpu_us]))


def _cycle_round(mine: Ours, queue: str, size: Size, found: dict[Row, list[Outcome]]) -> None:
    """One round of WebSocket MQ, on a queue of its own, which is empty after it."""
    mine.daemon.client.set_policy(queue, dict(websocket_mq.POLICY))
    for row, (_, callers, connections, _) in zip(_cycle_rows(), _CYCLES, strict=True):
        outcome = websocket_mq.cycles(
            mine.websocket_mq, queue, connections, callers, mine.read_cpu, size.warm_up_s, size.seconds
        )
        left = sum(mine.daemon.client.status(queue)["metrics"].values())
        if left:
            raise WrongMessages(f"WebSocket MQ has {left} messages left after the last of them was completed")
        if outcome:
            found[row].append(outcome)


def _simplemq_rows() -> Iterator[Row]:
    for name, _ in _SIMPLEMQ:
        for shape in (ONE, SIXTEEN):
            yield Row(name, "push", shape.name, shape, ("daemon", "gateway"), True, True)


def _simplemq_round(mine: Ours, queue: str, size: Size, found: dict[Row, list[Outcome]]) -> None:
    """One round of SimpleMQ's publishes, on a queue of their own, which must have all of them at the end."""
    numbers = itertools.count()
    wires = dict(_SIMPLEMQ)
    for row in _simplemq_rows():
        wire = wires[row.who]
        address = mine.simplemq if wire is simplemq.Rest else mine.simplemq_tcp
        with Connections(address, partial(wire, queue), row.shape.connections) as connections:
            outcome = connections.push(numbers, row.shape.window, mine.read_cpu, size.warm_up_s, size.seconds)
        if outcome:
            found[row].append(outcome)
    check("SimpleMQ", next(numbers), [], messages_in(mine.daemon, queue))


def _print_pushes(report: Report, mine: Ours, size: Size) -> None:
    """How fast a backlog is pushed to one subscriber of SimpleMQ, and a message to one that waits."""
    report.section(f"SimpleMQ: {size.consumers:,} messages are pushed to one subscriber, which acknowledges each")
    for how, settles in (("bare, a pong after each", False), ("settled by the subscriber", True)):
        rates = []
        for number in range(size.rounds):
            topic = f"pushes-{settles}-{number}"
            simplemq.fill(mine.simplemq_tcp, topic, size.consumers)
            rates.append(simplemq.pushes(mine.simplemq, topic, size.consumers, settles))
        report.add(f"SimpleMQ: messages to one subscriber, {how}", rates, "/s")
    times_ms = simplemq.deliveries(mine.simplemq_tcp, mine.simplemq, "waiting", _DELIVERIES)
    report.add("SimpleMQ: publish until a subscriber that waits has it: p50", statistics.median(times_ms), "ms")
    report.add(f"SimpleMQ: publish until a subscriber has it: longest of {_DELIVERIES}", max(times_ms), "ms")


def _print_deliveries(report: Report, mine: Ours, consumers: int) -> None:
    """How fast a message comes to one of many consumers that wait."""
    report.section(f"WebSocket MQ: one message, {consumers:,} consumers that wait")
    mine.daemon.client.set_policy("many", dict(websocket_mq.POLICY))
    times_ms = websocket_mq.deliveries(mine.websocket_mq, "many", consumers, _DELIVERIES)
    name = f"WebSocket MQ: delivery to one of {consumers} consumers"
    report.add(f"{name}: p50", statistics.median(times_ms), "ms", _DELIVERY_MS)
    report.add(f"{name}: longest of {_DELIVERIES}", max(times_ms), "ms")


def _print_publishes(report: Report, mine: Ours, how: str, size: Size) -> None:
    """What publishes cost through the door of smss."""
    for connections, budget in _PUBLISHERS:
        outcomes = []
        for number in range(size.rounds):
            topic = f"publishes-{connections}-{number}"
            smss.create(mine.smss, topic)
            outcome = smss.publishes(mine.smss, topic, connections, mine.read_cpu, size.warm_up_s, size.seconds)
            if outcome:
                outcomes.append(outcome)
        name = f"smss: publish, {connections} connection{'s' * (connections > 1)}, {how}"
        aim = budget if how == "durable" else None
        report.add(name, [one.per_second for one in outcomes], "/s", aim, at_least=True)
        latencies = [latency for one in outcomes for latency in one.latencies_ms]
        report.add(f"{name}: p50", percentile(latencies, 50), "ms")
        report.add(f"{name}: p99", percentile(latencies, 99), "ms")
        for place, process in enumerate(("daemon", "gateway")):
            report.add(f"{name}: CPU of the {process}", [one.cpu_us[place] for one in outcomes], "µs")


def _print_reading(report: Report, mine: Ours, size: Size) -> None:
    """How fast one subscriber reads a backlog."""
    report.section(f"smss: one subscriber reads {size.backlog:,} messages of 200 bytes")
    smss.create(mine.smss, "backlog")
    smss.fill(mine.smss, "backlog", size.backlog)
    for batch, budget in _BATCHES:
        rates = [smss.reading(mine.smss, "backlog", batch, size.backlog, size.seconds) for _ in range(size.rounds)]
        report.add(f"smss: read a backlog, batches of {batch}", rates, "/s", budget, at_least=True)


def _idle(mine: Ours, contestants: Sequence[Contestant], seconds: float) -> list[Idle]:
    """What every process takes while nothing happens, all at the same time."""
    processes = _processes(mine, contestants)
    time.sleep(_SETTLE_S)
    before = [daemons.threads_cpu_s(pid) for pid in processes.values()]
    time.sleep(seconds)
    after = [daemons.threads_cpu_s(pid) for pid in processes.values()]
    return [
        Idle(name, daemons.resident_mb(pid), (late - early) / seconds * 100)
        for (name, pid), early, late in zip(processes.items(), before, after, strict=True)
    ]


def _processes(mine: Ours, contestants: Sequence[Contestant]) -> dict[str, int]:
    peers = {one.name: pid for one in contestants if not one.is_ours for pid in one.pids.values()}
    return {"daemon": mine.daemon.pid, "gateway": mine.gateway.pid, **peers}
