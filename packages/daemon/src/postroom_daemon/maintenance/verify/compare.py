"""Compare the messages, queues and key-values of a store with the state rebuilt from the journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from postroom_common.protocol import State as MessageState
from postroom_common.protocol import birthplace, named_key

from ...model.facts import FACT_CLOCK, FACT_LOSSES, claim_fact, dlq_fact, name_fact
from ...model.records import Entry, QueueRecord, entry_from_json, no_counts
from ...observe.state import of_store
from ...observe.state.model import Message, State, body_of
from ...platform.clock import Clock, Mark, Now
from ...stores.base import ENDED, TIMED, Store
from .compare_kv import corrections
from .findings import Finding, Kind
from .rebuilt import Rebuilt, RebuiltMessage, lies_in

#: Attributes of a message that never change, except that a message may be moved to another queue.
FIXED: Final = (
    "queue", "seq", "priority", "created_wall", "created", "due_wall", "order_key", "publisher_uid", "retry_limit",
    "name",
)  # fmt: skip
_CHANGING: Final = (
    "attempt", "due", "lease_id", "consumer_id", "lease_until", "leased_at", "dead_at", "phase", "target", "reason",
    "expires", "fallback", "claim", "holder_uid", "returned_seq", "parts",
    "unset",
)  # fmt: skip
#: Attributes of a queue besides its counts.
QUEUE_FACTS: Final = (
    "kind", "created_wall", "expires_at", "publish_paused", "consume_paused", "override", "created_with",
    "totals", "tally_from", "log",
)  # fmt: skip
#: Names of attributes in a finding's text, if they differ.
_NAMES: Final = {
    "seq": "published",
    "created_wall": "createdMs",
    "created": "createdEngineMs",
    "dead_at": "diedEngineMs",
    "due_wall": "deliverAtMs",
    "order_key": "orderingKey",
    "retry_limit": "retryLimit",
    "returned_seq": "place",
    "expires": "expiresEngineMs",
    "fallback": "fallbackEngineMs",
    "created_with": "createdWith",
}


class Difference(NamedTuple):
    """A finding about a message, queue or key-value, with both sides of it for repair: ``said`` by the journal,
    ``found`` in the store. ``fact``: name and right value of a key-value."""

    finding: Finding
    said: RebuiltMessage | None = None
    found: Message | None = None
    queue: QueueRecord | None = None
    fact: tuple[str, Any] | None = None


class Comparison:
    """One pass over a state. ``at`` is the event up to which the store has folded, ``seen`` the last one that any
    row shows, ``now`` the engine time; ``unseen`` are ranges that the store has never folded. ``shifting``: the state
    is that of a running daemon, where a message that has just become due may be counted either way.
    """

    def __init__(
        self,
        state: State,
        rebuilt: Rebuilt,
        at: int,
        seen: int,
        now: int,
        unseen: list[tuple[int, int]],
        shifting: bool = False,
    ) -> None:
        self.messages = 0
        self.only_in_store = 0  # published before the journal begins, and without events in it
        self._state = state
        self._rebuilt = rebuilt
        self._at = at
        self._now = now
        self._shifting = shifting
        #: Up to this event, the store may have folded events that the journal lacks.
        self.doubt = _doubt(rebuilt, seen, unseen)
        self._counts: dict[str, _Counted] = {}
        self._claimed: dict[str, str] = {}

    def run(self) -> Iterator[Difference]:
        """All differences. Raises ``StoreError``, and what reading the state raises."""
        said, found = self._rebuilt.messages(), iter(self._state.messages)
        wanted, message = next(said, None), next(found, None)
        while wanted or message:
            if message is None or (wanted and wanted.entry.key < message["key"]):
                assert wanted is not None
                yield from self._lacking(wanted)
                wanted = next(said, None)
                continue
            self._count(message)
            if wanted and wanted.entry.key == message["key"]:
                yield from self._both(wanted, message)
                wanted = next(said, None)
            else:
                yield from self._surplus(message)
            message = next(found, None)
        yield from self._queues()
        yield from self._facts()

    def _count(self, message: Message) -> None:
        self.messages += 1
        self._counts.setdefault(message["queue"], _Counted()).add(message)
        if "claim" in message:
            self._claimed[claim_fact(message["queue"], message["claim"])] = message["key"]
        if "name" in message:
            self._claimed[name_fact(named_key(birthplace(message["key"]), message["name"]))] = message["key"]

    # --- messages ---------------------------------------------------------------------------------------------

    def _lacking(self, said: RebuiltMessage) -> Iterator[Difference]:
        key, seq = said.entry.key, said.entry.seq
        if seq > self._at:
            return  # it will be folded
        if said.event < self.doubt:
            text = "not in the store; it may have ended by an event that is missing"
            yield Difference(Finding(Kind.MESSAGE_UNCERTAIN, key, text), said)
        elif seq:
            text = f"not in the store; event {seq} published it, event {said.event} is the last about it"
            yield Difference(Finding(Kind.MESSAGE_MISSING, key, text), said)
        else:
            text = f"not in the store; published before event {self._rebuilt.first}; event {said.event} is its last"
            yield Difference(Finding(Kind.MESSAGE_LOST, key, text), said)

    def _surplus(self, message: Message) -> Iterator[Difference]:
        key, seq = message["key"], message["published"]
        ended = self._rebuilt.ended(key)
        if ended:
            if ended > self._at:
                return  # it will be folded
            text = f"in the store, though event {ended} has ended it"
            kind = Kind.MESSAGE_UNCERTAIN if ended < self.doubt else Kind.MESSAGE_LEFT
            yield Difference(Finding(kind, key, text), found=message)
        elif self._rebuilt.lacks(seq):
            self.only_in_store += 1
            yield from self._body(message, None)
        else:
            text = "in the store, though by the journal it has ended, or was never published"
            yield Difference(Finding(Kind.MESSAGE_LEFT, key, text), found=message)

    def _both(self, said: RebuiltMessage, message: Message) -> Iterator[Difference]:
        yield from self._body(message, said)
        entry = entry_from_json(message)
        pending = said.event > self._at
        fixed = FIXED[1:] if pending else FIXED  # it may be yet to be moved
        wrong = _differing(said.entry, entry, fixed) if said.entry.seq else []
        if not pending:
            wrong += self._changing(said, entry, message.get("history", []))
            parts = message.get("appended", [])
            if "bodyLost" not in message and said.parts_over(parts) != parts:
                wrong.append("the parts that were appended to it are not what their events say")
        if wrong:
            uncertain = said.event < self.doubt
            kind = Kind.MESSAGE_UNCERTAIN if uncertain else Kind.MESSAGE_WRONG
            text = f"{'; '.join(wrong)} (event {said.event} is the last about it)"
            yield Difference(Finding(kind, entry.key, text), said, message)

    def _changing(self, said: RebuiltMessage, entry: Entry, history: list[Any]) -> list[str]:
        wrong = []
        if (said.known is None or "state" in said.known) and entry.state is not self._state_now(said.entry, entry):
            wrong.append(f"it is {entry.state}, and should be {said.entry.state}")
        wrong += _differing(said.entry, entry, [name for name in _CHANGING if said.known is None or name in said.known])
        if said.known is not None and history[len(history) - len(said.history) :] != said.history:
            wrong.append("its history lacks failed attempts")
        elif said.known is None and (history != said.history or entry.failures != len(history)):
            wrong.append(f"its history has {len(history)} failed attempts, and should have {len(said.history)}")
        return wrong

    def _state_now(self, said: Entry, found: Entry) -> MessageState:
        """The state that a message should have. No event says that one became ready by time."""
        if said.state in TIMED and said.due <= self._now and found.state is MessageState.READY:
            return MessageState.READY
        return said.state

    def _body(self, message: Message, said: RebuiltMessage | None) -> Iterator[Difference]:
        key = message["key"]
        if "bodyLost" in message:
            dead = message["state"] == MessageState.DEAD
            text = "its body is missing or damaged"
            yield Difference(Finding(Kind.BODY_BURIED if dead else Kind.BODY_LOST, key, text), said, message)
        elif said and said.body and not said.body.fits(body_of(message)):
            text = f"its body is not what event {said.entry.seq} published"
            yield Difference(Finding(Kind.BODY_WRONG, key, text), said, message)

    # --- queues -----------------------------------------------------------------------------------------------

    def _queues(self) -> Iterator[Difference]:
        left = dict(self._counts)
        folded = self._rebuilt.folded
        for record in self._state.queues:
            counts = left.pop(record.name, _Counted())
            yield from self._check_counts(record, counts)
            if record.name in folded.queues:
                yield from self._check_record(record, folded.queues[record.name])
        missing = {name: None for name in left if name in folded.queues or self._rebuilt.store.queue(name) is None}
        known = {record.name for record in self._state.queues}
        missing |= dict.fromkeys(
            name
            for name in folded.queues
            if name not in known and folded.defined_by.get((name, "created"), 0) > self.doubt
        )
        for name in missing:
            record = folded.queues.get(name) or QueueRecord(name)
            right = left.get(name, _Counted()).counted_in(record)
            text = f"no record; {sum(right.counts.values())} messages are in it"
            yield Difference(Finding(Kind.QUEUE_MISSING, name, text), queue=right)

    def _check_counts(self, record: QueueRecord, counted: _Counted) -> Iterator[Difference]:
        right = counted.counted_in(record)
        wrong = []
        if self._merged(record.counts) != self._merged(right.counts):
            wrong += _miscounted(record.counts, right.counts)
        if record.bytes != right.bytes:
            wrong += _miscounted({"bytes": record.bytes}, {"bytes": right.bytes})
        if record.reasons != right.reasons:
            wrong += _miscounted(record.reasons, right.reasons)
        if wrong:
            yield Difference(Finding(Kind.QUEUE_COUNTS, record.name, ", ".join(wrong)), queue=right)

    def _merged(self, counts: dict[str, int]) -> dict[str, int]:
        if not self._shifting:
            return counts
        ready = MessageState.READY
        return counts | {ready: sum(counts[state] for state in (ready, *TIMED)), **dict.fromkeys(TIMED, 0)}

    def _check_record(self, record: QueueRecord, said: QueueRecord) -> Iterator[Difference]:
        name, defined_by = record.name, self._rebuilt.folded.defined_by
        right = replace(record)
        if defined_by.get((name, "override"), 0) > self.doubt:
            right.override = said.override
        if defined_by.get((name, "publish"), 0) > self.doubt:
            right.publish_paused = said.publish_paused
        if defined_by.get((name, "consume"), 0) > self.doubt:
            right.consume_paused = said.consume_paused
        if defined_by.get((name, "created"), 0) > self.doubt:
            right = replace(said, counts=record.counts, bytes=record.bytes, reasons=record.reasons)
        wrong = _differing(right, record, QUEUE_FACTS)
        if wrong:
            yield Difference(Finding(Kind.QUEUE_WRONG, name, "; ".join(wrong)), queue=right)

    # --- key-values --------------------------------------------------------------------------------------------

    def _facts(self) -> Iterator[Difference]:
        found = {fact["name"]: fact["value"] for fact in self._state.facts}
        complete = self._rebuilt.first == 1 and not self.doubt
        rebuilt_kvs = self._rebuilt.kvs()
        claimed = None if self._rebuilt.behind else self._claimed  # files of messages may be ahead of the checkpoint
        for one in corrections(found, rebuilt_kvs, claimed, self._at, self.doubt, complete):
            yield Difference(one.finding, fact=(one.name, one.value))


@dataclass(slots=True)
class _Counted:
    """Counts the messages of a queue as its record does."""

    states: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    bytes: int = 0

    def add(self, message: Message) -> None:
        self.states[message["state"]] += 1
        if message["state"] not in ENDED:
            self.bytes += message.get("bytes", 0)
        elif "reason" in message and message["state"] == MessageState.DEAD:
            self.reasons[message["reason"]] += 1

    def counted_in(self, record: QueueRecord) -> QueueRecord:
        """Copy a record with these counts."""
        return replace(record, counts=no_counts() | dict(self.states), bytes=self.bytes, reasons=dict(self.reasons))


def _miscounted(found: dict[str, int], right: dict[str, int]) -> list[str]:
    return [
        f"{found.get(name, 0)} {name} counted, {right.get(name, 0)} there"
        for name in sorted(found.keys() | right.keys())
        if found.get(name, 0) != right.get(name, 0)
    ]


def _differing(said: Any, found: Any, names: Any) -> list[str]:
    pairs = ((name, getattr(found, name), getattr(said, name)) for name in names)
    return [
        f"{_NAMES.get(name, name)} is {is_!r}, and should be {should!r}" for name, is_, should in pairs if is_ != should
    ]


def _doubt(rebuilt: Rebuilt, seen: int, unseen: list[tuple[int, int]]) -> int:
    """The last event that the journal lacks and the store may have folded; 0: none."""
    lacking = [*rebuilt.missing]
    if seen > rebuilt.last:
        lacking.append((rebuilt.last + 1, seen))
    settled = [*unseen, *rebuilt.accepted]
    return max((span[1] for span in lacking if not lies_in(span, settled)), default=0)


#: What reading an event or row raises if it is intact but malformed.
MALFORMED: Final = (KeyError, TypeError, ValueError)


class StoreComparison:
    """Compares an open store, which is not empty and in no transaction, with what was rebuilt."""

    def __init__(self, store: Store, rebuilt: Rebuilt, clock: Clock) -> None:
        self.store = store
        self.rebuilt = rebuilt
        now = engine_now(store, rebuilt, clock)
        losses = [(first, last) for first, last in store.facts.get(FACT_LOSSES) or []]
        self.state = of_store(store, now)
        self.comparison = Comparison(self.state, rebuilt, store.applied, store.audit.newest_event(), now.engine, losses)

    def facts(self) -> Iterator[Difference]:
        """Wrong dead-letter addresses and clock marks."""
        for record in self.state.queues:
            for layer in (record.created_with, record.override):
                name = layer.get("dlq.queue")
                if name and self.store.facts.get(dlq_fact(name)) is None:
                    text = f"queue {record.name!r} addresses its dead letters by it"
                    yield Difference(Finding(Kind.DLQ_NAME, name, text), queue=record)
        clock, found = self.rebuilt.folded.clock, self.store.facts.get(FACT_CLOCK)
        if clock and not self.comparison.doubt and found != clock:
            yield Difference(Finding(Kind.CLOCK_WRONG, "clock", f"it is {found}, not {clock}"))


def engine_now(store: Store, rebuilt: Rebuilt, clock: Clock) -> Now:
    """The time with which a daemon that starts now would begin."""
    kept = rebuilt.store.facts.get(FACT_CLOCK) or store.facts.get(FACT_CLOCK)
    mark = Mark(kept["bootId"], kept["bootMs"], kept["engineMs"], kept["wallMs"]) if kept else None
    clock.resume(mark, max(rebuilt.time, Now(mark.engine, mark.wall)) if mark else rebuilt.time)
    return clock.now()
