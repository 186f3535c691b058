"""Capture the state of a running daemon as of one event: read pages, then fold the events that came in between."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from typing import IO, ClassVar, Final, TypeVar

import orjson

from postroom_common.events import Event, EventType
from postroom_common.protocol import State

from ...engine.fold import apply
from ...engine.verbs.state import read_page
from ...journal.segments import Start
from ...model.facts import FACT_CLOCK, FACT_DAMAGE, FACT_EPOCH, FACT_LOSSES, history_fact
from ...model.lifecycle import removes
from ...model.records import BodyReference, Entry, QueueRecord, entry_from_json
from ...stores.base import TIMED
from ...stores.errors import BodyLost
from ...stores.recovery import Recovery
from ...stores.sqlite.references import ReferencedBodies, reference_value
from ...stores.sqlite.store import SqliteStore
from . import model
from .following import Body, Events
from .model import (
    PAGE_LIMIT,
    Ask,
    Fact,
    Head,
    Message,
    Page,
    StateError,
    Steps,
    body_of,
    finish,
    message_json,
    put_beside,
    read_head,
    read_pages,
)

T = TypeVar("T")

#: Keys, messages or queues that are read at once; items of one transaction.
_PAGE: Final = 100
_BATCH: Final = 1000
#: How often the journal is read on for bodies that are missing, and how often with pauses: the daemon that captures its
#: own state then executes no request until it has seen all of them.
_ROUNDS: Final = 1000
_SHARED_ROUNDS: Final = 3
#: The ``value_type`` of rows that refer to a body, and of those whose body is lost.
_REFERENCE: Final = "reference"
_LOST: Final = "lost"


class _References(ReferencedBodies):
    """Stores references to bodies in files as they are."""

    kind: ClassVar[str] = _REFERENCE

    def __init__(self) -> None:
        self.store: SqliteStore | None = None

    def insert(self, entry: Entry, reference: BodyReference) -> None:
        assert self.store
        self.store.several.insert([entry], [reference_value(reference)], _REFERENCE)


class _OnPages(Recovery):
    """Says of each event whether a page shows it already, so that it is not folded again."""

    replaying = True

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    def already_applied(self, event: Event) -> bool:
        return self._changes.is_on_page(event)


class Changes:
    """The messages that have events, each as its page shows it with later events folded, in a database of its own, so
    that memory does not grow with the number of events.

    Its table ``named`` has their keys, and the event as of which the page of each was read; 0: no page has it.
    ``bodies`` are those to which events refer. Pages of queues are in memory. The database is a file without a name,
    so that nothing of it remains after a crash.
    """

    def __init__(self, workspace: Path, start: int, body: Body) -> None:
        directory, references = Path(mkdtemp(prefix="state-", dir=workspace)), _References()
        self.store = store = SqliteStore(directory / "changes.db", synchronous="OFF", referenced=references)
        references.store = store
        store.recovery = _OnPages(self)
        self._body = body
        self._queue_pages: dict[str, int] = {}
        #: Messages without a body in its file, and without an event that has ended them.
        self.missing: set[str] = set()
        try:
            store.open()
            store.begin()
            store.db.execute(
                "CREATE TABLE named (key TEXT PRIMARY KEY, as_of INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID"
            )
            store.db.execute("CREATE TABLE bodies (key TEXT PRIMARY KEY, body BLOB NOT NULL)")
            store.commit()
        finally:
            shutil.rmtree(directory)
        store.applied = start

    def close(self) -> None:
        """Close the database."""
        self.store.close()

    def each(self, items: Iterable[T | None], do: Callable[[T], None]) -> Iterator[None]:
        """Do something with each item: one step for each, many in one transaction. None is a step without an item."""
        self.store.begin()
        for number, item in enumerate(items, 1):
            if item is not None:
                do(item)
            if number % _BATCH == 0:
                self.store.commit()
                self.store.begin()
            yield
        self.store.commit()

    def put_queue(self, record: QueueRecord, as_of: int) -> None:
        """Store a queue's record as its page shows it."""
        self.store.add_queue(record)
        self._queue_pages[record.name] = as_of

    def note(self, event: Event) -> None:
        """Note which message an event is about, and store the body to which it refers. Raises ``OSError``."""
        key = event.get("key")
        if key is None:
            return
        self.store.db.execute("INSERT OR IGNORE INTO named (key) VALUES (?)", (key,))
        if event["type"] == EventType.PUBLISHED and "body" in event:
            body = self._body(_published(event), BodyReference.from_json(event["body"]))
            if body is None:
                self.missing.add(key)
            else:
                self.store.db.execute("INSERT OR REPLACE INTO bodies (key, body) VALUES (?, ?)", (key, body))
        elif removes(event):
            self.missing.discard(key)
            self.store.db.execute("DELETE FROM bodies WHERE key = ?", (key,))

    def named(self) -> Iterator[str]:
        """The keys of messages with events, in order."""
        after = ""
        while rows := self.store.db.rows("SELECT key FROM named WHERE key > ? ORDER BY key LIMIT ?", (after, _PAGE)):
            yield from (key for (key,) in rows)
            after = rows[-1][0]

    def put_message(self, message: Message, as_of: int) -> None:
        """Store a message as its page shows it."""
        entry = entry_from_json(message)
        self.store.db.execute("UPDATE named SET as_of = ? WHERE key = ?", (as_of, entry.key))
        record = self.store.queue_for_update(entry.queue)
        counted = record.copy()
        if "message" in message:
            self.store.insert(entry, body_of(message))
        else:
            self.store.several.insert([entry], [b""], _LOST)
        record.take_numbers(counted)  # the queue's page has counted it
        put_beside(message, entry.key, self.store)

    def fold(self, event: Event) -> None:
        """Fold one event from behind the oldest page."""
        record = self.store.queue(event.get("queue", ""))
        if record is None or event["id"] > self._queue_pages.get(record.name, 0):
            apply(event, self.store)
        else:
            counted = record.copy()
            apply(event, self.store)
            record = self.store.queue_for_update(record.name)
            record.take_numbers(counted)  # the page has counted it

    def is_on_page(self, event: Event) -> bool:
        """Whether the page of an event's message or queue shows it already."""
        key = event.get("key")
        if key is None:
            return bool(event["id"] <= self._queue_pages.get(event.get("queue", ""), 0))
        (page,) = self.store.db.row("SELECT as_of FROM named WHERE key = ?", (key,))
        if page:
            return bool(event["id"] <= page)
        # In no page: it was published after its page was read, or had terminated before.
        return event["type"] != EventType.PUBLISHED and self.store.get(key) is None

    def messages(self) -> Iterator[Message]:
        """Every message that still exists, in the order of keys."""
        after = ""
        while True:
            self.store.begin()  # a transaction for each page, so that memory does not grow
            page = self.store.pages.entries(after, _PAGE)
            self.store.rollback()
            for entry in page:
                history, body = self.store.facts.get(history_fact(entry.key)) or [], self._body_now(entry)
                try:
                    appended = self.store.bodies.appended(entry)
                except BodyLost:
                    appended, body = [], None
                yield message_json(entry, history, body, appended)
            if not page:
                return
            after = page[-1].key

    def _body_now(self, entry: Entry) -> bytes | None:
        _, kind, _ = self.store.db.row(self.store.db.sql.get_value, (entry.key,))
        if kind == _LOST:
            return None
        if kind == _REFERENCE:
            row = self.store.db.row("SELECT body FROM bodies WHERE key = ?", (entry.key,))
            return row and bytes(row[0])
        return self.store.bodies.envelope(entry.key)

    def queues(self) -> Iterator[QueueRecord]:
        """Every queue's record, in the order of names."""
        after = ""
        while names := self.store.pages.queue_names(after, _PAGE):
            yield from (record for name in names if (record := self.store.queue(name)))
            after = names[-1]


@contextmanager
def capture(ask: Ask, journal: Path, body: Body, workspace: Path) -> Iterator[model.State]:
    """Capture the state as of the last event when the last page was read, or as of a later one: see ``_follow``.

    The counts of its queues are the daemon's; if the queues fill more than one page, a message that became due
    meanwhile may still be counted as delayed. ``journal`` is the directory of the daemon's segments, ``workspace`` one
    with space for all messages, so that memory grows neither with them nor with new events.
    Raises ``StateError``, ``StoreError``, ``OSError``, and what ``ask`` raises.
    """
    with ExitStack() as opened:
        found = finish(capture_in_steps(ask, journal, body, workspace, opened))
        messages = (message for message in found.messages if message is not None)
        records = model.read_records(ask, found.head.event)
        yield model.State(found.head, list(found.queues), messages, list(found.facts), records)


@dataclass(frozen=True, slots=True)
class Captured:
    """A state whose parts can be iterated once each, in this order. None among the messages is a step without one."""

    head: Head
    queues: Iterator[QueueRecord]
    facts: Iterator[Fact]
    messages: Iterator[Message | None]


def capture_in_steps(
    ask: Ask, journal: Path, body: Body, workspace: Path, opened: ExitStack, end: Start | None = None
) -> Steps[Captured]:
    """As ``capture``, in steps. ``opened`` closes the files of the result. ``end`` is the present end of the journal,
    if the caller has it."""
    head = read_head(ask)
    file = opened.enter_context(TemporaryFile(dir=workspace, prefix="state-"))  # noqa: SIM115 - opened closes it
    for page in read_pages(ask, "messages"):
        file.writelines(b"%d %b\n" % (page.as_of, orjson.dumps(message)) for message in page.items)
        yield
    changes = opened.enter_context(closing(Changes(workspace, head.event, body)))
    yield from changes.each([head], lambda head: _facts_before(changes, head))
    # Whatever event they are of: folding an event twice changes nothing.
    facts = (fact for page in read_pages(ask, "facts") for fact in page.items)
    yield from changes.each(facts, lambda fact: changes.store.facts.put(fact["name"], fact["value"]))
    page = yield from _take_queues(ask, changes)  # last: so that there is a record for each message
    events = Events(journal, head.event + 1, end)
    page = yield from _follow(ask, events, changes, page)
    yield from changes.each(_split(file, changes.named(), named=True), lambda placed: changes.put_message(*placed))
    yield from changes.each(events, changes.fold)
    head = _head_after(changes, head, page)
    return Captured(head, changes.queues(), _facts_after(changes), _merged(file, changes, head.engine_ms))


def _take_queues(ask: Ask, changes: Changes) -> Steps[Page]:
    """Store the queues of all pages. Returns the last page."""
    for page in read_pages(ask, "queues"):  # there is always one
        records = (QueueRecord.from_json(item) for item in page.items)
        yield from changes.each(records, partial(changes.put_queue, as_of=page.as_of))
    return page


def _published(event: Event) -> Entry:
    """As much of a message as says where its body is."""
    key, queue, number = event["key"], event["queue"], event["id"]
    return Entry(key=key, queue=queue, state=State.READY, priority=0, seq=number, created_wall=0, created=0)


def _follow(ask: Ask, events: Events, changes: Changes, page: Page) -> Steps[Page]:
    """Read the events up to the last page, with the bodies to which they refer. Returns the page to go by.

    The file of a body is removed when its message ends. So if one is missing, its message may have ended by a later
    event: the state is then captured as of that one. Its event is in the journal before the file is removed, so that a
    message that has not ended when the journal is read once more has lost its body.

    Raises ``StateError`` if messages always end before their bodies are read.
    """
    yield from changes.each(events.newer(page.as_of), changes.note)
    events.check(page.as_of)
    for number in range(_ROUNDS):
        missing = frozenset(changes.missing)
        if not missing:
            break
        for _ in changes.each(events.newer(), changes.note):
            if number < _SHARED_ROUNDS:
                yield
        changes.missing -= missing
    else:
        raise StateError("messages end faster than their bodies can be read; try again when the daemon has less to do")
    if events.last == page.as_of:
        return page
    if read_head(ask).event < events.last:  # the last group was rolled back
        raise StateError(f"the daemon has taken back event {events.last}, which was in its journal; try again")
    return Page(events.last, events.engine_ms, events.wall_ms, [])


def _facts_before(changes: Changes, head: Head) -> None:
    changes.store.facts.put(FACT_EPOCH, {"root": head.root, "epoch": head.epoch})
    changes.store.facts.put(FACT_CLOCK, head.clock)
    changes.store.facts.put(FACT_LOSSES, head.losses or None)
    changes.store.facts.put(FACT_DAMAGE, head.damage or None)


def _facts_after(changes: Changes) -> Iterator[Fact]:
    after = ""
    while True:
        page = read_page(changes.store, "facts", after, PAGE_LIMIT)
        yield from page["facts"]
        after = page["next"]
        if not after:
            return


def _head_after(changes: Changes, head: Head, page: Page) -> Head:
    """The head as of the last event, with the time of the last page."""
    return replace(
        head,
        epoch=changes.store.facts.get(FACT_EPOCH)["epoch"],
        event=page.as_of,
        engine_ms=page.engine_ms,
        wall_ms=page.wall_ms,
        clock=changes.store.facts.get(FACT_CLOCK),
        losses=changes.store.facts.get(FACT_LOSSES) or [],
        damage=changes.store.facts.get(FACT_DAMAGE) or [],
    )


def _split(file: IO[bytes], keys: Iterator[str], named: bool) -> Iterator[tuple[Message, int] | None]:
    """The messages of the file whose keys are among ``keys`` (with ``named``; else those whose keys are not), each with
    the event as of which it was read; None for each other message. Both inputs are in the order of keys."""
    key = next(keys, None)
    file.seek(0)
    for line in file:
        as_of, _, data = line.partition(b" ")
        message: Message = orjson.loads(data)
        while key is not None and key < message["key"]:
            key = next(keys, None)
        yield (message, int(as_of)) if (key == message["key"]) == named else None


def _merged(file: IO[bytes], changes: Changes, now: int) -> Iterator[Message | None]:
    """The messages of the file; those with events as they are after the last one."""
    changed = changes.messages()
    following = next(changed, None)
    for placed in _split(file, changes.named(), named=False):
        while following and placed and following["key"] < placed[0]["key"]:
            yield _at(following, now)
            following = next(changed, None)
        yield placed and _at(placed[0], now)
    while following:
        yield _at(following, now)
        following = next(changed, None)


def _at(message: Message, now: int) -> Message:
    if message["state"] in TIMED and message["dueEngineMs"] <= now:
        message["state"] = State.READY.value  # by time alone, without an event
    return message
