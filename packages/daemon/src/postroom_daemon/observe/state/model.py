"""What a state consists of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

import orjson

from postroom_common.errors import PostroomError
from postroom_common.events import raw_json

from ...model.records import Entry, QueueRecord, entry_to_json

Fact = dict[str, Any]
"""A single fact as ``read_state`` shows it: its ``name`` and its ``value``."""
Message = dict[str, Any]
"""A message as ``read_state`` shows it; its ``message`` is JSON that was read, or a fragment of JSON."""


class StateError(PostroomError):
    """The state cannot be read, or not be put where it should go; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Head:
    """Whose state it is, and of which event. ``clock`` is the last mark of the clocks, ``losses`` are the ranges of
    events that are lost, of which no operator has taken note."""

    root: str
    epoch: int
    event: int
    backend: str
    engine_ms: int
    wall_ms: int
    clock: dict[str, Any]
    losses: list[list[int]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The head as a file has it."""
        head = {
            "root": self.root,
            "epoch": self.epoch,
            "event": self.event,
            "backend": self.backend,
            "engineMs": self.engine_ms,
            "wallMs": self.wall_ms,
            "clock": self.clock,
        }
        return head | ({"losses": self.losses} if self.losses else {})

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Read what ``to_json`` made. Raises ``KeyError``."""
        return cls(
            root=data["root"],
            epoch=data["epoch"],
            event=data["event"],
            backend=data["backend"],
            engine_ms=data["engineMs"],
            wall_ms=data["wallMs"],
            clock=data["clock"],
            losses=data.get("losses", []),
        )


@dataclass(frozen=True, slots=True)
class State:
    """Everything at one event. ``messages`` are in the order of their keys, and can be gone through once; ``facts`` are
    what there is beside queues and messages: claims, schedules, names of dead letters, whether it drains."""

    head: Head
    queues: list[QueueRecord]
    messages: Iterable[Message]
    facts: list[Fact] = field(default_factory=list)


def body_of(message: Message) -> bytes:
    """A message's body, as the store keeps it. Raises ``KeyError`` when it is lost."""
    return raw_json(message["message"])


def message_json(entry: Entry, history: list[Any], body: bytes | None) -> Message:
    """A message as ``read_state`` shows it; without a body, that is lost."""
    shown = entry_to_json(entry)
    if history:
        shown["history"] = history
    return shown | ({"bodyLost": True} if body is None else {"message": orjson.Fragment(body)})
