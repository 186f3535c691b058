"""smss: publishes on many connections, and a subscriber that reads a backlog in batches."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from typing import Any, Final

from .driver import Address, Connections, Outcome, ReadCpu, body_of
from .wires import Answer, Refused

_PATIENCE_S: Final = 60.0
_HEADER: Final = struct.Struct("<BHI12xB")
_RESPONSE_BYTES: Final = 10
_ACK: Final = b"\0\0"
#: Bytes behind the body of the other benchmarks: with them it is as large as the one that the reference was measured
#: with.
_PADDING: Final = b"y" * 100
#: Messages of a publish that builds the backlog.
_BATCH: Final = 250


def _request(command: int, topic: bytes, field: int = 0) -> bytes:
    return _HEADER.pack(command, len(topic), field, 0) + topic


def _block(body: bytes) -> bytes:
    return struct.pack("<II", len(body), 0) + body


class Smss:
    """One connection, which publishes."""

    ack_is_answered = True

    def __init__(self, queue: str) -> None:
        self._topic = queue.encode()

    def open(self, connection: socket.socket) -> None:
        return

    def push(self, key: int, body: bytes) -> bytes:
        payload = _block(body + _PADDING)
        return _request(1, self._topic, len(payload)) + payload

    def pull(self, key: int) -> bytes:
        raise NotImplementedError  # subscribers get what there is

    def ack(self, key: int, handle: Any) -> bytes:
        raise NotImplementedError

    def answers(self, buffer: bytearray) -> list[Answer]:
        number = len(buffer) // _RESPONSE_BYTES
        for place in range(0, number * _RESPONSE_BYTES, _RESPONSE_BYTES):
            if buffer[place] != 200:
                raise Refused(bytes(buffer).decode(errors="replace"))
        del buffer[: number * _RESPONSE_BYTES]
        return [Answer(None)] * number

    def left(self, connection: socket.socket) -> int:
        raise NotImplementedError


def create(address: Address, topic: str) -> None:
    """Create a topic."""
    with socket.create_connection(address, _PATIENCE_S) as connection:
        connection.sendall(_request(2, topic.encode()) + bytes(8))
        _receive_ok(connection)


def publishes(
    address: Address, topic: str, connections: int, read_cpu: ReadCpu, warm_up_s: float, seconds: float
) -> Outcome | None:
    """Publish single messages on a number of connections, each of which waits for its answer."""
    with Connections(address, lambda: Smss(topic), connections) as opened:
        return opened.push(itertools.count(), 1, read_cpu, warm_up_s, seconds)


def fill(address: Address, topic: str, messages: int) -> None:
    """Publish a backlog, in batches."""
    payload = b"".join(_block(body_of(number) + _PADDING) for number in range(_BATCH))
    with socket.create_connection(address, _PATIENCE_S) as connection:
        for _ in range(messages // _BATCH):
            connection.sendall(_request(1, topic.encode(), len(payload)) + payload)
            _receive_ok(connection)


def reading(address: Address, topic: str, batch: int, messages: int, seconds: float) -> float:
    """Messages per second of a subscriber who reads a backlog of a number of messages from its beginning, acknowledges
    each batch, and stops after a time. Raises ``Refused`` if a batch has not the size that it should have."""
    with socket.create_connection(address, _PATIENCE_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        who = b"bench"
        connection.sendall(
            _request(0, topic.encode(), batch) + bytes(8) + struct.pack("<I", len(who)) + who  # its acks have 3 s
        )
        begun, done = time.monotonic(), 0
        header = bytearray(_RESPONSE_BYTES)
        place = bytearray(1 << 20)
        view = memoryview(place)
        while done < messages and time.monotonic() - begun < seconds:
            _fill_from(connection, memoryview(header))
            code, count, size = struct.unpack("<HBxI2x", header)
            if code != 200 or count != min(batch, messages - done):
                raise Refused(f"a push has the code {code} and {count} messages")
            _fill_from(connection, view[:size])
            done += count
            connection.sendall(_ACK)
        return done / (time.monotonic() - begun)


def _fill_from(connection: socket.socket, place: memoryview) -> None:
    while place:
        received = connection.recv_into(place)
        if not received:
            raise ConnectionError("the server has closed the connection")
        place = place[received:]


def _receive_ok(connection: socket.socket) -> None:
    header = bytearray(_RESPONSE_BYTES)
    _fill_from(connection, memoryview(header))
    if header[0] != 200:
        raise Refused(connection.recv(1000).decode(errors="replace"))
