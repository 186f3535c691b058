"""What happened to messages and queues while their pages were read: the journal's events, folded into those pages."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from postroom_common.events import Event, EventType

from ..files import LOST_ERRNOS, READ_FLAGS
from ..fold import apply
from ..records import BodyReference, Entry, QueueRecord, entry_from_json, history_fact
from ..stores.memory import MemoryStore
from ..stores.payloads import payload_path
from .model import Message, body_of, message_json

Body = Callable[[Entry, BodyReference], bytes | None]
"""The body of a message that is kept in a file; None when it is lost."""


def bodies_in(root: Path) -> Body:
    """Reads the bodies that the hybrid store keeps in files below ``root``. Raises ``OSError`` where the fault is not
    the file's: such a body is not lost."""

    def read(entry: Entry, reference: BodyReference) -> bytes | None:
        path = root / payload_path(entry.seq, entry.queue, entry.key)
        try:
            with open(path, "rb", opener=lambda name, flags: os.open(name, READ_FLAGS)) as file:
                body = file.read(reference.length + 1) or b""
        except OSError as error:
            if error.errno not in LOST_ERRNOS:
                raise
            return None
        return body if BodyReference.of(body) == reference else None

    return read


class Changes(MemoryStore):
    """Holds the messages that an event names, each from the moment its page shows on.

    ``pages`` says as of which event the page of a queue, or of a message, was read.
    """

    def __init__(self, start: int, body: Body) -> None:
        super().__init__()
        self.applied = start
        self._body = body
        self._pages: dict[str, int] = {}
        self._queue_pages: dict[str, int] = {}
        self._kept: dict[str, BodyReference] = {}
        self._lost: set[str] = set()

    def put_queue(self, record: QueueRecord, as_of: int) -> None:
        """A queue's record as its page shows it."""
        self.add_queue(record)
        self._queue_pages[record.name] = as_of

    def put_message(self, message: Message, as_of: int) -> None:
        """A message as its page shows it."""
        entry = entry_from_json(message)
        self._pages[entry.key] = as_of
        record = self.touch_queue(entry.queue)
        counted = record.copy()
        if "message" in message:
            self.insert(entry, body_of(message))
        else:
            self._lost.add(entry.key)
            self.insert(entry, b"")
        record.take_numbers(counted)  # its queue's page has counted it
        if "history" in message:
            self.put_fact(history_fact(entry.key), message["history"])

    def fold(self, event: Event) -> None:
        """Fold one event behind the oldest page."""
        record = self.queue(event.get("queue", ""))
        if record is None or event["id"] > self._queue_pages.get(record.name, 0):
            apply(event, self)
        else:
            counted = record.copy()
            apply(event, self)
            record.take_numbers(counted)  # the page has counted it
        self.commit()

    def reflects(self, event: Event) -> bool:
        key = event.get("key")
        if key is None:
            return bool(event["id"] <= self._queue_pages.get(event.get("queue", ""), 0))
        if key in self._pages:
            return bool(event["id"] <= self._pages[key])
        # In no page: it began after that was read, or had ended before.
        return event["type"] != EventType.PUBLISHED and self.get(key) is None

    def insert_kept(self, entry: Entry, reference: BodyReference) -> None:
        self._kept[entry.key] = reference
        self.insert(entry, b"")

    def messages(self) -> dict[str, Message]:
        """Every message that is left, by its key, in order."""
        found = {}
        for entry in self.entries("", len(self._entries)):
            kept = self._kept.get(entry.key)
            if entry.key in self._lost:
                body = None
            else:
                body = self._body(entry, kept) if kept else self.envelope(entry.key)
            found[entry.key] = message_json(entry, self.fact(history_fact(entry.key)) or [], body)
        return found

    def queues(self) -> list[QueueRecord]:
        """Every queue's record, in the order of their names."""
        return [self.touch_queue(name) for name in self._names]
