"""A client of the lane made of nothing but a socket, for tests."""

from __future__ import annotations

import base64
import json
import socket
import struct
import time
from itertools import count
from pathlib import Path
from typing import Any, Self

from tests.wire.daemon import PATIENCE_S, wait_until

Fields = dict[str, Any]

_numbers = count(1)


def frame(header: bytes | Fields, body: bytes = b"") -> bytes:
    """The bytes of a frame."""
    data = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<II", len(data), len(body)) + data + body


class LaneClient:
    """A connection to the lane of the mailbox at ``ipc``. ``hello`` is the daemon's answer; None without one."""

    def __init__(self, ipc: Path, client_id: str = "wire", greet: bool = True, receive_bytes: int = 0) -> None:
        self.client_id = client_id
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        path = str(ipc / "lane.sock")
        try:
            wait_until(lambda: self._connects(path), "the lane is there")
        except BaseException:
            self.socket.close()
            raise
        self._received = b""
        self.hello: Fields | None = None
        if greet:
            self.send({"hello": {"versions": [1], "clientId": client_id}})
            answer = self.receive()[0]
            assert "hello" in answer, answer
            self.hello = answer["hello"]

    def _connects(self, path: str) -> bool:
        try:
            self.socket.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def send(self, header: bytes | Fields, body: bytes = b"") -> None:
        """Send a frame."""
        self.socket.sendall(frame(header, body))

    def receive(self) -> tuple[Fields, bytes]:
        """The next frame. Raises ``EOFError`` at the end of the connection."""
        lengths = struct.unpack("<II", self._take(8))
        return json.loads(self._take(lengths[0])), self._take(lengths[1])

    def _take(self, length: int) -> bytes:
        while len(self._received) < length:
            data = self.socket.recv(1 << 20)
            if not data:
                raise EOFError
            self._received += data
        taken, self._received = self._received[:length], self._received[length:]
        return taken

    def is_ended(self) -> bool:
        """Whether the daemon has closed the connection; waits for that, and reads what comes before."""
        try:
            while self.socket.recv(1 << 20):
                pass
        except ConnectionError:
            pass
        return True

    def request(self, command: str, payload: Fields, body: bytes = b"", **envelope: Any) -> str:
        """Send a request without waiting for its answer; its id."""
        request_id = envelope.pop("requestId", f"l-{time.time_ns()}-{next(_numbers)}")
        whole = {
            "requestId": request_id,
            "clientId": self.client_id,
            "command": command,
            **envelope,
            "payload": payload,
        }
        self.send(whole, body)
        return str(request_id)

    def call(self, command: str, payload: Fields, body: bytes = b"", **envelope: Any) -> tuple[Fields, bytes]:
        """A request and its answer."""
        request_id = self.request(command, payload, body, **envelope)
        answer, bodies = self.receive()
        assert answer["requestId"] == request_id
        return answer, bodies

    def ask(self, command: str, payload: Fields, body: bytes = b"", **envelope: Any) -> Fields:
        """The data of a command that must succeed, as the mailbox shows it."""
        answer, bodies = self.call(command, payload, body, **envelope)
        assert answer["ok"], answer
        data: Fields = as_in_mailbox(answer, bodies)["data"]
        return data


def as_in_mailbox(answer: Fields, bodies: bytes) -> Fields:
    """An answer with its bodies where the mailbox has them."""
    data = answer.get("data", {})
    messages = data.get("messages") or data.get("records")
    entries = [data, *(messages if isinstance(messages, list) else ())]
    places = [place for one in entries for place in (one, one.get("message"), one.get("originalMessage"))]
    for message in places:
        if not isinstance(message, dict) or "bodyBytes" not in message:
            continue
        length = _put_body(message, bodies)
        for part in message.get("parts", ()):  # the first of which has the body of the message
            bodies = bodies[_put_body(part, bodies) :]
            length = 0
        bodies = bodies[length:]
    assert not bodies, "bodies that nothing describes"
    return answer


def _put_body(shown: Fields, bodies: bytes) -> int:
    """Give a message, or a part of one, its body, with which ``bodies`` begin; its length."""
    length, encoding = shown.pop("bodyBytes"), shown.pop("encoding")
    body = bodies[:length]
    if encoding == "binary":
        shown["payload"], shown["encoding"] = base64.b64encode(body).decode(), "base64"
        shown.setdefault("contentType", "application/octet-stream")
    else:
        shown["payload"] = json.loads(body) if encoding == "json" else body.decode()
    return int(length)
