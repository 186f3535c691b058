"""What a state consists of, and the pages of ``read_state`` from which it is read."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, TypeVar

import orjson

from postroom_common.errors import PostroomError
from postroom_common.events import raw_json

from ...engine.verbs.state import read_page
from ...model.facts import FACT_EPOCH, history_fact, part_fact
from ...model.records import Entry, QueueRecord, entry_to_json
from ...platform.clock import Now
from ...stores.base import Store

Fact = dict[str, Any]
"""A key-value as ``read_state`` returns it: ``name`` and ``value``."""
Message = dict[str, Any]
"""A message as ``read_state`` returns it; its ``message`` is a JSON value or an ``orjson.Fragment``."""

LogRecords = dict[str, Any]
"""Records of a log as ``read_state`` returns them: ``queue``, ``log``, and ``records``, each a list of position, wall
time (ms) and block in base64."""


class StateError(PostroomError):
    """The state cannot be read or loaded; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Head:
    """The root of a state, and its event. ``clock`` is the last clock mark, ``losses`` are ranges of lost events and
    ``damage`` other losses that no operator has accepted."""

    root: str
    epoch: int
    event: int
    backend: str
    engine_ms: int
    wall_ms: int
    clock: dict[str, Any]
    losses: list[list[int]] = field(default_factory=list)
    damage: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The head as it is stored in a file."""
        head = {
            "root": self.root,
            "epoch": self.epoch,
            "event": self.event,
            "backend": self.backend,
            "engineMs": self.engine_ms,
            "wallMs": self.wall_ms,
            "clock": self.clock,
        }
        lost = {"losses": self.losses, "damage": self.damage}
        return head | {name: value for name, value in lost.items() if value}

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
            damage=data.get("damage", []),
        )


@dataclass(frozen=True, slots=True)
class State:
    """Everything as of one event. ``messages`` are in the order of keys and can be iterated once; ``facts`` are the
    other key-values: claims, schedules, dead-letter addresses, whether the root is draining. ``records`` are those of
    logs, and can be iterated once, before the messages."""

    head: Head
    queues: list[QueueRecord]
    messages: Iterable[Message]
    facts: list[Fact] = field(default_factory=list)
    records: Iterable[LogRecords] = ()


def body_of(message: Message) -> bytes:
    """A message's body as the store has it. Raises ``KeyError`` if it is lost."""
    return raw_json(message["message"])


def put_beside(message: Message, key: str, store: Store) -> None:
    """Store what a message has beside its entry and its body: its failed attempts, and the parts that were appended."""
    if "history" in message:
        store.facts.put(history_fact(key), message["history"])
    for number, part in enumerate(message.get("appended", ()), 1):
        store.facts.put(part_fact(key, number), part)


def message_json(entry: Entry, history: list[Any], body: bytes | None, appended: list[Any]) -> Message:
    """A message as ``read_state`` returns it; ``body`` None: lost."""
    shown = entry_to_json(entry)
    if history:
        shown["history"] = history
    if appended and body is not None:
        shown["appended"] = appended
    return shown | ({"bodyLost": True} if body is None else {"message": orjson.Fragment(body)})


T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work in steps of a few milliseconds at most, between which the caller can do other work; the result comes last."""


def finish(steps: Steps[T]) -> T:
    """Do all steps at once and return the result. Raises what a step raises."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: T = ended.value
            return result


#: Maximum number of items of a page.
PAGE_LIMIT = 500

Ask = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Carries out a command and returns the data of its answer."""


class Page(NamedTuple):
    """A page of items, all as of one event and one time."""

    as_of: int
    engine_ms: int
    wall_ms: int
    items: list[dict[str, Any]]


def read_head(ask: Ask) -> Head:
    """The head as of now."""
    data = ask("read_state", {"part": "head"})
    return Head.from_json({**data, "event": data["asOfEvent"]})


def read_pages(ask: Ask, part: str) -> Iterator[Page]:
    """The pages of one part of the state, in order."""
    after = ""
    while True:
        data = ask("read_state", {"part": part, "after": after, "limit": PAGE_LIMIT})
        yield Page(data["asOfEvent"], data["engineMs"], data["wallMs"], data[part])
        after = data["next"]
        if not after:
            return


def read_records(ask: Ask, until: int) -> Iterator[LogRecords]:
    """The records of all logs up to an event."""
    for page in read_pages(ask, "records"):
        for one in page.items:
            records = [record for record in one["records"] if record[0] <= until]
            if records:
                yield one | {"records": records}


def steady(ask: Ask) -> State:
    """The state of a root that nobody else changes. Raises ``StateError`` if somebody does."""
    head = read_head(ask)

    def items(part: str) -> Iterator[Message]:
        for page in read_pages(ask, part):
            if page.as_of != head.event:
                raise StateError(f"the root went on from event {head.event} to {page.as_of} while it was read")
            yield from page.items

    queues = [QueueRecord.from_json(item) for item in items("queues")]
    return State(head, queues, items("messages"), list(items("facts")), read_records(ask, head.event))


def of_store(store: Store, now: Now) -> State:
    """The state of an open store, in no transaction, which nobody else may use meanwhile.

    Raises ``StateError`` when it was never used; going through it raises ``StoreError``.
    """
    if not store.facts.get(FACT_EPOCH):
        raise StateError("the store is empty")

    def ask(command: str, payload: dict[str, Any]) -> dict[str, Any]:
        store.begin()  # a page is one transaction, so that memory does not grow
        try:
            page = read_page(store, payload["part"], payload.get("after", ""), payload.get("limit", 1))
        finally:
            store.rollback()
        return page | {"engineMs": now.engine, "wallMs": now.wall}

    return steady(ask)
