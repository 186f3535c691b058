"""WebSocket on a connection: the handshake, messages, pings and the close. ``websockets`` reads and writes frames; this
module decides who may connect, and what a peer may send."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

from websockets.datastructures import Headers
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from ..contract import MessageDialect, MessageHandler, Principal, Work
from .door import Door
from .origin import may_connect
from .stream import StreamConnection

log = logging.getLogger(__name__)

#: The library would log every connection.
_library_log: Final = logging.getLogger("postroom_gateway.websockets")
_library_log.setLevel(logging.WARNING)
#: A browser, whose pages cannot set header fields, shows a token as the subprotocol ``bearer.TOKEN``.
_TOKEN_PREFIX: Final = "bearer."
#: A peer from which nothing has come for so many heartbeats has gone.
_SILENT_BEATS: Final = 3
#: Longest reason of a close, in bytes (RFC 6455).
_REASON_BYTES: Final = 123
_DATA: Final = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)


class WebSocketServer:
    """A door whose peers speak WebSocket."""

    def __init__(self, door: Door, dialect: MessageDialect) -> None:
        self.door = door
        self.dialect = dialect
        self.settings = dialect.websocket

    def connect(self, connection: StreamConnection) -> WebSocketHandler:
        """A connection was made."""
        return WebSocketHandler(self, connection)


class WebSocketHandler:
    """One connection. The ``StreamHandler`` of its bytes, and the ``MessagePeer`` of a dialect's handler."""

    def __init__(self, server: WebSocketServer, connection: StreamConnection) -> None:
        self._server = server
        self._door = server.door
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._protocol = ServerProtocol(
            max_size=server.settings.message_bytes, logger=_library_log, select_subprotocol=_select_subprotocol
        )
        self._handler: MessageHandler | None = None
        self._head_bytes = 0
        #: What has come of a message in several frames, and whether it is text; None between messages.
        self._fragments: bytearray | None = None
        self._is_text = False
        self._heard_s = self._loop.time()
        self._path = ""
        #: The pings whose pongs show what the peer has read, by number, in their order.
        self._confirmations: dict[int, asyncio.Future[bool]] = {}
        self._last_ping = 0
        #: Until the handshake, the end of the peer's time for it; then the next ping.
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(
            self._door.limits.settings.header_seconds, self._end_silent
        )

    # --- MessagePeer --------------------------------------------------------------------------------------------------

    @property
    def principal(self) -> Principal:
        """As ``Caller.principal``."""
        return self._connection.principal

    @property
    def is_open(self) -> bool:
        """As ``Caller.is_open``."""
        return self._protocol.state is State.OPEN and self._connection.is_open

    def start(self, work: Work, size: int, is_waiting: bool = False) -> asyncio.Task[str]:
        """As ``Caller.start``."""
        self._connection.expect(0)  # what follows has its own time to be complete
        return self._connection.start(work, size, is_waiting)

    def begin(self, size: int, is_waiting: bool = False) -> float:
        """As ``Caller.begin``."""
        self._connection.expect(0)
        return self._connection.begin(size, is_waiting)

    def end(self, outcome: str, began_s: float, size: int, is_waiting: bool = False) -> None:
        """As ``Caller.end``."""
        self._connection.end(outcome, began_s, size, is_waiting)

    def send(self, message: bytes) -> None:
        """As ``MessagePeer.send``."""
        if self._protocol.state is State.OPEN:  # no extension is agreed to
            self._connection.write(Frame(Opcode.TEXT, message).serialize(mask=False))

    @property
    def path(self) -> str:
        """As ``MessagePeer.path``."""
        return self._path

    def send_binary(self, message: bytes) -> None:
        """As ``MessagePeer.send_binary``."""
        if self._protocol.state is State.OPEN:
            self._connection.write(Frame(Opcode.BINARY, message).serialize(mask=False))

    def confirmed(self) -> asyncio.Future[bool]:
        """As ``MessagePeer.confirmed``."""
        future: asyncio.Future[bool] = self._loop.create_future()
        if not self.is_open:
            future.set_result(False)
            return future
        self._last_ping += 1
        self._confirmations[self._last_ping] = future
        self._protocol.send_ping(b"%d" % self._last_ping)
        self._write()
        return future

    def close(self, reason: str = "") -> None:
        """As ``MessagePeer.close``."""
        if self._protocol.state is State.OPEN and reason:
            text = reason.encode()[:_REASON_BYTES].decode(errors="ignore")
            self._protocol.send_close(CloseCode.POLICY_VIOLATION, text)
            self._write()
        self._connection.close()

    # --- StreamHandler ------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """As ``StreamHandler.received``."""
        protocol = self._protocol
        if protocol.eof_sent:
            return  # the connection is being closed
        self._heard_s = self._loop.time()
        is_head = protocol.state is State.CONNECTING
        protocol.receive_data(data)
        if not is_head:
            for event in protocol.events_received():
                if isinstance(event, Frame):
                    self._take(event)
            self._go_on(len(protocol.reader.buffer) + len(self._fragments or b""))
            return
        if protocol.handshake_exc and protocol.eof_sent:
            self._connection.write(
                protocol.reject(HTTPStatus.BAD_REQUEST, "this is no WebSocket handshake").serialize()
            )
        for event in protocol.events_received():
            if isinstance(event, Request):
                self._shake_hands(event)
            elif isinstance(event, Frame):
                self._take(event)
        pending_bytes = len(protocol.reader.buffer) + len(self._fragments or b"")
        if protocol.state is State.CONNECTING and not protocol.eof_sent:
            pending_bytes = self._head_bytes = self._head_bytes + len(data)
            if pending_bytes > self._door.limits.settings.header_bytes:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the header is too large")
        self._go_on(pending_bytes)

    def _go_on(self, pending_bytes: int) -> None:
        """Everything that has arrived is read, but for ``pending_bytes`` of what is not complete."""
        is_done = self._write()
        self._connection.expect(0 if is_done else pending_bytes)
        if is_done:
            self._connection.close()

    def stopping(self) -> None:
        """As ``StreamHandler.stopping``."""
        if self._handler:
            self._handler.stopping()

    def closing(self) -> None:
        """As ``StreamHandler.closing``: a close frame, unless there was one."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close()
            self._write()

    def lost(self) -> None:
        """As ``StreamHandler.lost``."""
        if self._timer:
            self._timer.cancel()
        for future in self._confirmations.values():
            if not future.done():
                future.set_result(False)
        self._confirmations.clear()
        if self._handler:
            self._handler.lost()

    def _confirm(self, number: bytes) -> None:
        """A pong has arrived: all pings up to its own were read."""
        if not number.isdigit() or int(number) not in self._confirmations:
            return
        for one in [one for one in self._confirmations if one <= int(number)]:
            future = self._confirmations.pop(one)
            if not future.done():
                future.set_result(True)

    def _write(self) -> bool:
        """Write what the protocol has to say. Whether that was its last word."""
        pieces = self._protocol.data_to_send()
        for piece in pieces:
            if piece:
                self._connection.write(piece)
        return self._protocol.eof_sent

    # --- the handshake ------------------------------------------------------------------------------------------------

    def _shake_hands(self, request: Request) -> None:
        door, headers = self._door, request.headers
        self._path = request.path
        ticket = self._server.dialect.ticket(request.path)
        needs_token = door.authenticator.kind == "tokens"
        if not any(value.lower() == "websocket" for value in _values(headers, "Upgrade")):
            self._refuse(HTTPStatus.UPGRADE_REQUIRED, "Upgrade Required", ("Upgrade", "websocket"))
        elif not may_connect(
            _first(headers, "Origin"), _first(headers, "Host") or "", self._server.settings.origins, needs_token
        ):
            self._refuse(HTTPStatus.FORBIDDEN, "pages of this origin may not connect: add it to the option origins")
        elif ticket.refusal or not self._connection.identify(_authorization(headers), ticket.account):
            challenge = ("WWW-Authenticate", 'Bearer realm="postroom"')
            self._refuse(HTTPStatus.UNAUTHORIZED, ticket.refusal or door.authenticator.demand, challenge)
        elif door.is_stopping:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "the gateway stops")
        else:
            response = self._protocol.accept(request)
            self._protocol.send_response(response)
            if response.status_code == HTTPStatus.SWITCHING_PROTOCOLS:
                self._opened()
            else:
                door.counters.refused_requests += 1

    def _refuse(self, status: HTTPStatus, text: str, *fields: tuple[str, str]) -> None:
        self._door.counters.refused_requests += 1
        response: Response = self._protocol.reject(status, text)
        for name, value in fields:
            response.headers[name] = value
        self._protocol.send_response(response)

    def _opened(self) -> None:
        self._handler = self._server.dialect.connect(self)
        if self._timer:
            self._timer.cancel()
        if self._server.settings.heartbeat_s:
            self._timer = self._loop.call_later(self._server.settings.heartbeat_s, self._send_ping)

    # --- messages -----------------------------------------------------------------------------------------------------

    def _take(self, frame: Frame) -> None:
        """A frame has arrived."""
        if frame.opcode not in _DATA:
            if frame.opcode is Opcode.PONG and self._confirmations:
                self._confirm(bytes(frame.data))
            return
        if frame.opcode is not Opcode.CONT:
            self._is_text = frame.opcode is Opcode.TEXT
            if frame.fin:
                self._deliver(frame.data)
            else:
                self._fragments = bytearray(frame.data)
            return
        assert self._fragments is not None  # the protocol refuses a continuation of nothing
        self._fragments += frame.data  # one object: many small fragments would take many times their size
        if frame.fin:
            message, self._fragments = self._fragments, None
            self._deliver(message)

    def _deliver(self, message: bytes | bytearray | memoryview) -> None:
        if not self._handler or self._protocol.state is not State.OPEN:
            return
        if not self._is_text:
            self._handler.received_binary(bytes(message))
            return
        try:
            self._handler.received(bytes(message))
        except UnicodeDecodeError:
            self._protocol.fail(CloseCode.INVALID_DATA, "a text message must be UTF-8")

    # --- heartbeat ----------------------------------------------------------------------------------------------------

    def _send_ping(self) -> None:
        interval_s = self._server.settings.heartbeat_s
        if self._connection.is_read and self._loop.time() > self._heard_s + _SILENT_BEATS * interval_s:
            self._end_silent()
        elif self._protocol.state is State.OPEN:
            self._protocol.send_ping(b"")
            self._write()
            self._timer = self._loop.call_later(interval_s, self._send_ping)

    def _end_silent(self) -> None:
        """The peer has not said in time what it must."""
        self._door.counters.slow_peers += 1
        self._connection.abort()


def _authorization(headers: Headers) -> bytes | None:
    """What a peer proves itself with, in the form of ``Authorization``: that header, or a token among its
    subprotocols."""
    given = _first(headers, "Authorization")
    if given is None:
        tokens = [name for name in _values(headers, "Sec-WebSocket-Protocol") if name.startswith(_TOKEN_PREFIX)]
        given = f"Bearer {tokens[0].removeprefix(_TOKEN_PREFIX)}" if tokens else None
    return given.encode("latin-1", "replace") if given is not None else None


def _select_subprotocol(protocol: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """The first subprotocol that is no token: a browser refuses a connection for which none of its own is selected."""
    return next((name for name in offered if not name.startswith(_TOKEN_PREFIX)), None)


def _first(headers: Headers, name: str) -> str | None:
    """The first header field of a name."""
    found = headers.get_all(name)
    return found[0] if found else None


def _values(headers: Headers, name: str) -> list[str]:
    """The values in all header fields of a name, which are lists with commas."""
    return [value.strip() for field in headers.get_all(name) for value in field.split(",")]
