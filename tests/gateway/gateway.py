"""A real gateway in front of a real daemon, and peers that write bytes to its sockets."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from tests.wire.daemon import PATIENCE_S, wait_until
from tests.wire.forked import Forked

_DOOR = re.compile(r"door (\S+) at \S+ port (\d+)")
_OBSERVED = re.compile(r"health and metrics at http://[0-9.]+:(\d+)")
#: Runs a command as the service manager does: the sockets are its descriptors from 3 on; a variable names its process.
_PASSING = """
import fcntl, os, sys
high = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 100) for fd in sys.argv[1].split(",")]
for number, fd in enumerate(high, 3):
    os.dup2(fd, number)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(high)))
os.execv(sys.argv[2], sys.argv[2:])
"""
#: The doors of a gateway for which a test configures none, each on a free port.
DOORS = """
[doors.lmq-http]
port = 0

[doors.lmq-rpc]
port = 0
"""


#: What has arrived on connections and was not read as an answer.
_UNREAD: WeakKeyDictionary[socket.socket, bytes] = WeakKeyDictionary()


@dataclass(frozen=True)
class Answer:
    """An HTTP answer: its status line, its header fields in order, its body."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def status(self) -> int:
        return int(self.line.split()[1])

    def header(self, name: str) -> str | None:
        return dict(self.headers).get(name)


class Gateway:
    """``postroom-gateway run``, for the daemon whose lane is ``lane``. ``toml`` is its configuration beside that."""

    def __init__(
        self, directory: Path, lane: Path, toml: str = DOORS, environment: dict[str, str] | None = None
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.file = directory / "gateway.toml"
        self.log_path = directory / "gateway.log"
        self._lane = lane
        self._environment = dict(os.environ) | (environment or {})
        self.ports: dict[str, int] = {}
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self._notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notified.settimeout(PATIENCE_S)
        self._notified.bind(str(directory / "notify"))
        self._environment["NOTIFY_SOCKET"] = str(directory / "notify")
        self.write(toml)

    def write(self, toml: str) -> None:
        """Write the configuration."""
        own = f'[daemon]\nsocket = {json.dumps(str(self._lane))}\n[observe]\nport = 0\n[log]\nlevel = "debug"\n'
        self.file.write_text((own if "[daemon]" not in toml else "") + toml)

    # --- the process --------------------------------------------------------------------------------------------------

    @property
    def process(self) -> subprocess.Popen[bytes] | Forked:
        assert self._process, "the gateway was not started"
        return self._process

    def start(self, sockets: Sequence[socket.socket] = (), ready: bool = True) -> Gateway:
        """Start it, with listening sockets as the service manager passes them, and wait until it is ready."""
        started_at = self.log_path.stat().st_size if self.log_path.exists() else 0
        words = ["run", "--config", str(self.file)]
        if sockets:
            self._process = self._executed(words, [one.fileno() for one in sockets])
        else:
            self._process = Forked(words, self._environment, self.log_path, "postroom_gateway")
        if not ready:
            return self
        self.wait_notified("READY=1")
        text = self.log_path.read_text()[started_at:]
        self.ports = {name: int(port) for name, port in _DOOR.findall(text)}
        for port in _OBSERVED.findall(text):
            self.ports["observe"] = int(port)
        return self

    def _executed(self, words: list[str], fds: list[int]) -> subprocess.Popen[bytes]:
        """A process that has these descriptors from 3 on."""
        command = [sys.executable, "-c", _PASSING, ",".join(map(str, fds)), sys.executable, "-m", "postroom_gateway"]
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                [*command, *words], env=self._environment, stdin=subprocess.DEVNULL, stderr=log, pass_fds=fds
            )

    def wait_notified(self, line: str) -> None:
        """Wait until it has sent the service manager a line."""

        def came() -> bool:
            self._notified.settimeout(0.2)
            try:
                return line in self._notified.recv(65536).decode().splitlines()
            except TimeoutError:
                assert self.process.poll() is None, f"the gateway ended with {self.process.poll()}:\n{self.log()}"
                return False

        wait_until(came, f"the gateway sends {line}")

    def stop(self) -> None:
        """SIGTERM, and the orderly end that must follow."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0, self.log()

    def reload(self) -> None:
        """SIGHUP; returns when the configuration was read again, or refused."""
        self.process.send_signal(signal.SIGHUP)
        self.wait_notified("READY=1")

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        if self._process:
            self._process.kill()
            self._process.wait()
        self._notified.close()

    def log(self) -> str:
        return self.log_path.read_text() if self.log_path.exists() else ""

    # --- peers --------------------------------------------------------------------------------------------------------

    def connect(self, door: str = "lmq-http") -> socket.socket:
        """A connection to a door."""
        peer = socket.create_connection(("127.0.0.1", self.ports[door]), PATIENCE_S)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return peer

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        door: str = "lmq-http",
    ) -> Answer:
        """One request on a connection of its own."""
        with self.connect(door) as peer:
            peer.sendall(request(method, path, body, headers))
            return receive_answer(peer)

    def health(self) -> dict[str, Any]:
        """What ``/health`` says."""
        return dict(json.loads(self.ask("GET", "/health", door="observe").body))

    def metric(self, name: str) -> float:
        """The value of a metric with its labels; 0 if it is absent."""
        for line in self.ask("GET", "/metrics", door="observe").body.decode().splitlines():
            if line.rpartition(" ")[0] == name:
                return float(line.rpartition(" ")[2])
        return 0.0


def request(method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> bytes:
    """The bytes of an HTTP request."""
    fields = {
        "Host": "localhost",
        **({"Content-Length": str(len(body))} if body is not None else {}),
        **(headers or {}),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + (body or b"")


def receive_answer(peer: socket.socket) -> Answer:
    """The next HTTP answer on a connection."""
    data = _UNREAD.pop(peer, b"")
    while b"\r\n\r\n" not in data:
        data += _received(peer)
    head, _, rest = data.partition(b"\r\n\r\n")
    line, *fields = head.decode().split("\r\n")
    headers = [(name, value) for name, _, value in (field.partition(": ") for field in fields)]
    size = int(dict(headers)["content-length"])
    while len(rest) < size:
        rest += _received(peer)
    _UNREAD[peer] = rest[size:]
    return Answer(line, headers, rest[:size])


def _received(peer: socket.socket) -> bytes:
    piece = peer.recv(1 << 16)
    if not piece:
        raise ConnectionError("the gateway closed the connection")
    return piece


def receive_all(peer: socket.socket | ssl.SSLSocket) -> bytes:
    """What arrives until the other side closes the connection."""
    data = b""
    while piece := _receive(peer):
        data += piece
    return data


def _receive(peer: socket.socket) -> bytes:
    try:
        return peer.recv(65536)
    except ConnectionResetError:
        return b""
