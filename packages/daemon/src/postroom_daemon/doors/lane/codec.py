"""Requests and answers of the lane: like those of the mailbox, except that bodies stand behind the header."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson

from postroom_common.body import GATHERED, Form, Part, part_from_wire, parts_to_wire, value_to_wire
from postroom_common.codec import strict_loads
from postroom_common.errors import CommandError
from postroom_common.lane import encode_frame
from postroom_common.protocol import Command, ErrorCode, resolve_command

from ...model.request import Answer, MessageView

_FORMS: Final = {"": Form.BINARY, "binary": Form.BINARY, "text": Form.TEXT, "json": Form.JSON}
_NAMES: Final = {form: name for name, form in _FORMS.items() if name}
#: Commands whose payload describes messages with bodies.
_WITH_BODIES: Final = frozenset(
    {Command.PUBLISH, Command.PUBLISH_BATCH, Command.SET, Command.ACK_AND_PUBLISH, Command.APPEND}
)


def take_bodies(command: str, payload: dict[str, Any], body: bytes) -> CommandError | None:
    """Put the bodies of a frame, as bytes, into the payload that describes them, where the mailbox has ``message``.
    Returns what is wrong with them."""
    messages = payload.get("messages")
    if not body and "bodyBytes" not in payload and type(messages) is not list:
        return None
    described = [payload, *(messages if type(messages) is list else ())]
    described = [one for one in described if type(one) is dict and "bodyBytes" in one]
    if not (described or body):
        return None
    if resolve_command(command) not in _WITH_BODIES:
        return CommandError(ErrorCode.INVALID_REQUEST, f"{command[:80]} takes no bodies")
    start = 0
    for one in described:
        length = one.pop("bodyBytes")
        if type(length) is not int:
            return CommandError(ErrorCode.PARSE_ERROR, "bodyBytes must be an integer")
        if one.get("message") is not None:
            return CommandError(ErrorCode.INVALID_REQUEST, "give message or bodyBytes, not both")
        if not 0 <= length <= len(body) - start:
            return CommandError(ErrorCode.INVALID_REQUEST, "bodyBytes goes beyond the frame's body")
        one["message"] = body[start : start + length]
        start += length
    if start != len(body):
        return CommandError(
            ErrorCode.INVALID_REQUEST, f"nothing describes the last {len(body) - start} bytes of the body"
        )
    return None


def read_body(fields: dict[str, Any]) -> tuple[Part, ...]:
    """The ``BodyReader`` of the lane: a body in the frame, or one in JSON as in the mailbox."""
    message, encoding, content_type = fields["message"], fields["encoding"], fields["contentType"]
    if type(message) is not bytes:
        return (part_from_wire(message, encoding, content_type),)
    form = _FORMS.get(encoding)
    if form is None:
        raise CommandError(ErrorCode.INVALID_REQUEST, "encoding of a body in the frame must be binary, text or json")
    try:
        if form is Form.TEXT:
            message.decode()
        elif form is Form.JSON:
            strict_loads(message)
    except (ValueError, RecursionError) as error:
        raise CommandError(ErrorCode.PARSE_ERROR, f"the body is not {encoding}: {error}") from None
    return (Part(message, form, content_type),)


def encode_answer(request_id: str, answer: Answer) -> bytes:
    """The frame of an answer."""
    if answer.error:
        return encode_error(answer.error, request_id)
    bodies: list[bytes] = []
    header = orjson.dumps({"requestId": request_id, "ok": True, "data": answer.data or {}}, _shower(bodies))
    return encode_frame(header, b"".join(bodies))


def encode_error(error: CommandError, request_id: str | None = None) -> bytes:
    """The frame of an error: of a request, or of the connection."""
    of = {} if request_id is None else {"requestId": request_id}
    return encode_frame(orjson.dumps({**of, "ok": False, "error": error.to_wire()}))


def _shower(bodies: list[bytes]) -> Callable[[Any], Any]:
    """What shows a message in an answer, and adds its bodies to ``bodies``, for ``orjson``. Bytes, which are records,
    are shown by their number."""

    def show(view: Any) -> Any:
        if type(view) is bytes:
            bodies.append(view)
            return len(view)
        if type(view) is not MessageView:
            raise TypeError(f"an answer contains {type(view).__name__}")
        parts = view.all_parts()
        bodies.extend([part.data for part in parts])
        shown = {**view.fields, **_described(parts[0], view.as_value)}
        shown["attributes"] = value_to_wire(view.attributes, view.as_value)
        if len(parts) > 1 or GATHERED in view.fields or parts[0].name:
            shown["parts"] = parts_to_wire(parts, view.as_value, _described)
        return shown

    return show


def _described(part: Part, as_value: bool) -> dict[str, Any]:
    form = Form.TEXT if part.form is Form.JSON and not as_value else part.form
    described: dict[str, Any] = {"bodyBytes": len(part.data), "encoding": _NAMES[form]}
    if part.content_type:
        described["contentType"] = part.content_type
    return described
