"""Closed-loop load: client processes that publish, wait for the durable answer, and publish again."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from postroom_client import Client
from postroom_client._watch import open_watch

from .daemon import Daemon, die_with_parent

#: What every publish carries: a small telemetry reading.
MESSAGE = '{"sensor":"press-7/temperature","value":36.5,"unit":"C","at":1795811841655,"ok":true}'
WARM_UP_S = 0.5
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

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds


def run(daemon: Daemon, clients: int, lean: bool, seconds: float) -> Outcome:
    """Publish from ``clients`` processes at once for ``seconds``, after a warm-up."""
    pipes: list[Connection] = []
    processes = []
    for number in range(clients):
        mine, its = _FORK.Pipe()
        process = _FORK.Process(target=_client_process, args=(its, str(daemon.ipc), number, lean), daemon=True)
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
        groups, cpu_s = daemon.groups(), daemon.cpu_s()
        time.sleep(max(0.0, end - time.monotonic()))
        cpu_s, after = daemon.cpu_s() - cpu_s, daemon.groups()
        latencies = [took for pipe in pipes for took in _receive(pipe)]
    finally:
        for process in processes:
            process.kill()
            process.join()
    in_groups = after["requests"] - groups["requests"]
    return Outcome(
        len(latencies),
        seconds,
        latencies,
        in_groups / max(1, after["count"] - groups["count"]),
        cpu_s / max(1, len(latencies)) * 1e6,
    )


def _receive(pipe: Connection) -> Any:
    if not pipe.poll(_PATIENCE_S):
        raise RuntimeError(f"a client process said nothing for {_PATIENCE_S:g} s")
    return pipe.recv()


def _client_process(pipe: Connection, ipc: str, number: int, lean: bool) -> None:
    die_with_parent()
    publish = lean_publisher(ipc, f"lean-{number}") if lean else _real_publisher(ipc, f"real-{number}")
    publish()
    pipe.send(None)
    begin, end = pipe.recv()
    latencies = []
    while True:
        started = time.monotonic()
        publish()
        now = time.monotonic()
        if now > end:
            break
        if started >= begin:
            latencies.append((now - started) * 1000)
    pipe.send(latencies)


def _real_publisher(ipc: str, client_id: str) -> Publish:
    client = Client(ipc, client_id=client_id, timeout=_PATIENCE_S)
    return lambda: client.publish("load", MESSAGE)


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
        "payload": {"queue": "load", "message": MESSAGE},
    }
    return b'{"requestId":"', b'",' + json.dumps(rest, separators=(",", ":")).encode()[1:]
