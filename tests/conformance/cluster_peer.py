"""The cluster's process, made of nothing but a socket."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import orjson

from postroom_common.lane import FrameReader, encode_frame

Header = dict[str, Any]


class Peer:
    """Stands for ``postroom-cluster``: a connection to the socket in ``ipc``."""

    def __init__(self, ipc: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(ipc / "cluster.sock"))
        self._reader = FrameReader(2**24)

    def send(self, body: bytes = b"", **header: Any) -> None:
        self.socket.sendall(encode_frame(orjson.dumps(header), body))

    def read(self) -> tuple[Header, bytes]:
        """The next frame; an empty header at the end of the connection."""
        while (frame := self._reader.next()) is None:
            data = self.socket.recv(65536)
            if not data:
                return {}, b""
            self._reader.feed(data)
        return orjson.loads(frame.header), frame.body

    def wait_for(self, name: str) -> tuple[Any, bytes]:
        """What the next frame with this field has there, and its body; others are passed over."""
        while True:
            header, body = self.read()
            assert header, f"the connection has ended before {name}"
            if name in header:
                return header[name], body
