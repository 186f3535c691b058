"""Answers as the mailbox writes them: one JSON object, bodies as text, JSON values or base64."""

from __future__ import annotations

from typing import Any, Final

import orjson

from postroom_common.body import GATHERED, part_to_wire, parts_to_wire, value_to_wire

from ...model.request import Answer, MessageView

#: Attributes that were not given, as a JSON value. Never change it.
_NO_VALUES: Final[dict[str, Any]] = {}


def encode_answer(request_id: str, answer: Answer) -> bytes:
    """The bytes of a response file."""
    if answer.error:
        return orjson.dumps({"requestId": request_id, "ok": False, "error": answer.error.to_wire()})
    return orjson.dumps({"requestId": request_id, "ok": True, "data": answer.data or {}}, show)


def show(view: Any) -> dict[str, Any]:
    """A message in an answer, for ``orjson``. Raises ``TypeError`` for anything else."""
    if type(view) is not MessageView:
        raise TypeError(f"an answer contains {type(view).__name__}")
    if view.text is not None:
        none = _NO_VALUES if view.as_value else "{}"
        return {**view.fields, "payload": view.text, "attributes": none}
    body = part_to_wire(view.parts[0], view.as_value)
    shown = {**view.fields, **body, "attributes": value_to_wire(view.attributes, view.as_value)}
    if GATHERED in view.fields or view.parts[0].name:
        shown["parts"] = parts_to_wire(view.parts, view.as_value)
    return shown


def plain(data: dict[str, Any]) -> dict[str, Any]:
    """The data of an answer as a client of the mailbox reads it."""
    read: dict[str, Any] = orjson.loads(orjson.dumps(data, default=show))
    return read
