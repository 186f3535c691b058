"""A connection of a door that speaks HTTP and WebSocket at one address, until its first bytes say which."""

from __future__ import annotations

import asyncio

from ..contract import MixedDialect
from .channel import Channel
from .door import Door
from .http import HttpConnection
from .stream import StreamConnection
from .websocket import WebSocketServer


class MixedConnection(asyncio.Protocol):
    """A connection whose first request line is not here yet. ``is_secured`` is as for ``Channel``."""

    def __init__(self, door: Door, dialect: MixedDialect, server: WebSocketServer, is_secured: bool = False) -> None:
        self._door = door
        self._dialect = dialect
        self._server = server
        self._channel = Channel(door, is_secured)
        self._line = b"GET " + dialect.websocket_path
        self._received = b""

    # --- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._channel.open(self, transport):
            self._channel.set_deadline(self._door.limits.settings.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._channel.lost(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        line, received = self._line, self._received
        transport = self._channel.transport
        if transport is None or (len(received) <= len(line) and line.startswith(received)):
            return
        connection: HttpConnection | StreamConnection
        if received.startswith(line) and received[len(line) : len(line) + 1] in (b" ", b"?"):
            connection = StreamConnection(
                self._door, self._server.connect, self._channel.is_secured, introduces=True, channel=self._channel
            )
        else:
            connection = HttpConnection(self._door, self._dialect, self._channel.is_secured, self._channel)
        self._channel.pass_on(self)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        connection.data_received(received)

    # --- Connection ---------------------------------------------------------------------------------------------------

    def authenticate_again(self) -> None:
        """As ``Connection.authenticate_again``."""
        self._channel.authenticate_again()

    def check(self, now_s: float) -> None:
        """As ``Connection.check``."""
        if self._channel.is_late(now_s):
            self._door.counters.slow_peers += 1
            self._channel.abort()

    def stop(self) -> None:
        """As ``Connection.stop``."""
        self._channel.close()

    def abort(self) -> None:
        """As ``Connection.abort``."""
        self._channel.abort()
