"""The client of all protocols: one thread with raw sockets, closed loop."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from .wires import Answer, Pulled, Refused, Wire

_PATIENCE_S: Final = 60.0
#: Bytes of a message's body, of which the first ones are its number.
BODY_BYTES: Final = 100
_DIGITS: Final = 12

Address = tuple[str, int]
#: CPU seconds that each process of a server has used.
ReadCpu = Callable[[], Sequence[float]]


def body_of(number: int) -> bytes:
    """The body of a message."""
    return b"%0*d" % (_DIGITS, number) + b"x" * (BODY_BYTES - _DIGITS)


def number_of(body: bytes) -> int:
    """The number of the message that has this body; -1 if none has."""
    digits = body[:_DIGITS]
    return int(digits) if digits.isdigit() else -1


@dataclass(slots=True)
class Outcome:
    """What was done between the warm-up and the end. ``cpu_us`` is that of each process of the server for one message,
    ``client_percent`` the client's share of a core, if it is known: near 100 the client is the limit."""

    count: int
    seconds: float
    latencies_ms: list[float]
    cpu_us: list[float]
    client_percent: float | None = None

    @property
    def per_second(self) -> float:
        return self.count / self.seconds


@dataclass(slots=True)
class Meter:
    """Counts the answers between ``begin`` and ``end`` (monotonic seconds). The end moves until there is one."""

    read_cpu: ReadCpu
    begin: float
    end: float
    latencies_ms: list[float] = field(default_factory=list)
    _is_ended: bool = False
    _before: tuple[list[float], float] | None = None
    _after: tuple[list[float], float] | None = None

    @classmethod
    def starting(cls, read_cpu: ReadCpu, warm_up_s: float, seconds: float) -> Meter:
        begin = time.monotonic() + warm_up_s
        return cls(read_cpu, begin, begin + seconds)

    def note(self, sent: float, now: float) -> None:
        """A command was sent and answered."""
        is_counted = self._before is not None and not self._is_ended
        if is_counted and (now <= self.end or not self.latencies_ms):
            self.latencies_ms.append((now - sent) * 1000)
            self.end = max(self.end, now)

    def is_over(self, now: float) -> bool:
        """Whether it has ended; reads the CPU times when they are due."""
        if self._before is None and now >= self.begin:
            self._before = self._read()
            self.begin = now
        is_over = self._is_ended or (now >= self.end and bool(self.latencies_ms))
        if is_over and self._after is None:
            self._after = self._read()
        return is_over

    def end_now(self, now: float) -> None:
        """There is nothing more to do."""
        if not self._is_ended:
            self.end = min(self.end, now)
            self._is_ended = True
            self.is_over(now)

    def _read(self) -> tuple[list[float], float]:
        return list(self.read_cpu()), time.process_time()

    def outcome(self) -> Outcome | None:
        """None if nothing was done in time."""
        if not self.latencies_ms or self._before is None or self._after is None:
            return None
        count, seconds = len(self.latencies_ms), self.end - self.begin
        cpu_us = [(late - early) / count * 1e6 for late, early in zip(self._after[0], self._before[0], strict=True)]
        client = (self._after[1] - self._before[1]) / seconds * 100
        return Outcome(count, seconds, self.latencies_ms, cpu_us, client)


class Connection:
    """A connection and its commands in flight: when each was sent, by key, the oldest first."""

    def __init__(self, address: Address, wire: Wire) -> None:
        self.wire = wire
        self.socket = socket.create_connection(address, _PATIENCE_S)
        try:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire.open(self.socket)
        except BaseException:
            self.socket.close()
            raise
        self.socket.settimeout(None)
        self.in_flight: dict[int, float] = {}
        self._keys = 0
        self._received = bytearray()

    def next_key(self) -> int:
        """The key of a command that is sent now."""
        key = self._keys
        self._keys += 1
        self.in_flight[key] = time.monotonic()
        return key

    def receive(self) -> list[Answer]:
        """What has arrived."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the server has closed the connection")
        self._received += data
        return self.wire.answers(self._received)

    def finish(self, key: int | None) -> float:
        """When the command was sent that has been answered. Raises ``Refused`` if there is none."""
        if key is None:
            key = next(iter(self.in_flight), -1)
        sent = self.in_flight.pop(key, None)
        if sent is None:
            raise Refused("an answer to a command that was not sent, or is answered")
        return sent


class Connections:
    """Several connections to one server."""

    def __init__(self, address: Address, make: Callable[[], Wire], count: int) -> None:
        self._poll = select.epoll()
        self._all: dict[int, Connection] = {}
        try:
            for _ in range(count):
                connection = Connection(address, make())
                self._all[connection.socket.fileno()] = connection
                self._poll.register(connection.socket, select.EPOLLIN)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Connections:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all."""
        self._poll.close()
        for connection in self._all.values():
            connection.socket.close()

    def _readable(self) -> Iterator[Connection]:
        ready = self._poll.poll(_PATIENCE_S)
        if not ready:
            raise RuntimeError(f"no answer in {_PATIENCE_S:g} s")
        return (self._all[descriptor] for descriptor, _ in ready)

    def push(
        self, numbers: Iterator[int], window: int, read_cpu: ReadCpu, warm_up_s: float, seconds: float
    ) -> Outcome | None:
        """Push messages of these numbers; ``window`` are in flight on each connection. All are answered at the end."""
        meter = Meter.starting(read_cpu, warm_up_s, seconds)
        for connection in self._all.values():
            self._push(connection, numbers, window)
        while any(connection.in_flight for connection in self._all.values()):
            for connection in self._readable():
                answers = connection.receive()
                now = time.monotonic()
                for answer in answers:
                    meter.note(connection.finish(answer.key), now)
                if answers and not meter.is_over(now):
                    self._push(connection, numbers, len(answers))
        return meter.outcome()

    @staticmethod
    def _push(connection: Connection, numbers: Iterator[int], count: int) -> None:
        push = connection.wire.push
        connection.socket.sendall(b"".join([push(connection.next_key(), body_of(next(numbers))) for _ in range(count)]))

    def pull(self, pulled: list[bytes], read_cpu: ReadCpu, warm_up_s: float, seconds: float) -> Outcome | None:
        """Pull a message, acknowledge it, and so on, on each connection, until the time is over or there is none. The
        bodies of all that were acknowledged go to ``pulled``. A latency is that of a pull and its ack together."""
        meter = Meter.starting(read_cpu, warm_up_s, seconds)
        pairs = {connection: _Pair(connection, pulled, meter) for connection in self._all.values()}
        for pair in pairs.values():
            pair.begin()
        while any(connection.in_flight for connection in self._all.values()):
            for connection in self._readable():
                for answer in connection.receive():
                    pairs[connection].go_on(answer)
        for connection in self._all.values():
            if not connection.wire.ack_is_answered:  # the answer to anything else: the last ack is executed by then
                connection.wire.left(connection.socket)
        return meter.outcome()


@dataclass(slots=True)
class _Pair:
    """A connection that pulls and acknowledges."""

    connection: Connection
    pulled: list[bytes]
    meter: Meter
    begun: float = 0.0
    held: Pulled | None = None

    def begin(self) -> None:
        """Pull."""
        key = self.connection.next_key()
        self.begun = self.connection.in_flight[key]
        self.connection.socket.sendall(self.connection.wire.pull(key))

    def go_on(self, answer: Answer) -> None:
        """Send what follows the answer."""
        wire = self.connection.wire
        self.connection.finish(answer.key)
        now = time.monotonic()
        if answer.is_empty:
            self.meter.end_now(now)
            return
        if self.held is None:
            self.held = answer.pulled
            if self.held is None:
                raise Refused("a pull was answered without a message")
            key = self.connection.next_key()
            self.connection.socket.sendall(wire.ack(key, self.held.handle))
            if wire.ack_is_answered:
                return
            self.connection.finish(key)
        self.pulled.append(self.held.body)
        self.held = None
        self.meter.note(self.begun, now)
        if not self.meter.is_over(now):
            self.begin()
