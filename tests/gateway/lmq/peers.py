"""What LMQ's tests need beside a gateway: a client of MessagePack-RPC, and a configuration of the daemon."""

from __future__ import annotations

import os
from typing import Any

import msgpack

from tests.gateway.gateway import Gateway

#: LMQ has no permissions and no quotas: its clients may do everything.
CONFIG: dict[str, Any] = {
    "access": {
        "operators": ["principal anonymous:lmq-http", "principal anonymous:lmq-rpc"],
        "rules": [],
        "default": ["publish", "consume", "browse"],
    },
    "gateway": {"users": str(os.getuid())},
    "limits": {"userStoredBytes": 0},  # with a quota, each client gathers messages of its own
}


class RpcClient:
    """A client of MessagePack-RPC that is nothing but a socket. ``is_new`` chooses the specification."""

    def __init__(self, gateway: Gateway, is_new: bool = False) -> None:
        self.socket = gateway.connect("lmq-rpc")
        self._is_new = is_new
        self._unpacker = msgpack.Unpacker(raw=False, strict_map_key=False, unicode_errors="surrogateescape")
        self._number = 0

    def __enter__(self) -> RpcClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def send(self, message: Any, is_new: bool | None = None) -> None:
        """Send a message, encoded in the specification of the client or in another one."""
        self.socket.sendall(msgpack.packb(message, use_bin_type=self._is_new if is_new is None else is_new))

    def receive_bytes(self) -> bytes:
        """The bytes of the next answers; empty if the server has closed the connection."""
        return self.socket.recv(1 << 16)

    def receive(self) -> Any:
        """The next answer; None if the server has closed the connection."""
        while True:
            for answer in self._unpacker:
                return answer
            data = self.receive_bytes()
            if not data:
                return None
            self._unpacker.feed(data)

    def ask(self, method: str, *arguments: Any) -> tuple[Any, Any]:
        """Call a method. Returns error and result."""
        self._number += 1
        self.send([0, self._number, method, list(arguments)])
        kind, number, error, result = self.receive()
        assert (kind, number) == (1, self._number)
        return error, result

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method that succeeds. Returns the result."""
        error, result = self.ask(method, *arguments)
        assert error is None, error
        return result
