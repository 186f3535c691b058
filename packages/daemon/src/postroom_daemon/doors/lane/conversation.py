"""Makes requests of the frames of a connection, and frames of their answers."""

from __future__ import annotations

import time
from importlib.metadata import version
from typing import Any, Final

import orjson

from postroom_common.codec import Request as WireRequest
from postroom_common.codec import decode_request, strict_loads
from postroom_common.errors import CommandError, RequestRejected
from postroom_common.lane import Frame, encode_frame
from postroom_common.protocol import LANE_VERSION, ErrorCode, is_id

from ...broker.broker import Broker
from ...broker.idempotency import repeated_bytes, request_key
from ...model.request import Answer, Request
from .codec import encode_answer, encode_error, read_body, take_bodies
from .connection import Connection
from .limits import Limits
from .senders import Senders

#: What figures and logs call the lane.
NAME: Final = "lane"
_VERSION: Final = version("postroom-daemon")


class Conversation:
    """Reads the frames of every connection, and answers. ``senders`` decides who sends a request."""

    def __init__(self, broker: Broker, senders: Senders, limits: Limits) -> None:
        self._broker = broker
        self._senders = senders
        self._limits = limits

    def read(self, connection: Connection, frame: Frame, arrived_wall: int) -> Request | None:
        """The request of a frame; None if it has none, or is answered already. ``arrived_wall`` is when it was read
        (Unix ms). Raises ``CommandError`` for an error of the connection."""
        if connection.client_id:
            return self._request(connection, frame, arrived_wall)
        self._greet(connection, frame)
        return None

    def _greet(self, connection: Connection, frame: Frame) -> None:
        try:
            header = strict_loads(frame.header)
        except (ValueError, RecursionError) as error:
            raise CommandError(ErrorCode.PARSE_ERROR, f"JSON parse error: {error}") from None
        hello = header.get("hello") if type(header) is dict else None
        if type(hello) is not dict or frame.body:
            raise CommandError(ErrorCode.INVALID_REQUEST, "the first frame must be hello")
        versions, client_id = hello.get("versions"), hello.get("clientId")
        if type(versions) is not list or LANE_VERSION not in versions:
            raise CommandError(ErrorCode.INVALID_REQUEST, f"this daemon has version {LANE_VERSION} of the lane")
        if not is_id(client_id):
            raise CommandError(ErrorCode.INVALID_REQUEST, "missing or invalid clientId")
        self._senders.greet(connection, client_id, hello.get("door"))
        connection.frame_since_s = None
        answer = {
            "version": LANE_VERSION,
            "daemon": _VERSION,
            "requestBytes": self._limits.settings.limits_request_bytes,
            "requests": self._limits.settings.lane_requests,
        }
        if self._senders.is_gateway(connection):
            answer["gateway"] = True
        connection.put(encode_frame(orjson.dumps({"hello": answer})), time.monotonic())

    def _request(self, connection: Connection, frame: Frame, arrived_wall: int) -> Request | None:
        try:
            wire = decode_request(frame.header, connection.client_id)
        except RequestRejected as error:
            if is_cancel(frame.header):
                self._cancel(connection, frame.header)
                return None
            code = ErrorCode.PARSE_ERROR if error.reason.startswith("JSON") else ErrorCode.INVALID_REQUEST
            raise CommandError(code, error.reason) from None
        if wire.request_id in connection.requests:
            problem = CommandError(ErrorCode.INVALID_REQUEST, "a request with this requestId is in flight already")
            connection.put(encode_error(problem, wire.request_id), time.monotonic())
            return None
        sender = self._senders.of(connection, wire)
        refused = sender.problem or wire.problem or take_bodies(wire.command, wire.payload, frame.body)
        if refused:
            wire.problem = refused
        request = Request(
            wire=wire,
            who=sender.who,
            key=None if refused else request_key(sender.who.account, _repeated(wire, sender.who.client_id, frame)),
            arrived_wall=arrived_wall,
            on_answer=lambda answer: self._answer(connection, request, answer),
            read_body=read_body,
            bytes=frame.size,
            door=NAME,
            session=connection,
            gateway_door=sender.door,
            check_deliverable=lambda: self._limits.check_deliverable(connection),
        )
        connection.begin(request)
        return request

    def _cancel(self, connection: Connection, header: bytes) -> None:
        request = connection.requests.get(orjson.loads(header)["cancel"])
        if request:
            self._broker.end_wait(request)

    def _answer(self, connection: Connection, request: Request, answer: Answer) -> None:
        if connection.is_closed:
            self._broker.return_undelivered(answer)
            return
        if answer.leases:
            try:
                self._limits.check_deliverable(connection)
            except CommandError as error:
                self._broker.return_undelivered(answer)
                answer = Answer(error=error.without_traceback())
        frame = encode_answer(request.wire.request_id, answer)  # first: if it fails, the broker sends an error instead
        connection.end(request)
        connection.put(frame, time.monotonic(), answer)


def _repeated(wire: WireRequest, client_id: str, frame: Frame) -> bytes:
    """The bytes by which a repeat of a request is recognised."""
    data = frame.header + frame.body if frame.body else frame.header
    if not wire.has_client_id:  # another client may have sent the same bytes
        data = b"%b\0%b" % (client_id.encode(), data)
    return repeated_bytes(wire, data)


def is_cancel(header: bytes) -> bool:
    """Whether a header is that of a cancel."""
    try:
        fields: Any = strict_loads(header)
    except (ValueError, RecursionError):
        return False
    return type(fields) is dict and type(fields.get("cancel")) is str and "requestId" not in fields
