"""How long a cluster is without a leader that was killed, with the settings of the product, on each backend."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

from tests.cluster.servers import Servers

from . import load
from .cluster import leader_of, running_nodes, takeover_s, wait_for_all
from .figures import Report

#: Silence (s) before another node tries to lead: the default.
AFTER_S: Final = 15.0
#: The aim of a takeover (s): the silence, a quarter more, and the opening of the root.
TAKEOVER_S: Final = 20.0
_BACKENDS: Final = ("sqlite", "hybrid", "filesystem")
_CLIENTS: Final = 32


class Size(NamedTuple):
    """How long (s) clients publish before the leader is killed, and the limit of a run (s)."""

    seconds: float
    limit_s: int


QUICK: Final = Size(5.0, 300)
NORMAL: Final = Size(25.0, 420)


def measure(report: Report, size: Size, place: Path) -> None:
    """For each backend: publish, and kill the leader. What was published stays, so the new leader has a backlog."""
    place.mkdir()
    (place / "servers").mkdir()
    servers = Servers(place / "servers")
    try:
        for backend in _BACKENDS:
            _measure(report, size, place / backend, servers, backend)
    finally:
        servers.stop()


def _measure(report: Report, size: Size, place: Path, servers: Servers, backend: str) -> None:
    place.mkdir()
    report.section(f"Three nodes of {backend}; the leader and its process are killed; afterMs {AFTER_S * 1000:g}")
    with running_nodes(place, servers, backend, AFTER_S, backend) as nodes:
        first = next(iter(nodes))
        promote = ["promote", "--config", str(place / f"{first}.toml")]
        subprocess.run([sys.executable, "-m", "postroom_cluster", *promote], capture_output=True)
        leader = leader_of(nodes)
        wait_for_all(place)
        outcome = load.run(nodes[leader][0], _CLIENTS, "lane", size.seconds)
        took_s, note = takeover_s(nodes, leader), f"{outcome.per_second * size.seconds:,.0f} messages are there"
        report.add(f"{backend}: until another node answers a publish", took_s, "s", TAKEOVER_S, note=note)
