"""The journal folded into a database of its own, with which a store is compared.

The fold is the daemon's. An event about a message that was published before the journal begins makes a stand-in for the
message, of which only the attributes that events define are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import orjson

from postroom_common.events import Event, EventType, raw_json
from postroom_common.protocol import State

from ...engine.fold import apply
from ...journal.ranges import missing_before
from ...journal.segments import read_requests
from ...model.facts import FACT_CLOCK, claim_fact, history_fact, part_fact
from ...model.lifecycle import TRANSITIONS, states_before
from ...model.records import BodyReference, Entry, QueueRecord
from ...platform.clock import Now
from ...stores.base import BodyFiles
from ...stores.sqlite.references import reference_value
from ...stores.sqlite.rows import as_of, entry_of
from ...stores.sqlite.store import SqliteStore
from .compare_kv import KV_PREFIXES, RebuiltKv

_LEASE: Final = frozenset({"lease_id", "consumer_id", "holder_uid", "lease_until", "leased_at"})
_STATE: Final = frozenset({"state"})
#: Attributes of a message that an event defines, besides those of ``attributes_of``. A lease does not define the state:
#: a dead letter stays dead.
_ATTRIBUTES: Final[dict[str, frozenset[str]]] = {
    EventType.PART_APPENDED: frozenset({"parts"}),
    EventType.PART_SET: frozenset({"unset"}),
    EventType.LEASED: _LEASE | {"attempt", "phase"},
    EventType.LEASE_EXTENDED: frozenset({"lease_until"}),
    EventType.ACTIVATED: _STATE | {"attempt", "lease_until", "phase"},
    EventType.ACKED: _STATE | _LEASE | {"dead_at", "phase"},  # if it stays
    EventType.RELEASED: _STATE | _LEASE | {"attempt"},
    EventType.RETRIED: _STATE | _LEASE,  # and the attempt if it is given back
    EventType.DIED: _STATE | _LEASE | {"dead_at", "reason", "phase"},
    EventType.REPROCESSED: _STATE | _LEASE | {"attempt", "dead_at", "expires", "reason", "phase"},
    EventType.HELD: _STATE,
    EventType.UNHELD: _STATE,
    EventType.QUARANTINED: _STATE | {"phase"},
    EventType.RETARGETED: frozenset({"target", "fallback"}),
    EventType.RESCHEDULED: _STATE,
    EventType.MOVED: frozenset({"expires", "claim"}),
}
#: The part of a queue that an event defines.
QUEUE_PARTS: Final = {
    EventType.QUEUE_CREATED: "created",
    EventType.POLICY_SET: "override",
    EventType.PAUSED: "",
    EventType.RESUMED: "",
}


def attributes_of(event: Event) -> frozenset[str]:
    """The changing attributes of its message that an event defines."""
    due = frozenset({"due"}) if "dueEngineMs" in event else frozenset()
    returned = frozenset({"returned_seq"}) if "returnTo" in event else frozenset()
    attempt = frozenset({"attempt"}) if "attempt" in event else frozenset()
    of_lease = event["type"] == EventType.RELEASED and event.get("state") != State.DEAD
    phase = frozenset({"phase"}) if of_lease else frozenset()
    parts = frozenset({"parts", "unset"}) if event.get("keep") == "headers" else frozenset()
    if event["type"] == EventType.PART_SET and "state" in event:  # it has become ready
        returned |= {"state", "expires", "fallback", "claim"}
    return _ATTRIBUTES.get(event["type"], frozenset()) | due | returned | attempt | phase | parts


def states_possible(event: Event) -> list[State | None]:
    """The states that its message may have had before an event, the usual one first."""
    if event["type"] == EventType.RELEASED:  # it names the former state
        return [State.DEAD if event.get("state") == State.DEAD else State.INFLIGHT]
    if event["type"] == EventType.PART_SET and not event["unset"] and "state" not in event:
        return [State.READY, State.DELAYED]
    return states_before(EventType(event["type"]))


def claims_ended(event: Event) -> list[str]:
    """The key-values of the claims that an event ends."""
    if event["type"] == EventType.CLAIMS_ENDED:
        return [claim_fact(queue, claim) for queue, claim in event["claims"]]
    claim = event.get("claim")
    if type(claim) is dict:
        claim = claim.get("replaces")
    return [claim_fact(event["queue"], claim)] if claim else []


#: Requests that are folded in one transaction, messages that are read in one.
_BATCH: Final = 2000
_PAGE: Final = 1000
#: Prefix of key-values that store by which events a key-value was defined.
_DEFINED: Final = "told:"
#: The kind of the rows that refer to a body.
_BODY: Final = "body"


class RebuiltMessage(NamedTuple):
    """A message by the journal. ``event`` is the last one about it, ``known`` the changing attributes that the journal
    defines (None: all). An entry with ``seq`` 0 was published before the journal begins. ``appended`` are the parts
    beside its body, if all of them are known, else ``parts`` those that are, by their numbers; ``set_by`` is the event
    that replaced the body, 0: none did."""

    entry: Entry
    event: int
    body: BodyReference | None
    history: list[Any]
    known: frozenset[str] | None
    appended: list[Any]
    set_by: int = 0
    parts: Mapping[int, Any] = MappingProxyType({})

    def parts_over(self, found: list[Any]) -> list[Any]:
        """The parts beside its body by the journal, of which ``found`` are in the store."""
        if self.known is None:
            return self.appended
        right = found + [None] * (max(self.parts, default=0) - len(found))
        for number, part in self.parts.items():
            right[number - 1] = part
        return right


@dataclass(slots=True)
class RebuiltQueues:
    """Queues and clock mark by the journal, as of an event."""

    queues: dict[str, QueueRecord] = field(default_factory=dict)
    defined_by: dict[tuple[str, str], int] = field(default_factory=dict)  # queue and part: the event that defined it
    clock: Any = None


class _References(BodyFiles):
    """Stores every body as a reference, whatever the compared store does."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def insert(self, entry: Entry, reference: BodyReference) -> None:
        self._store.several.insert([entry], [reference_value(reference)], _BODY)


class Rebuilt:
    """The journal, folded into a database. ``at`` is the event up to which the compared store has folded, and of which
    ``folded`` are."""

    def __init__(self, path: Path, at: int) -> None:
        self.store = store = SqliteStore(path, synchronous="OFF")
        store.body_files = _References(store)
        store.facts.on_put = self._note_fact
        msg = store.db.tables["msg"]
        self._select_as_of = f"SELECT as_of FROM {msg} WHERE message_key = ?"
        self.first = self.last = 0  # events of the journal
        self.behind = 0  # number of events that the store has not folded
        self.unfoldable = ""  # key of a message that the store has not folded, with its body in a file
        self.clean = False  # the daemon stopped in order after the last event
        self.time = Now(0, 0)  # of the last event
        self.missing: list[tuple[int, int]] = []  # inside the journal, declared or not
        self.undeclared: list[tuple[int, int]] = []  # those that no gap event declares
        self.accepted: list[tuple[int, int]] = []  # never folded by the store, accepted by an operator
        self.noted: list[tuple[int, int]] = []  # folded by the store, accepted by an operator
        self.folded = RebuiltQueues()
        self._at = at
        self._defined_by: dict[tuple[str, str], int] = {}
        self._hole = 0  # the last missing event so far
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
        """Copy queues and clock mark as of the event up to which the store has folded."""
        self._closed = True
        names = [key for key, _ in self._defined_by] + self.store.pages.queue_names("", 2**31)
        records = {name: deepcopy(record) for name in names if (record := self.store.queue(name))}
        self.folded = RebuiltQueues(records, dict(self._defined_by), self.store.facts.get(FACT_CLOCK))

    def _fold(self, event: Event) -> None:
        if event["id"] <= self.store.applied:
            return
        self._folding = event
        self._fold_one(event)
        for name in claims_ended(event):
            if self.store.facts.get(name) is None:  # it was made before the journal begins
                self.store.facts.put(name, None)

    def _fold_one(self, event: Event) -> None:
        type_, key = event["type"], event.get("key")
        if type_ == EventType.LOSS_ACCEPTED:
            known = self.noted if event.get("folded") else self.accepted
            known += [(first, last) for first, last in event["ranges"]]
        if type_ in QUEUE_PARTS:
            self._defined_by[event["queue"], QUEUE_PARTS[EventType(type_)] or event["operation"]] = event["id"]
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
        if "message" in event:  # another body
            event = event | {"message": BodyReference.of(raw_json(event["message"])).to_json()}
            self.store.facts.put(_set_by(key), event["id"])
        partial = entry.seq == 0 or (entry.seq < self._hole and self.store.facts.get(_known(key)) is not None)
        apply(event, self.store)
        if self.store.get(key) is None:
            if partial or event["id"] > self._at:
                self.store.facts.put(_ended(key), event["id"])
        elif partial:
            self._learn(key, attributes_of(event))
            self._learn_parts(key, event)

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
        """Put the event's message into a state that the event may follow: if events are missing in between, it says by
        itself what they led to."""
        befores = states_possible(event)
        entry, state = self.store.get(key), befores[0]
        assert state is not None
        if entry is None:
            self._see_to_queue(event)
            entry = Entry(key, event["queue"], state, 0, 0, 0, 0)
            self.store.body_files.insert(entry, BodyReference(0, ""))
        else:
            before, source = entry.state, entry.queue
            entry.state = state if before not in befores else before
            entry.queue = event["queue"]
            if source != entry.queue:
                self._see_to_queue(event)
                self.store.update(entry, before, source)
            elif entry.state is not before:
                self.store.update(entry, before)
        return entry

    def _see_to_queue(self, event: Event) -> None:
        if self.store.queue(event["queue"]) is None:
            self.store.add_queue(QueueRecord(event["queue"]))

    def _as_of_row(self, key: str) -> int:
        """The last event about a message; 0 if it does not exist."""
        row = self.store.db.row(self._select_as_of, (key,))
        return row[0] if row else 0

    def _forget_facts(self, entry: Entry) -> None:
        """Events since the last one about this message are missing: what it defined may have changed."""
        self.store.facts.put(_known(entry.key), [])
        self.store.facts.put(_parts(entry.key), None)
        self.store.facts.put(history_fact(entry.key), None)
        entry.failures = 0

    def _learn(self, key: str, attributes: frozenset[str]) -> None:
        known = frozenset(self.store.facts.get(_known(key)) or ())
        if not attributes <= known:
            self.store.facts.put(_known(key), sorted(known | attributes))

    def _learn_parts(self, key: str, event: Event) -> None:
        facts = self.store.facts
        if "part" in event:
            facts.put(_parts(key), sorted({*(facts.get(_parts(key)) or ()), event["part"]}))
        elif event.get("keep") == "headers":
            facts.put(_parts(key), None)

    def _note_fact(self, name: str, value: Any) -> None:
        if name.startswith(KV_PREFIXES):
            event = self._folding
            # A run defines the next one, and nothing else of its schedule.
            whole = event["type"] != EventType.SCHEDULE_FIRED
            base = event["id"] if whole else self.store.facts.get(_DEFINED + name)[0]
            self.store.facts.put(_DEFINED + name, [base, event["id"]])

    # --- reading ----------------------------------------------------------------------------------------------

    def messages(self) -> Iterator[RebuiltMessage]:
        """Each message that exists at the end, in the order of keys."""
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
        history = self.store.facts.history(entry)
        known = self.store.facts.get(_known(entry.key)) if entry.seq == 0 or entry.seq < self._hole else None
        numbers = [] if known is None else self.store.facts.get(_parts(entry.key)) or []
        parts = {number: self.store.facts.get(part_fact(entry.key, number)) for number in numbers}
        if entry.seq == 0:
            return RebuiltMessage(entry, event, None, history, frozenset(known or ()), [], parts=parts)
        body = BodyReference.from_json(orjson.loads(self.store.bodies.envelope(entry.key)))
        appended = self.store.bodies.appended(entry) if known is None else []
        shown = None if known is None else frozenset(known)
        set_by = self.store.facts.get(_set_by(entry.key)) or 0
        return RebuiltMessage(entry, event, body, history, shown, appended, set_by, parts)

    def kvs(self) -> Iterator[RebuiltKv]:
        """Each key-value that the journal defines."""
        after = ""
        while True:
            self.store.begin()
            page = self.store.facts.names(_DEFINED, after, _PAGE)
            kvs = [self._rebuilt_kv(name.removeprefix(_DEFINED)) for name in page]
            self.store.rollback()
            yield from kvs
            if len(page) < _PAGE:
                return
            after = page[-1]

    def _rebuilt_kv(self, name: str) -> RebuiltKv:
        base, last = self.store.facts.get(_DEFINED + name)
        return RebuiltKv(name, base, last, self.store.facts.get(name))

    def ended(self, key: str) -> int:
        """The event that terminated a message published before the journal begins, or one that the store has not folded
        yet; else 0."""
        return self.store.facts.get(_ended(key)) or 0

    def is_noted(self, missing: tuple[int, int]) -> bool:
        """Whether an operator has accepted a missing range."""
        return lies_in(missing, [*self.accepted, *self.noted])

    def lacks(self, event: int) -> bool:
        """Whether the journal lacks an event."""
        return event < self.first or event > self.last or any(first <= event <= last for first, last in self.missing)


def lies_in(span: tuple[int, int], spans: list[tuple[int, int]]) -> bool:
    """Whether a range is inside one of others."""
    return any(first <= span[0] and span[1] <= last for first, last in spans)


def _ended(key: str) -> str:
    return f"ended:{key}"


def _set_by(key: str) -> str:
    return f"set-by:{key}"


def _parts(key: str) -> str:
    return f"parts:{key}"


def _known(key: str) -> str:
    return f"known:{key}"
