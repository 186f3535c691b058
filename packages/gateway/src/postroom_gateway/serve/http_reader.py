"""The bytes of an HTTP connection as requests: ``httptools`` parses, and this class holds each request to the limits
while it arrives."""

from __future__ import annotations

from typing import Final, Protocol

import httptools

from ..contract import HttpRequest, HttpResponse
from .channel import Channel

_VERSIONS: Final = (b"1.0", b"1.1")
#: A peer must send so many bytes of a body within the limit of time.
_PROGRESS_BYTES: Final = 64 * 1024


class Incoming(HttpRequest):
    """A request, with what its answer depends on."""

    __slots__ = ("bytes", "keeps_alive", "received", "refusal", "version")

    def __init__(self, method: str, path: bytes, query: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        super().__init__(method, path, query, headers)
        self.version = b"1.1"
        self.keeps_alive = True
        #: The answer that it gets without being executed. Its body is not stored.
        self.refusal: HttpResponse | None = None
        #: Bytes of its body that have come, and those of them that are in memory.
        self.received = self.bytes = 0


class Receiver(Protocol):
    """Who gets the requests."""

    def begin(self, request: Incoming) -> None:
        """The header of a request is complete. May give it a ``refusal``."""

    def complete(self, request: Incoming) -> None:
        """A request is complete."""

    def refuse(self, status: int, text: str) -> None:
        """What arrives cannot be accepted, and is not read to its end. The reader has ended."""


class RequestReader:
    """Reads the requests of one connection, one after another."""

    def __init__(self, channel: Channel, receiver: Receiver) -> None:
        self._channel = channel
        self._limits = channel.door.limits
        self._receiver = receiver
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._is_in_head = True
        self._request: Incoming | None = None
        self._body: bytes | bytearray = b""
        self._beside_bytes = 0  # since the last of the body: sizes of chunks, trailers
        #: Nothing more is read.
        self.has_ended = False

    @property
    def is_in_request(self) -> bool:
        """Whether a part of a request has arrived."""
        return self._request is not None or self._head_bytes > 0

    def end(self) -> None:
        """Read nothing more, and drop the request that is not complete."""
        self.has_ended = True
        if self._request:
            self.release(self._request)
        self._request, self._body = None, b""

    def release(self, request: Incoming) -> None:
        """The body of a request is no longer in memory."""
        self._limits.buffered_bytes -= request.bytes
        request.bytes = 0

    def feed(self, data: bytes) -> None:
        """Read what has arrived."""
        if self.has_ended:
            return
        if self._is_in_head:
            if not self._head_bytes:
                self._channel.set_deadline(self._limits.settings.header_seconds)
            self._head_bytes += len(data)
        else:
            self._beside_bytes += len(data)
        try:
            while data and not self.has_ended:
                data = self._parse(data)
        except httptools.HttpParserCallbackError:
            raise
        except httptools.HttpParserError as error:
            self._refuse(400, f"this is no HTTP request: {error}")
        most = self._limits.settings.header_bytes
        if self._is_in_head and self._head_bytes > most:
            self._refuse(431, "the header is too large")
        elif not self._is_in_head and self._beside_bytes > most:
            self._refuse(431, "the trailer, or what comes with a chunk of the body, is too large")

    def _parse(self, data: bytes) -> bytes:
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

    def _refuse(self, status: int, text: str) -> None:
        if not self.has_ended:
            self.end()
            self._receiver.refuse(status, text)

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
        if self.has_ended or (parser.should_upgrade() and not is_tunnel):
            return
        limits = self._limits
        size, self._head_bytes, self._is_in_head = self._head_bytes, 0, False
        path, _, query = self._url.partition(b"?")
        if path[:1] != b"/":
            path, query = _origin_form(self._url)
        request = Incoming(parser.get_method().decode("ascii"), path, query, self._headers)
        request.version = parser.get_http_version().encode("ascii")
        request.keeps_alive = parser.should_keep_alive() and not is_tunnel
        self._request, self._body, self._beside_bytes = request, b"", 0
        self._channel.set_deadline(limits.settings.body_seconds)
        if size > limits.settings.header_bytes and self._header_size() > limits.settings.header_bytes:
            self._refuse(431, "the header is too large")
        elif request.version not in _VERSIONS:
            self._refuse(400, "the version of HTTP must be 1.0 or 1.1")
        elif (request.header(b"transfer-encoding") or b"chunked").lower() != b"chunked":
            self._refuse(400, "the only transfer coding is chunked")
        elif int(request.header(b"content-length") or 0) > limits.settings.body_bytes:
            self._refuse(413, "the body is too large")
        elif limits.buffered_bytes > limits.settings.buffer_bytes:
            self._refuse(503, "too many bytes of other requests and answers are in memory")
        else:
            self._receiver.begin(request)

    def on_body(self, data: bytes) -> None:
        request = self._request
        if request is None:
            return
        limits = self._limits
        self._beside_bytes = 0
        received = request.received + len(data)
        if request.received // _PROGRESS_BYTES != received // _PROGRESS_BYTES:
            self._channel.set_deadline(limits.settings.body_seconds)
        request.received = received
        if received > limits.settings.body_bytes:
            self._refuse(413, "the body is too large")
        elif request.refusal is None:
            request.bytes = received
            limits.buffered_bytes += len(data)
            if limits.buffered_bytes > limits.settings.buffer_bytes:
                self._refuse(503, "too many bytes of other requests and answers are in memory")
            elif not self._body:
                self._body = data
            else:  # in one piece: each of very many small chunks would take many times its size
                if type(self._body) is bytes:
                    self._body = bytearray(self._body)
                self._body += data

    def on_message_complete(self) -> None:
        request, self._request = self._request, None
        self._is_in_head = True
        if request is None:
            return
        request.body = bytes(self._body)  # no copy of what came at once
        self._body = b""
        self.has_ended = not request.keeps_alive
        self._receiver.complete(request)

    def _header_size(self) -> int:
        return len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers)


def _origin_form(url: bytes) -> tuple[bytes, bytes]:
    """Path and query of a request line in another form than usual: ``http://host/path?query``, ``*``."""
    try:
        parsed = httptools.parse_url(url)
    except httptools.HttpParserInvalidURLError:
        return url, b""
    return parsed.path or b"/", parsed.query or b""
