"""The pages of ``read_state``, from whoever answers: a daemon through its mailbox, or a stopped root."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ...engine.verbs.state import read_page
from ...model.records import FACT_EPOCH, QueueRecord
from ...platform.clock import Now
from ...stores.base import Store
from .model import Head, Message, State, StateError

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
