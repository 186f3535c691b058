"""AMQP 0-9-1, the protocol of RabbitMQ, as far as the benchmark uses it."""

from __future__ import annotations

import socket
import struct
from typing import Any, Final

from .wires import Answer, Pulled, Refused, exchange

_METHOD, _HEADER, _BODY = 1, 2, 3
_END: Final = b"\xce"
_FRAME: Final = struct.Struct(">BHI")
#: Class and method.
_START, _START_OK, _TUNE, _TUNE_OK, _OPEN, _OPEN_OK = (10, 10), (10, 11), (10, 30), (10, 31), (10, 40), (10, 41)
_CHANNEL_OPEN, _CHANNEL_OPEN_OK = (20, 10), (20, 11)
_DECLARE, _DECLARE_OK = (50, 10), (50, 11)
_CONFIRM, _CONFIRM_OK = (85, 10), (85, 11)
_PUBLISH, _GET, _GET_OK, _GET_EMPTY, _ACK = (60, 40), (60, 70), (60, 71), (60, 72), (60, 80)
_PASSIVE, _DURABLE = 1, 2
#: The only property of a message: its delivery mode is 2, persistent.
_PERSISTENT: Final = struct.pack(">HB", 0x1000, 2)


class Amqp:
    """A quorum queue of RabbitMQ with publisher confirms. A pull is ``basic.get``. An ack has no answer, but the server
    executes it before the next pull of the connection."""

    ack_is_answered = False

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._publish = _method(1, _PUBLISH, b"\0\0" + _short("") + _short(queue) + b"\0")
        self._get = _method(1, _GET, b"\0\0" + _short(queue) + b"\0")
        self._unconfirmed: set[int] = set()
        self._handle = b""
        self._body: list[bytes] = []
        self._body_bytes = -1

    def open(self, connection: socket.socket) -> None:
        self._ask(connection, b"AMQP\0\0\x09\x01", _START)
        login = _table("") + _short("PLAIN") + _long(b"\0guest\0guest") + _short("en_US")
        tune = self._ask(connection, _method(0, _START_OK, login), _TUNE)
        without_heartbeats = tune[:6] + b"\0\0"
        opening = _method(0, _TUNE_OK, without_heartbeats) + _method(0, _OPEN, _short("/") + _short("") + b"\0")
        self._ask(connection, opening, _OPEN_OK)
        self._ask(connection, _method(1, _CHANNEL_OPEN, _short("")), _CHANNEL_OPEN_OK)
        self._declare(connection, _DURABLE)
        self._ask(connection, _method(1, _CONFIRM, b"\0"), _CONFIRM_OK)

    def _declare(self, connection: socket.socket, bits: int) -> bytes:
        kind = _table("x-queue-type", "quorum")
        declare = _method(1, _DECLARE, b"\0\0" + _short(self._queue) + bytes([bits]) + kind)
        return self._ask(connection, declare, _DECLARE_OK)

    @staticmethod
    def _ask(connection: socket.socket, data: bytes, expected: tuple[int, int]) -> bytes:
        """The arguments of the answer. Raises ``Refused``."""
        payload = exchange(connection, data, lambda buffer: next((one for _, one in _frames(buffer)), None))
        if struct.unpack_from(">HH", payload) != expected:
            raise Refused(repr(payload))
        return payload[4:]

    def push(self, key: int, body: bytes) -> bytes:
        self._unconfirmed.add(key)
        header = struct.pack(">HHQ", 60, 0, len(body)) + _PERSISTENT
        return self._publish + _frame(_HEADER, 1, header) + _frame(_BODY, 1, body)

    def pull(self, key: int) -> bytes:
        return self._get

    def ack(self, key: int, handle: Any) -> bytes:
        return _method(1, _ACK, handle + b"\0")

    def answers(self, buffer: bytearray) -> list[Answer]:
        found: list[Answer] = []
        for kind, payload in _frames(buffer):
            if kind == _HEADER:
                (self._body_bytes,) = struct.unpack_from(">Q", payload, 4)
            elif kind == _BODY:
                self._body.append(payload)
                if sum(map(len, self._body)) == self._body_bytes:
                    found.append(Answer(None, Pulled(b"".join(self._body), self._handle)))
                    self._body.clear()
            elif kind == _METHOD:
                self._method(struct.unpack_from(">HH", payload), payload[4:], found)
        return found

    def _method(self, method: tuple[Any, ...], arguments: bytes, found: list[Answer]) -> None:
        if method == _ACK:  # a confirm: of one message, or of all until it
            tag, is_multiple = struct.unpack_from(">Q?", arguments)
            keys = sorted(key for key in self._unconfirmed if key < tag) if is_multiple else [tag - 1]
            self._unconfirmed.difference_update(keys)
            found.extend(map(Answer, keys))
        elif method == _GET_OK:
            self._handle = arguments[:8]
        elif method == _GET_EMPTY:
            found.append(Answer(None, is_empty=True))
        else:
            raise Refused(f"method {method}: {arguments!r}")

    def left(self, connection: socket.socket) -> int:
        name_end = 1 + len(self._queue)
        (messages,) = struct.unpack_from(">I", self._declare(connection, _PASSIVE | _DURABLE), name_end)
        return int(messages)


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _FRAME.pack(kind, channel, len(payload)) + payload + _END


def _method(channel: int, method: tuple[int, int], arguments: bytes) -> bytes:
    return _frame(_METHOD, channel, struct.pack(">HH", *method) + arguments)


def _short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _table(name: str, value: str = "") -> bytes:
    """A table with one string; an empty one without a name."""
    return _long(_short(name) + b"S" + _long(value.encode()) if name else b"")


def _frames(buffer: bytearray) -> list[tuple[int, bytes]]:
    """Take the complete frames out of ``buffer``: kind and payload. Heartbeats are left out."""
    found, place = [], 0
    while len(buffer) - place >= _FRAME.size:
        kind, _, size = _FRAME.unpack_from(buffer, place)
        end = place + _FRAME.size + size
        if len(buffer) <= end:
            break
        if kind in (_METHOD, _HEADER, _BODY):
            found.append((kind, bytes(buffer[place + _FRAME.size : end])))
        place = end + 1
    del buffer[:place]
    return found
