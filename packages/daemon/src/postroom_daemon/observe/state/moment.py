"""The state of a daemon that goes on working, at one event: pages, and the events that came in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import orjson

from postroom_common.events import Event
from postroom_common.protocol import State

from ...engine.verbs.state import read_page
from ...journal.segments import Start, read_requests
from ...model.records import FACT_CLOCK, FACT_EPOCH, FACT_LOSSES, QueueRecord
from . import model
from .changes import Body, Changes
from .model import Fact, Head, Message, StateError
from .pages import PAGE_LIMIT, Ask, Page, read_head, read_pages
from .steps import Steps, finish


@contextmanager
def capture(ask: Ask, journal: Path, body: Body, workspace: Path) -> Iterator[model.State]:
    """The state at the event that had happened when the last page was read.

    The counts of its queues are what the daemon believes; where the queues fill more than one page, a message that
    became due meanwhile may be counted as delayed still. ``journal`` is the directory of the daemon's segments,
    ``workspace`` one with room for all messages: memory does not grow with them, nor with what happens meanwhile.
    Raises ``StateError``, ``StoreError``, ``OSError``, and what ``ask`` raises.
    """
    with ExitStack() as held:
        found = finish(capture_in_steps(ask, journal, body, workspace, held))
        messages = (message for message in found.messages if message is not None)
        yield model.State(found.head, list(found.queues), messages, list(found.facts))


@dataclass(frozen=True, slots=True)
class Captured:
    """A state whose parts can be gone through once each, in this order. None among the messages is a step that has
    found none."""

    head: Head
    queues: Iterator[QueueRecord]
    facts: Iterator[Fact]
    messages: Iterator[Message | None]


def capture_in_steps(
    ask: Ask, journal: Path, body: Body, workspace: Path, held: ExitStack, end: Start | None = None
) -> Steps[Captured]:
    """As ``capture``. What the result is read from is held open by ``held``. ``end`` is where the journal ends now, if
    that is known."""
    head = read_head(ask)
    file = held.enter_context(TemporaryFile(dir=workspace, prefix="state-"))  # noqa: SIM115 - held closes it
    for page in read_pages(ask, "messages"):
        file.writelines(b"%d %b\n" % (page.as_of, orjson.dumps(message)) for message in page.items)
        yield
    changes = held.enter_context(closing(Changes(workspace, head.event, body)))
    yield from changes.each([head], lambda head: _facts_before(changes, head))
    # As of whatever event they were read: to fold what came before once more comes to the same.
    facts = (fact for page in read_pages(ask, "facts") for fact in page.items)
    yield from changes.each(facts, lambda fact: changes.put_kv(fact["name"], fact["value"]))
    page = yield from _take_queues(ask, changes)  # last: so that there is a record for each message
    events = _Events(journal, head.event + 1, page.as_of, end)
    yield from changes.each((event.get("key") for event in events), changes.name_key)
    yield from changes.each(_split(file, changes.named(), named=True), lambda told: changes.put_message(*told))
    yield from changes.each(events, changes.fold)
    head = _head_after(changes, head, page)
    return Captured(head, changes.queues(), _facts_after(changes), _merged(file, changes, head.engine_ms))


def _take_queues(ask: Ask, changes: Changes) -> Steps[Page]:
    """Take what the pages show of queues. The last of the pages."""
    for page in read_pages(ask, "queues"):  # there is always one
        records = (QueueRecord.from_json(item) for item in page.items)
        yield from changes.each(records, partial(changes.put_queue, as_of=page.as_of))
    return page


class _Events:
    """The events of a range, as often as they are gone through: they are not held."""

    def __init__(self, journal: Path, first: int, last: int, begins: Start | None) -> None:
        self._journal = journal
        self._first = first
        self._last = last
        self._begins = begins

    def __iter__(self) -> Iterator[Event]:
        """Raises ``StateError`` when the journal does not have them all."""
        expected = self._first
        if expected > self._last:
            return
        for request in read_requests(self._journal, expected, lambda damage: None, self._begins):
            for event in request.events:
                if self._first <= event["id"] <= self._last:
                    if event["id"] != expected:
                        break
                    expected += 1
                    yield event
            if request.events[-1]["id"] >= self._last:
                break
        if expected <= self._last:
            raise StateError(
                f"{self._journal}: events {self._first} to {self._last} are not all there, the first that is missing is"
                f" {expected}; verify the root, then try again"
            )


def _facts_before(changes: Changes, head: Head) -> None:
    changes.put_kv(FACT_EPOCH, {"root": head.root, "epoch": head.epoch})
    changes.put_kv(FACT_CLOCK, head.clock)
    changes.put_kv(FACT_LOSSES, head.losses or None)


def _facts_after(changes: Changes) -> Iterator[Fact]:
    after = ""
    while True:
        page = read_page(changes, "facts", after, PAGE_LIMIT)
        yield from page["facts"]
        after = page["next"]
        if not after:
            return


def _head_after(changes: Changes, head: Head, page: Page) -> Head:
    """The head as of the last event, at the time of the last page."""
    return replace(
        head,
        epoch=changes.get_kv(FACT_EPOCH)["epoch"],
        event=page.as_of,
        engine_ms=page.engine_ms,
        wall_ms=page.wall_ms,
        clock=changes.get_kv(FACT_CLOCK),
        losses=changes.get_kv(FACT_LOSSES) or [],
    )


def _split(file: IO[bytes], keys: Iterator[str], named: bool) -> Iterator[tuple[Message, int] | None]:
    """The messages of the file whose key is among ``keys``, or is not, and as of when each was read; None for each
    other one.

    Both are in the order of keys.
    """
    key = next(keys, None)
    file.seek(0)
    for line in file:
        as_of, _, data = line.partition(b" ")
        message: Message = orjson.loads(data)
        while key is not None and key < message["key"]:
            key = next(keys, None)
        yield (message, int(as_of)) if (key == message["key"]) == named else None


def _merged(file: IO[bytes], changes: Changes, now: int) -> Iterator[Message | None]:
    """The messages of the file, those that an event names as they are at the end."""
    changed = changes.messages()
    following = next(changed, None)
    for told in _split(file, changes.named(), named=False):
        while following and told and following["key"] < told[0]["key"]:
            yield _at(following, now)
            following = next(changed, None)
        yield told and _at(told[0], now)
    while following:
        yield _at(following, now)
        following = next(changed, None)


def _at(message: Message, now: int) -> Message:
    if message["state"] == State.DELAYED and message["dueEngineMs"] <= now:
        message["state"] = State.READY.value  # time makes it so, and no event tells
    return message
