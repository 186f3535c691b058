"""The door for SimpleMQ over HTTP and WebSocket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import orjson

from postroom_common.errors import CommandError
from postroom_common.trace import TRACEPARENT_LIMIT

from ...contract import (
    Daemon,
    DaemonUnavailable,
    HttpRequest,
    HttpResponse,
    MessageHandler,
    MessagePeer,
    Sockets,
    Ticket,
    status_of,
)
from .dispatch import Dispatchers
from .messages import InvalidMessage, read_json, read_raw
from .node import Node
from .options import read_options
from .sessions import ConsumerSession, ProducerSession
from .strategies import priority_of
from .tokens import InvalidToken, Session, Tokens
from .topics import Refused, Topics, leader_of, text_of

_API: Final = "/api/message/"
_METRICS: Final = "/api/metrics/"
_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
_JSON: Final = (b"content-type", b"application/json")
_CHALLENGE: Final = (b"www-authenticate", b'Bearer realm="postroom"')
_JSON_TYPE: Final = b"application/json"
_RAW_TYPE: Final = b"application/octet-stream"
_ACK_MODES: Final = ("AUTO", "CLIENT")
_ID_LIMIT: Final = 256
_PRIORITY_LIMIT: Final = 2**31

Handler = Callable[[HttpRequest, str], Awaitable[HttpResponse]]


class SimpleMq:
    """SimpleMQ. Raises ``ConfigurationError`` for wrong options."""

    server = b"SimpleMQ"
    websocket_path = b"/ws/message"

    def __init__(self, daemon: Daemon, door: str, options: Mapping[str, Any]) -> None:
        self._options = read_options(options)
        self.websocket = self._options.websocket
        self._tokens = Tokens(self._options.key, self._options.token_hours)
        self._topics = Topics(daemon, door, self._options)
        self._dispatchers = Dispatchers(self._topics)
        self._node = Node(daemon, door, self._options.heartbeat, self._options.key)
        #: By path, or its beginning if that ends with a slash: method, handler, and what a refusal begins with.
        self._routes: dict[str, tuple[str, Handler, str]] = {
            f"{_API}publish": ("POST", self._publish, "Failed to publish message: "),
            f"{_API}subscribe/": ("POST", self._subscribe, "Failed to subscribe: "),
            f"{_API}register/producer": ("POST", self._register, "Failed to register producer: "),
            f"{_METRICS}node/status": ("GET", self._get_status, ""),
            f"{_METRICS}heartbeat/stats": ("GET", self._get_heartbeats, ""),
            f"{_METRICS}switch/history": ("GET", self._get_switches, ""),
        }

    # --- HttpDialect --------------------------------------------------------------------------------------------------

    async def respond(self, request: HttpRequest) -> HttpResponse:
        """As ``HttpDialect.respond``."""
        path = request.path.decode("latin-1")
        head, slash, rest = path.rpartition("/")
        method, handler, failed = self._routes.get(path) or self._routes.get(head + slash) or ("", None, "")
        if handler is None:
            return self.refusal(404, f"there is no {unquote(path)}")
        if request.method != method:
            return HttpResponse(405, [(b"allow", method.encode())])
        try:
            return await handler(request, unquote(rest))
        except (_UnsupportedType, InvalidMessage, Refused) as error:
            return self.refusal(_STATUSES[type(error)], failed + str(error))
        except CommandError as error:
            refusal = self.refusal(status_of(error), f"{failed}{error.code}: {text_of(error)}")
            if leader := leader_of(error):
                refusal.headers = (*refusal.headers, (b"x-leader", _field(leader)))
            return refusal
        except DaemonUnavailable as error:
            return self.refusal(503, failed + str(error))

    def refusal(self, status: int, text: str) -> HttpResponse:
        """As ``HttpDialect.refusal``."""
        return HttpResponse(status, (_CHALLENGE, _TEXT) if status == 401 else (_TEXT,), text.encode() + b"\n")

    async def _publish(self, request: HttpRequest, _: str) -> HttpResponse:
        kind = _type_of(request)
        topic = _latin(request.header(b"x-topic"))
        if kind == _RAW_TYPE:
            if not topic:
                raise InvalidMessage("the header X-Topic is missing")
            message = read_raw(topic, request.body)
        elif kind == _JSON_TYPE:
            message = read_json(request.body, topic)
        else:
            raise _UnsupportedType("Content-Type must be application/octet-stream or application/json")
        key = _latin(request.header(b"idempotency-key"))
        trace = _latin(request.header(b"traceparent"))
        if len(trace) > TRACEPARENT_LIMIT:
            trace = ""
        message_id = await self._topics.publish(request.principal, message, key, trace)
        return HttpResponse(200, [(b"x-message-id", _field(message_id))])

    async def _subscribe(self, request: HttpRequest, topic: str) -> HttpResponse:
        given = _object_of(request)
        if not topic:
            raise InvalidMessage("the topic is missing in the path")
        if given.get("topic") not in (None, "", topic):
            raise InvalidMessage("topic is not that of the path")
        mode = given.get("ackMode") or "AUTO"
        if mode not in _ACK_MODES:
            raise InvalidMessage(f"ackMode must be one of {', '.join(_ACK_MODES)}")
        most = self._options.capacity
        session = Session(
            request.principal.account,
            _id(given, "consumerId"),
            topic,
            mode == "CLIENT",
            _integer(given, "capacity", most, 1, most),
            _integer(given, "priority", 0, -_PRIORITY_LIMIT, _PRIORITY_LIMIT - 1),
        )
        return self._answer(request, session, topic=topic)

    async def _register(self, request: HttpRequest, _: str) -> HttpResponse:
        session = Session(request.principal.account, _id(_object_of(request), "producerId"), "")
        return self._answer(request, session, role="producer")

    def _answer(self, request: HttpRequest, session: Session, **third: str) -> HttpResponse:
        host = _latin(request.header(b"host")) or "localhost"
        scheme = "wss" if request.is_secured else "ws"
        url = self._options.websocket_url or f"{scheme}://{host}{self.websocket_path.decode()}"
        body = {"websocketUrl": url, "token": self._tokens.make(session), **third}
        return HttpResponse(200, [_JSON], orjson.dumps(body))

    async def _get_status(self, request: HttpRequest, _: str) -> HttpResponse:
        return HttpResponse(200, [_JSON], orjson.dumps(await self._node.status()))

    async def _get_heartbeats(self, request: HttpRequest, _: str) -> HttpResponse:
        return HttpResponse(200, [_JSON], orjson.dumps(self._node.heartbeats()))

    async def _get_switches(self, request: HttpRequest, _: str) -> HttpResponse:
        return HttpResponse(200, [_JSON], orjson.dumps(await self._node.switches()))

    # --- Active -------------------------------------------------------------------------------------------------------

    async def start(self, sockets: Sockets) -> None:
        """As ``Active.start``."""
        await self._node.start(sockets)

    def stop(self) -> None:
        """As ``Active.stop``."""
        self._node.stop()

    # --- MessageDialect -----------------------------------------------------------------------------------------------

    def ticket(self, path: str) -> Ticket:
        """As ``MessageDialect.ticket``."""
        try:
            return Ticket(self._session(path).account)
        except InvalidToken as error:
            return Ticket(refusal=str(error))

    def connect(self, peer: MessagePeer) -> MessageHandler:
        """A connection was made."""
        session = self._session(peer.path)
        if session.is_producer:
            return ProducerSession(peer, self._topics)
        dispatcher = self._dispatchers.of(session.topic, self._options.strategy_of(session.topic))
        priority = priority_of(session.client_id, session.priority, self._options.priority_hosts)
        return ConsumerSession(peer, session, dispatcher, priority)

    def _session(self, path: str) -> Session:
        """What the token in a path says. Raises ``InvalidToken``."""
        return self._tokens.read(dict(parse_qsl(path.partition("?")[2])).get("token", ""))


class _UnsupportedType(Exception):
    """The content type of a request is none of those that it may have."""


_STATUSES: Final[Mapping[type[Exception], int]] = {_UnsupportedType: 415, InvalidMessage: 400, Refused: 422}


def _type_of(request: HttpRequest) -> bytes:
    return (request.header(b"content-type") or b"").partition(b";")[0].strip().lower()


def _object_of(request: HttpRequest) -> dict[str, Any]:
    """The object in the body of a request. Raises ``InvalidMessage``."""
    if _type_of(request) != _JSON_TYPE:
        raise _UnsupportedType("Content-Type must be application/json")
    try:
        tree = orjson.loads(request.body)
    except ValueError:
        tree = None
    if type(tree) is not dict:
        raise InvalidMessage("the body must be an object in JSON")
    return tree


def _id(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    if type(value) is not str or not value.isprintable() or not 1 <= len(value.encode()) <= _ID_LIMIT:
        raise InvalidMessage(f"{name} must be a text of 1 to {_ID_LIMIT} bytes without control characters")
    return value


def _integer(given: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = given.get(name, default)
    if type(value) is not int or not low <= value <= high:
        raise InvalidMessage(f"{name} must be an integer from {low} to {high}")
    return value


def _latin(value: bytes | None) -> str:
    """The text of a header field: UTF-8, or else one byte a character."""
    if value is None:
        return ""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _field(text: str) -> bytes:
    """A text as a header field, which must not end it."""
    return "".join(char if char.isprintable() else "?" for char in text).encode()
