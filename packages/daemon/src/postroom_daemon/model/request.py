"""A request on its way through the daemon, and its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from postroom_common.body import Form, Part, part_from_wire
from postroom_common.codec import Request as WireRequest
from postroom_common.errors import CommandError
from postroom_common.protocol import Command
from postroom_common.trace import trace_id

from .principal import Principal

_TEXT: Final = Form.TEXT
#: Attributes that were not given.
NO_ATTRIBUTES: Final = Part(b"{}", Form.JSON)

BodyReader = Callable[[dict[str, Any]], tuple[Part, ...]]
"""Returns the parts of the message that a publish describes. Raises ``CommandError``. Each door has its own."""


def json_body(fields: dict[str, Any]) -> tuple[Part, ...]:
    """The body in fields that are JSON: those of the mailbox, and of schedules."""
    message = fields["message"]
    if type(message) is str and not fields["encoding"]:
        return (Part(message.encode(), _TEXT, fields["contentType"]),)
    return (part_from_wire(fields["message"], fields["encoding"], fields["contentType"]),)


class MessageView:
    """A message in an answer: its ``fields``, and its ``parts`` and ``attributes``, which the consumer wants as JSON
    values (``as_value``) or as text. ``text`` stands for these if the message is a text and nothing else. Each door
    shows these in its own way: it is no dataclass, which ``orjson`` would show."""

    __slots__ = ("as_value", "attributes", "fields", "parts", "text")

    def __init__(
        self,
        fields: dict[str, Any],
        as_value: bool,
        text: str | None,
        parts: tuple[Part, ...] = (),
        attributes: Part = NO_ATTRIBUTES,
    ) -> None:
        self.fields = fields
        self.as_value = as_value
        self.text = text
        self.parts = parts
        self.attributes = attributes

    def __eq__(self, other: object) -> bool:
        return type(other) is MessageView and self._contents() == other._contents()

    def __hash__(self) -> int:
        raise TypeError("a message in an answer has no hash: its fields may change")

    def _contents(self) -> tuple[Any, ...]:
        return self.fields, self.as_value, self.text, self.parts, self.attributes

    def all_parts(self) -> tuple[Part, ...]:
        """The parts, also of a text."""
        return self.parts if self.text is None else (Part(self.text.encode(), _TEXT),)

    @property
    def size(self) -> int:
        """Bytes of the body, about."""
        return sum([len(part.data) for part in self.parts]) if self.text is None else len(self.text)


@dataclass(slots=True)
class Answer:
    """The answer to a request: ``data``, or an error. ``leases`` are the messages that it delivers, each by key and
    lease id: a door that cannot deliver them gives them back (``Broker.return_undelivered``); ``key`` is then the
    idempotency key of the request that has leased them."""

    data: dict[str, Any] | None = None
    error: CommandError | None = None
    leases: Sequence[tuple[str, str]] = ()
    key: bytes | None = None


def body_bytes(data: dict[str, Any]) -> int:
    """Bytes of the bodies in the data of an answer."""
    if "rawBytes" in data:
        return len(data["rawBytes"])
    if "records" in data:
        return sum([one.size for one in data["records"] if type(one) is MessageView])
    only = data.get("message")
    if type(only) is MessageView:
        return only.size
    messages = data.get("messages")
    size = 0
    for one in (data, *messages) if type(messages) is list else (data,):
        view = one if type(one) is MessageView else one.get("message") or one.get("originalMessage")
        if type(view) is MessageView:
            size += view.size if view.text is None else len(view.text)
    return size


def always_alive() -> bool:
    """For clients that do not go away."""
    return True


def always_deliverable() -> None:
    """For doors that can deliver to a client whatever it has not read yet."""


@dataclass(slots=True, eq=False)
class Request:
    """One request from a door.

    ``key`` is the idempotency key: a repeat has the same; None if the door recognises no repeats. ``arrived_wall`` is
    when the request was made (Unix ms): a wait counts from there. ``on_answer`` is called once, when what the answer
    promises is durable. ``alive`` is called before a message is leased to a request that has waited,
    ``check_deliverable`` before any message is leased: it raises ``CommandError`` if the client has too much unread.
    ``read_body`` is called for each message that it publishes. ``session`` is the connection that it came by, if there
    is one: a wait ends with it. ``bytes`` is the size of the request.
    ``gateway_door`` is the name of the door by which a gateway has got it; empty if it comes from no gateway.

    The broker sets the rest: ``engine`` is the time at which it was decided (engine ms), ``has_waited`` whether it had
    to wait for a message, ``refusals`` how often it was refused something.
    """

    wire: WireRequest
    who: Principal
    key: bytes | None
    arrived_wall: int
    on_answer: Callable[[Answer], None]
    alive: Callable[[], bool] = always_alive
    read_body: BodyReader = json_body
    bytes: int = 0
    door: str = ""
    session: object | None = None
    gateway_door: str = ""
    check_deliverable: Callable[[], None] = always_deliverable
    command: Command | None = None
    queue: str = ""
    started_ns: int = 0
    has_waited: bool = False
    engine: int = 0
    refusals: int = 0

    def log_fields(self) -> dict[str, Any]:
        """What a log record says of this request beside its text."""
        return {
            "request": self.wire.request_id,
            "client": self.who.client_id,
            **self.who.event_fields(),
            "command": self.command or self.wire.command[:80],
            "queue": self.queue,
            "door": self.gateway_door,
            "trace_id": trace_id(self.wire.traceparent),
        }
