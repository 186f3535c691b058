"""A connection whose bytes a dialect reads itself."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import socket
import struct
import termios
from collections.abc import Callable
from typing import Final

from ..contract import Principal, StreamHandler, Work
from ..writing import JoinedWriter
from .channel import Channel
from .door import Door

log = logging.getLogger(__name__)

#: Time (s) after which the kernel is asked again whether everything was confirmed: the first, and the longest.
_ASK_AGAIN_S: Final = 0.0005
_ASK_AGAIN_LIMIT_S: Final = 0.05
#: A handler gets so much at once: the requests in one piece may exceed the limit of requests of a peer.
_PIECE_BYTES: Final = 8192
#: Bytes of requests of a peer that are being executed, after which nothing more is read from it.
_EXECUTED_BYTES: Final = 1 << 20
#: A peer must send so many bytes of a request within the limit of time.
_PROGRESS_BYTES: Final = 64 * 1024


class StreamConnection(asyncio.Protocol):
    """One connection of a door that is not HTTP. The ``Peer`` of its handler, which ``connect`` makes. ``is_secured``
    is as for ``Channel``, which is made unless there is one. With ``introduces``, the handler calls ``identify`` before
    it starts anything."""

    def __init__(
        self,
        door: Door,
        connect: Callable[[StreamConnection], StreamHandler],
        is_secured: bool = False,
        introduces: bool = False,
        channel: Channel | None = None,
    ) -> None:
        self._door = door
        self._connect = connect
        self._introduces = introduces
        self._loop = asyncio.get_running_loop()
        self._channel = channel or Channel(door, is_secured)
        self._writer: JoinedWriter | None = None
        self._handler: StreamHandler | None = None
        self._principal: Principal | None = None
        self._authorization: bytes | None = None
        self._vouched = ""
        #: The requests that are being executed: whether each may wait, when it began, and its size.
        self._tasks: dict[asyncio.Task[str], tuple[bool, float, int]] = {}
        self._executed = 0  # the number of requests, those without a task included
        self._waiting = 0  # of these, those that may wait
        self._executed_bytes = 0  # of those that do not wait
        self._unread = bytearray()  # what has arrived, and waits for requests to end
        self._resumes: asyncio.TimerHandle | None = None  # for a peer that asks too fast
        self._pending_bytes = 0  # of a request that is not complete
        self._unsent_bytes = 0  # of answers
        self._is_blocked = False
        self._is_paused = False  # by the handler
        self._drained: asyncio.Future[None] | None = None  # set once the peer has read
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
        return self._channel.transport is not None

    def write(self, data: bytes) -> None:
        """As ``Peer.write``."""
        transport = self._channel.transport
        if not self._writer or not transport:
            return
        self._writer.write(data)
        if self._is_blocked:
            self._writer.flush()
            limits = self._door.limits
            self._count_unsent(transport.get_write_buffer_size())
            settings = limits.settings
            if self._unsent_bytes > settings.body_bytes and limits.buffered_bytes > settings.buffer_bytes:
                log.warning("a peer of %s is closed: it has not read %d bytes", self._door.name, self._unsent_bytes)
                self._door.counters.slow_peers += 1
                self.abort()

    def start(self, work: Work, size: int, is_waiting: bool = False) -> asyncio.Task[str]:
        """As ``Peer.start``."""
        task = self._loop.create_task(work)
        self._tasks[task] = is_waiting, self.begin(size, is_waiting), size
        task.add_done_callback(self._task_ended)
        return task

    def begin(self, size: int, is_waiting: bool = False) -> float:
        """As ``Caller.begin``."""
        now_s = self._loop.time()
        limits = self._door.limits
        self._executed += 1
        limits.buffered_bytes += size
        if is_waiting:
            self._waiting += 1
        else:
            self._executed_bytes += size
            limits.executed_bytes += size
        if limits.settings.requests_per_second:
            caller = self._channel.address if self._door.authenticator.kind == "none" else self.principal.account
            delay_s = limits.delay_s(caller, now_s)
            if delay_s:
                if self._resumes:
                    self._resumes.cancel()
                self._resumes = self._loop.call_later(delay_s, self._go_on)
        return now_s

    def end(self, outcome: str, began_s: float, size: int, is_waiting: bool = False) -> None:
        """As ``Caller.end``."""
        limits = self._door.limits
        self._executed -= 1
        limits.buffered_bytes -= size
        if is_waiting:
            self._waiting -= 1
        else:
            self._executed_bytes -= size
            limits.executed_bytes -= size
        if outcome:
            self._door.counters.count(outcome, self._loop.time() - began_s)
        if self._ends and not self._executed and not self._unread:
            self.close()
        elif self._unread or not self._channel.is_reading:
            self._read_on()

    def expect(self, pending_bytes: int) -> None:
        """As ``Peer.expect``."""
        if pending_bytes == self._pending_bytes == 0:
            return
        limits = self._door.limits
        if pending_bytes and not self._pending_bytes:
            self._channel.set_deadline(limits.settings.header_seconds)
        elif pending_bytes // _PROGRESS_BYTES > self._pending_bytes // _PROGRESS_BYTES:
            self._channel.set_deadline(limits.settings.body_seconds)
        limits.buffered_bytes += pending_bytes - self._pending_bytes
        self._pending_bytes = pending_bytes
        if pending_bytes and self._is_memory_full() and not limits.executed_bytes:
            log.warning("a peer of %s is closed: too many bytes are being received from all peers", self._door.name)
            self._door.counters.refused_requests += 1
            self._unread.clear()
            self._ends = True
            self.abort()

    async def confirmed(self) -> bool:
        """As ``Peer.confirmed``. The kernel tells nobody about it: it is asked again and again."""
        if self._writer:
            self._writer.flush()
        pause_s = _ASK_AGAIN_S
        while transport := self._channel.transport:
            own: socket.socket = transport.get_extra_info("socket")
            unconfirmed = struct.unpack("i", fcntl.ioctl(own.fileno(), termios.TIOCOUTQ, bytes(4)))[0]
            if not transport.get_write_buffer_size() and not unconfirmed:
                return True
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _ASK_AGAIN_LIMIT_S)
        return False

    async def drain(self) -> None:
        """As ``Peer.drain``."""
        while self._is_blocked:
            self._drained = self._loop.create_future()
            await self._drained

    def pause(self) -> None:
        """As ``Peer.pause``."""
        self._is_paused = True

    def resume(self) -> None:
        """As ``Peer.resume``."""
        if self._is_paused:
            self._is_paused = False
            self._read_on()

    def close(self) -> None:
        """As ``Peer.close``."""
        if self._handler and self._channel.transport:
            self._handler.closing()
        if self._writer:
            self._writer.flush()
        self._channel.close()

    # --- what a handler that introduces its peer uses -----------------------------------------------------------------

    @property
    def is_read(self) -> bool:
        """Whether the peer is being read."""
        return self._channel.is_reading

    def identify(self, authorization: bytes | None, vouched: str = "") -> bool:
        """Find out who the peer is, from what it says as HTTP's header ``Authorization``; whether it is known. If the
        dialect vouches for an account, it must be that, and on a door with tokens need show no other."""
        self._authorization, self._vouched = authorization, vouched
        self._principal = self._who()
        return self._principal is not None

    def _who(self) -> Principal | None:
        authenticator = self._door.authenticator
        known = self._channel.principal or authenticator.of_header(self._authorization)
        if not self._vouched:
            return known
        known = known or authenticator.of_account(self._vouched)
        return known if known and known.account == self._vouched else None

    # --- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._channel.open(self, transport, needs_principal=not self._introduces) and self._channel.transport:
            self._principal = None if self._introduces else self._channel.principal
            self._writer = JoinedWriter(self._channel.transport)
            self._handler = self._connect(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._channel.lost(self)
        if self._handler:
            self._handler.lost()
        self._handler = self._writer = None
        self._unread.clear()
        self._door.limits.buffered_bytes -= self._pending_bytes
        self._pending_bytes = 0
        self._count_unsent(0)
        if self._resumes:
            self._resumes.cancel()
        for task in self._tasks:
            task.cancel()

    def eof_received(self) -> bool:
        """The peer sends nothing more. It gets the answers to what it has sent, unless it waits for messages: then it
        has most probably gone."""
        self._ends = True
        if self._writer:
            self._writer.flush()
        return not self._channel.is_secured and self._executed > 0 and not self._waiting

    def data_received(self, data: bytes) -> None:
        if self._ends:
            return
        if self._unread or len(data) > _PIECE_BYTES or not self._handler or not self._may_ask():
            self._unread += data
            self._read_on()
            return
        self._let_read(data)
        if not self._may_ask():
            self._channel.pause()

    def _read_on(self) -> None:
        """Let the handler read what has arrived, piece by piece, as long as the peer may ask for more."""
        while self._unread and self._may_ask() and self._handler:
            piece = bytes(self._unread[:_PIECE_BYTES])
            del self._unread[:_PIECE_BYTES]
            self._let_read(piece)
        if not self._may_ask():
            self._channel.pause()
        elif not self._channel.is_reading:
            self._channel.set_deadline(self._door.limits.settings.header_seconds)
            self._channel.resume()

    def _let_read(self, data: bytes) -> None:
        assert self._handler
        try:
            self._handler.received(data)
        except ValueError as error:
            log.info("a peer of %s is closed: %s", self._door.name, error)
            self._door.counters.refused_requests += 1
            self._unread.clear()
            self._ends = True
            self.close()

    def _may_ask(self) -> bool:
        limits = self._door.limits
        working, settings = self._executed - self._waiting, limits.settings
        has_place = working < settings.peer_requests and self._executed_bytes < _EXECUTED_BYTES
        if not has_place or self._resumes or self._is_blocked or self._is_paused:
            return False
        return not limits.executed_bytes or limits.buffered_bytes <= settings.buffer_bytes

    def _is_memory_full(self) -> bool:
        return self._door.limits.buffered_bytes > self._door.limits.settings.buffer_bytes

    def _go_on(self) -> None:
        self._resumes = None
        self._read_on()

    def pause_writing(self) -> None:
        self._is_blocked = True
        if transport := self._channel.transport:
            self._count_unsent(transport.get_write_buffer_size())
        self._channel.set_deadline(self._door.limits.settings.read_seconds)
        self._channel.pause()

    def resume_writing(self) -> None:
        self._is_blocked = False
        if self._drained and not self._drained.done():
            self._drained.set_result(None)
        self._count_unsent(0)
        self._read_on()

    def _count_unsent(self, size: int) -> None:
        self._door.limits.buffered_bytes += size - self._unsent_bytes
        self._unsent_bytes = size

    # --- Connection ---------------------------------------------------------------------------------------------------

    def authenticate_again(self) -> None:
        """As ``Connection.authenticate_again``. Ends the connection if it is no longer of its principal."""
        self._channel.authenticate_again()
        if self._principal and self._who() != self._principal:
            self.abort()

    def check(self, now_s: float) -> None:
        """As ``Connection.check``."""
        is_slow = self._is_blocked or (self._pending_bytes and self._channel.is_reading)
        if is_slow and self._channel.is_late(now_s):
            self._door.counters.slow_peers += 1
            self.abort()
        elif not self._channel.is_reading:
            self._read_on()  # there may be memory again

    def stop(self) -> None:
        """As ``Connection.stop``."""
        self._ends = True
        self._unread.clear()
        if self._handler:
            self._handler.stopping()
        if not self._executed:
            self.close()

    def abort(self) -> None:
        """As ``Connection.abort`` and ``Peer.abort``."""
        self._channel.abort()

    def _task_ended(self, task: asyncio.Task[str]) -> None:
        is_waiting, began_s, size = self._tasks.pop(task)
        outcome = ""
        if not task.cancelled():
            error = task.exception()
            outcome = "error" if error else task.result()
            if error:
                log.error("a request through %s failed", self._door.name, exc_info=error)
                self._unread.clear()
                self._ends = True
                self.close()
        self.end(outcome, began_s, size, is_waiting)
