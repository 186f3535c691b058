"""Opens the socket of a door, with TLS if it has a certificate."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, Protocol, cast

from postroom_common.errors import PostroomError

from ..contract import HttpDialect, MessageDialect, MixedDialect, StreamDialect
from .accepting import SecureAcceptor
from .authentication import Directory
from .door import Door
from .http import HttpConnection
from .mixed import MixedConnection
from .passed import PassedSockets
from .stream import StreamConnection
from .tls import InvalidTls, Tls, TlsSettings, read_tls
from .websocket import WebSocketServer

_BACKLOG: Final = 1024
#: A peer that says nothing for 60 s is asked by the kernel whether it is there, five times in 50 s. Otherwise one that
#: vanished without a word, such as by a power cut, would keep its connection, and its pull would wait. The same holds
#: for one to which something was sent that it does not confirm for so long (ms).
_KEEPALIVE: Final = (
    (socket.TCP_KEEPIDLE, 60),
    (socket.TCP_KEEPINTVL, 10),
    (socket.TCP_KEEPCNT, 5),
    (socket.TCP_USER_TIMEOUT, 110_000),
)
_SOCKET_UNIT: Final = "systemctl cat postroom-gateway.socket"


class CannotListen(PostroomError):
    """A door cannot be opened; the text names it and says why."""


class DoorSettings(TlsSettings, Protocol):
    """The settings of one door."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def port(self) -> int: ...


class Listener:
    """The listening socket of a door."""

    def __init__(self, door: Door, settings: DoorSettings) -> None:
        self.door = door
        self._settings = settings
        self._tls: Tls | None = None
        self._server: asyncio.Server | SecureAcceptor | None = None
        #: The port that it listens on, once it is open.
        self.port = settings.port

    async def open(
        self, dialect: HttpDialect | MessageDialect | StreamDialect, transport: str, passed: PassedSockets
    ) -> None:
        """Listen, on a passed socket if there are any; ``transport`` is that of the dialect. Raises
        ``CannotListen``."""
        try:
            self._tls = read_tls(self._settings)
        except InvalidTls as error:
            raise CannotListen(f"door {self.door.name}: {error}") from None
        make = self._maker(dialect, transport, is_secured=self._tls is not None)
        listening = self._socket(passed)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # its connections have what it has
        for option, value in _KEEPALIVE:
            listening.setsockopt(socket.IPPROTO_TCP, option, value)
        self.port = int(listening.getsockname()[1])
        if self._tls:
            self._server = SecureAcceptor(self.door, listening, self._tls.context, make)
        else:
            self._server = await asyncio.get_running_loop().create_server(make, sock=listening, backlog=_BACKLOG)

    def _maker(
        self, dialect: HttpDialect | MessageDialect | StreamDialect, transport: str, is_secured: bool
    ) -> Callable[[], asyncio.Protocol]:
        """What makes the connections of the door."""
        door = self.door
        if transport == "http":
            return lambda: HttpConnection(door, cast(HttpDialect, dialect), is_secured)
        if transport == "websocket":
            connect = WebSocketServer(door, cast(MessageDialect, dialect)).connect
            return lambda: StreamConnection(door, connect, is_secured, introduces=True)
        if transport == "mixed":
            mixed = cast(MixedDialect, dialect)
            server = WebSocketServer(door, mixed)
            return lambda: MixedConnection(door, mixed, server, is_secured)
        return lambda: StreamConnection(door, cast(StreamDialect, dialect).connect, is_secured)

    def _socket(self, passed: PassedSockets) -> socket.socket:
        settings = self._settings
        where = f"{settings.address} port {settings.port}"
        if passed.is_managed:
            one = passed.take(settings.address, settings.port)
            if one is None:
                raise CannotListen(f"door {self.door.name}: systemd does not listen on {where}: see {_SOCKET_UNIT}")
            return one
        family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
        try:
            one = socket.create_server((settings.address, settings.port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise CannotListen(f"door {self.door.name}: cannot listen on {where}: {_reason(error)}") from None
        one.setblocking(False)
        return one

    def reload(self, directory: Directory, tls: Tls | None) -> None:
        """Replace the principals, also for connections that are open; and TLS, if the door has it and ``tls`` is given.

        If an authority is no longer trusted, the open connections end: nobody knows for which of them it vouched.
        """
        if tls and self._tls and isinstance(self._server, SecureAcceptor):
            is_stricter = not tls.trusts_all_of(self._tls)
            self._tls = tls
            self._server.use(tls.context, is_stricter)
            if is_stricter:
                self.door.abort()
        self.door.reload(directory)

    def close(self) -> None:
        """Accept nothing more."""
        if self._server:
            self._server.close()


def _reason(error: OSError) -> str:
    """Why a socket cannot be opened, without the address, which Python appends."""
    return (error.strerror or str(error)).partition(" (while ")[0]
