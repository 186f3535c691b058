"""WebSocket MQ: cycles of five requests by many callers, and the delivery to one of many consumers that wait."""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final

from .driver import Address, Meter, Outcome, ReadCpu, body_of
from .wires import Refused, exchange

_PATIENCE_S: Final = 60.0
_HANDSHAKE: Final = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: c2l4dGVlbiBieXRlcyBvaw==\r\n\r\n"
)
#: The policy of the queue: what ``setQueue`` sets for a queue that keeps nothing.
POLICY: Final[Mapping[str, Any]] = {"orderedSec": 300, "visibilityTimeoutSec": 300, "retry": {"returnTo": "end"}}
#: What surrounds the id of a request in the answer of our door, with a result behind it.
_ANSWER: Final = b'{"protocol":"delight-rpc","version":"3.1","id":"'
_RESULT: Final = b'","result":'
#: Stands for the id of a message.
_ID: Final = "ID"
_ID_JSON: Final = b'"ID"'
#: Orders that wait on one connection.
_ORDERS: Final = 100


class Connection:
    """A connection to the door, with any number of requests in flight."""

    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection(address, _PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = exchange(self.socket, _HANDSHAKE, lambda buffer: bytes(buffer) if b"\r\n\r\n" in buffer else None)
        if not head.startswith(b"HTTP/1.1 101 "):
            raise Refused(head.decode(errors="replace"))
        self._received = bytearray()

    def send(self, key: str, method: str, *params: Any) -> None:
        """Send a request."""
        self.socket.sendall(frame(_request(key, method, *params)))

    def receive(self) -> list[tuple[str, bytes]]:
        """The results that have arrived, as JSON, each with the key of its request. Raises ``Refused`` for an error."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the server has closed the connection")
        self._received += data
        answers = []
        while (payload := _taken(self._received)) is not None:
            key, _, result = payload.removeprefix(_ANSWER).partition(_RESULT)
            if not result:
                raise Refused(payload.decode())
            answers.append((key.decode(), result[:-1]))
        return answers

    def ask(self, method: str, *params: Any) -> Any:
        """The result of one request, on a connection without others in flight."""
        self.send("1", method, *params)
        while not (answers := self.receive()):
            pass
        return json.loads(answers[0][1])


def _request(key: str, method: str, *params: Any) -> bytes:
    request = {"protocol": "delight-rpc", "version": "3.1", "id": key, "method": [method], "params": params}
    return json.dumps(request | {"expectedVersion": "^0.7.0"}).encode()


def frame(payload: bytes, opcode: int = 1) -> bytes:
    """A frame of a client, of text unless it is said, whose mask changes nothing."""
    size = len(payload)
    head = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size)
    return bytes([0x80 | opcode]) + head + bytes(4) + payload


def _taken(received: bytearray) -> bytes | None:
    """The payload of the next frame, which is removed; None if it is not complete."""
    if len(received) < 4:
        return None
    size, start = received[1], 2
    if size == 126:
        size, start = int.from_bytes(received[2:4], "big"), 4
    if len(received) < start + size:
        return None
    payload = bytes(received[start : start + size])
    del received[: start + size]
    return payload


class _Caller:
    """Makes a message, orders one, gets it and completes it, and so on, one request after another. Requests are
    ready but for the ids of messages, and answers are compared as bytes, so that the client takes little of the CPU
    that it shares with the server."""

    def __init__(self, connection: Connection, key: str, queue: str, meter: Meter) -> None:
        self._send = connection.socket.sendall
        self._meter = meter
        self._begun = 0.0
        self._place = 0
        self._message = b""
        self.is_done = False
        value = body_of(0).decode()
        self._draft = frame(_request(key, "draftMessage", queue, None, ["slot"]))
        self._set = _request(key, "setMessageSlot", queue, _ID, "slot", value).split(_ID_JSON)
        self._order = frame(_request(key, "orderMessage", queue))
        self._get = _request(key, "getMessage", queue, _ID).split(_ID_JSON)
        self._complete = _request(key, "completeMessage", queue, _ID).split(_ID_JSON)
        self._expected = json.dumps(
            {"state": 3, "priority": None, "slots": {"slot": value}}, separators=(",", ":")
        ).encode()

    def go_on(self, result: bytes = b"") -> None:
        """Send the next request, from the result of the one before it, as JSON. Does not begin another cycle after the
        end. Raises ``Refused``."""
        place = self._place
        self._place = (place + 1) % 5
        if place == 0:
            now = time.monotonic()
            if self._begun:
                self._meter.note(self._begun, now)
            if self._begun and self._meter.is_over(now):
                self.is_done = True
                return
            self._begun = now
            self._send(self._draft)
        elif place == 1:
            self._send(frame(result.join(self._set)))
        elif place == 2:
            self._send(self._order)
        elif place == 3:
            self._message = result
            self._send(frame(result.join(self._get)))
        else:
            if result != self._expected:
                raise Refused(f"getMessage returned {result!r}")
            self._send(frame(self._message.join(self._complete)))


def cycles(
    address: Address,
    queue: str,
    connections: int,
    callers: int,
    read_cpu: ReadCpu,
    warm_up_s: float,
    seconds: float,
) -> Outcome | None:
    """Cycles of a number of callers that share connections evenly. A latency is that of a whole cycle; each of its five
    requests waits for the answer to the one before it."""
    with ExitStack() as stack, select.epoll() as poll:
        meter = Meter.starting(read_cpu, warm_up_s, seconds)
        opened = [Connection(address) for _ in range(connections)]
        for connection in opened:
            stack.enter_context(connection.socket)
            connection.socket.settimeout(None)
            poll.register(connection.socket, select.EPOLLIN)
        by_descriptor = {connection.socket.fileno(): connection for connection in opened}
        working = {str(n): _Caller(opened[n % connections], str(n), queue, meter) for n in range(callers)}
        for caller in working.values():
            caller.go_on()
        while not all(caller.is_done for caller in working.values()):
            ready = poll.poll(_PATIENCE_S)
            if not ready:
                raise RuntimeError(f"no answer in {_PATIENCE_S:g} s")
            for descriptor, _ in ready:
                for key, result in by_descriptor[descriptor].receive():
                    working[key].go_on(result)
        return meter.outcome()


def deliveries(address: Address, queue: str, consumers: int, messages: int) -> list[float]:
    """How long (ms) a message takes from when its last slot is set until one of the consumers that wait has its id.
    Each consumer orders again after that, so that always as many wait."""
    with ExitStack() as stack, select.epoll() as poll:
        waiting = [Connection(address) for _ in range(-(-consumers // _ORDERS))]
        producer = Connection(address)
        for connection in (*waiting, producer):
            stack.enter_context(connection.socket)
        for connection in waiting:
            poll.register(connection.socket, select.EPOLLIN)
        by_descriptor = {connection.socket.fileno(): connection for connection in waiting}
        for number in range(consumers):
            waiting[number % len(waiting)].send(f"order-{number}", "orderMessage", queue)
        for connection in waiting:  # an answer to what was sent behind them: all orders have been read
            connection.send("read", "getQueue", queue)
            while [key for key, _ in connection.receive()] != ["read"]:
                pass
        times_ms: list[float] = []
        for number in range(messages):
            message = producer.ask("draftMessage", queue, None, ["slot"])
            begun = time.monotonic()
            producer.send("set", "setMessageSlot", queue, message, "slot", body_of(number).decode())
            ready = poll.poll(_PATIENCE_S)
            if not ready:
                raise RuntimeError(f"no delivery in {_PATIENCE_S:g} s")
            connection = by_descriptor[ready[0][0]]
            ((key, delivered),) = connection.receive()
            times_ms.append((time.monotonic() - begun) * 1000)
            producer.receive()
            if json.loads(delivered) != message:
                raise Refused(f"{delivered!r} was delivered, and {message} was set")
            producer.ask("getMessage", queue, message)
            producer.ask("completeMessage", queue, message)
            connection.send(key, "orderMessage", queue)
        return times_ms
