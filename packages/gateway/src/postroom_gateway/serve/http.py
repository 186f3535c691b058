"""HTTP/1.0 and 1.1 on one connection. ``httptools`` parses; this class answers, one request after another, and never
waits for a peer longer than the limits say."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, cast

import httptools

from ..contract import DaemonUnavailable, HttpDialect, HttpRequest, HttpResponse, Principal
from .door import Door

log = logging.getLogger(__name__)

_REASONS: Final = {status.value: status.phrase.encode() for status in HTTPStatus}
_VERSIONS: Final = (b"1.0", b"1.1")
#: Complete requests of a connection that may wait for their turn before nothing more is read from it.
_PIPELINED: Final = 16
#: What arrives at once may contain more; after so many the connection is closed.
_PIPELINED_MOST: Final = 256
#: A peer must send so many bytes of a body within the limit of time.
_PROGRESS_BYTES: Final = 64 * 1024


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


class _Incoming(HttpRequest):
    """A request, with what its answer depends on."""

    __slots__ = ("bytes", "keeps_alive", "received", "refusal", "version")

    def __init__(self, method: str, path: bytes, query: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        super().__init__(method, path, query, headers)
        self.version = b"1.1"
        self.keeps_alive = True
        self.refusal: HttpResponse | None = None
        #: Bytes of the body that have come, and those of them that are in memory.
        self.received = self.bytes = 0


class HttpConnection(asyncio.Protocol):
    """One connection of a door whose dialect speaks HTTP. ``is_secured`` says that it has TLS, and was
    counted before its handshake."""

    def __init__(self, door: Door, dialect: HttpDialect, is_secured: bool = False) -> None:
        self._door = door
        self._dialect = dialect
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._address = ""
        self._server = b"server: %b\r\n" % dialect.server
        self._admitted = self._is_secured = is_secured
        self._principal: Principal | None = None
        self._known: tuple[bytes, Principal, object] | None = None
        # The request that is being read.
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._is_in_head = True
        self._reading: _Incoming | None = None
        self._body: bytes | bytearray = b""
        self._beside_bytes = 0  # since the last of the body: sizes of chunks, trailers
        # The requests that are complete; the first is being answered.
        self._queue: deque[_Incoming] = deque()
        self._task: asyncio.Task[None] | None = None
        self._answering: _Incoming | None = None
        self._deadline_s = 0.0
        self._is_reading = True
        self._is_blocked = False  # the peer does not read
        self._drained: asyncio.Future[None] | None = None
        self._unread_bytes = 0
        self._ends = False  # after the answers to what is complete
        self._is_half_closed = False  # the peer sends nothing more
        self._lingers = False  # the peer may still be sending what nobody reads

    # --- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # what loops make is none by its class
        self._address = address_of(transport)
        if self._door.is_stopping and self._admitted:
            self._ends = True
        elif not self._admitted:
            self._admitted = not self._door.is_stopping and self._door.limits.admit(self._address)
        if not self._admitted:
            self._door.counters.refused_connections += 1
            self._transport.abort()
            return
        self._door.counters.connections += 1
        self._door.connections.add(self)
        self._principal = self._door.authenticator.of_connection(transport)
        self._set_deadline(self._door.limits.settings.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self._admitted:
            return
        self._admitted = False
        self._door.limits.leave(self._address)
        self._door.connections.discard(self)
        for request in self._queue:
            self._forget(request)
        self._queue.clear()
        if self._reading:
            self._forget(self._reading)
            self._reading = None
        self._release_unread()
        if self._task:
            self._task.cancel()

    def eof_received(self) -> bool:
        """The peer sends nothing more. It gets the answers to what it has sent, unless it waits for a message: then it
        has most probably gone."""
        self._ends = self._is_half_closed = True
        if self._lingers or self._is_secured or (self._answering and self._answering.is_waiting):
            return False  # TLS has no half-closed connections
        return self._task is not None

    def data_received(self, data: bytes) -> None:
        if self._ends:
            return
        if self._is_in_head:
            if not self._head_bytes:
                self._set_deadline(self._door.limits.settings.header_seconds)
            self._head_bytes += len(data)
        else:
            self._beside_bytes += len(data)
        try:
            while data and not self._ends:
                data = self._feed(data)
        except httptools.HttpParserCallbackError:
            log.exception("a request through %s could not be taken", self._door.name)
            self.abort()
            return
        except httptools.HttpParserError as error:
            if not self._ends:
                self._refuse_unread(400, f"this is no HTTP request: {error}")
            return
        most = self._door.limits.settings.header_bytes
        if self._is_in_head and self._head_bytes > most and not self._ends:
            self._refuse_unread(431, "the header is too large")
        elif not self._is_in_head and self._beside_bytes > most and not self._ends:
            self._refuse_unread(431, "the trailer, or what comes with a chunk of the body, is too large")
        elif len(self._queue) >= _PIPELINED:
            self._pause()

    def _feed(self, data: bytes) -> bytes:
        """Parse what has arrived; what is left of it. Raises ``HttpParserError``."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # Other protocols are not spoken here. The parser takes such a request to have no body, and its body to be
            # the next request: it is parsed again without what asks for another protocol.
            head = self._head_without_upgrade()
            self._parser = httptools.HttpRequestParser(self)
            return head + data[upgrade.args[0] :]
        return b""

    def _head_without_upgrade(self) -> bytes:
        parser = self._parser
        fields = b"".join([b"%b: %b\r\n" % field for field in self._headers if field[0] != b"upgrade"])
        version = parser.get_http_version().encode("ascii")
        return b"%b %b HTTP/%b\r\n%b\r\n" % (parser.get_method(), self._url, version, fields)

    def pause_writing(self) -> None:
        self._is_blocked = True
        self._drained = self._loop.create_future()
        if self._transport:
            self._unread_bytes = self._transport.get_write_buffer_size()
            self._door.limits.buffered_bytes += self._unread_bytes
        self._set_deadline(self._door.limits.settings.read_seconds)
        self._pause()

    def resume_writing(self) -> None:
        self._is_blocked = False
        self._release_unread()
        if self._task is None:
            self._set_deadline(self._door.limits.settings.idle_seconds)
            self._resume()

    def _release_unread(self) -> None:
        """What the peer had not read is gone from memory."""
        self._door.limits.buffered_bytes -= self._unread_bytes
        self._unread_bytes = 0
        if self._drained and not self._drained.done():
            self._drained.set_result(None)

    # --- what the parser finds ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_head:  # a trailer changes nothing about its request
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        is_tunnel = parser.get_method() == b"CONNECT"
        if self._ends or (parser.should_upgrade() and not is_tunnel):
            return
        limits = self._door.limits
        size, self._head_bytes, self._is_in_head = self._head_bytes, 0, False
        path, _, query = self._url.partition(b"?")
        if path[:1] != b"/":
            path, query = _origin_form(self._url)
        request = _Incoming(parser.get_method().decode("ascii"), path, query, self._headers)
        request.version = parser.get_http_version().encode("ascii")
        request.keeps_alive = parser.should_keep_alive() and not is_tunnel
        self._reading = request
        self._body = b""
        self._beside_bytes = 0
        self._set_deadline(limits.settings.body_seconds)
        if size > limits.settings.header_bytes and self._header_size() > limits.settings.header_bytes:
            self._refuse_unread(431, "the header is too large")
            return
        if request.version not in _VERSIONS:
            self._refuse_unread(400, "the version of HTTP must be 1.0 or 1.1")
            return
        if (request.header(b"transfer-encoding") or b"chunked").lower() != b"chunked":
            self._refuse_unread(400, "the only transfer coding is chunked")
            return
        if int(request.header(b"content-length") or 0) > limits.settings.body_bytes:
            self._refuse_unread(413, "the body is too large")
            return
        if limits.buffered_bytes > limits.settings.buffer_bytes:
            self._refuse_unread(503, "too many bytes of other requests and answers are in memory")
            return
        if not self._authenticate(request):
            request.refusal = self._refusal(401, self._door.authenticator.demand)
        elif not limits.may_ask(self._caller(request), self._loop.time()):
            request.refusal = self._refusal(429, "too many requests per second")
        if request.version == b"1.1" and (request.header(b"expect") or b"").lower() == b"100-continue":
            if request.refusal:
                self._refuse_unread(request.refusal.status, "", request.refusal)
            elif self._transport and self._task is None:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        request = self._reading
        if request is None:
            return
        limits = self._door.limits
        self._beside_bytes = 0
        received = request.received + len(data)
        if request.received // _PROGRESS_BYTES != received // _PROGRESS_BYTES:
            self._set_deadline(limits.settings.body_seconds)
        request.received = received
        if received > limits.settings.body_bytes:
            self._refuse_unread(413, "the body is too large")
        elif request.refusal is None:
            request.bytes = received
            limits.buffered_bytes += len(data)
            if limits.buffered_bytes > limits.settings.buffer_bytes:
                self._refuse_unread(503, "too many bytes of other requests and answers are in memory")
            elif not self._body:
                self._body = data
            else:  # in one piece: each of very many small chunks would take many times its size
                if type(self._body) is bytes:
                    self._body = bytearray(self._body)
                self._body += data

    def on_message_complete(self) -> None:
        request, self._reading = self._reading, None
        self._is_in_head = True
        if request is None:
            return
        request.body = bytes(self._body)  # no copy of what came at once
        self._body = b""
        if not request.keeps_alive or len(self._queue) >= _PIPELINED_MOST:
            self._ends = True
        self._queue.append(request)
        if self._task is None:
            self._deadline_s = 0.0
            self._task = self._loop.create_task(self._answer_all())

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
                    self._forget(request)
                self._door.counters.count(response.status, time.perf_counter() - started_s)
                if self._transport is None or self._transport.is_closing():
                    self._undo(response)
                    return
                self._write(request, response)
                if self._is_blocked and self._drained:
                    await self._drained
        finally:
            self._task = None
        if self._ends:
            self._close()
            return
        if not self._is_blocked:
            limits = self._door.limits.settings
            is_partial = self._reading or self._head_bytes
            self._set_deadline(limits.header_seconds if is_partial else limits.idle_seconds)
        self._resume()

    async def _response(self, request: _Incoming) -> HttpResponse:
        try:
            return await self._dialect.respond(request)
        except DaemonUnavailable as error:
            return self._dialect.refusal(503, str(error))
        except Exception:
            log.exception("a request through %s failed: %s %r", self._door.name, request.method, request.path)
            return self._dialect.refusal(500, "the gateway failed on this request; its log says why")

    def _write(self, request: _Incoming, response: HttpResponse) -> None:
        assert self._transport
        if self._door.is_stopping:
            self._ends = True
        closes = self._ends and not self._queue
        if request.version == b"1.1":
            connection = b"connection: close\r\n" if closes else b"connection: keep-alive\r\n"
        else:
            connection = b"" if closes else b"connection: keep-alive\r\n"
        body = response.body
        self._transport.write(
            b"HTTP/%b %d %b\r\n%b%b%bcontent-length: %d\r\n%b\r\n%b"
            % (
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
        )

    def _refuse_unread(self, status: int, text: str, refusal: HttpResponse | None = None) -> None:
        """Refuse a request that is not read to its end, and close the connection after that."""
        self._ends = self._lingers = True
        if self._reading:
            self._forget(self._reading)
        self._reading, self._body = None, b""
        request = _Incoming("GET", b"/", b"", [])
        request.keeps_alive = False
        request.refusal = refusal or self._refusal(status, text)
        self._queue.append(request)
        if self._task is None:
            self._task = self._loop.create_task(self._answer_all())

    def _refusal(self, status: int, text: str) -> HttpResponse:
        self._door.counters.refused_requests += 1
        return self._dialect.refusal(status, text)

    def _undo(self, response: HttpResponse) -> None:
        if response.undelivered:
            self._door.run(response.undelivered())

    # --- who asks -----------------------------------------------------------------------------------------------------

    def _authenticate(self, request: _Incoming) -> bool:
        principal = self._principal
        if principal is None:
            value = request.header(b"authorization") or b""
            directory = self._door.authenticator.directory
            if self._known and self._known[0] == value and self._known[2] is directory:
                principal = self._known[1]
            else:
                principal = self._door.authenticator.of_header(value)
                if principal:
                    self._known = (value, principal, directory)
        if principal is None:
            return False
        request.principal = principal
        return True

    def _caller(self, request: _Incoming) -> str:
        return self._address if self._door.authenticator.kind == "none" else request.principal.account

    # --- the connection -----------------------------------------------------------------------------------------------

    def authenticate_again(self) -> None:
        """As ``Connection.authenticate_again``. The requests to come are of the new principal, or refused."""
        if self._transport:
            self._principal = self._door.authenticator.of_connection(self._transport)

    def check(self, now_s: float) -> None:
        """As ``Connection.check``."""
        if self._is_half_closed and self._answering and self._answering.is_waiting:
            self.abort()
        if not self._deadline_s or now_s < self._deadline_s or not self._transport:
            return
        if self._is_blocked:
            self._door.counters.slow_peers += 1
            self._transport.abort()
        elif self._task:
            return
        elif self._ends:
            self._transport.abort()  # it had the time to read its last answer
        elif self._reading or self._head_bytes:
            self._door.counters.slow_peers += 1
            self._set_deadline(self._door.limits.settings.read_seconds)
            self._refuse_unread(408, "the request was not complete in time")
        else:
            self._transport.close()

    def stop(self) -> None:
        """As ``Connection.stop``."""
        self._ends = True
        if self._task is None:
            self._close()

    def abort(self) -> None:
        """As ``Connection.abort``."""
        if self._transport:
            self._transport.abort()

    def _close(self) -> None:
        if self._transport:
            self._set_deadline(self._door.limits.settings.read_seconds)
            if self._lingers and self._transport.can_write_eof():
                # With bytes unread, a close would reset the connection, and the peer might not see its answer.
                self._transport.write_eof()
            else:
                self._transport.close()

    def _forget(self, request: _Incoming) -> None:
        self._door.limits.buffered_bytes -= request.bytes
        request.bytes = 0

    def _header_size(self) -> int:
        return len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers)

    def _set_deadline(self, seconds: float) -> None:
        self._deadline_s = self._loop.time() + seconds

    def _pause(self) -> None:
        if self._is_reading and self._transport:
            self._is_reading = False
            self._transport.pause_reading()

    def _resume(self) -> None:
        if not self._is_reading and self._transport and not self._is_blocked and not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()


def address_of(transport: asyncio.BaseTransport) -> str:
    """The address of a peer, without the port."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) and peer else "local"


def _origin_form(url: bytes) -> tuple[bytes, bytes]:
    """Path and query of a request line in another form than usual: ``http://host/path?query``, ``*``."""
    try:
        parsed = httptools.parse_url(url)
    except httptools.HttpParserInvalidURLError:
        return url, b""
    return parsed.path or b"/", parsed.query or b""
