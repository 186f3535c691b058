"""A peer of a WebSocket door that writes and reads frames by itself, so that it can also write wrong ones."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import socket
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.gateway.gateway import Gateway

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
_CONTINUATION = 0
_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY = base64.b64encode(b"sixteen bytes ok").decode()


class Frame(NamedTuple):
    """A frame that the gateway has sent. It never masks or fragments."""

    opcode: int
    payload: bytes


class Refused(Exception):
    """The handshake was refused: the status, the header and the body of the answer."""

    def __init__(self, status: int, head: str, body: str) -> None:
        super().__init__(f"{status}: {body}")
        self.status = status
        self.head = head
        self.body = body


class WebSocketPeer:
    """A connection to a WebSocket door, after its handshake. Raises ``Refused``."""

    def __init__(
        self,
        gateway: Gateway,
        door: str = "mq-websocket",
        path: str = "/",
        headers: Mapping[str, str] | None = None,
        connection: socket.socket | None = None,
    ) -> None:
        self.socket = connection or gateway.connect(door)
        self._unread = b""
        fields = {
            "Host": f"127.0.0.1:{gateway.ports[door]}",
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": _KEY,
            **(headers or {}),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        try:
            self._shake_hands(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode())
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> WebSocketPeer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def _shake_hands(self, request: bytes) -> None:
        self.socket.sendall(request)
        self.head = self._read_until(b"\r\n\r\n").decode()
        status = int(self.head.split()[1])
        if status != 101:
            raise Refused(status, self.head, self._read_rest().decode())
        accept = base64.b64encode(hashlib.sha1(_KEY.encode() + _MAGIC).digest()).decode()
        assert f"Sec-WebSocket-Accept: {accept}\r\n" in self.head

    # --- frames -------------------------------------------------------------------------------------------------------

    def send(self, payload: bytes | str, opcode: int = TEXT, fin: bool = True, masked: bool = True) -> None:
        """Send one frame."""
        self.socket.sendall(frame(payload, opcode, fin, masked))

    def send_fragments(self, *payloads: bytes) -> None:
        """Send a text message in several frames."""
        for number, payload in enumerate(payloads):
            self.send(payload, _CONTINUATION if number else TEXT, fin=number == len(payloads) - 1)

    def receive(self) -> Frame:
        """The next frame. Raises ``ConnectionError`` if the connection has ended."""
        first, second = self._read(2)
        assert first & 0x70 == 0
        assert first & 0x80
        assert not second & 0x80
        size = second
        if size == 126:
            (size,) = struct.unpack(">H", self._read(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", self._read(8))
        return Frame(first & 0x0F, self._read(size))

    def is_closed(self) -> bool:
        """Whether the gateway ends the connection with nothing more."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    # --- delight-rpc --------------------------------------------------------------------------------------------------

    def ask(self, method: str, *params: Any, id_: str = "1", **more: Any) -> Any:
        """Call a method, and return its answer without protocol, version and id."""
        self.request(method, *params, id_=id_, **more)
        return self.answer(id_)

    def request(self, method: str, *params: Any, id_: str = "1", **more: Any) -> None:
        """Send a request."""
        self.send(json.dumps(request(method, *params, id_=id_, **more)))

    def answer(self, id_: str = "1") -> Any:
        """The next answer, which must be to the request ``id_``: ``{"result": …}``, ``{"error": …}`` or
        ``{"responses": …}``."""
        received = self.receive()
        assert received.opcode == TEXT
        message = json.loads(received.payload)
        assert message.pop("protocol") == "delight-rpc"
        assert message.pop("version") == "3.1"
        assert message.pop("id") == id_
        return message

    # --- bytes --------------------------------------------------------------------------------------------------------

    def _read(self, size: int) -> bytes:
        while len(self._unread) < size:
            piece = self.socket.recv(1 << 16)
            if not piece:
                raise ConnectionError("the gateway closed the connection")
            self._unread += piece
        data, self._unread = self._unread[:size], self._unread[size:]
        return data

    def _read_until(self, end: bytes) -> bytes:
        while end not in self._unread:
            piece = self.socket.recv(1 << 16)
            if not piece:
                raise ConnectionError(f"the gateway closed the connection after {self._unread!r}")
            self._unread += piece
        data, _, self._unread = self._unread.partition(end)
        return data + end

    def _read_rest(self) -> bytes:
        while piece := self.socket.recv(1 << 16):
            self._unread += piece
        return self._unread


def frame(payload: bytes | str, opcode: int = TEXT, fin: bool = True, masked: bool = True) -> bytes:
    """The bytes of a frame."""
    data = payload.encode() if isinstance(payload, str) else payload
    size = len(data)
    flag = 0x80 if masked else 0
    head = bytes([(0x80 if fin else 0) | opcode])
    if size < 126:
        head += bytes([flag | size])
    elif size < 1 << 16:
        head += bytes([flag | 126]) + struct.pack(">H", size)
    else:
        head += bytes([flag | 127]) + struct.pack(">Q", size)
    if not masked:
        return head + data
    mask = os.urandom(4)
    key = (mask * (size // 4 + 1))[:size]
    return head + mask + (int.from_bytes(data, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")


def request(method: str, *params: Any, id_: str = "1", **more: Any) -> dict[str, Any]:
    """A request of ``delight-rpc``, as the client sends it."""
    return {
        "protocol": "delight-rpc",
        "version": "3.1",
        "id": id_,
        "method": [method],
        "params": list(params),
        "expectedVersion": "^0.7.0",
        **more,
    }
