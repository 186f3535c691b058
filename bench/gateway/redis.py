"""Redis streams."""

from __future__ import annotations

import socket
from typing import Any, Final

from .wires import CRLF, Answer, Pulled, Refused, exchange


class RedisStream:
    """A Redis stream with one group of consumers. An ack also deletes the entry, so that the stream is a queue."""

    ack_is_answered = True
    _GROUP: Final = b"group"

    def __init__(self, queue: str) -> None:
        self._stream = queue.encode()
        self._pull = _command(
            b"XREADGROUP", b"GROUP", self._GROUP, b"c", b"COUNT", b"1", b"STREAMS", self._stream, b">"
        )

    def open(self, connection: socket.socket) -> None:
        create = _command(b"XGROUP", b"CREATE", self._stream, self._GROUP, b"0", b"MKSTREAM")
        try:
            exchange(connection, create, _resp)
        except Refused as refused:
            if "BUSYGROUP" not in str(refused):  # it exists
                raise

    def push(self, key: int, body: bytes) -> bytes:
        return _command(b"XADD", self._stream, b"*", b"b", body)

    def pull(self, key: int) -> bytes:
        return self._pull

    def ack(self, key: int, handle: Any) -> bytes:
        transaction = (
            _command(b"MULTI"),
            _command(b"XACK", self._stream, self._GROUP, handle),
            _command(b"XDEL", self._stream, handle),
            _command(b"EXEC"),
        )
        return b"".join(transaction)

    def answers(self, buffer: bytearray) -> list[Answer]:
        found = []
        while (answer := _resp(buffer)) is not None:
            value = answer[0]
            if value in (b"OK", b"QUEUED"):
                continue  # of a transaction, whose answer is that to EXEC
            if value is None:
                found.append(Answer(None, is_empty=True))
            elif isinstance(value, bytes) or value == [1, 1]:
                found.append(Answer(None))
            else:
                ((_, ((entry, (_, body)),)),) = value
                found.append(Answer(None, Pulled(body, entry)))
        return found

    def left(self, connection: socket.socket) -> int:
        return int(exchange(connection, _command(b"XLEN", self._stream), _resp)[0])


def _command(*words: bytes) -> bytes:
    """A command of Redis."""
    return b"*%d\r\n" % len(words) + b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


def _resp(buffer: bytearray) -> tuple[Any] | None:
    """Take the first value of Redis's protocol out of ``buffer``; None if it is not complete. Raises ``Refused``."""
    try:
        value, place = _resp_at(buffer, 0)
    except IndexError:
        return None
    del buffer[:place]
    return (value,)


def _resp_at(buffer: bytearray, place: int) -> tuple[Any, int]:
    """The value at ``place``, and where the next one begins. Raises ``IndexError`` if it is not complete."""
    end = buffer.find(CRLF, place)
    if end < 0:
        raise IndexError
    kind, text = buffer[place], bytes(buffer[place + 1 : end])
    place = end + 2
    if kind == ord("-"):
        raise Refused(text.decode(errors="replace"))
    if kind == ord("+"):
        return text, place
    number = int(text)
    if kind == ord(":"):
        return number, place
    if number < 0:
        return None, place
    if kind == ord("$"):
        if len(buffer) < place + number + 2:
            raise IndexError
        return bytes(buffer[place : place + number]), place + number + 2
    values = []
    for _ in range(number):
        value, place = _resp_at(buffer, place)
        values.append(value)
    return values, place
