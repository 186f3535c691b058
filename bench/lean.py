"""Lean clients: many in one process, each with its own client id and response directory.

They do the least that a client can do: a prewritten payload, a rename, a wait by inotify, a read, an unlink.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import select
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

from .daemon import Daemon

_IN_MOVED_TO: Final = 0x80
_EVENT: Final = struct.Struct("iIII")
_EVENTS_BYTES: Final = 1 << 16
_PATIENCE_S: Final = 120.0
_LIBC = ctypes.CDLL(None, use_errno=True)

#: A command and its payload as JSON text.
Call = tuple[str, str]


@dataclass(slots=True)
class Outcome:
    """The data of all answers in the order of the calls, what each call took (ms), the daemon's CPU for each (µs), and
    how long all took."""

    data: list[dict[str, Any]]
    latencies_ms: list[float]
    cpu_us: float
    seconds: float


def payload_text(payload: dict[str, Any]) -> str:
    """A payload as the client library writes it, without spaces: what is written otherwise takes longer to parse."""
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))


def put_request(directory: str, client_id: str, request_id: str, call: Call) -> None:
    """Put a request into the directory ``requests`` of a mailbox."""
    command, payload = call
    now_ns = time.time_ns()
    text = (
        f'{{"requestId":"{request_id}","clientId":"{client_id}","command":"{command}",'
        f'"timestampMs":{now_ns // 1_000_000},"deadlineMs":{now_ns // 1_000_000 + 3_600_000},"payload":{payload}}}'
    )
    name = f"{directory}/{now_ns}-{request_id}.json"
    with open(name + ".tmp", "xb", buffering=0) as file:
        file.write(text.encode())
    os.rename(name + ".tmp", name)


class LeanClients:
    """``count`` clients of ``daemon``. Raises ``OSError`` without inotify, and ``RuntimeError`` when a call is refused
    or not answered in time."""

    def __init__(self, daemon: Daemon, count: int, name: str = "lean") -> None:
        self._daemon = daemon
        self._directory = os.fspath(daemon.ipc / "requests")
        self._numbers = itertools.count()
        self._ids = [f"{name}-{number}" for number in range(count)]
        self._boxes = [os.fspath(daemon.ipc / "responses" / client_id) for client_id in self._ids]
        self._watch = self._succeeded(_LIBC.inotify_init1(os.O_CLOEXEC))
        self._watched: dict[int, int] = {}
        for client, box in enumerate(self._boxes):
            os.makedirs(box, 0o770, exist_ok=True)
            watch = _LIBC.inotify_add_watch(self._watch, os.fsencode(box), _IN_MOVED_TO)
            self._watched[self._succeeded(watch)] = client

    @staticmethod
    def _succeeded(descriptor: int) -> int:
        if descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        return descriptor

    def __enter__(self) -> LeanClients:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._watch)

    def closed_loop(self, calls: Sequence[Call]) -> Outcome:
        """Make all calls: each client makes its next one when it has the answer to the one before."""
        data: list[dict[str, Any]] = [{} for _ in calls]
        latencies_ms = [0.0] * len(calls)
        left = iter(enumerate(calls))
        pending: dict[str, tuple[int, int]] = {}

        def send(client: int) -> None:
            for number, call in left:
                name = self._send(client, call)
                pending[name] = (number, time.monotonic_ns())
                return

        cpu_s, started = self._daemon.scheduled_s(), time.monotonic()
        for client in range(len(self._ids)):
            send(client)
        while pending:
            for client, name in self._arrived():
                answer = self._take(client, name)
                number, sent_ns = pending.pop(name)
                latencies_ms[number] = (time.monotonic_ns() - sent_ns) / 1e6
                data[number] = answer
                send(client)
        return Outcome(data, latencies_ms, self._cpu_us(cpu_s, len(calls)), time.monotonic() - started)

    def full_groups(self, calls: Sequence[Call]) -> Outcome:
        """Make all calls while the daemon is stopped, so that its groups are as large as its limits allow. Latencies
        are not measured."""
        self._daemon.pause()
        clients = itertools.cycle(range(len(self._ids)))
        numbers = {self._send(next(clients), call): number for number, call in enumerate(calls)}
        cpu_s, started = self._daemon.scheduled_s(), time.monotonic()
        self._daemon.go_on()
        arrived: list[tuple[int, str]] = []
        while len(arrived) < len(calls):
            arrived.extend(self._arrived())
        seconds, cpu_us = time.monotonic() - started, self._cpu_us(cpu_s, len(calls))
        data = {numbers[name]: self._take(client, name) for client, name in arrived}
        return Outcome([data[number] for number in range(len(calls))], [], cpu_us, seconds)

    def _cpu_us(self, before_s: float, calls: int) -> float:
        self._daemon.wait_until_idle()
        return (self._daemon.scheduled_s() - before_s) / calls * 1e6

    def _send(self, client: int, call: Call) -> str:
        """Put a request into the mailbox; the name of its response."""
        request_id = f"{self._ids[client]}.{os.getpid()}.{next(self._numbers)}"
        put_request(self._directory, self._ids[client], request_id, call)
        return f"{request_id}.json"

    def _arrived(self) -> Iterator[tuple[int, str]]:
        """Wait for responses; client and name of each. They may come in several steps."""
        if not select.select([self._watch], [], [], _PATIENCE_S)[0]:
            raise RuntimeError(f"no answer in {_PATIENCE_S:g} s; see {self._daemon.root}/daemon.log")
        data, place = os.read(self._watch, _EVENTS_BYTES), 0
        while place < len(data):
            watch, _, _, length = _EVENT.unpack_from(data, place)
            place += _EVENT.size
            name = data[place : place + length].rstrip(b"\0").decode()
            place += length
            yield self._watched[watch], name

    def _take(self, client: int, name: str) -> dict[str, Any]:
        path = f"{self._boxes[client]}/{name}"
        with open(path, "rb", buffering=0) as file:
            answer = json.loads(file.read())
        os.unlink(path)
        if not answer["ok"]:
            raise RuntimeError(f"refused: {answer}")
        data: dict[str, Any] = answer["data"]
        return data
