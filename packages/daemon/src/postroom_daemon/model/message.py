"""A message on its way through a door: where a request has its body, and how an answer shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from postroom_common.body import Form, Part, part_from_wire

#: Attributes that were not given.
NO_ATTRIBUTES: Final = Part(b"{}", Form.JSON)

BodyReader = Callable[[dict[str, Any]], Part]
"""Returns the body that the fields of a publish describe. Raises ``CommandError``. Each door has its own."""


def json_body(fields: dict[str, Any]) -> Part:
    """The body in fields that are JSON: those of the mailbox, and of schedules."""
    return part_from_wire(fields["message"], fields["encoding"], fields["contentType"])


class MessageView(NamedTuple):
    """A message in an answer: its ``fields``, and its ``body`` and ``attributes``, which the consumer wants as JSON
    values (``as_value``) or as text. Each door shows these in its own way."""

    fields: dict[str, Any]
    body: Part
    attributes: Part
    as_value: bool
