"""The door for LMQ over HTTP, with its statuses and headers: both generations of paths, ``/messages`` and ``/msgs``."""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from postroom_common.errors import CommandError
from postroom_common.trace import TRACEPARENT_LIMIT

from ...contract import Daemon, HttpRequest, HttpResponse, WaitEnded, status_of
from . import properties
from .answers import Part, encode_pulled, encode_push, encode_push_all
from .options import Options, read_options
from .parameters import (
    InvalidParameter,
    decode_name,
    parse_compound_format,
    parse_message_id,
    parse_reply,
    parse_wait_ms,
)
from .properties import InvalidProperties
from .queues import DeliveryNotFound, QueueNotFound, Queues, Target
from .statistics import encode_statistics

log = logging.getLogger(__name__)

#: The names of the resources, in both generations.
_MESSAGES: Final = (b"messages", b"msgs")
_PROPERTIES: Final = (b"properties", b"props")
_JSON: Final = ((b"content-type", b"application/json"),)
_HTML: Final = ((b"content-type", b"text/html"),)
_TEXT: Final = ((b"content-type", b"text/plain; charset=utf-8"),)
_CHALLENGE: Final = ((b"www-authenticate", b'Bearer realm="postroom"'), *_TEXT)

Handler = Callable[[Queues, HttpRequest, list[bytes]], Awaitable[HttpResponse]]


class LmqHttp:
    """LMQ over HTTP. Raises ``ConfigurationError`` for wrong options."""

    server = b"Cowboy"

    def __init__(self, daemon: Daemon, door: str, options: Mapping[str, Any]) -> None:
        self._daemon = daemon
        self._door = door
        self._options: Options = read_options(options)
        #: What serves a resource, by the number of the segments after its name: by method, and ``allow`` of a 405.
        self._routes: dict[tuple[bytes, int], tuple[dict[str, Handler], bytes]] = {}
        for name in _MESSAGES:
            self._routes[name, 0] = {"GET": self._pull_any, "POST": self._push_all}, b""
            self._routes[name, 1] = {"GET": self._pull, "POST": self._push}, b""
            self._routes[name, 2] = {"POST": self._reply}, b"POST"
        for name in _PROPERTIES:
            self._routes[name, 0] = (
                {"GET": self._get_defaults, "PUT": self._put_defaults, "DELETE": self._delete_defaults},
                b"GET, PUT, DELETE",
            )
            self._routes[name, 1] = (
                {"GET": self._get_properties, "PATCH": self._patch_properties, "DELETE": self._delete_properties},
                b"GET, PATCH, DELETE",
            )
        self._routes[b"queues", 1] = {"DELETE": self._delete_queue}, b"DELETE"
        self._routes[b"stats", 0] = {"GET": self._get_statistics}, b"GET"

    async def respond(self, request: HttpRequest) -> HttpResponse:
        """As ``HttpDialect.respond``."""
        segments = request.path.split(b"/")[1:]
        if segments and not segments[-1]:
            segments.pop()
        route = self._routes.get((segments[0], len(segments) - 1)) if segments else None
        if route is None:
            return HttpResponse(404)
        handlers, allow = route
        handler = handlers.get(request.method)
        if handler is None:
            return HttpResponse(405, ((b"allow", allow),) if allow else ())
        try:
            return await handler(self._queues(request), request, segments[1:])
        except (InvalidParameter, InvalidProperties) as error:
            return self.refusal(400, str(error))
        except CommandError as error:
            return self.refusal(status_of(error), f"{error.code}: {error.message}")

    def refusal(self, status: int, text: str) -> HttpResponse:
        """As ``HttpDialect.refusal``."""
        return HttpResponse(status, _CHALLENGE if status == 401 else _TEXT, text.encode() + b"\n")

    def _queues(self, request: HttpRequest) -> Queues:
        key, trace = request.header(b"idempotency-key"), request.header(b"traceparent")
        return Queues(
            self._daemon,
            request.principal,
            self._door,
            self._options,
            idempotency_key=_latin(key) if key and request.method == "POST" else "",
            traceparent=_latin(trace) if trace and len(trace) <= TRACEPARENT_LIMIT else "",
        )

    # --- messages -----------------------------------------------------------------------------------------------------

    async def _push(self, queues: Queues, request: HttpRequest, segments: list[bytes]) -> HttpResponse:
        return HttpResponse(200, _JSON, encode_push(await queues.push(decode_name(segments[0]), self._part(request))))

    async def _push_all(self, queues: Queues, request: HttpRequest, segments: list[bytes]) -> HttpResponse:
        pattern = _pattern(_parameters(request.query))
        return HttpResponse(200, _JSON, encode_push_all(await queues.push_all(pattern, self._part(request))))

    async def _pull(self, queues: Queues, request: HttpRequest, segments: list[bytes]) -> HttpResponse:
        return await self._pulled(queues, request, Target(decode_name(segments[0])), _parameters(request.query))

    async def _pull_any(self, queues: Queues, request: HttpRequest, segments: list[bytes]) -> HttpResponse:
        parameters = _parameters(request.query)
        return await self._pulled(queues, request, Target(_pattern(parameters), is_pattern=True), parameters)

    async def _pulled(
        self, queues: Queues, request: HttpRequest, target: Target, parameters: dict[str, str]
    ) -> HttpResponse:
        wait_ms = parse_wait_ms(parameters.get("t"))
        form = parse_compound_format(parameters.get("cf"))
        request.is_waiting = wait_ms != 0
        try:
            pulled = await queues.pull(target, wait_ms)
        except WaitEnded:
            pulled = None
        if pulled is None:
            return HttpResponse(204)
        headers, body = encode_pulled(pulled, form)
        return HttpResponse(200, headers, body, undelivered=lambda: queues.return_undelivered(pulled))

    async def _reply(self, queues: Queues, request: HttpRequest, segments: list[bytes]) -> HttpResponse:
        reply = parse_reply(_parameters(request.query).get("reply"))
        message_id = parse_message_id(_latin(unquote_to_bytes(segments[1])))
        try:
            await queues.settle(decode_name(segments[0]), message_id, reply)
        except (DeliveryNotFound, QueueNotFound):
            return HttpResponse(404, _HTML)
        return HttpResponse(204, _HTML)

    def _part(self, request: HttpRequest) -> Part:
        content_type = request.header(b"content-type")
        headers = tuple(
            (name, _latin(value))
            for name in self._options.preserve_headers
            if (value := request.header(name.encode())) is not None
        )
        return Part(request.body, _latin(content_type) if content_type else "", headers)

    # --- queues and properties ----------------------------------------------------------------------------------------

    async def _delete_queue(self, queues: Queues, request: HttpRequest, segments: list[bytes]) -> HttpResponse:
        try:
            await queues.delete(decode_name(segments[0]))
        except QueueNotFound:
            return HttpResponse(404, _HTML)
        return HttpResponse(204, _HTML)

    async def _get_properties(self, queues: Queues, request: HttpRequest, segments: list[bytes]) -> HttpResponse:
        if not _accepts_json(request):
            return HttpResponse(406)
        found = await queues.properties(decode_name(segments[0]))
        return HttpResponse(200, _JSON, properties.encode_properties(found))

    async def _patch_properties(self, queues: Queues, request: HttpRequest, segments: list[bytes]) -> HttpResponse:
        if not _is_json(request):
            return HttpResponse(415, _JSON)
        await queues.update_properties(decode_name(segments[0]), properties.read_properties(request.body))
        return HttpResponse(204, _JSON)

    async def _delete_properties(self, queues: Queues, request: HttpRequest, segments: list[bytes]) -> HttpResponse:
        await queues.update_properties(decode_name(segments[0]), {})
        return HttpResponse(204, _JSON)

    async def _get_defaults(self, queues: Queues, request: HttpRequest, segments: list[bytes]) -> HttpResponse:
        if not _accepts_json(request):
            return HttpResponse(406)
        found = await queues.default_properties()
        return HttpResponse(200, _JSON, properties.encode_default_properties(found))

    async def _put_defaults(self, queues: Queues, request: HttpRequest, segments: list[bytes]) -> HttpResponse:
        if not _is_json(request):
            return HttpResponse(415, _JSON)
        await queues.set_default_properties(properties.read_default_properties(request.body))
        return HttpResponse(204, _JSON)

    async def _get_statistics(self, queues: Queues, request: HttpRequest, segments: list[bytes]) -> HttpResponse:
        if not _accepts_json(request):
            return HttpResponse(406)
        return HttpResponse(200, _JSON, encode_statistics(_node(), await queues.figures()))

    async def _delete_defaults(self, queues: Queues, request: HttpRequest, segments: list[bytes]) -> HttpResponse:
        await queues.set_default_properties([])
        return HttpResponse(204, _JSON)


def _node() -> str:
    """The name of this device, as the only node of LMQ's cluster."""
    return f"postroom@{socket.gethostname()}"


def _parameters(query: bytes) -> dict[str, str]:
    """The parameters of a query string; of several with one name, the first."""
    found: dict[str, str] = {}
    for pair in query.split(b"&") if query else ():
        name, _, value = pair.partition(b"=")
        found.setdefault(_latin(_decoded(name)), _decoded(value).decode("utf-8", "replace"))
    return found


def _decoded(text: bytes) -> bytes:
    return unquote_to_bytes(text.replace(b"+", b" ")) if b"%" in text or b"+" in text else text


def _pattern(parameters: dict[str, str]) -> str:
    """The regular expression of a request. Raises ``InvalidParameter`` without one."""
    if "qre" not in parameters:
        raise InvalidParameter("qre is missing: a regular expression for names of queues")
    return parameters["qre"]


def _accepts_json(request: HttpRequest) -> bool:
    accept = request.header(b"accept")
    if not accept:
        return True
    kinds = [kind.partition(b";")[0].strip() for kind in accept.split(b",")]
    return any(kind in (b"*/*", b"application/*", b"application/json") for kind in kinds)


def _is_json(request: HttpRequest) -> bool:
    kind = request.header(b"content-type") or b""
    return kind.partition(b";")[0].strip().lower() == b"application/json"


def _latin(value: bytes) -> str:
    """The text of a header field: UTF-8, or else one byte a character."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
