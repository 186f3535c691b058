"""The socket of one connection, as its door has it: what HTTP and protocols of their own have in common."""

from __future__ import annotations

import asyncio
from typing import cast

from ..contract import Principal
from .door import Connection, Door


class Channel:
    """One socket: admitted or refused by its door, with an address, the principal of its peer, reading that can be
    paused, and a time by which the peer must have done something.

    ``is_secured`` says that it has TLS, and was counted before its handshake.
    """

    def __init__(self, door: Door, is_secured: bool) -> None:
        self.door = door
        self.is_secured = is_secured
        #: The address of the peer, without the port.
        self.address = ""
        #: Whom all requests of the connection are made for; None if each request says it.
        self.principal: Principal | None = None
        #: Whether the peer is read.
        self.is_reading = True
        self._is_counted = is_secured
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._deadline_s = 0.0

    def open(self, connection: Connection, transport: asyncio.BaseTransport, needs_principal: bool = False) -> bool:
        """A connection was made: whether its door admits it. One that is refused is closed."""
        if self._transport:  # it was open before it was known what is spoken
            self.door.connections.add(connection)
            return True
        self._transport = cast(asyncio.Transport, transport)  # what loops make is none by its class
        self.address = _address_of(transport)
        door = self.door
        self.principal = door.authenticator.of_connection(transport)
        if not self._is_counted:
            self._is_counted = door.limits.admit(self.address)
        if not self._is_counted or door.is_stopping or (needs_principal and not self.principal):
            door.counters.refused_connections += 1
            self._transport.abort()
            return False
        door.counters.connections += 1
        door.connections.add(connection)
        return True

    def pass_on(self, connection: Connection) -> None:
        """The connection goes on as another one, which opens the same channel."""
        self.door.connections.discard(connection)
        self.clear_deadline()

    def lost(self, connection: Connection) -> None:
        """The connection has ended."""
        self._transport = None
        if self._is_counted:
            self._is_counted = False
            self.door.limits.leave(self.address)
            self.door.connections.discard(connection)

    @property
    def transport(self) -> asyncio.Transport | None:
        """What to write to, unless the connection has ended or is being closed."""
        return self._transport if self._transport and not self._transport.is_closing() else None

    def authenticate_again(self) -> None:
        """Ask the authenticator again who the peer is."""
        if self._transport:
            self.principal = self.door.authenticator.of_connection(self._transport)

    def pause(self) -> None:
        """Read nothing more."""
        if self.is_reading and self.transport:
            self.is_reading = False
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if not self.is_reading and self.transport:
            self.is_reading = True
            self.transport.resume_reading()

    def close(self) -> None:
        """Close the connection, after what was written; a peer that does not read that has the time of ``limits``."""
        if self._transport:
            self._transport.close()
            if self._transport.get_write_buffer_size():
                self._loop.call_later(self.door.limits.settings.read_seconds, self.abort)

    def abort(self) -> None:
        """Close the connection now."""
        if self._transport:
            self._transport.abort()

    # --- time ---------------------------------------------------------------------------------------------------------

    def set_deadline(self, seconds: float) -> None:
        """The peer must have done by then what it is waited for."""
        self._deadline_s = self._loop.time() + seconds

    def clear_deadline(self) -> None:
        """The peer is not waited for."""
        self._deadline_s = 0.0

    def is_late(self, now_s: float) -> bool:
        """Whether the deadline has passed."""
        return 0 < self._deadline_s <= now_s


def _address_of(transport: asyncio.BaseTransport) -> str:
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) and peer else "local"
