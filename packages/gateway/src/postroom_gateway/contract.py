"""What a dialect gets and what it gives: the contract between the listeners and the translations.

A *dialect* translates another system's protocol into commands of Postroom. It has no state but that of its
connections. There are three kinds, and one may be of two:

- an ``HttpDialect`` answers one ``HttpRequest`` with one ``HttpResponse``;
- a ``MessageDialect`` reads the messages of a WebSocket connection, through a ``MessageHandler`` for each;
- a ``StreamDialect`` reads the bytes of a connection itself, through a ``StreamHandler`` that it makes for each.

All ask the daemon through ``Daemon.request``. The listener does everything else: TLS, authentication, limits, slow
peers, the graceful stop, metrics. **A request whose client has gone is cancelled**: the task that awaits
``Daemon.request`` gets ``CancelledError``, the wait at the daemon ends, and a lease that still comes is returned and
does not count as a delivery.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from postroom_common.errors import CommandError, PostroomError
from postroom_common.protocol import ErrorCode


class DaemonUnavailable(PostroomError):
    """The daemon did not answer, or does not accept the gateway; the text is a sentence for people. A request that
    changes something may have been executed."""


class CannotStart(PostroomError):
    """What a dialect does by itself cannot begin; the text names the door and says why."""


class WaitEnded(PostroomError):
    """A wait for a message has ended early, because the gateway stops. Answer as if there were no message."""


class Principal(NamedTuple):
    """Whom a request is made for: an account ``scheme:name``, such as ``token:scanner-7``."""

    account: str


class Answer(NamedTuple):
    """The daemon's answer: ``data`` as in the protocol of the lane, with ``bodyBytes`` in place of ``payload``, and the
    bodies that it describes, in that order: of each message its parts, if it has ``parts``; of a ``read`` as ``raw``
    one body with all records."""

    data: dict[str, Any]
    bodies: Sequence[bytes] = ()


class Daemon(Protocol):
    """The daemon, as dialects see it."""

    async def request(
        self,
        principal: Principal,
        command: str,
        payload: dict[str, Any],
        bodies: Sequence[bytes] = (),
        *,
        door: str,
        wait_ms: int | None = 0,
        idempotency_key: str = "",
        traceparent: str = "",
    ) -> Answer:
        """Send a command, and wait for its answer. It is executed once, even if the connection breaks meanwhile.

        ``payload`` describes ``bodies`` by ``bodyBytes``. ``wait_ms`` is how long ``consume_next`` or ``read`` waits
        for a message or a record if there is none; None: for ever. Raises ``CommandError`` if the daemon refuses the
        command, ``DaemonUnavailable``, and ``WaitEnded`` if it waits.
        """

    def ask(
        self,
        principal: Principal,
        command: str,
        payload: dict[str, Any],
        bodies: Sequence[bytes],
        then: Callable[[Answer | PostroomError], None],
        *,
        door: str,
    ) -> None:
        """Send a command that does not wait, and call ``then`` with the answer, or with what ``request`` raises,
        possibly at once. For requests of which there are many: this takes less CPU than a task that awaits."""

    def ask_waiting(
        self,
        principal: Principal,
        command: str,
        payload: dict[str, Any],
        then: Callable[[Answer | PostroomError], None],
        *,
        door: str,
    ) -> Callable[[], None]:
        """As ``ask``, for a command that waits for a message for ever. Returns what gives the wait up: ``then`` is not
        called any more, and a lease that still comes is returned."""


class Sockets(Protocol):
    """The sockets that the service manager has opened for this process."""

    #: Whether there are any: then the process opens no others.
    is_managed: bool

    def take(self, address: str, port: int, kind: int) -> socket.socket | None:
        """The socket of a kind at an address, which belongs to the caller from now on."""


@runtime_checkable
class Active(Protocol):
    """A dialect that does something by itself."""

    async def start(self, sockets: Sockets) -> None:
        """Its door is open. Raises ``CannotStart``."""

    def stop(self) -> None:
        """Its door is being closed."""


# --- HTTP -------------------------------------------------------------------------------------------------------------


class HttpRequest:
    """A complete request. ``path`` and ``query`` are the bytes of the request line, percent-encoded; ``headers`` have
    their names in lower case, in the order in which they came."""

    __slots__ = ("body", "headers", "is_secured", "is_waiting", "method", "path", "principal", "query")

    def __init__(
        self, method: str, path: bytes, query: bytes, headers: list[tuple[bytes, bytes]], body: bytes = b""
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.body = body
        self.principal = Principal("")
        #: Whether it came over TLS.
        self.is_secured = False
        #: Set by the dialect before it waits for a message. Then a client that closes its side of the connection has
        #: gone; otherwise it gets its answer before the connection is closed.
        self.is_waiting = False

    def header(self, name: bytes) -> bytes | None:
        """The first header of a name, which is given in lower case; None if there is none."""
        for known, value in self.headers:
            if known == name:
                return value
        return None


#: The status by which a refusal of the daemon is shown, where a dialect has none of its own.
_STATUSES: Final[Mapping[str, int]] = {
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.PARSE_ERROR: 400,
    ErrorCode.WRONG_KIND: 400,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.QUEUE_NOT_FOUND: 404,
    ErrorCode.MESSAGE_TOO_LARGE: 413,
    ErrorCode.VALIDATION_FAILED: 422,
    ErrorCode.QUEUE_FULL: 429,
    ErrorCode.RATE_LIMITED: 429,
    ErrorCode.QUOTA_EXCEEDED: 429,
    ErrorCode.PAUSED: 503,
    ErrorCode.DRAINING: 503,
    ErrorCode.STORAGE_FULL: 503,
    ErrorCode.STORAGE_FAILED: 503,
    ErrorCode.NOT_LEADER: 503,
    ErrorCode.TIMEOUT: 503,
}


def status_of(error: CommandError) -> int:
    """The status of a refusal of the daemon, where a dialect has none of its own."""
    return _STATUSES.get(error.code, 500)


#: Work to do if an answer did not reach its client.
Undo = Callable[[], Coroutine[Any, Any, None]]


class HttpResponse:
    """An answer. ``headers`` are written as they are, after those that every answer has (``connection``, ``server``,
    ``date``, ``content-length``). ``undelivered`` is run if the client had gone before the answer was written."""

    __slots__ = ("body", "headers", "status", "undelivered")

    def __init__(
        self,
        status: int,
        headers: Sequence[tuple[bytes, bytes]] = (),
        body: bytes = b"",
        undelivered: Undo | None = None,
    ) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.undelivered = undelivered


class HttpDialect(Protocol):
    """A protocol over HTTP."""

    #: The value of the header ``server``.
    server: bytes

    async def respond(self, request: HttpRequest) -> HttpResponse:
        """The answer to a request. ``DaemonUnavailable`` is answered with 503, another exception is logged and answered
        with 500, both through ``refusal``."""

    def refusal(self, status: int, text: str) -> HttpResponse:
        """The answer with which the listener refuses a request: 400, 401, 408, 413, 429, 431, 500, 503. ``text`` says
        why, in a sentence."""


# --- streams ----------------------------------------------------------------------------------------------------------


#: The work for one request, answer included. It returns what the metrics count: ``ok``, or the kind of the error that
#: the peer got, one of few.
Work = Coroutine[Any, Any, str]


class Caller(Protocol):
    """Whoever makes the requests of a connection."""

    @property
    def principal(self) -> Principal:
        """Whom requests of this connection are made for."""

    @property
    def is_open(self) -> bool:
        """Whether what is written may still arrive."""

    def start(self, work: Work, size: int, is_waiting: bool = False) -> asyncio.Task[str]:
        """Run the work for one request of ``size`` bytes as a task, which is cancelled when the peer has gone. While
        too many, or too many bytes, run for one peer, nothing more is read from it. ``is_waiting`` says that it may
        wait for a message; then it does not count as one of too many. An exception is logged, and closes the
        connection."""

    def begin(self, size: int, is_waiting: bool = False) -> float:
        """Count a request of ``size`` bytes that is executed without a task. ``is_waiting`` is as for ``start``.
        Returns when it began, by the loop's clock."""

    def end(self, outcome: str, began_s: float, size: int, is_waiting: bool = False) -> None:
        """A request that was begun is answered; ``outcome`` is "" if it was not, or continues as a task."""


class Peer(Caller, Protocol):
    """The other side of a connection, as a ``StreamHandler`` sees it."""

    def write(self, data: bytes) -> None:
        """Send bytes. Never blocks: while the peer does not read, nothing more is read from it, and if too much is sent
        to it, it is closed."""

    def expect(self, pending_bytes: int) -> None:
        """Say how many bytes of an incomplete request were received; 0: what was received ends with a request. A peer
        that does not complete it in time is closed, and so is one whose bytes are too many for all peers together."""

    async def confirmed(self) -> bool:
        """Wait until the peer's machine has confirmed all bytes that were written; False: the connection has ended
        before."""

    async def drain(self) -> None:
        """Wait until the peer has read so much of what was written that there is space for more."""

    def pause(self) -> None:
        """Read nothing more from the peer, which sends requests before it got the answers to others."""

    def resume(self) -> None:
        """Read on after ``pause``."""

    def close(self) -> None:
        """Close the connection, after what was written."""

    def abort(self) -> None:
        """Close the connection now, whatever the peer has not read yet."""


class StreamHandler(Protocol):
    """Reads one connection."""

    def received(self, data: bytes) -> None:
        """Bytes have arrived. A ``ValueError`` is the peer's fault, and closes the connection."""

    def stopping(self) -> None:
        """The gateway stops: nothing more is read from the peer, and its waits at the daemon end. End whatever waits
        for the peer."""

    def closing(self) -> None:
        """The connection is about to be closed: the last moment to write to the peer."""

    def lost(self) -> None:
        """The connection has ended."""


class StreamDialect(Protocol):
    """A protocol of its own over TCP."""

    def connect(self, peer: Peer) -> StreamHandler:
        """A connection was made."""


# --- WebSocket --------------------------------------------------------------------------------------------------------


class WebSocketSettings(NamedTuple):
    """How the connections of a door speak WebSocket."""

    #: Largest message, in bytes, whatever its number of fragments.
    message_bytes: int
    #: Time between two pings, in seconds; 0: none. A peer from which nothing comes for three of them is closed.
    heartbeat_s: float = 0.0
    #: Origins such as ``https://console.example`` whose pages may connect; ``*``: all. See ``serve.origin``.
    origins: tuple[str, ...] = ()


class Ticket(NamedTuple):
    """What the path of a handshake says about its peer: the account that it must be, and is on a door with tokens; or
    why it may not connect. Empty: nothing."""

    account: str = ""
    refusal: str = ""


class MessagePeer(Caller, Protocol):
    """The other side of a WebSocket connection, as a ``MessageHandler`` sees it."""

    @property
    def path(self) -> str:
        """The path of the handshake, with its query."""

    def send(self, message: bytes) -> None:
        """Send a text message, in UTF-8. Never blocks, as ``Peer.write``."""

    def send_binary(self, message: bytes) -> None:
        """Send a binary message. Never blocks."""

    def confirmed(self) -> asyncio.Future[bool]:
        """Done when the peer has read what was sent so far, which it shows by a pong; False: the connection has ended
        before."""

    def close(self, reason: str = "") -> None:
        """Close the connection, after what was sent; with a reason, as one that violates a policy."""


class MessageHandler(Protocol):
    """Reads the messages of one connection."""

    def received(self, message: bytes) -> None:
        """A text message has arrived, which may be no UTF-8. ``UnicodeDecodeError`` closes the connection."""

    def received_binary(self, message: bytes) -> None:
        """A binary message has arrived."""

    def stopping(self) -> None:
        """The gateway stops, and the connection is about to be closed."""

    def lost(self) -> None:
        """The connection has ended."""


class MessageDialect(Protocol):
    """A protocol whose messages are text messages of WebSocket."""

    websocket: WebSocketSettings

    def ticket(self, path: str) -> Ticket:
        """What the path of a handshake says, its query included."""

    def connect(self, peer: MessagePeer) -> MessageHandler:
        """A connection was made."""


class MixedDialect(HttpDialect, MessageDialect, Protocol):
    """A protocol over HTTP and WebSocket at one address."""

    #: The path of its WebSocket connections.
    websocket_path: bytes
