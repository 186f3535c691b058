"""A client of smss, written from its protocol alone, that behaves as the official one in Go: a pool of connections, an
error that leaves its connection usable, a subscriber that gives up after a silence."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

OK, ERROR, ALIVE, SUB_END = 200, 400, 201, 255
ACK, ACK_WITH_END, END_WITHOUT_ACK = 0, 1, 2
#: Silence (s) after which a subscriber gives up.
SILENCE_S = 35.0


class BizError(Exception):
    """The server refuses a request."""


class WrongCode(Exception):
    """The server answers with a code that the client does not expect: "not support code"."""


class Silence(Exception):
    """Nothing came from the server for too long."""


# --- requests ---------------------------------------------------------------------------------------------------------


def header(command: int, topic: bytes = b"", trace: bytes = b"", middle: bytes = b"") -> bytes:
    """The 20 bytes of a request, the topic and the trace id; ``middle`` begins at byte 3."""
    return struct.pack("<BH16sB", command, len(topic), middle, len(trace)) + topic + trace


def create(topic: bytes, expire_at: int = 0, trace: bytes = b"") -> bytes:
    return header(2, topic, trace) + struct.pack("<q", expire_at)


def delete(topic: bytes, trace: bytes = b"") -> bytes:
    return header(3, topic, trace)


def pub(topic: bytes, payload: bytes, trace: bytes = b"") -> bytes:
    return header(1, topic, trace, struct.pack("<I", len(payload))) + payload


def delay(topic: bytes, payload: bytes, delay_ms: int, trace: bytes = b"") -> bytes:
    return header(16, topic, trace, struct.pack("<I", len(payload))) + struct.pack("<q", delay_ms) + payload


def alive() -> bytes:
    return header(17)


def list_topics(trace: bytes = b"") -> bytes:
    return header(100, b"", trace)


def valid_list(event_id: int) -> bytes:
    return header(99) + struct.pack("<q", event_id)


def info(topic: bytes, trace: bytes = b"") -> bytes:
    return header(65, topic, trace)


def sub(topic: bytes, who: bytes, event_id: int = 0, batch: int = 1, ack_timeout_s: float | None = 10.0) -> bytes:
    """A subscription; without a time for acks it is the server's."""
    middle = bytes([batch, ack_timeout_s is not None])
    timeout = b"" if ack_timeout_s is None else struct.pack("<q", int(ack_timeout_s * 1e9))
    return header(0, topic, b"", middle) + struct.pack("<q", event_id) + timeout + struct.pack("<I", len(who)) + who


def replica(event_id: int) -> bytes:
    return header(64) + struct.pack("<q", event_id)


def block(body: bytes, headers: Sequence[tuple[bytes, bytes]] = ()) -> bytes:
    """A message as it is published."""
    encoded = b"".join(
        struct.pack("<I", len(key)) + key + struct.pack("<I", len(value)) + value for key, value in headers
    )
    return struct.pack("<II", len(encoded) + len(body), len(headers)) + encoded + body


# --- responses --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Message:
    """A message that was pushed."""

    ts: int
    event_id: int
    file_id: int
    pos: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


@dataclass(frozen=True)
class Response:
    """What the server says. ``data`` is behind its 10 bytes."""

    code: int
    data: bytes = b""
    count: int = 0

    @property
    def messages(self) -> list[Message]:
        """The messages of a push."""
        found, place = [], 0
        for _ in range(self.count):
            ts, event_id, file_id, pos, content, headers = struct.unpack_from("<qqqqII", self.data, place)
            place += 40
            end, pairs = place + content, []
            for _ in range(headers):
                pair = []
                for _ in range(2):
                    (size,) = struct.unpack_from("<I", self.data, place)
                    pair.append(self.data[place + 4 : place + 4 + size])
                    place += 4 + size
                pairs.append((pair[0], pair[1]))
            assert place <= end, "buff data is not enough"
            found.append(Message(ts, event_id, file_id, pos, pairs, self.data[place:end]))
            place = end
        assert place == len(self.data)
        return found

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


@dataclass(frozen=True)
class Entry:
    """An entry of the binlog, as a slave gets it."""

    command: int
    event_id: int
    topic: str
    payload: bytes
    write_ms: int

    @classmethod
    def read(cls, frame: bytes) -> Entry:
        size = int.from_bytes(frame[:4], "little")
        line, payload = frame[4 : 4 + size], frame[4 + size :]
        assert line.endswith(b"\n")
        write_ms, command, event_id, _, topic, length = line[:-1].decode().split("\t")
        assert len(payload) == int(length)
        assert not payload or payload.endswith(b"\n")
        return cls(int(command), int(event_id), topic, payload[:-1], int(write_ms))


class Connection:
    """A connection to the server."""

    def __init__(self, port: int, timeout_s: float = 60.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ack(self, code: int = ACK) -> None:
        self.send(struct.pack("<H", code))

    def receive_bytes(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the server closed the connection")
            data += piece
        return data

    def is_closed(self) -> bool:
        """Whether the server closes the connection, and says nothing before."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def receive(self, kind: str = "simple") -> Response:
        """The next response; what is behind its first bytes depends on what was asked: ``json`` or ``push``."""
        head = self.receive_bytes(10)
        code = int.from_bytes(head[:2], "little")
        if code == ERROR:
            return Response(code, self.receive_bytes(int.from_bytes(head[2:4], "little")))
        if code != OK or kind == "simple":
            assert head[2:] == bytes(8), head
            return Response(code)
        if kind == "json":
            return Response(code, self.receive_bytes(int.from_bytes(head[2:6], "little")))
        assert (head[3], head[8:]) == (0, b"\0\0"), head
        return Response(code, self.receive_bytes(int.from_bytes(head[4:8], "little")), head[2])

    def entry(self) -> Entry:
        """The next entry of the binlog, behind signs of life. Raises ``BizError``."""
        while True:
            response = self.receive()
            if response.code == ERROR:
                raise BizError(response.data.decode())
            if response.code == OK:
                return Entry.read(self.receive_bytes(int.from_bytes(self.receive_bytes(4), "little")))

    def ask(self, request: bytes, kind: str = "simple") -> Response:
        """One request and its response. Raises ``BizError``."""
        self.send(request)
        response = self.receive(kind)
        if response.code == ERROR:
            raise BizError(response.data.decode() or "unknown err")
        return response

    def begins(self, request: bytes) -> None:
        """Subscribe at a door that gives signs of life often, and see the first: what others do is behind it."""
        self.send(request)
        assert self.receive("push").code == ALIVE

    def end(self) -> int:
        """The code of the next response that is no sign of life."""
        while True:
            response = self.receive("push")
            if response.code != ALIVE:
                return response.code

    def push(self) -> Response:
        """The next push, behind signs of life. Raises ``BizError`` and ``WrongCode``."""
        while True:
            response = self.receive("push")
            if response.code == ERROR:
                raise BizError(response.data.decode())
            if response.code == OK:
                return response
            if response.code != ALIVE:
                raise WrongCode(response.code)


@dataclass
class PubClient:
    """The publisher's client: connections are taken from a pool, and return to it unless they failed."""

    port: int
    timeout_s: float = 60.0
    idle: list[Connection] = field(default_factory=list)

    def __enter__(self) -> PubClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self.idle:
            connection.close()
        self.idle.clear()

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        connection = self.idle.pop() if self.idle else Connection(self.port, self.timeout_s)
        try:
            yield connection
        except BizError:
            self.idle.append(connection)
            raise
        except BaseException:
            connection.close()
            raise
        self.idle.append(connection)

    def _ask(self, request: bytes, kind: str = "simple", codes: Sequence[int] = (OK, ALIVE)) -> Response:
        with self._connection() as connection:
            response = connection.ask(request, kind)
            if response.code not in codes:
                raise WrongCode(response.code)
            return response

    def create(self, topic: str, expire_at: int = 0) -> None:
        self._ask(create(topic.encode(), expire_at, b"trace"))

    def delete(self, topic: str) -> None:
        self._ask(delete(topic.encode(), b"trace"))

    def publish(self, topic: str, *messages: bytes, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self._ask(pub(topic.encode(), b"".join(block(one, headers) for one in messages), b"trace"))

    def publish_delay(self, topic: str, message: bytes, delay_ms: int) -> None:
        self._ask(delay(topic.encode(), block(message), delay_ms, b"trace"))

    def alive(self) -> None:
        self._ask(alive())

    def topics(self) -> list[dict[str, Any]]:
        data = self._ask(list_topics(b"trace"), "json", (OK,)).data
        return list(json.loads(data)) if data else []

    def info(self, topic: str) -> dict[str, Any]:
        return dict(json.loads(self._ask(info(topic.encode(), b"trace"), "json", (OK,)).data))


@dataclass
class SubClient:
    """The subscriber's client. ``silence_s`` is checked whenever a read has taken ``read_s``."""

    port: int
    topic: str
    who: str
    silence_s: float = SILENCE_S
    read_s: float = 5.0
    connection: Connection | None = None

    def sub(
        self,
        event_id: int,
        batch: int,
        ack_timeout_s: float | None,
        handle: Callable[[list[Message]], int],
    ) -> None:
        """Subscribe, until ``handle`` ends it or the topic is deleted. Raises ``BizError``, ``Silence``,
        ``ConnectionError``."""
        self.connection = connection = Connection(self.port, self.read_s)
        connection.send(sub(self.topic.encode(), self.who.encode(), event_id, batch, ack_timeout_s))
        heard_s = time.monotonic()
        while True:
            try:
                response = connection.receive("push")
            except TimeoutError:
                if time.monotonic() - heard_s > self.silence_s:
                    raise Silence from None
                continue
            heard_s = time.monotonic()
            if response.code == ERROR:
                raise BizError(response.data.decode())
            if response.code == SUB_END:
                return
            if response.code == ALIVE:
                continue
            if response.code != OK:
                raise WrongCode(response.code)
            outcome = handle(response.messages)
            if outcome == END_WITHOUT_ACK:
                return
            connection.ack(outcome)
            if outcome == ACK_WITH_END:
                return

    def close(self) -> None:
        if self.connection:
            self.connection.close()
