"""Closed-loop load: client processes that publish, wait for the durable answer, and publish again.

A client is *real* (``postroom_client`` over files), *lean* (the least that a client of the mailbox can do), or uses the
lane: *lane* is ``postroom_client``, *window* the least that a client with ``WINDOW`` requests in flight can do.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from postroom_client import Client
from postroom_client._watch import open_watch

from .daemon import Daemon, die_with_parent, threads_cpu_s

#: The queue of every publish.
QUEUE = "load"
#: What every publish carries: a small telemetry reading.
MESSAGE = '{"sensor":"press-7/temperature","value":36.5,"unit":"C","at":1795811841655,"ok":true}'
WARM_UP_S = 0.5
#: Requests that a client of the kind *window* has in flight.
WINDOW = 16
_FORK = multiprocessing.get_context("fork")
_PATIENCE_S = 30.0

Publish = Callable[[], object]


@dataclass(slots=True)
class Outcome:
    """The result of a load, between warm-up and end."""

    requests: int
    seconds: float
    latencies_ms: list[float]
    requests_per_group: float
    cpu_us: float
    beside_us: dict[str, float] = field(default_factory=dict)
    """CPU of each request in other processes, by their name; of all clients together as ``clients``."""

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds


def run(
    daemon: Daemon, clients: int, kind: str, seconds: float, beside: Mapping[str, Sequence[int]] | None = None
) -> Outcome:
    """Publish from ``clients`` processes of a ``kind`` at once for ``seconds``, after a warm-up. The CPU of the
    processes ``beside`` the daemon, by name, is measured with it."""
    pipes: list[Connection] = []
    processes = []
    for number in range(clients):
        mine, its = _FORK.Pipe()
        process = _FORK.Process(target=_client_process, args=(its, str(daemon.ipc), number, kind), daemon=True)
        process.start()
        its.close()
        pipes.append(mine)
        processes.append(process)
    try:
        for pipe in pipes:
            _receive(pipe)  # it has its box and its watch
        begin = time.monotonic() + WARM_UP_S
        end = begin + seconds
        for pipe in pipes:
            pipe.send((begin, end))
        time.sleep(max(0.0, begin - time.monotonic()))
        of_clients = {"clients": [process.pid for process in processes if process.pid]}
        groups, cpu_s, beside_s = daemon.groups(), daemon.cpu_s(), _cpu_s(beside, of_clients)
        time.sleep(max(0.0, end - time.monotonic()))
        cpu_s, beside_after_s, after = daemon.cpu_s() - cpu_s, _cpu_s(beside, of_clients), daemon.groups()
        measured = [_receive(pipe) for pipe in pipes]
    finally:
        for process in processes:
            process.kill()
            process.join()
    latencies = [took for one, _ in measured for took in one]
    in_groups = after["requests"] - groups["requests"]
    return Outcome(
        len(latencies),
        max(end for _, end in measured) - begin,
        latencies,
        in_groups / max(1, after["count"] - groups["count"]),
        cpu_s / max(1, len(latencies)) * 1e6,
        {name: (took_s - beside_s[name]) / max(1, len(latencies)) * 1e6 for name, took_s in beside_after_s.items()},
    )


def _cpu_s(beside: Mapping[str, Sequence[int]] | None, clients: Mapping[str, Sequence[int]]) -> dict[str, float]:
    return {name: sum(map(threads_cpu_s, pids)) for name, pids in {**(beside or {}), **clients}.items()}


def _receive(pipe: Connection) -> Any:
    if not pipe.poll(_PATIENCE_S):
        raise RuntimeError(f"a client process said nothing for {_PATIENCE_S:g} s")
    return pipe.recv()


def _client_process(pipe: Connection, ipc: str, number: int, kind: str) -> None:
    die_with_parent()
    publish = _PUBLISHERS[kind](ipc, f"{kind}-{number}")
    publish()
    pipe.send(None)
    begin, end = pipe.recv()
    latencies: list[float] = []
    while True:
        started = time.monotonic()
        publish()
        now = time.monotonic()
        if now > end and latencies:
            break
        if started >= begin:
            latencies.append((now - started) * 1000)
            end = max(end, now)  # on a crowded machine there may be no answer in time: the end moves until there is one
    pipe.send((latencies, end))


def _real_publisher(ipc: str, client_id: str) -> Publish:
    client = Client(ipc, client_id=client_id, timeout=_PATIENCE_S, transport="mailbox")
    return lambda: client.publish(QUEUE, MESSAGE)


def _lane_publisher(ipc: str, client_id: str) -> Publish:
    client = Client(ipc, client_id=client_id, timeout=_PATIENCE_S, transport="lane")
    return lambda: client.publish(QUEUE, MESSAGE)


def _windowed_publisher(ipc: str, client_id: str) -> Publish:
    """Each call sends a request over the lane, and takes the answer to one that was sent ``WINDOW`` calls before."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(_PATIENCE_S)
    directory = os.open(ipc, os.O_PATH | os.O_DIRECTORY)  # the path of a socket has at most 107 bytes
    connection.connect(f"/proc/self/fd/{directory}/lane.sock")
    os.close(directory)
    head, tail = _envelope(client_id)
    numbers = itertools.count()
    received = bytearray()

    def send(header: bytes) -> None:
        connection.sendall(struct.pack("<II", len(header), 0) + header)

    def send_publish() -> None:
        send(head + f"{client_id}.{next(numbers)}".encode() + tail)

    def take() -> bytes:
        while len(received) < 8 or len(received) < 8 + int.from_bytes(received[:4], "little"):
            data = connection.recv(65536)
            if not data:
                raise RuntimeError("the daemon has closed the connection")
            received.extend(data)
        end = 8 + int.from_bytes(received[:4], "little")  # there are no bodies in these answers
        header = bytes(received[8:end])
        del received[:end]
        return header

    send(json.dumps({"hello": {"versions": [1], "clientId": client_id}}).encode())
    take()
    for _ in range(WINDOW - 1):
        send_publish()

    def publish() -> None:
        send_publish()
        answer = take()
        if b'"ok":true' not in answer:
            raise RuntimeError(f"refused: {answer.decode()}")

    return publish


def lean_publisher(ipc: str, client_id: str) -> Publish:
    """The least that a client can do: a prewritten envelope, a rename, a wait by inotify, a read, an unlink."""
    box = os.path.join(ipc, "responses", client_id)
    os.makedirs(box, 0o770, exist_ok=True)
    watch: Any = open_watch(box, None, polling=False)  # type: ignore[no-untyped-call]
    requests = write_requests(Path(ipc), client_id)

    def publish() -> None:
        response = f"{box}/{next(requests)}.json"
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                fd = os.open(response, os.O_RDONLY)
                break
            except FileNotFoundError:
                if time.monotonic() > until:
                    raise RuntimeError(f"no answer in {_PATIENCE_S:g} s") from None
                watch.wait(1.0)
        data = os.read(fd, 65536)
        os.close(fd)
        os.unlink(response)
        if b'"ok":true' not in data:
            raise RuntimeError(f"refused: {data.decode()}")

    return publish


_PUBLISHERS: dict[str, Callable[[str, str], Publish]] = {
    "real": _real_publisher,
    "lean": lean_publisher,
    "lane": _lane_publisher,
    "window": _windowed_publisher,
}


def write_requests(ipc: Path, client_id: str) -> Iterator[str]:
    """At each step, put one publish request into the mailbox; its request id."""
    head, tail = _envelope(client_id)
    requests = str(ipc / "requests")
    for number in itertools.count():
        request_id = f"{client_id}.{os.getpid()}.{number}"
        name = f"{requests}/{time.time_ns()}-{request_id}.json"
        fd = os.open(name + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
        os.write(fd, head + request_id.encode() + tail)
        os.close(fd)
        os.rename(name + ".tmp", name)
        yield request_id


def _envelope(client_id: str) -> tuple[bytes, bytes]:
    """A publish request before and behind its request id."""
    rest = {
        "clientId": client_id,
        "command": "publish",
        "timestampMs": time.time_ns() // 1_000_000,
        "deadlineMs": time.time_ns() // 1_000_000 + 3_600_000,
        "payload": {"queue": QUEUE, "message": MESSAGE},
    }
    return b'{"requestId":"', b'",' + json.dumps(rest, separators=(",", ":")).encode()[1:]
