"""What the journal says: its events folded into a database of their own, against which a store is compared.

The fold is that of the daemon. What it cannot know, since the journal does not reach back so far, is marked as such:
an event on a message that was published before makes a stand-in for it, of which only what the events tell is believed.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from postroom_common.events import Event, EventType

from ..clock import Now
from ..fold import apply
from ..lifecycle import TRANSITIONS
from ..records import FACT_CLOCK, BodyReference, Entry, QueueRecord, history_fact
from ..segments import read_requests
from ..stores.sqlite import SqliteStore
from ..stores.sqlite_rows import entry_of

#: Requests that are folded in one transaction, messages that are read in one.
_BATCH: Final = 2000
_PAGE: Final = 1000
_LEASE: Final = frozenset({"lease_id", "consumer_id", "lease_until", "leased_at"})
#: What an event tells of a message besides its state.
_TELLS: Final[dict[str, frozenset[str]]] = {
    EventType.LEASED: _LEASE | {"attempt"},
    EventType.LEASE_EXTENDED: frozenset({"lease_until"}),
    EventType.RELEASED: _LEASE | {"attempt"},
    EventType.RETRIED: _LEASE | {"due"},
    EventType.DIED: _LEASE | {"dead_at"},
    EventType.REPROCESSED: frozenset({"attempt", "dead_at"}),
}
#: What an event tells of a queue.
_QUEUE_TELLS: Final = {
    EventType.QUEUE_CREATED: "created",
    EventType.POLICY_SET: "override",
    EventType.PAUSED: "",
    EventType.RESUMED: "",
}


class Said(NamedTuple):
    """What the journal says of a message. ``known`` are the facts that it tells, None for all of them; ``event`` is the
    last one about it."""

    entry: Entry
    event: int
    body: BodyReference | None
    history: list[Any]
    known: frozenset[str] | None


@dataclass(slots=True)
class Books:
    """What the journal says of queues and clocks, up to an event."""

    queues: dict[str, QueueRecord] = field(default_factory=dict)
    told: dict[tuple[str, str], int] = field(default_factory=dict)  # queue and what of it: the event that told it
    clock: Any = None


class Expected(SqliteStore):
    """``at`` is the event up to which the store has folded: ``books`` are as of then."""

    def __init__(self, path: Path, at: int) -> None:
        super().__init__(path, synchronous="OFF")
        self.first = self.last = 0  # of the events that the journal has
        self.behind = 0  # how many the store has not folded
        self.clean = False  # after the last event the daemon stopped in order
        self.time = Now(0, 0)  # of the last event
        self.missing: list[tuple[int, int]] = []  # inside the journal, whatever a gap event says of them
        self.untold: list[tuple[int, int]] = []  # those of which no gap event tells
        self.accepted: list[tuple[int, int]] = []  # the store has never seen them, and an operator knows
        self.noted: list[tuple[int, int]] = []  # the store has folded them, and an operator knows
        self.books = Books()
        self._at = at
        self._told: dict[tuple[str, str], int] = {}
        self._closed = False

    # --- folding ----------------------------------------------------------------------------------------------

    def read(self, journal: Path, up_to: int) -> None:
        """Fold all intact requests up to an event. Raises ``OSError``, ``StoreError``."""
        self.begin()
        for count, request in enumerate(read_requests(journal, 1, lambda damage: None), 1):
            events = request.events
            if events[-1]["id"] > up_to:
                break
            self._note(events)
            for event in events:
                self._fold(event)
            if count % _BATCH == 0:
                self.commit()
                self.begin()
        if not self._closed:
            self._close_books()
        self.commit()

    def _note(self, events: list[Event]) -> None:
        first, last = events[0]["id"], events[-1]
        if not self.first:
            self.first = first
            self.applied = first - 1
        elif first > self.last + 1:
            self.missing.append((self.last + 1, first - 1))
            if events[0]["type"] != EventType.GAP:
                self.untold.append(self.missing[-1])
        if last["id"] > self._at:
            if not self._closed:
                self._close_books()
            self.behind += len(events)
        self.last = max(self.last, last["id"])
        self.clean = last.get("clean", False)
        self.time = max(self.time, Now(last["engineMs"], last["wallMs"]))

    def _close_books(self) -> None:
        """Keep what is said of queues and clocks as of the event up to which the store has folded."""
        self._closed = True
        names = [key for key, _ in self._told] + self.queue_names("", 2**31)
        records = {name: deepcopy(record) for name in names if (record := self.queue(name))}
        self.books = Books(records, dict(self._told), self.fact(FACT_CLOCK))

    def _fold(self, event: Event) -> None:
        if event["id"] <= self.applied:
            return
        type_, key = event["type"], event.get("key")
        if type_ == EventType.LOSS_ACCEPTED:
            known = self.noted if event.get("folded") else self.accepted
            known += [(first, last) for first, last in event["ranges"]]
        if type_ in _QUEUE_TELLS:
            self._told[event["queue"], _QUEUE_TELLS[EventType(type_)] or event["operation"]] = event["id"]
        if key is None or type_ not in TRANSITIONS:
            apply(event, self)
            return
        if type_ == EventType.PUBLISHED:
            if self.get(key) is None:
                apply(event, self)
            return
        partial = self._meet(event, key).seq == 0
        apply(event, self)
        if self.get(key) is None:
            if partial or event["id"] > self._at:
                self.put_fact(_ended(key), event["id"])
        elif partial:
            self._learn(key, _TELLS.get(type_, frozenset()))

    def _meet(self, event: Event, key: str) -> Entry:
        """See that the event finds its message in a state that it may follow: where events are missing between, it says
        by itself what came of them."""
        befores = TRANSITIONS[EventType(event["type"])][0]
        entry, state = self.get(key), befores[0]
        assert state is not None
        if entry is None:
            if self.queue(event["queue"]) is None:
                self.add_queue(QueueRecord(event["queue"]))
            entry = Entry(key, event["queue"], state, 0, 0, 0, 0)
            self.insert_kept(entry, BodyReference(0, ""))
        elif entry.state not in befores:
            before, entry.state = entry.state, state
            self.update(entry, before)
        return entry

    def _learn(self, key: str, told: frozenset[str]) -> None:
        known = frozenset(self.fact(_known(key)) or ())
        if not told <= known:
            self.put_fact(_known(key), sorted(known | told))

    def insert(self, entry: Entry, envelope: bytes) -> None:
        self.insert_kept(entry, BodyReference.of(envelope))

    def insert_kept(self, entry: Entry, reference: BodyReference) -> None:
        self._add(entry, orjson.dumps(reference.to_json()).decode(), "body")

    # --- reading ----------------------------------------------------------------------------------------------

    def messages(self) -> Iterator[Said]:
        """What is said of each message that is there at the end, in the order of their keys."""
        after = ""
        while True:
            self.begin()
            page = [self._said(entry_of(row), row[-2]) for row in self._rows(self._sql.page, (after, _PAGE))]
            self.rollback()
            yield from page
            if len(page) < _PAGE:
                return
            after = page[-1].entry.key

    def _said(self, entry: Entry, event: int) -> Said:
        history = self.fact(history_fact(entry.key)) or [] if entry.failures else []
        if entry.seq == 0:
            return Said(entry, event, None, history, frozenset(self.fact(_known(entry.key)) or ()))
        return Said(entry, event, BodyReference.from_json(orjson.loads(self.envelope(entry.key))), history, None)

    def ended(self, key: str) -> int:
        """The event that ended a message, if it was published before the journal begins, or was ended behind what the
        store has folded; else 0."""
        return self.fact(_ended(key)) or 0

    def is_noted(self, missing: tuple[int, int]) -> bool:
        """Whether an operator has taken note of a range that is missing."""
        return lies_in(missing, [*self.accepted, *self.noted])

    def lacks(self, event: int) -> bool:
        """Whether the journal does not have an event."""
        return event < self.first or event > self.last or any(first <= event <= last for first, last in self.missing)


def lies_in(span: tuple[int, int], spans: list[tuple[int, int]]) -> bool:
    """Whether a range lies in one of others."""
    return any(first <= span[0] and span[1] <= last for first, last in spans)


def _ended(key: str) -> str:
    return f"ended:{key}"


def _known(key: str) -> str:
    return f"known:{key}"
