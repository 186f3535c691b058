"""The state of a daemon that goes on working, at one event: pages, and the events that came in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from heapq import merge
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import orjson

from postroom_common.events import Event
from postroom_common.protocol import State

from ..records import FACT_CLOCK, FACT_EPOCH, FACT_LOSSES, QueueRecord
from ..segments import read_requests
from ..verbs.state import read_page
from . import model
from .changes import Body, Changes
from .model import Fact, Head, Message, StateError
from .pages import PAGE_LIMIT, Ask, Page, read_head, read_pages


@contextmanager
def capture(ask: Ask, journal: Path, body: Body, workspace: Path) -> Iterator[model.State]:
    """The state at the event that had happened when the last page was read.

    The counts of its queues are what the daemon believes; where the queues fill more than one page, a message that
    became due meanwhile may be counted as delayed still. ``journal`` is the directory of the daemon's segments,
    ``workspace`` one with room for all messages: memory does not grow with them, nor with what happens meanwhile.
    Raises ``StateError``, ``StoreError``, ``OSError``, and what ``ask`` raises.
    """
    head = read_head(ask)
    with TemporaryFile(dir=workspace, prefix="state-") as file:
        for page in read_pages(ask, "messages"):
            file.writelines(b"%d %b\n" % (page.as_of, orjson.dumps(message)) for message in page.items)
        facts = [fact for page in read_pages(ask, "facts") for fact in page.items]
        queues = list(read_pages(ask, "queues"))  # last: so that there is a record for each message
        with closing(Changes(workspace, head.event, body)) as changes:
            events = _Events(journal, head.event + 1, queues[-1].as_of)
            changes.each([head], lambda head: _facts_before(changes, head))
            # As of whatever event they were read: to fold what came before once more comes to the same.
            changes.each(facts, lambda fact: changes.put_fact(fact["name"], fact["value"]))
            _take_pages(changes, events, queues, file)
            changes.each(events, changes.fold)
            head = _head_after(changes, head, queues[-1])
            facts = list(_facts_after(changes))
            yield model.State(head, changes.queues(), _merged(file, changes, head.engine_ms), facts)


class _Events:
    """The events of a range, as often as they are gone through: they are not held."""

    def __init__(self, journal: Path, first: int, last: int) -> None:
        self._journal = journal
        self._first = first
        self._last = last

    def __iter__(self) -> Iterator[Event]:
        """Raises ``StateError`` when the journal does not have them all."""
        expected = self._first
        if expected > self._last:
            return
        for request in read_requests(self._journal, expected, lambda damage: None):
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
    changes.put_fact(FACT_EPOCH, {"root": head.root, "epoch": head.epoch})
    changes.put_fact(FACT_CLOCK, head.clock)
    changes.put_fact(FACT_LOSSES, head.losses or None)


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
        epoch=changes.fact(FACT_EPOCH)["epoch"],
        event=page.as_of,
        engine_ms=page.engine_ms,
        wall_ms=page.wall_ms,
        clock=changes.fact(FACT_CLOCK),
        losses=changes.fact(FACT_LOSSES) or [],
    )


def _take_pages(changes: Changes, events: _Events, queues: list[Page], file: IO[bytes]) -> None:
    """What the pages show of queues, and of the messages that events name."""
    records = ((QueueRecord.from_json(item), page.as_of) for page in queues for item in page.items)
    changes.each(records, lambda told: changes.put_queue(*told))
    changes.each((event["key"] for event in events if "key" in event), changes.name_key)
    changes.each(_split(file, changes.named(), named=True), lambda told: changes.put_message(*told))


def _split(file: IO[bytes], keys: Iterator[str], named: bool) -> Iterator[tuple[Message, int]]:
    """The messages of the file whose key is among ``keys``, or is not, and as of when each was read.

    Both are in the order of keys.
    """
    key = next(keys, None)
    file.seek(0)
    for line in file:
        as_of, _, data = line.partition(b" ")
        message: Message = orjson.loads(data)
        while key is not None and key < message["key"]:
            key = next(keys, None)
        if (key == message["key"]) == named:
            yield message, int(as_of)


def _merged(file: IO[bytes], changes: Changes, now: int) -> Iterator[Message]:
    """The messages of the file, those that an event names as they are at the end."""
    untouched = (message for message, _ in _split(file, changes.named(), named=False))
    for message in merge(untouched, changes.messages(), key=lambda message: str(message["key"])):
        if message["state"] == State.DELAYED and message["dueEngineMs"] <= now:
            message["state"] = State.READY.value  # time makes it so, and no event tells
        yield message
