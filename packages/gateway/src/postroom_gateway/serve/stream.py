"""A connection whose bytes a dialect reads itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final, cast

from ..contract import Principal, StreamDialect, StreamHandler
from .door import Door
from .http import address_of

log = logging.getLogger(__name__)

#: A handler gets so much at once: the requests in one piece may exceed the limit of requests of a peer.
_PIECE_BYTES: Final = 8192


class StreamConnection(asyncio.Protocol):
    """One connection of a door whose dialect has a protocol of its own. The ``Peer`` of its handler. ``is_secured`` is
    as for ``HttpConnection``."""

    def __init__(self, door: Door, dialect: StreamDialect, is_secured: bool = False) -> None:
        self._door = door
        self._admitted = self._is_secured = is_secured
        self._dialect = dialect
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._handler: StreamHandler | None = None
        self._principal: Principal | None = None
        self._address = ""
        #: The requests that are being executed: whether each may wait, and when it began.
        self._tasks: dict[asyncio.Task[None], tuple[bool, float]] = {}
        self._unread = bytearray()  # what has arrived, and waits for requests to end
        self._resumes: asyncio.TimerHandle | None = None  # for a peer that asks too fast
        self._deadline_s = 0.0
        self._pending_bytes = 0  # of a request that is not complete
        self._is_reading = True
        self._is_blocked = False
        self._ends = False

    # --- Peer ---------------------------------------------------------------------------------------------------------

    @property
    def principal(self) -> Principal:
        """As ``Peer.principal``."""
        assert self._principal
        return self._principal

    @property
    def is_open(self) -> bool:
        """As ``Peer.is_open``."""
        return self._transport is not None and not self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """As ``Peer.write``."""
        if self._transport:
            self._transport.write(data)

    def start(self, work: Coroutine[Any, Any, None], is_waiting: bool = False) -> None:
        """As ``Peer.start``."""
        now_s = self._loop.time()
        task = self._loop.create_task(work)
        self._tasks[task] = is_waiting, now_s
        task.add_done_callback(self._ended)
        caller = self._address if self._door.authenticator.kind == "none" else self.principal.account
        delay_s = self._door.limits.delay_s(caller, now_s)
        if delay_s:
            if self._resumes:
                self._resumes.cancel()
            self._resumes = self._loop.call_later(delay_s, self._go_on)

    def expect(self, pending_bytes: int) -> None:
        """As ``Peer.expect``."""
        limits = self._door.limits
        if pending_bytes and not self._pending_bytes:
            self._deadline_s = self._loop.time() + limits.settings.header_seconds
        limits.buffered_bytes += pending_bytes - self._pending_bytes
        self._pending_bytes = pending_bytes
        if pending_bytes and limits.buffered_bytes > limits.settings.buffer_bytes:
            log.warning("a peer of %s is closed: too many bytes are being received from all peers", self._door.name)
            self._door.counters.refused_requests += 1
            self._unread.clear()
            self._ends = True
            self.abort()

    def close(self) -> None:
        """As ``Peer.close``."""
        if self._transport:
            self._transport.close()

    # --- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # what loops make is none by its class
        self._address = address_of(transport)
        self._principal = self._door.authenticator.of_connection(transport)
        if not self._admitted:
            self._admitted = not self._door.is_stopping and self._door.limits.admit(self._address)
        if not self._admitted or not self._principal:
            self._door.counters.refused_connections += 1
            self._transport.abort()
            return
        self._door.counters.connections += 1
        self._door.connections.add(self)
        self._handler = self._dialect.connect(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._handler = None
        if not self._admitted:
            return
        self._admitted = False
        self._door.limits.leave(self._address)
        self._door.connections.discard(self)
        self._unread.clear()
        self._door.limits.buffered_bytes -= self._pending_bytes
        self._pending_bytes = 0
        if self._resumes:
            self._resumes.cancel()
        for task in self._tasks:
            task.cancel()

    def eof_received(self) -> bool:
        """The peer sends nothing more. It gets the answers to what it has sent, unless it waits for messages: then it
        has most probably gone."""
        self._ends = True
        is_waiting = any(waits for waits, _ in self._tasks.values())
        return not self._is_secured and bool(self._tasks) and not is_waiting

    def data_received(self, data: bytes) -> None:
        if self._ends:
            return
        self._unread += data
        self._read_on()

    def _read_on(self) -> None:
        """Let the handler read what has arrived, piece by piece, as long as the peer may ask for more."""
        while self._unread and self._may_ask() and self._handler:
            piece = bytes(self._unread[:_PIECE_BYTES])
            del self._unread[:_PIECE_BYTES]
            try:
                self._handler.received(piece)
            except ValueError as error:
                log.info("a peer of %s is closed: %s", self._door.name, error)
                self._door.counters.refused_requests += 1
                self._unread.clear()
                self._ends = True
                self.close()
        if self._may_ask():
            self._resume()
        else:
            self._pause()

    def _may_ask(self) -> bool:
        has_place = len(self._tasks) < self._door.limits.settings.peer_requests
        return has_place and not self._resumes and not self._is_blocked

    def _go_on(self) -> None:
        self._resumes = None
        self._read_on()

    def pause_writing(self) -> None:
        self._is_blocked = True
        self._deadline_s = self._loop.time() + self._door.limits.settings.read_seconds
        self._pause()

    def resume_writing(self) -> None:
        self._is_blocked = False
        self._read_on()

    # --- the door -----------------------------------------------------------------------------------------------------

    def authenticate_again(self) -> None:
        """As ``Connection.authenticate_again``. Ends the connection if it is no longer of its principal."""
        if self._transport and self._door.authenticator.of_connection(self._transport) != self._principal:
            self.abort()

    def check(self, now_s: float) -> None:
        """As ``Connection.check``."""
        is_slow = self._is_blocked or (self._pending_bytes and self._is_reading)
        if is_slow and now_s >= self._deadline_s:
            self._door.counters.slow_peers += 1
            self.abort()

    def stop(self) -> None:
        """As ``Connection.stop``."""
        self._ends = True
        self._unread.clear()
        if not self._tasks:
            self.close()

    def abort(self) -> None:
        """As ``Connection.abort``."""
        if self._transport:
            self._transport.abort()

    def _ended(self, task: asyncio.Task[None]) -> None:
        _, began_s = self._tasks.pop(task)
        error = None if task.cancelled() else task.exception()
        if not task.cancelled():
            self._door.counters.count("error" if error else "ok", self._loop.time() - began_s)
        if error:
            log.error("a request through %s failed", self._door.name, exc_info=error)
            self.close()
        elif self._ends and not self._tasks and not self._unread:
            self.close()
        elif self._unread or not self._is_reading:
            self._read_on()

    def _pause(self) -> None:
        if self._is_reading and self._transport and not self._transport.is_closing():
            self._is_reading = False
            self._transport.pause_reading()

    def _resume(self) -> None:
        if not self._is_reading and self._transport and not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()
