"""SimpleMQ: publishes over REST and TCP, and the push of a backlog to one subscriber."""

from __future__ import annotations

import base64
import json
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any, Final

from .driver import Address, body_of, number_of
from .websocket_mq import frame
from .wires import CRLF, Answer, Refused, exchange

_PATIENCE_S: Final = 60.0
_DONE: Final = 1
_TEXT: Final = 1
_BINARY: Final = 2
_PING: Final = 9
_PONG: Final = 10
_END: Final = CRLF + CRLF


class Rest:
    """One connection that publishes over REST. Answers without a body keep the order of the requests."""

    ack_is_answered = True

    def __init__(self, queue: str) -> None:
        self._head = (
            f"POST /api/message/publish HTTP/1.1\r\nhost: localhost\r\nx-topic: {queue}\r\n"
            "content-type: application/octet-stream\r\ncontent-length: "
        ).encode()

    def open(self, connection: socket.socket) -> None:
        return

    def push(self, key: int, body: bytes) -> bytes:
        return b"%b%d\r\n\r\n%b" % (self._head, len(body), body)

    def pull(self, key: int) -> bytes:
        raise NotImplementedError  # subscribers get what there is

    def ack(self, key: int, handle: Any) -> bytes:
        raise NotImplementedError

    def answers(self, buffer: bytearray) -> list[Answer]:
        found: list[Answer] = []
        while (end := buffer.find(_END)) >= 0:
            if buffer[9:12] != b"200":
                raise Refused(bytes(buffer).decode(errors="replace"))
            del buffer[: end + len(_END)]
            found.append(Answer(None))
        return found

    def left(self, connection: socket.socket) -> int:
        raise NotImplementedError


class Tcp:
    """One connection that publishes with the frames of the older protocol, whose answers are one byte each."""

    ack_is_answered = True

    def __init__(self, queue: str) -> None:
        topic = queue.encode()
        self._head = b"\1" + struct.pack(">H", len(topic)) + topic

    def open(self, connection: socket.socket) -> None:
        return

    def push(self, key: int, body: bytes) -> bytes:
        return self._head + struct.pack(">i", len(body)) + body

    def pull(self, key: int) -> bytes:
        raise NotImplementedError

    def ack(self, key: int, handle: Any) -> bytes:
        raise NotImplementedError

    def answers(self, buffer: bytearray) -> list[Answer]:
        if any(byte != _DONE for byte in buffer):
            raise Refused("a publish was answered with 0; the gateway's log says why")
        found = [Answer(None)] * len(buffer)
        buffer.clear()
        return found

    def left(self, connection: socket.socket) -> int:
        raise NotImplementedError


class Subscriber:
    """A connection that gets the messages of a topic: bare ones, whose pings it answers, or if it ``settles``, with an
    envelope that names what is acknowledged."""

    def __init__(self, address: Address, topic: str, settles: bool) -> None:
        self._settles = settles
        token = _subscribe(address, topic, settles)
        self._socket = socket.create_connection(address, _PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        handshake = (
            f"GET /ws/message?token={token} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\n"
            "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: c2l4dGVlbiBieXRlcyBvaw==\r\n\r\n"
        )
        self._socket.sendall(handshake.encode())
        while (end := self._received.find(_END)) < 0:
            self._receive()
        if not self._received.startswith(b"HTTP/1.1 101 "):
            raise Refused(self._received.decode(errors="replace"))
        del self._received[: end + len(_END)]

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def take(self, count: int) -> list[bytes]:
        """The bodies of the next messages, all acknowledged. Raises ``Refused`` for what is none."""
        bodies: list[bytes] = []
        settled = 0
        while len(bodies) < count or settled < count:
            out = bytearray()
            for opcode, payload in self._frames():
                if opcode == _PING:
                    out += frame(payload, _PONG)
                    settled += bool(payload) and not self._settles  # heartbeats are empty
                elif opcode == _BINARY:
                    bodies.append(payload)
                elif opcode == _TEXT:
                    said = json.loads(payload)
                    if said.get("status") == "DELIVERED":
                        settled += 1
                    elif said.get("status") == "DELIVERING":
                        bodies.append(base64.b64decode(said["body"]))
                        out += frame(b'{"type":"ACK","deliveryId":"%b"}' % said["deliveryId"].encode())
                    else:
                        raise Refused(payload.decode())
                else:
                    raise Refused(payload.decode(errors="replace"))
            self._socket.sendall(out)
            if len(bodies) < count or settled < count:
                self._receive()
        return bodies

    def _receive(self) -> None:
        data = self._socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the server has closed the connection")
        self._received += data

    def _frames(self) -> Iterator[tuple[int, bytes]]:
        """The complete frames that have arrived, which are removed."""
        received = self._received
        while len(received) >= 2:
            size, start = received[1], 2
            if size == 126:
                size, start = int.from_bytes(received[2:4], "big"), 4
            if len(received) < start + size:
                return
            opcode, payload = received[0] & 0x0F, bytes(received[start : start + size])
            del received[: start + size]
            yield opcode, payload


def _subscribe(address: Address, topic: str, settles: bool) -> str:
    body = json.dumps({"consumerId": "bench-1", "ackMode": "CLIENT" if settles else "AUTO"}).encode()
    head = f"POST /api/message/subscribe/{topic} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    with socket.create_connection(address, _PATIENCE_S) as connection:
        sent = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
        answer = exchange(connection, sent, lambda buffer: bytes(buffer) if buffer.endswith(b"}") else None)
    return str(json.loads(answer.partition(_END)[2])["token"])


def fill(address: Address, topic: str, messages: int) -> None:
    """Publish a backlog over TCP. The messages have the numbers from 0."""
    wire = Tcp(topic)
    with socket.create_connection(address, _PATIENCE_S) as connection:
        for number in range(messages):
            connection.sendall(wire.push(number, body_of(number)))
            if connection.recv(1) != b"\1":
                raise Refused("a publish was refused; the gateway's log says why")


def pushes(address: Address, topic: str, messages: int, settles: bool) -> float:
    """Messages per second that a backlog is pushed with to one subscriber, which acknowledges each. Raises ``Refused``
    if one is lost or comes twice."""
    with Subscriber(address, topic, settles) as subscriber:
        begun = time.monotonic()
        bodies = subscriber.take(messages)
        seconds = time.monotonic() - begun
    if sorted(map(number_of, bodies)) != list(range(messages)):
        raise Refused("what was pushed is not what was published")
    return messages / seconds


def deliveries(tcp: Address, http: Address, topic: str, messages: int) -> list[float]:
    """How long (ms) a message takes from its publish over TCP until a subscriber that waits has it."""
    wire = Tcp(topic)
    times_ms: list[float] = []
    with Subscriber(http, topic, False) as subscriber, socket.create_connection(tcp, _PATIENCE_S) as producer:
        producer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(messages):
            begun = time.monotonic()
            producer.sendall(wire.push(number, body_of(number)))
            if subscriber.take(1) != [body_of(number)]:
                raise Refused("what was pushed is not what was published")
            times_ms.append((time.monotonic() - begun) * 1000)
            producer.recv(1)
    return times_ms
