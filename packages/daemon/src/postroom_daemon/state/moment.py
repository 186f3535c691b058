"""The state of a daemon that goes on working, at one event: pages, and the events that came in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from heapq import merge
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import orjson

from postroom_common.events import Event, EventType
from postroom_common.protocol import State

from ..records import QueueRecord
from ..segments import read_requests
from . import model
from .changes import Body, Changes
from .model import Head, Message, StateError
from .pages import Ask, Page, read_head, read_pages


@contextmanager
def capture(ask: Ask, journal: Path, body: Body, workspace: Path) -> Iterator[model.State]:
    """The state at the event that had happened when the last page was read.

    The counts of its queues are what the daemon believes; where the queues fill more than one page, a message that
    became due meanwhile may be counted as delayed still. ``journal`` is the directory of the daemon's segments,
    ``workspace`` one with room for all messages. Raises ``StateError``, ``OSError``, and what ``ask`` raises.
    """
    head = read_head(ask)
    with TemporaryFile(dir=workspace, prefix="state-") as file:
        for page in read_pages(ask, "messages"):
            file.writelines(b"%d %b\n" % (page.as_of, orjson.dumps(message)) for message in page.items)
        queues = list(read_pages(ask, "queues"))  # last: so that there is a record for each message
        events = _events(journal, head.event + 1, queues[-1].as_of)
        changes = _fold(events, Changes(head.event, body), queues, file)
        head = _at_end(head, events, queues[-1])
        named = {event.get("key", "") for event in events}
        yield model.State(head, changes.queues(), _merged(file, named, changes.messages(), head.engine_ms))


def _read(file: IO[bytes]) -> Iterator[tuple[int, Message]]:
    file.seek(0)
    for line in file:
        as_of, _, message = line.partition(b" ")
        yield int(as_of), orjson.loads(message)


def _events(journal: Path, first: int, last: int) -> list[Event]:
    """The events of a range. Raises ``StateError`` when the journal does not have them all."""
    found: list[Event] = []
    if first > last:
        return found
    for request in read_requests(journal, first, lambda damage: None):
        found += [event for event in request.events if first <= event["id"] <= last]
        if request.events[-1]["id"] >= last:
            break
    if len(found) != last - first + 1:
        raise StateError(f"{journal}: events {first} to {last} are not all there; verify the root, then try again")
    return found


def _fold(events: list[Event], changes: Changes, queues: list[Page], file: IO[bytes]) -> Changes:
    for page in queues:
        for item in page.items:
            changes.put_queue(QueueRecord.from_json(item), page.as_of)
    keys = {event["key"] for event in events if "key" in event}
    if keys:
        for as_of, message in _read(file):
            if message["key"] in keys:
                changes.put_message(message, as_of)
    for event in events:
        changes.fold(event)
    return changes


def _at_end(head: Head, events: list[Event], page: Page) -> Head:
    """The head as of the last event, at the time of the last page."""
    marks = [event for event in events if event["type"] == EventType.CLOCK_MARKED]
    clock = {name: marks[-1][name] for name in head.clock} if marks else head.clock
    epoch = events[-1]["epoch"] if events else head.epoch
    return Head(head.root, epoch, page.as_of, head.backend, page.engine_ms, page.wall_ms, clock)


def _merged(file: IO[bytes], left_out: set[str], changed: dict[str, Message], now: int) -> Iterator[Message]:
    """The messages of the file, those that an event names as they are at the end."""
    untouched = (message for _, message in _read(file) if message["key"] not in left_out)
    for message in merge(untouched, changed.values(), key=lambda message: str(message["key"])):
        if message["state"] == State.DELAYED and message["dueEngineMs"] <= now:
            message["state"] = State.READY.value  # time makes it so, and no event tells
        yield message
