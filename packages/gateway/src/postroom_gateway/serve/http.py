"""HTTP/1.0 and 1.1 on one connection: its requests are answered one after another, and it never waits for a peer longer
than the limits say."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

import httptools

from ..contract import DaemonUnavailable, HttpDialect, HttpResponse, Principal
from .channel import Channel
from .door import Door
from .http_reader import Incoming, RequestReader

log = logging.getLogger(__name__)

_REASONS: Final = {status.value: status.phrase.encode() for status in HTTPStatus}
#: Complete requests of a connection that may wait for their turn before nothing more is read from it.
_PIPELINED: Final = 16
#: What arrives at once may contain more; after so many the connection is closed.
_PIPELINED_MOST: Final = 256


class _Date:
    """The header ``date``, made once a second."""

    second = 0
    line = b""

    @classmethod
    def now(cls) -> bytes:
        second = int(time.time())
        if second != cls.second:
            cls.second, cls.line = second, b"date: %b\r\n" % formatdate(second, usegmt=True).encode()
        return cls.line


class HttpConnection(asyncio.Protocol):
    """One connection of a door whose dialect speaks HTTP. ``is_secured`` is as for ``Channel``, which is made unless
    there is one."""

    def __init__(
        self, door: Door, dialect: HttpDialect, is_secured: bool = False, channel: Channel | None = None
    ) -> None:
        self._door = door
        self._dialect = dialect
        self._loop = asyncio.get_running_loop()
        self._channel = channel or Channel(door, is_secured)
        #: When it has ended, the connection ends after the answers to what is complete.
        self._reader = RequestReader(self._channel, self)
        self._server = b"server: %b\r\n" % dialect.server
        self._known: tuple[bytes, Principal, object] | None = None
        # The requests that are complete; the first is being answered.
        self._queue: deque[Incoming] = deque()
        self._task: asyncio.Task[None] | None = None
        self._answering: Incoming | None = None
        #: Done when the peer reads again; None while it does.
        self._drained: asyncio.Future[None] | None = None
        self._unread_bytes = 0
        self._is_half_closed = False  # the peer sends nothing more
        self._lingers = False  # the peer may still be sending what nobody reads

    # --- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._channel.open(self, transport):
            self._channel.set_deadline(self._door.limits.settings.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._channel.lost(self)
        self._reader.end()
        for request in self._queue:
            self._reader.release(request)
        self._queue.clear()
        self._go_on()
        if self._task:
            self._task.cancel()

    def eof_received(self) -> bool:
        """The peer sends nothing more. It gets the answers to what it has sent, unless it waits for a message: then it
        has most probably gone."""
        self._reader.end()
        self._is_half_closed = True
        if self._lingers or self._channel.is_secured or (self._answering and self._answering.is_waiting):
            return False  # TLS has no half-closed connections
        return self._task is not None

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
        except httptools.HttpParserCallbackError:
            log.exception("a request through %s could not be taken", self._door.name)
            self.abort()
        if len(self._queue) >= _PIPELINED:
            self._channel.pause()

    def pause_writing(self) -> None:
        self._drained = self._loop.create_future()
        if transport := self._channel.transport:
            self._unread_bytes = transport.get_write_buffer_size()
            self._door.limits.buffered_bytes += self._unread_bytes
        self._channel.set_deadline(self._door.limits.settings.read_seconds)
        self._channel.pause()

    def resume_writing(self) -> None:
        self._go_on()
        if self._task is None:
            self._channel.set_deadline(self._door.limits.settings.idle_seconds)
            self._channel.resume()

    def _go_on(self) -> None:
        """What the peer had not read is gone from memory."""
        self._door.limits.buffered_bytes -= self._unread_bytes
        self._unread_bytes = 0
        if self._drained and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    # --- Receiver -----------------------------------------------------------------------------------------------------

    def begin(self, request: Incoming) -> None:
        """As ``Receiver.begin``."""
        if not self._authenticate(request):
            request.refusal = self._refusal(401, self._door.authenticator.demand)
        elif not self._door.limits.may_ask(self._caller(request), self._loop.time()):
            request.refusal = self._refusal(429, "too many requests per second")
        if request.version == b"1.1" and (request.header(b"expect") or b"").lower() == b"100-continue":
            if request.refusal:
                self._reader.end()
                self._answer_last(request.refusal)
            elif self._task is None and (transport := self._channel.transport):
                transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def complete(self, request: Incoming) -> None:
        """As ``Receiver.complete``."""
        if len(self._queue) >= _PIPELINED_MOST:
            self._reader.end()
        self._queue.append(request)
        if self._task is None:
            self._channel.clear_deadline()
            self._task = self._loop.create_task(self._answer_all())

    def refuse(self, status: int, text: str) -> None:
        """As ``Receiver.refuse``."""
        self._answer_last(self._refusal(status, text))

    def _answer_last(self, refusal: HttpResponse) -> None:
        """Answer what is not read to its end, and close the connection after that."""
        self._lingers = True
        request = Incoming("GET", b"/", b"", [])
        request.keeps_alive = False
        request.refusal = refusal
        self._queue.append(request)
        if self._task is None:
            self._task = self._loop.create_task(self._answer_all())

    def _refusal(self, status: int, text: str) -> HttpResponse:
        self._door.counters.refused_requests += 1
        return self._dialect.refusal(status, text)

    def _authenticate(self, request: Incoming) -> bool:
        principal = self._principal_of(request)
        if principal is None:
            return False
        request.principal = principal
        request.is_secured = self._channel.is_secured
        return True

    def _principal_of(self, request: Incoming) -> Principal | None:
        principal = self._channel.principal
        if principal is None:
            value = request.header(b"authorization") or b""
            directory = self._door.authenticator.directory
            if self._known and self._known[0] == value and self._known[2] is directory:
                return self._known[1]
            principal = self._door.authenticator.of_header(value)
            if principal:
                self._known = (value, principal, directory)
        return principal

    def _caller(self, request: Incoming) -> str:
        return self._channel.address if self._door.authenticator.kind == "none" else request.principal.account

    # --- answers ------------------------------------------------------------------------------------------------------

    async def _answer_all(self) -> None:
        """Answer the requests that are complete, in order."""
        try:
            while self._queue:
                request = self._queue.popleft()
                self._answering = request
                started_s = time.perf_counter()
                try:
                    response = request.refusal or await self._response(request)
                finally:
                    self._answering = None
                    self._reader.release(request)
                self._door.counters.count(response.status, time.perf_counter() - started_s)
                transport = self._channel.transport
                if transport is None:
                    if response.undelivered:
                        self._door.run(response.undelivered())
                    return
                transport.write(self._encoded(request, response))
                if self._drained:
                    await self._drained
        finally:
            self._task = None
        if self._reader.has_ended:
            self._close()
            return
        if not self._drained:
            limits = self._door.limits.settings
            self._channel.set_deadline(limits.header_seconds if self._reader.is_in_request else limits.idle_seconds)
            self._channel.resume()

    async def _response(self, request: Incoming) -> HttpResponse:
        try:
            return await self._dialect.respond(request)
        except DaemonUnavailable as error:
            return self._dialect.refusal(503, str(error))
        except Exception:
            log.exception("a request through %s failed: %s %r", self._door.name, request.method, request.path)
            return self._dialect.refusal(500, "the gateway failed on this request; its log says why")

    def _encoded(self, request: Incoming, response: HttpResponse) -> bytes:
        if self._door.is_stopping:
            self._reader.end()
        closes = self._reader.has_ended and not self._queue
        if request.version == b"1.1":
            connection = b"connection: close\r\n" if closes else b"connection: keep-alive\r\n"
        else:
            connection = b"" if closes else b"connection: keep-alive\r\n"
        body = response.body
        return b"HTTP/%b %d %b\r\n%b%b%bcontent-length: %d\r\n%b\r\n%b" % (
            request.version,
            response.status,
            _REASONS.get(response.status, b"Unknown"),
            connection,
            self._server,
            _Date.now(),
            len(body),
            b"".join([b"%b: %b\r\n" % header for header in response.headers]),
            body if request.method != "HEAD" else b"",
        )

    # --- Connection ---------------------------------------------------------------------------------------------------

    def authenticate_again(self) -> None:
        """As ``Connection.authenticate_again``. The requests to come are of the new principal, or refused. One that
        waits for a message and is of nobody any more ends with its connection."""
        self._channel.authenticate_again()
        request = self._answering
        if request and request.is_waiting and self._principal_of(request) != request.principal:
            self.abort()

    def check(self, now_s: float) -> None:
        """As ``Connection.check``."""
        if self._is_half_closed and self._answering and self._answering.is_waiting:
            self.abort()
        if not self._channel.is_late(now_s):
            return
        if self._drained:
            self._door.counters.slow_peers += 1
            self.abort()
        elif self._task:
            return
        elif self._reader.has_ended:
            self.abort()  # it had the time to read its last answer
        elif self._reader.is_in_request:
            self._door.counters.slow_peers += 1
            self._channel.set_deadline(self._door.limits.settings.read_seconds)
            self._reader.end()
            self.refuse(408, "the request was not complete in time")
        else:
            self._channel.close()

    def stop(self) -> None:
        """As ``Connection.stop``."""
        self._reader.end()
        if self._task is None:
            self._close()

    def abort(self) -> None:
        """As ``Connection.abort``."""
        self._channel.abort()

    def _close(self) -> None:
        self._channel.set_deadline(self._door.limits.settings.read_seconds)
        transport = self._channel.transport
        if self._lingers and transport and transport.can_write_eof():
            # With bytes unread, a close would reset the connection, and the peer might not see its answer.
            transport.write_eof()
        else:
            self._channel.close()
