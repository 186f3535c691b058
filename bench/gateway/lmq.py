"""LMQ's two protocols, which the gateway speaks."""

from __future__ import annotations

import re
import socket
from typing import Any, Final

import msgpack

from .wires import CRLF, Answer, Pulled, Refused


class LmqHttp:
    """LMQ over HTTP, on connections that stay open."""

    ack_is_answered = True
    _LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
    _ID: Final = re.compile(rb"\r\nx-lmq-message-id: *(\S+)", re.IGNORECASE)

    def __init__(self, queue: str) -> None:
        self._path = f"/messages/{queue}"
        self._pull = self._head("GET", f"{self._path}?t=0") + CRLF
        self._push = self._head("POST", self._path) + b"content-type: text/plain\r\ncontent-length: "
        self._is_pulling = False

    @staticmethod
    def _head(method: str, target: str) -> bytes:
        return f"{method} {target} HTTP/1.1\r\nhost: localhost\r\n".encode()

    def open(self, connection: socket.socket) -> None:
        return

    def push(self, key: int, body: bytes) -> bytes:
        return b"%b%d\r\n\r\n%b" % (self._push, len(body), body)

    def pull(self, key: int) -> bytes:
        self._is_pulling = True
        return self._pull

    def ack(self, key: int, handle: Any) -> bytes:
        self._is_pulling = False
        return self._head("POST", f"{self._path}/{handle.decode()}?reply=ack") + b"content-length: 0\r\n\r\n"

    def answers(self, buffer: bytearray) -> list[Answer]:
        found, place = [], 0
        while (end := buffer.find(b"\r\n\r\n", place)) >= 0:
            head = bytes(buffer[place:end])
            length = self._LENGTH.search(head)
            after = end + 4 + (int(length[1]) if length else 0)
            if len(buffer) < after:
                break
            found.append(self._answer(head, bytes(buffer[end + 4 : after])))
            place = after
        del buffer[:place]
        return found

    def _answer(self, head: bytes, body: bytes) -> Answer:
        status = head[9:12]
        if status == b"204":
            return Answer(None, is_empty=self._is_pulling)
        if status != b"200":
            raise Refused((head + b"\n" + body).decode(errors="replace"))
        message_id = self._ID.search(head)
        return Answer(None, Pulled(body, message_id[1]) if message_id else None)

    def left(self, connection: socket.socket) -> int:
        raise NotImplementedError  # the daemon counts


class LmqRpc:
    """LMQ over MessagePack-RPC. Answers may overtake each other."""

    ack_is_answered = True

    def __init__(self, queue: str) -> None:
        self._name = queue.encode()
        self._unpacker = msgpack.Unpacker(raw=True)

    def open(self, connection: socket.socket) -> None:
        return

    def push(self, key: int, body: bytes) -> bytes:
        return self._request(key, b"push", self._name, body)

    def pull(self, key: int) -> bytes:
        return self._request(key, b"pull", self._name, 0)

    def ack(self, key: int, handle: Any) -> bytes:
        return self._request(key, b"done", self._name, handle)

    @staticmethod
    def _request(key: int, method: bytes, *arguments: Any) -> bytes:
        packed: bytes = msgpack.packb([0, key, method, arguments], use_bin_type=False)
        return packed

    def answers(self, buffer: bytearray) -> list[Answer]:
        self._unpacker.feed(buffer)
        buffer.clear()
        return [self._answer(*answer) for answer in self._unpacker]

    @staticmethod
    def _answer(kind: int, key: int, error: Any, result: Any) -> Answer:
        if error is not None:
            raise Refused(bytes(error).decode() if isinstance(error, list) else str(error))
        if isinstance(result, dict):
            return Answer(key, Pulled(result[b"content"], result[b"id"]))
        return Answer(key, is_empty=result == b"empty")

    def left(self, connection: socket.socket) -> int:
        raise NotImplementedError  # the daemon counts
