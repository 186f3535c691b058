"""A cluster of three nodes beside one daemon, and beside publishes to the same servers without Postroom: all on this
machine, so that three daemons and three NATS servers share what one daemon has for itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from nats.aio.client import Client as Nats
from nats.js.api import StorageType, StreamConfig

from postroom_client import Client, NoAnswer, ServerError
from tests.cluster.servers import Servers

from . import load
from .daemon import Daemon, die_with_parent, running
from .figures import Report, number, percentile

#: Silence (s) before another node tries to lead.
AFTER_S: Final = 2.0
#: The aims of a takeover (s): the silence, a quarter more, and the opening of the root.
TAKEOVER_S: Final = 8.0
#: Least part of one daemon's publishes with 32 clients (percent).
SHARE: Final = 60.0
_NODES: Final = ("a", "b", "c")
_PATIENCE_S: Final = 60.0


class Size(NamedTuple):
    """How long (s) each load lasts, how many clients there are in each, and the limit of a run (s)."""

    seconds: float
    clients: tuple[int, ...]
    limit_s: int


QUICK: Final = Size(2.0, (1, 32), 180)
NORMAL: Final = Size(6.0, (1, 8, 32), 300)


def measure(report: Report, size: Size, place: Path) -> None:
    """Publish to one daemon, to a cluster, and to the servers alone; then kill the leader."""
    place.mkdir()
    (place / "servers").mkdir()
    with running(place / "one") as one:
        report.section("One daemon: publishes, each answered when it is synced")
        alone = {clients: _load(report, one, clients, size.seconds) for clients in size.clients}
    servers = Servers(place / "servers")
    try:
        with running_nodes(place, servers) as nodes:
            leader = leader_of(nodes)
            wait_for_all(place)
            report.section("Three nodes: each answered when the leader and two of three servers have synced it")
            for clients in size.clients:
                rate = _load(report, nodes[leader][0], clients, size.seconds, _beside(nodes, leader, servers))
                budget = SHARE if clients == 32 else None
                report.add(f"{clients} clients, of one daemon's", rate / alone[clients] * 100, "%", budget, True)
            report.section("The same servers without Postroom: publishes to a stream with three replicas")
            for clients in size.clients:
                rate, latencies = asyncio.run(_plain(servers, clients, size.seconds))
                _add(report, clients, rate, latencies)
            report.section(f"The leader and its process are killed; afterMs {AFTER_S * 1000:g}")
            report.add("until another node answers a publish", takeover_s(nodes, leader), "s", TAKEOVER_S)
    finally:
        servers.stop()


def _load(
    report: Report, daemon: Daemon, clients: int, seconds: float, beside: dict[str, list[int]] | None = None
) -> float:
    outcome = load.run(daemon, clients, "lane", seconds, beside)
    _add(report, clients, outcome.per_second, outcome.latencies_ms, f"{outcome.requests_per_group:.1f} a group")
    parts = {"daemon" if beside is None else "leader": outcome.cpu_us, **outcome.beside_us}
    note = ", ".join(f"{name} {number(us)}" for name, us in parts.items())
    report.add(f"{clients} clients, CPU of a publish", sum(parts.values()), "µs", note=note)
    return outcome.per_second


def _beside(nodes: dict[str, Node], leader: str, servers: Servers) -> dict[str, list[int]]:
    """The processes beside the leader, as ``load.run`` takes them."""
    followers = [node for name, node in nodes.items() if name != leader]
    return {
        "its process": [nodes[leader][1].pid],
        "followers": [daemon.pid for daemon, _ in followers],
        "their processes": [process.pid for _, process in followers],
        "servers": servers.pids,
    }


def _add(report: Report, clients: int, rate: float, latencies_ms: list[float], note: str = "") -> None:
    report.add(f"{clients} clients", rate, "publishes/s", note=note)
    for percent in (50, 99):
        report.add(f"{clients} clients, p{percent}", percentile(latencies_ms, percent), "ms")


Node = tuple[Daemon, "subprocess.Popen[bytes]"]


@contextlib.contextmanager
def running_nodes(
    place: Path, servers: Servers, cluster: str = "bench", after_s: float = AFTER_S, backend: str = "sqlite"
) -> Iterator[dict[str, Node]]:
    """Three nodes that are started; the first one leads first."""
    nodes: dict[str, Node] = {}
    try:
        for name in _NODES:
            daemon = Daemon(place / name, "--cluster-enabled", "true", "--node-id", name, "--backend", backend)
            config = place / f"{name}.toml"
            config.write_text(
                f'[daemon]\nsocket = "{daemon.ipc}/cluster.sock"\n[cluster]\nname = "{cluster}"\nnode = "{name}"\n'
                f"[nats]\nservers = {json.dumps(servers.urls)}\n[failover]\nafter_seconds = {after_s}\n"
            )
            command = [sys.executable, "-m", "postroom_cluster"]
            options = ["--config", str(config)]
            until = time.monotonic() + _PATIENCE_S
            while name == _NODES[0] and time.monotonic() < until:
                created = subprocess.run([*command, "create", *options, "--no-other-node-leads"], capture_output=True)
                if created.returncode == 0:
                    break
            log = (place / f"{name}.log").open("ab")
            with log:
                process = subprocess.Popen([*command, "run", *options], stderr=log, preexec_fn=die_with_parent)  # noqa: PLW1509
            nodes[name] = daemon, process
        yield nodes
    finally:
        for daemon, process in nodes.values():
            process.kill()
            process.wait()
            with contextlib.suppress(RuntimeError, ProcessLookupError):  # it was killed
                daemon.stop()


def leader_of(nodes: dict[str, Node], *but: str) -> str:
    """The first of the nodes that answers a publish. Raises ``RuntimeError``."""
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        for name in nodes.keys() - but:
            with contextlib.suppress(ServerError, NoAnswer), Client(str(nodes[name][0].ipc), timeout=0.5) as client:
                client.publish(load.QUEUE, load.MESSAGE)
                return name
    raise RuntimeError("no node leads")


def takeover_s(nodes: dict[str, Node], leader: str) -> float:
    """Kill the leader and its process; the time (s) until another node answers a publish. Raises ``RuntimeError``."""
    started = time.monotonic()
    for pid in (nodes[leader][0].pid, nodes[leader][1].pid):
        os.kill(pid, signal.SIGKILL)
    leader_of(nodes, leader)
    return time.monotonic() - started


def wait_for_all(place: Path) -> None:
    """Wait until all nodes lead or follow, so that no start is measured. Raises ``RuntimeError``."""
    config = place / f"{_NODES[0]}.toml"
    command = [sys.executable, "-m", "postroom_cluster", "status", "--json", "--config", str(config)]
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        answer = subprocess.run(command, capture_output=True)
        nodes = json.loads(answer.stdout) if answer.returncode == 0 else []
        if len(nodes) == len(_NODES) and not any(one["problem"] for one in nodes):
            return
    raise RuntimeError("not all nodes follow")


async def _plain(servers: Servers, clients: int, seconds: float) -> tuple[float, list[float]]:
    """Publishes per second, and their latencies (ms)."""
    connection = Nats()
    await connection.connect(list(servers.urls))
    stream = connection.jetstream()
    await stream.add_stream(
        StreamConfig(name=f"PLAIN{clients}", subjects=[f"plain.{clients}"], num_replicas=3, storage=StorageType.FILE)
    )
    latencies: list[float] = []
    end = time.monotonic() + seconds

    async def publish() -> None:
        while (started := time.monotonic()) < end:
            await stream.publish(f"plain.{clients}", load.MESSAGE.encode(), timeout=_PATIENCE_S)
            latencies.append((time.monotonic() - started) * 1000)

    await asyncio.gather(*(publish() for _ in range(clients)))
    await connection.close()
    return len(latencies) / seconds, latencies
