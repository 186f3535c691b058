"""The seam between the broker and whoever brings it requests: a call goes in, one answer comes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from postroom_common.codec import Request, encode_error, encode_reply
from postroom_common.errors import CommandError
from postroom_common.protocol import Command
from postroom_common.trace import trace_id

from ..platform.logs.records import about
from .principal import Principal


class Answer(NamedTuple):
    """The answer to a call: ``data``, or an error."""

    data: dict[str, Any] | None = None
    error: CommandError | None = None

    def encode(self, request_id: str) -> bytes:
        """The response bytes."""
        if self.error:
            return encode_error(request_id, self.error.code, self.error.message)
        return encode_reply(request_id, self.data or {})


def always_alive() -> bool:
    """For callers that do not go away."""
    return True


@dataclass(slots=True, eq=False)
class Call:
    """One request on its way.

    ``key`` is what a repeat has in common with the first (``repeats.request_key``). ``arrived_wall`` is when it was
    made (Unix ms): a wait counts from there. ``on_answer`` is called once, after what the answer promises is durable.
    ``alive`` is asked before a message is leased to a caller that has waited. ``bytes`` is the size of the request,
    ``engine`` the time at which it was decided, ``refusals`` how often its user was refused something in it.
    """

    request: Request
    who: Principal
    key: bytes
    arrived_wall: int
    on_answer: Callable[[Answer], None]
    alive: Callable[[], bool] = always_alive
    command: Command | None = None
    queue: str = ""
    number: int = 0
    wait_until: int = 0
    started_ns: int = 0
    bytes: int = 0
    engine: int = 0
    refusals: int = 0


def about_call(call: Call) -> dict[str, dict[str, Any]]:
    """What a record of the log says of a call beside its text: ``extra`` of a call of ``logging``."""
    return about(
        request=call.request.request_id,
        client=call.who.client_id,
        **call.who.event_fields(),
        command=call.command or call.request.command[:80],
        queue=call.queue,
        trace_id=trace_id(call.request.traceparent),
    )
