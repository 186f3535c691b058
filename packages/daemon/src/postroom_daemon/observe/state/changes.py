"""What happened to messages and queues while their pages were read: the journal's events, folded into those pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Final, TypeVar

import orjson

from postroom_common.events import Event, EventType
from postroom_common.protocol import State

from ...engine.fold import apply
from ...model.records import BodyReference, Entry, QueueRecord, entry_from_json, history_fact
from ...platform.files import LOST_ERRNOS, READ_FLAGS
from ...stores.base import Bodies
from ...stores.hybrid.payload_names import payload_path
from ...stores.sqlite.store import SqliteStore
from .model import Message, body_of, message_json

T = TypeVar("T")

#: Keys, messages or queues of one look, and what is done in one transaction.
_PAGE: Final = 100
_BATCH: Final = 1000
#: The ``value_type`` of a row that refers to a body, and of one whose body is lost.
_REFERENCE: Final = "reference"
_LOST: Final = "lost"

Body = Callable[[Entry, BodyReference], bytes | None]
"""The body of a message that is kept in a file; None when it is lost."""


def bodies_in(root: Path) -> Body:
    """Reads the bodies that the hybrid store keeps in files below ``root``. Raises ``OSError`` where the fault is not
    the file's: such a body is not lost."""

    def read(entry: Entry, reference: BodyReference) -> bytes | None:
        path = root / payload_path(entry.seq, reference.queue or entry.queue, entry.key)
        try:
            with open(path, "rb", opener=lambda name, flags: os.open(name, READ_FLAGS)) as file:
                body = file.read(reference.length + 1) or b""
        except OSError as error:
            if error.errno not in LOST_ERRNOS:
                raise
            return None
        return body if reference.fits(body) else None

    return read


class _References(Bodies):
    """References to bodies in files are stored as they are."""

    def __init__(self, changes: Changes) -> None:
        self.insert = changes.insert_reference  # type: ignore[method-assign]


class Changes(SqliteStore):
    """Holds the messages that an event names, each from the moment its page shows on: in a database of its own, so that
    memory does not grow with what happens meanwhile.

    ``named`` tells the keys that events name, and as of which event the page of each was read; 0: it is in none. What
    queues' pages show is in memory. The database is a file without a name: nothing of it is left, whatever happens.
    """

    def __init__(self, workspace: Path, start: int, body: Body) -> None:
        super().__init__(Path(mkdtemp(prefix="state-", dir=workspace)) / "changes.db", synchronous="OFF")
        self._body = body
        self.bodies = _References(self)
        self._queue_pages: dict[str, int] = {}
        try:
            self.open()
            self.begin()
            self._execute("CREATE TABLE named (key TEXT PRIMARY KEY, as_of INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID")
            self.commit()
        finally:
            shutil.rmtree(self._path.parent)
        self.applied = start
        self.replaying = True  # always: what a page shows is not folded

    def each(self, items: Iterable[T | None], do: Callable[[T], None]) -> Iterator[None]:
        """Do something with each item, a step for each, many in one transaction. None is a step without an item."""
        self.begin()
        for number, item in enumerate(items, 1):
            if item is not None:
                do(item)
            if number % _BATCH == 0:
                self.commit()
                self.begin()
            yield
        self.commit()

    def put_queue(self, record: QueueRecord, as_of: int) -> None:
        """A queue's record as its page shows it."""
        self.add_queue(record)
        self._queue_pages[record.name] = as_of

    def name_key(self, key: str) -> None:
        """An event names this message."""
        self._execute("INSERT OR IGNORE INTO named (key) VALUES (?)", (key,))

    def named(self) -> Iterator[str]:
        """The keys that events name, in order."""
        after = ""
        while rows := self._rows("SELECT key FROM named WHERE key > ? ORDER BY key LIMIT ?", (after, _PAGE)):
            yield from (key for (key,) in rows)
            after = rows[-1][0]

    def put_message(self, message: Message, as_of: int) -> None:
        """A message as its page shows it."""
        entry = entry_from_json(message)
        self._execute("UPDATE named SET as_of = ? WHERE key = ?", (as_of, entry.key))
        record = self.queue_for_update(entry.queue)
        counted = record.copy()
        if "message" in message:
            self.insert(entry, body_of(message))
        else:
            self._add(entry, "", _LOST)
        record.take_numbers(counted)  # its queue's page has counted it
        if "history" in message:
            self.put_kv(history_fact(entry.key), message["history"])

    def fold(self, event: Event) -> None:
        """Fold one event behind the oldest page."""
        record = self.queue(event.get("queue", ""))
        if record is None or event["id"] > self._queue_pages.get(record.name, 0):
            apply(event, self)
        else:
            counted = record.copy()
            apply(event, self)
            record = self.queue_for_update(record.name)
            record.take_numbers(counted)  # the page has counted it

    def already_applied(self, event: Event) -> bool:
        key = event.get("key")
        if key is None:
            return bool(event["id"] <= self._queue_pages.get(event.get("queue", ""), 0))
        (page,) = self._row("SELECT as_of FROM named WHERE key = ?", (key,))
        if page:
            return bool(event["id"] <= page)
        # In no page: it began after that was read, or had ended before.
        return event["type"] != EventType.PUBLISHED and self.get(key) is None

    def insert_reference(self, entry: Entry, reference: BodyReference) -> None:
        """A message with what refers to its body."""
        self._add(entry, orjson.dumps(reference.to_json()).decode(), _REFERENCE)

    def move(self, entry: Entry, source: str, before: State) -> None:
        super().move(entry, source, before)
        self._note_birth(entry, source, _REFERENCE)

    def messages(self) -> Iterator[Message]:
        """Every message that is left, in the order of the keys."""
        after = ""
        while True:
            self.begin()  # what it has looked at is forgotten at its end
            page = self.entries(after, _PAGE)
            self.rollback()
            for entry in page:
                yield message_json(entry, self.get_kv(history_fact(entry.key)) or [], self._body_now(entry))
            if not page:
                return
            after = page[-1].key

    def _body_now(self, entry: Entry) -> bytes | None:
        value, kind, _ = self._row(self._sql.get_value, (entry.key,))
        if kind == _LOST:
            return None
        if kind == _REFERENCE:
            return self._body(entry, BodyReference.from_json(orjson.loads(value)))
        return self.envelope(entry.key)

    def queues(self) -> Iterator[QueueRecord]:
        """Every queue's record, in the order of their names."""
        after = ""
        while names := self.queue_names(after, _PAGE):
            yield from (record for name in names if (record := self.queue(name)))
            after = names[-1]
