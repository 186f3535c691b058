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

from postroom_common.events import Event, EventType, raw_json
from postroom_common.protocol import State

from ...engine.fold import apply
from ...journal.ranges import missing_before
from ...journal.segments import read_requests
from ...model.lifecycle import TRANSITIONS, states_before
from ...model.records import FACT_CLOCK, BodyReference, Entry, QueueRecord, claim_fact, history_fact
from ...platform.clock import Now
from ...stores.base import Bodies
from ...stores.sqlite.references import reference_value
from ...stores.sqlite.rows import as_of, entry_of
from ...stores.sqlite.store import SqliteStore
from .compare_kv import TOLD_FACTS, RebuiltKv

_LEASE: Final = frozenset({"lease_id", "consumer_id", "holder_uid", "lease_until", "leased_at"})
_STATE: Final = frozenset({"state"})
#: What an event tells of a message, and with ``dueEngineMs`` when it is due. That it is leased does not tell its state:
#: a dead letter stays dead.
_TELLS: Final[dict[str, frozenset[str]]] = {
    EventType.LEASED: _LEASE | {"attempt"},
    EventType.LEASE_EXTENDED: frozenset({"lease_until"}),
    EventType.RELEASED: _STATE | _LEASE | {"attempt"},
    EventType.RETRIED: _STATE | _LEASE,
    EventType.DIED: _STATE | _LEASE | {"dead_at", "reason", "phase"},
    EventType.REPROCESSED: _STATE | _LEASE | {"attempt", "dead_at", "expires", "reason", "phase"},
    EventType.HELD: _STATE,
    EventType.UNHELD: _STATE,
    EventType.QUARANTINED: _STATE | {"phase"},
    EventType.RETARGETED: frozenset({"target", "fallback"}),
    EventType.RESCHEDULED: _STATE,
    EventType.MOVED: frozenset({"expires", "claim"}),
}
#: What an event tells of a queue.
QUEUE_TELLS: Final = {
    EventType.QUEUE_CREATED: "created",
    EventType.POLICY_SET: "override",
    EventType.PAUSED: "",
    EventType.RESUMED: "",
}


def told_of_message(event: Event) -> frozenset[str]:
    """The changing facts of its message that an event tells."""
    due = frozenset({"due"}) if "dueEngineMs" in event else frozenset()
    return _TELLS.get(event["type"], frozenset()) | due


def states_possible(event: Event) -> list[State | None]:
    """The states in which an event may have found its message, the usual one first."""
    if event["type"] == EventType.RELEASED:  # it says of what it is the end
        return [State.DEAD if event.get("state") == State.DEAD else State.INFLIGHT]
    return states_before(EventType(event["type"]))


def claims_ended(event: Event) -> list[str]:
    """The facts of the claims that an event ends."""
    if event["type"] == EventType.CLAIMS_ENDED:
        return [claim_fact(queue, claim) for queue, claim in event["claims"]]
    claim = event.get("claim")
    return [claim_fact(event["queue"], claim)] if type(claim) is str else []


#: Requests that are folded in one transaction, messages that are read in one.
_BATCH: Final = 2000
_PAGE: Final = 1000
#: What the names begin with of the facts that keep by which events a fact is told.
_TOLD: Final = "told:"
#: The kind of the rows that refer to a body.
_BODY: Final = "body"


class RebuiltMessage(NamedTuple):
    """What the journal says of a message. ``event`` is the last one about it, ``known`` the changing facts that it
    tells (None: all). An entry whose ``seq`` is 0 was published before the journal begins: no more is known of it."""

    entry: Entry
    event: int
    body: BodyReference | None
    history: list[Any]
    known: frozenset[str] | None


@dataclass(slots=True)
class RebuiltQueues:
    """What the journal says of queues and clocks, up to an event."""

    queues: dict[str, QueueRecord] = field(default_factory=dict)
    told: dict[tuple[str, str], int] = field(default_factory=dict)  # queue and what of it: the event that told it
    clock: Any = None


class _References(Bodies):
    """Every body is a reference, whatever the store that is compared does with it."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def insert(self, entry: Entry, reference: BodyReference) -> None:
        self._store.insert_value(entry, reference_value(reference), _BODY)


class Rebuilt:
    """``at`` is the event up to which the store has folded: ``books`` are as of then."""

    def __init__(self, path: Path, at: int) -> None:
        self.store = store = SqliteStore(path, synchronous="OFF")
        store.bodies = _References(store)
        store.on_put_kv = self._note_kv
        msg = store.db.tables["msg"]
        self._select_as_of = f"SELECT as_of FROM {msg} WHERE message_key = ?"
        self.first = self.last = 0  # of the events that the journal has
        self.behind = 0  # how many the store has not folded
        self.unfoldable = ""  # a message that the store has not folded, and whose body is in a file
        self.clean = False  # after the last event the daemon stopped in order
        self.time = Now(0, 0)  # of the last event
        self.missing: list[tuple[int, int]] = []  # inside the journal, whatever a gap event says of them
        self.undeclared: list[tuple[int, int]] = []  # those that no gap event declares
        self.accepted: list[tuple[int, int]] = []  # the store has never seen them, and an operator knows
        self.noted: list[tuple[int, int]] = []  # the store has folded them, and an operator knows
        self.books = RebuiltQueues()
        self._at = at
        self._told: dict[tuple[str, str], int] = {}
        self._hole = 0  # the last event that is missing so far
        self._folding: Event = {}
        self._closed = False

    def open(self) -> None:
        """Create the database. Raises ``StoreError``."""
        self.store.open()

    def close(self) -> None:
        """Release the database."""
        self.store.close()

    # --- folding ----------------------------------------------------------------------------------------------

    def read(self, journal: Path, up_to: int) -> None:
        """Fold all intact requests up to an event. Raises ``OSError``, ``StoreError``."""
        self.store.begin()
        requests = read_requests(journal, 1, lambda damage: None) if journal.is_dir() else ()
        for count, request in enumerate(requests, 1):
            events = request.events
            if events[-1]["id"] > up_to:
                break
            self._note(events)
            for event in events:
                self._fold(event)
            if count % _BATCH == 0:
                self.store.commit()
                self.store.begin()
        if not self._closed:
            self._close_books()
        self.store.commit()

    def _note(self, events: list[Event]) -> None:
        first, last = events[0]["id"], events[-1]
        if not self.first:
            self.first = first
            self.store.applied = first - 1
        elif missing := missing_before(events[0], self.last + 1):
            self._hole = missing.last
            self.missing.append((missing.first, missing.last))
            if not missing.declared:
                self.undeclared.append((missing.first, missing.last))
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
        names = [key for key, _ in self._told] + self.store.pages.queue_names("", 2**31)
        records = {name: deepcopy(record) for name in names if (record := self.store.queue(name))}
        self.books = RebuiltQueues(records, dict(self._told), self.store.get_kv(FACT_CLOCK))

    def _fold(self, event: Event) -> None:
        if event["id"] <= self.store.applied:
            return
        self._folding = event
        self._fold_one(event)
        for name in claims_ended(event):
            if self.store.get_kv(name) is None:  # when it was made, the journal does not tell
                self.store.put_kv(name, None)

    def _fold_one(self, event: Event) -> None:
        type_, key = event["type"], event.get("key")
        if type_ == EventType.LOSS_ACCEPTED:
            known = self.noted if event.get("folded") else self.accepted
            known += [(first, last) for first, last in event["ranges"]]
        if type_ in QUEUE_TELLS:
            self._told[event["queue"], QUEUE_TELLS[EventType(type_)] or event["operation"]] = event["id"]
        if key is None or type_ not in TRANSITIONS:
            apply(event, self.store)
            return
        if type_ == EventType.PUBLISHED:
            if self.store.get(key) is None:
                apply(self._with_reference(event), self.store)
            return
        before = self._as_of_row(key) if self._hole else 0
        entry = self._meet(event, key)
        if before < self._hole:
            self._forget_facts(entry)
        partial = entry.seq == 0 or (entry.seq < self._hole and self.store.get_kv(_known(key)) is not None)
        apply(event, self.store)
        if self.store.get(key) is None:
            if partial or event["id"] > self._at:
                self.store.put_kv(_ended(key), event["id"])
        elif partial:
            self._learn(key, told_of_message(event))

    def _with_reference(self, event: Event) -> Event:
        """A published event that refers to its body."""
        if "message" in event:
            reference = BodyReference.of(raw_json(event["message"]))
            rest = {name: value for name, value in event.items() if name != "message"}
            return {**rest, "body": reference.to_json()}
        if event["id"] > self._at and not self.unfoldable:
            self.unfoldable = event["key"]
        return event

    def _meet(self, event: Event, key: str) -> Entry:
        """See that the event finds its message in a state that it may follow: where events are missing between, it says
        by itself what came of them."""
        befores = states_possible(event)
        entry, state = self.store.get(key), befores[0]
        assert state is not None
        if entry is None:
            self._see_to_queue(event)
            entry = Entry(key, event["queue"], state, 0, 0, 0, 0)
            self.store.bodies.insert(entry, BodyReference(0, ""))
        else:
            before, source = entry.state, entry.queue
            entry.state = state if before not in befores else before
            entry.queue = event["queue"]
            if source != entry.queue:
                self._see_to_queue(event)
                self.store.move(entry, source, before)
            elif entry.state is not before:
                self.store.update(entry, before)
        return entry

    def _see_to_queue(self, event: Event) -> None:
        if self.store.queue(event["queue"]) is None:
            self.store.add_queue(QueueRecord(event["queue"]))

    def _as_of_row(self, key: str) -> int:
        """The last event about a message, if it is there."""
        row = self.store.db.row(self._select_as_of, (key,))
        return row[0] if row else 0

    def _forget_facts(self, entry: Entry) -> None:
        """Events are missing since the last one about this message, and may have told otherwise."""
        self.store.put_kv(_known(entry.key), [])
        self.store.put_kv(history_fact(entry.key), None)
        entry.failures = 0

    def _learn(self, key: str, told: frozenset[str]) -> None:
        known = frozenset(self.store.get_kv(_known(key)) or ())
        if not told <= known:
            self.store.put_kv(_known(key), sorted(known | told))

    def _note_kv(self, name: str, value: Any) -> None:
        if name.startswith(TOLD_FACTS):
            event = self._folding
            # A run tells when the next one is, and no more of its schedule.
            whole = event["type"] != EventType.SCHEDULE_FIRED
            base = event["id"] if whole else self.store.get_kv(_TOLD + name)[0]
            self.store.put_kv(_TOLD + name, [base, event["id"]])

    # --- reading ----------------------------------------------------------------------------------------------

    def messages(self) -> Iterator[RebuiltMessage]:
        """What is said of each message that is there at the end, in the order of their keys."""
        after = ""
        while True:
            self.store.begin()
            page = [
                self._said(entry_of(row), as_of(row))
                for row in self.store.db.rows(self.store.db.sql.page, (after, _PAGE))
            ]
            self.store.rollback()
            yield from page
            if len(page) < _PAGE:
                return
            after = page[-1].entry.key

    def _said(self, entry: Entry, event: int) -> RebuiltMessage:
        history = self.store.get_kv(history_fact(entry.key)) or [] if entry.failures else []
        known = self.store.get_kv(_known(entry.key)) if entry.seq == 0 or entry.seq < self._hole else None
        if entry.seq == 0:
            return RebuiltMessage(entry, event, None, history, frozenset(known or ()))
        body = BodyReference.from_json(orjson.loads(self.store.envelope(entry.key)))
        return RebuiltMessage(entry, event, body, history, None if known is None else frozenset(known))

    def told_facts(self) -> Iterator[RebuiltKv]:
        """What is said of each fact that the journal tells of."""
        after = ""
        while True:
            self.store.begin()
            page = self.store.pages.kv_names(_TOLD, after, _PAGE)
            told = [self._told_fact(name.removeprefix(_TOLD)) for name in page]
            self.store.rollback()
            yield from told
            if len(page) < _PAGE:
                return
            after = page[-1]

    def _told_fact(self, name: str) -> RebuiltKv:
        base, last = self.store.get_kv(_TOLD + name)
        return RebuiltKv(name, base, last, self.store.get_kv(name))

    def ended(self, key: str) -> int:
        """The event that ended a message, if it was published before the journal begins, or was ended behind what the
        store has folded; else 0."""
        return self.store.get_kv(_ended(key)) or 0

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
