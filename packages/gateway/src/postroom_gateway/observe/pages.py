"""Health and metrics over HTTP, as another dialect of the gateway's own listener."""

from __future__ import annotations

import resource
import time
from collections.abc import Collection, Mapping
from importlib.metadata import version
from typing import Final, Protocol

import orjson

from postroom_common import logs
from postroom_common.exposition import Exposition, Metric

from ..contract import HttpRequest, HttpResponse
from .counters import DoorCounters

_TEXT: Final = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
_JSON: Final = (b"content-type", b"application/json")
_VERSION: Final = version("postroom-gateway")

_UP: Final = Metric("postroom_gateway_up", "gauge", "1 while the gateway serves, 0 while it stops.")
_BUILD: Final = Metric("postroom_gateway_build_info", "gauge", "Always 1.", ("version", "daemon"))
_START: Final = Metric("postroom_gateway_start_time_seconds", "gauge", "When the gateway started (Unix).")
_DAEMON: Final = Metric("postroom_gateway_daemon_up", "gauge", "1 if the daemon can be asked.")
_IN_FLIGHT: Final = Metric(
    "postroom_gateway_daemon_requests", "gauge", "Requests that the daemon has not answered yet."
)
_ASKED: Final = Metric("postroom_gateway_daemon_requests_total", "counter", "Requests that were sent to the daemon.")
_AGAIN: Final = Metric(
    "postroom_gateway_daemon_reconnections_total", "counter", "Connections to the daemon that were made again."
)
_WAITING: Final = Metric("postroom_gateway_waiting_requests", "gauge", "Requests that wait for a message.")
_RETURNED: Final = Metric(
    "postroom_gateway_returned_leases_total", "counter", "Leases that were returned, because their client had gone."
)
_CONNECTIONS: Final = Metric("postroom_gateway_connections", "gauge", "Open connections.", ("door",))
_CONNECTED: Final = Metric(
    "postroom_gateway_connections_total", "counter", "Connections that were accepted.", ("door",)
)
_REFUSED: Final = Metric(
    "postroom_gateway_connections_refused_total", "counter", "Connections that were refused: too many.", ("door",)
)
_ANSWERS: Final = Metric(
    "postroom_gateway_answers_total",
    "counter",
    "Answers, by status of HTTP; of other protocols, ok or the kind of error.",
    ("door", "status"),
)
_SECONDS: Final = Metric(
    "postroom_gateway_answer_seconds_total",
    "counter",
    "Time until these answers, waits for messages included.",
    ("door",),
)
_REFUSALS: Final = Metric(
    "postroom_gateway_requests_refused_total", "counter", "Requests that the gateway refused by itself.", ("door",)
)
_SLOW: Final = Metric("postroom_gateway_slow_peers_total", "counter", "Connections closed for slowness.", ("door",))
_HANDSHAKES: Final = Metric(
    "postroom_gateway_failed_handshakes_total", "counter", "TLS handshakes that were not completed.", ("door",)
)
_BUFFERED: Final = Metric("postroom_gateway_buffered_bytes", "gauge", "Bytes of requests that are not answered yet.")
_LOG: Final = Metric("postroom_gateway_log_records_total", "counter", "Records of the log, by level.", ("level",))
_CPU: Final = Metric("postroom_gateway_process_cpu_seconds_total", "counter", "CPU time that the gateway has used.")
_RSS: Final = Metric("postroom_gateway_process_resident_memory_bytes", "gauge", "Resident memory of the gateway.")
#: All of them, in the order of the text.
METRICS: Final = (
    _UP, _BUILD, _START, _DAEMON, _IN_FLIGHT, _ASKED, _AGAIN, _WAITING, _RETURNED, _CONNECTIONS, _CONNECTED, _REFUSED,
    _ANSWERS, _SECONDS, _REFUSALS, _SLOW, _HANDSHAKES, _BUFFERED, _LOG, _CPU, _RSS,
)  # fmt: skip
_PAGE_BYTES: Final = resource.getpagesize()


class LaneFigures(Protocol):
    """What the lane counts."""

    requests: int
    returned_leases: int

    @property
    def problem(self) -> str: ...
    @property
    def daemon(self) -> str: ...
    @property
    def waiting(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def reconnections(self) -> int: ...


class DoorFigures(Protocol):
    """What a door counts."""

    counters: DoorCounters
    is_stopping: bool

    @property
    def connections(self) -> Collection[object]: ...


class Pages:
    """``/health`` (200, or 503 with the reason) and ``/metrics``."""

    server = b"postroom-gateway"

    def __init__(self, lane: LaneFigures, doors: Mapping[str, DoorFigures], buffered_bytes: BufferedBytes) -> None:
        self._lane = lane
        self._doors = doors
        self._limits = buffered_bytes
        self._started_s = time.time()

    async def respond(self, request: HttpRequest) -> HttpResponse:
        """As ``HttpDialect.respond``."""
        if request.path not in (b"/health", b"/metrics"):
            return self.refusal(404, "there are /health and /metrics")
        if request.method not in ("GET", "HEAD"):
            return HttpResponse(405, [(b"allow", b"GET, HEAD")])
        if request.path == b"/metrics":
            return HttpResponse(200, [_TEXT], self._metrics().encode())
        problem = self._lane.problem or ("the gateway stops" if self._is_stopping else "")
        fields = {
            "ok": not problem,
            **({"problem": problem} if problem else {}),
            "version": _VERSION,
            "daemon": self._lane.daemon,
            "doors": sorted(self._doors),
        }
        return HttpResponse(503 if problem else 200, [_JSON], orjson.dumps(fields) + b"\n")

    def refusal(self, status: int, text: str) -> HttpResponse:
        """As ``HttpDialect.refusal``."""
        return HttpResponse(status, [(b"content-type", b"text/plain; charset=utf-8")], text.encode() + b"\n")

    @property
    def _is_stopping(self) -> bool:
        return any(door.is_stopping for door in self._doors.values())

    def _metrics(self) -> str:
        made = Exposition()
        lane = self._lane
        made.add(_UP, 0 if self._is_stopping else 1)
        made.add(_BUILD, 1, _VERSION, lane.daemon)
        made.add(_START, self._started_s)
        made.add(_DAEMON, 0 if lane.problem else 1)
        made.add(_IN_FLIGHT, lane.in_flight)
        made.add(_ASKED, lane.requests)
        made.add(_AGAIN, lane.reconnections)
        made.add(_WAITING, lane.waiting)
        made.add(_RETURNED, lane.returned_leases)
        for name, door in self._doors.items():
            counters = door.counters
            made.add(_CONNECTIONS, len(door.connections), name)
            made.add(_CONNECTED, counters.connections, name)
            made.add(_REFUSED, counters.refused_connections, name)
            for status, number in sorted(counters.answers.items(), key=str):
                made.add(_ANSWERS, number, name, str(status))
            made.add(_SECONDS, counters.answer_seconds, name)
            made.add(_REFUSALS, counters.refused_requests, name)
            made.add(_SLOW, counters.slow_peers, name)
            made.add(_HANDSHAKES, counters.failed_handshakes, name)
        made.add(_BUFFERED, self._limits.buffered_bytes)
        made.add_all(_LOG, sorted(logs.figures()["records"].items()))
        made.add(_CPU, time.process_time())
        made.add(_RSS, _resident_bytes())
        return made.text()


class BufferedBytes(Protocol):
    """What knows how many bytes of requests are in memory."""

    buffered_bytes: int


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES
