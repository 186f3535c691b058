"""What a state consists of."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, TypeVar

import orjson

from postroom_common.errors import PostroomError
from postroom_common.events import raw_json

from ...engine.verbs.state import read_page
from ...model.records import FACT_EPOCH, Entry, QueueRecord, entry_to_json
from ...platform.clock import Now
from ...stores.base import Store

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


T = TypeVar("T")

Steps = Generator[None, None, T]
"""Does a step of less than a few milliseconds each time; gives its result at the end."""


def finish(steps: Steps[T]) -> T:
    """Do all steps at once. The result; raises what a step raises."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: T = ended.value
            return result


#: Entries of a page.
PAGE_LIMIT = 500

Ask = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Does a command, and gives its reply's data."""


class Page(NamedTuple):
    """A page of messages or queues, all as of one event and one time."""

    as_of: int
    engine_ms: int
    wall_ms: int
    items: list[dict[str, Any]]


def read_head(ask: Ask) -> Head:
    """The head as it is now."""
    data = ask("read_state", {"part": "head"})
    return Head.from_json({**data, "event": data["asOfEvent"]})


def read_pages(ask: Ask, part: str) -> Iterator[Page]:
    """The pages of a part, in order."""
    after = ""
    while True:
        data = ask("read_state", {"part": part, "after": after, "limit": PAGE_LIMIT})
        yield Page(data["asOfEvent"], data["engineMs"], data["wallMs"], data[part])
        after = data["next"]
        if not after:
            return


def steady(ask: Ask) -> State:
    """The state of a root that nobody else works on. Raises ``StateError`` if somebody does."""
    head = read_head(ask)

    def items(part: str) -> Iterator[Message]:
        for page in read_pages(ask, part):
            if page.as_of != head.event:
                raise StateError(f"the root went on from event {head.event} to {page.as_of} while it was read")
            yield from page.items

    queues = [QueueRecord.from_json(item) for item in items("queues")]
    return State(head, queues, items("messages"), list(items("facts")))


def of_store(store: Store, now: Now) -> State:
    """The state that a store holds. It must be open, without a transaction, and nobody else may work on it meanwhile.

    Raises ``StateError`` when it was never used; going through it raises ``StoreError``.
    """
    if not store.get_kv(FACT_EPOCH):
        raise StateError("the store is empty")

    def ask(command: str, payload: dict[str, Any]) -> dict[str, Any]:
        store.begin()  # a page is one transaction: what it has read is forgotten at its end
        try:
            page = read_page(store, payload["part"], payload.get("after", ""), payload.get("limit", 1))
        finally:
            store.rollback()
        return page | {"engineMs": now.engine, "wallMs": now.wall}

    return steady(ask)
