"""A server that is measured: its process, and what the client needs to know of it. Ours are started here."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from .. import daemon as daemons
from ..daemon import Daemon, die_with_parent
from .driver import Address
from .lmq import LmqHttp, LmqRpc
from .wires import Wire

_START_S: Final = 120.0
_STOP_S: Final = 60.0


class Process:
    """A server's process. Its output is in ``log``."""

    def __init__(self, command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._log_path = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=log.parent,
                env={**_clean_environment(), **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - no thread is running here
            )
        self.pid = self._process.pid

    def log(self) -> str:
        """What it has said."""
        return self._log_path.read_text(errors="replace")

    def wait_for(self, attempt: Callable[[], Any]) -> None:
        """Wait until ``attempt`` raises no ``OSError``. Raises ``RuntimeError``."""
        until = time.monotonic() + _START_S
        while True:
            try:
                attempt()
                return
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"the server did not start ({error}); it said:\n{self.log()[-2000:]}") from error
                time.sleep(0.05)

    def stop(self) -> None:
        """Stop it; kill it if it does not stop."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclass(frozen=True, slots=True)
class Contestant:
    """A protocol of a running server. ``pids`` are the processes whose CPU counts, by name. ``left`` is the server's
    own count of the messages in a queue. ``note`` says what is durable."""

    name: str
    pids: Mapping[str, int]
    address: Address
    wire: Callable[[str], Wire]
    left: Callable[[str], int]
    note: str = ""
    is_ours: bool = False
    is_durable: bool = True

    @property
    def queue(self) -> str:
        """How the names of its queues begin: several contestants may be protocols of one server."""
        return self.name.lower().replace(" ", "-")

    def read_cpu(self) -> list[float]:
        """CPU seconds of each process."""
        return [daemons.cpu_s(pid) for pid in self.pids.values()]


@dataclass(frozen=True, slots=True)
class Ours:
    """The daemon, the gateway, and the gateway's doors: those that are measured as others are, and those of WebSocket
    MQ, smss and SimpleMQ."""

    daemon: Daemon
    gateway: Process
    doors: tuple[Contestant, ...]
    websocket_mq: Address
    smss: Address
    simplemq: Address
    simplemq_tcp: Address

    def read_cpu(self) -> list[float]:
        """CPU seconds of daemon and gateway."""
        return [daemons.cpu_s(pid) for pid in (self.daemon.pid, self.gateway.pid)]


@contextmanager
def ours(place: Path, gateway_file: Path, *flags: str) -> Iterator[Ours]:
    """Our daemon with a gateway, whose configuration is written to ``gateway_file``. ``flags`` are the daemon's."""
    with daemons.running(place, "--gateway-users", str(os.getuid()), "--limits-user-waits", "0", *flags) as daemon:
        lane = daemon.ipc / "lane.sock"
        ports = dict(zip(_DOORS, free_ports(len(_DOORS)), strict=True))
        gateway_file.write_text(_GATEWAY.format(socket=lane, **ports))
        command = (sys.executable, "-m", "postroom_gateway", "run", "--config", gateway_file)
        gateway = Process(command, gateway_file.with_suffix(".log"))
        try:
            for port in ports.values():
                gateway.wait_for(partial(_connect, port))
            pids = {"daemon": daemon.pid, "gateway": gateway.pid}
            left = partial(messages_in, daemon)
            doors = (
                Contestant("LMQ over HTTP", pids, ("127.0.0.1", ports["http"]), LmqHttp, left, is_ours=True),
                Contestant("LMQ over MessagePack-RPC", pids, ("127.0.0.1", ports["rpc"]), LmqRpc, left, is_ours=True),
            )
            others = (("127.0.0.1", ports[name]) for name in ("mq", "smss", "simplemq", "tcp"))
            yield Ours(daemon, gateway, doors, *others)
        finally:
            gateway.stop()


def messages_in(daemon: Daemon, queue: str) -> int:
    """Messages in a queue of ours, leased ones included."""
    counts = daemon.client.status(queue)["metrics"]
    return int(counts["ready"] + counts["inflight"])


#: The ports in the configuration of the gateway.
_DOORS: Final = ("http", "rpc", "mq", "smss", "simplemq", "tcp", "pages")
_GATEWAY: Final = """\
[daemon]
socket = "{socket}"
[observe]
port = {pages}
[doors.lmq-http]
port = {http}
[doors.lmq-rpc]
port = {rpc}
[doors.mq-websocket]
port = {mq}
[doors.smss]
port = {smss}
[doors.simplemq]
port = {simplemq}
options = {{strategy = "FIRST_AVAILABLE"}}
[doors.simplemq-tcp]
port = {tcp}
options = {{strategy = "FIRST_AVAILABLE"}}
[limits]
connections = 2000
peer_connections = 2000
waiting = 100000
"""


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody uses now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _connect(port: int) -> None:
    socket.create_connection(("127.0.0.1", port)).close()


def _clean_environment() -> dict[str, str]:
    prefixes = ("POSTROOM_", "RABBITMQ_", "NOTIFY_")
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
