"""Accepts the connections of a door with TLS. Each counts as a connection before its handshake, not after it."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from .door import Door

log = logging.getLogger(__name__)

_ACCEPTED_AT_ONCE: Final = 64
#: Pause (s) if there are no descriptors for another connection.
_PAUSE_S: Final = 1.0


class SecureAcceptor:
    """Accepts from a listening socket, and secures each connection for a protocol that ``make`` makes, which finds it
    admitted already.

    With ``create_server(ssl=…)`` a protocol is made only after the handshake: peers that never complete one would not
    be counted.
    """

    def __init__(
        self, door: Door, listening: socket.socket, context: ssl.SSLContext, make: Callable[[], asyncio.Protocol]
    ) -> None:
        self._door = door
        self._listening = listening
        self._context = context
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._loop.add_reader(listening, self._accept)

    def use(self, context: ssl.SSLContext, is_stricter: bool) -> None:
        """Secure the connections to come with another context. If that trusts fewer clients, handshakes that have begun
        end."""
        self._context = context
        if is_stricter:
            self._end_handshakes()

    def close(self) -> None:
        """Accept nothing more, and end the handshakes."""
        self._loop.remove_reader(self._listening)
        self._listening.close()
        self._end_handshakes()

    def _end_handshakes(self) -> None:
        for task in self._handshakes:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                peer, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("door %s accepts no connection for now: %s", self._door.name, error.strerror)
                self._loop.remove_reader(self._listening)
                self._loop.call_later(_PAUSE_S, self._resume)
                return
            if self._door.is_stopping or not self._door.limits.admit(address[0]):
                self._door.counters.refused_connections += 1
                peer.close()
                continue
            peer.setblocking(False)
            task = self._loop.create_task(self._secure(peer, address[0]))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    def _resume(self) -> None:
        if self._listening.fileno() >= 0:
            self._loop.add_reader(self._listening, self._accept)

    async def _secure(self, peer: socket.socket, address: str) -> None:
        limits = self._door.limits.settings
        try:
            await self._loop.connect_accepted_socket(
                self._make,
                peer,
                ssl=self._context,
                ssl_handshake_timeout=limits.header_seconds,
                ssl_shutdown_timeout=limits.read_seconds,
            )
        except (OSError, asyncio.CancelledError):  # no TLS client, one that does not trust us, or one that is too slow
            self._door.counters.failed_handshakes += 1
            self._door.limits.leave(address)
            peer.close()
