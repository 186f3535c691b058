"""A queue as a test of WebSocket MQ uses it: messages in every state, and what the client says of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from tests.gateway.websocket_mq.client import Client, RpcError, Started

#: WebSocket MQ has no permissions: its clients may do everything.
CONFIG: dict[str, Any] = {
    "access": {
        "operators": ["principal anonymous:mq-websocket"],
        "rules": [],
        "default": ["publish", "consume", "browse"],
    },
    "gateway": {"users": str(os.getuid())},
}
DOOR = "[doors.mq-websocket]\nport = 0\n"
#: A configuration of a queue as clients give it.
CONFIGURATION: dict[str, Any] = {
    "unique": False,
    "draftingTimeout": 60_000,
    "orderedTimeout": 60_000,
    "activeTimeout": 60_000,
    "concurrency": None,
    "behaviorWhenCompleted": 0,
    "behaviorWhenAbandoned": 0,
}
KEEP, REMOVE_MESSAGE, REMOVE_SLOTS = range(3)
NOBODY = "nobody"


class State(IntEnum):
    """The states, as the client names them."""

    DRAFTING = 0
    WAITING = 1
    ORDERED = 2
    ACTIVE = 3
    FAILED = 4
    COMPLETED = 5
    ABANDONED = 6


class Queue:
    """One queue, through one connection."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name

    def through(self, client: Client) -> Queue:
        """The same queue through another connection."""
        return Queue(client, self.name)

    def call(self, method: str, *params: Any) -> Any:
        """Call a method of this queue. Raises ``RpcError``."""
        return self.client.call(method, self.name, *params)

    def start(self, method: str, *params: Any) -> Started:
        """Begin to call a method of this queue."""
        return self.client.start(method, self.name, *params)

    def error(self, method: str, *params: Any) -> RpcError:
        """The error that a call gets."""
        try:
            result = self.call(method, *params)
        except RpcError as error:
            return error
        raise AssertionError(f"{method} returned {result!r}")

    def configure(self, **changes: Any) -> Queue:
        """Create the queue, or change it."""
        self.call("setQueue", CONFIGURATION | changes)
        return self

    # --- messages -----------------------------------------------------------------------------------------------------

    def draft(self, *slots: str, priority: int | None = None, id_: str | None = None) -> str:
        """A message that is drafted."""
        return str(self.call("draftMessage", priority, list(slots or ("slot",)), *([id_] if id_ else [])))

    def waiting(self, value: Any = "value", priority: int | None = None) -> str:
        """A message that waits."""
        message = self.draft(priority=priority)
        self.call("setMessageSlot", message, "slot", value)
        return message

    def ordered(self, value: Any = "value") -> str:
        """A message that is ordered."""
        message = self.waiting(value)
        assert self.call("orderMessage") == message
        return message

    def active(self, value: Any = "value") -> str:
        """A message that is active."""
        message = self.ordered(value)
        assert self.call("getMessage", message)["state"] == State.ACTIVE
        return message

    def failed(self, value: Any = "value") -> str:
        """A message that has failed."""
        message = self.active(value)
        self.call("failMessage", message)
        return message

    def completed(self, value: Any = "value") -> str:
        """A message that is completed."""
        message = self.active(value)
        self.call("completeMessage", message)
        return message

    def abandoned(self, value: Any = "value") -> str:
        """A message that is abandoned."""
        message = self.failed(value)
        self.call("abandonMessage", message)
        return message

    def in_state(self, state: State) -> str:
        """A message in a state."""
        make: dict[State, Callable[[], str]] = {
            State.DRAFTING: self.draft,
            State.WAITING: self.waiting,
            State.ORDERED: self.ordered,
            State.ACTIVE: self.active,
            State.FAILED: self.failed,
            State.COMPLETED: self.completed,
            State.ABANDONED: self.abandoned,
        }
        return make[state]()

    def peek(self, message: str) -> Any:
        """A message as it is."""
        return self.call("peekMessage", message)

    def state(self, message: str) -> State:
        """The state of a message."""
        return State(self.peek(message)["state"])

    def stats(self) -> dict[str, int]:
        """The counts that are not 0."""
        return {name: number for name, number in self.call("getQueueStats").items() if number}

    def ids(self, state: State) -> list[str]:
        """The messages in a state."""
        return list(self.call("getMessageIdsByState", state))
