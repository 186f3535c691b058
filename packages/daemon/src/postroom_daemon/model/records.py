"""What a store keeps of a message and of a queue. Times are engine milliseconds unless a name says ``wall``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from postroom_common.policy import Layer
from postroom_common.protocol import State

from .log_record import LogRecord

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
#: Deaths are counted by slots of five minutes, which become hours when they are no part of the last hour any more.
_SLOT_MS: Final = 5 * _MINUTE_MS
_LAST_HOUR_MS: Final = _HOUR_MS + _SLOT_MS
_LAST_DAY_MS: Final = 25 * _HOUR_MS


class Deaths(NamedTuple):
    """When messages of a queue died: ``last`` and ``last_wall`` are engine and wall time of the last death (0: none),
    ``slots`` the engine time at which each slot begins, with the number of deaths in it, oldest first. Never changed
    in place."""

    last: int = 0
    last_wall: int = 0
    slots: tuple[tuple[int, int], ...] = ()

    def with_one(self, engine: int, wall: int) -> Deaths:
        """One more has died."""
        slot, slots = engine - engine % _SLOT_MS, self.slots
        if engine < self.last:  # of long ago, from another root
            return self._replace(slots=_merged((*slots, (slot, 1)), self.last))
        if slots and slots[-1][0] == slot:
            return Deaths(engine, wall, (*slots[:-1], (slot, slots[-1][1] + 1)))
        return Deaths(engine, wall, _merged((*slots, (slot, 1)), engine))

    def in_last_hour(self, now: int) -> int:
        """How many died in the hour, and at most five minutes more, before ``now``."""
        return sum(count for start, count in self.slots if start > now - _LAST_HOUR_MS)

    def in_last_day(self, now: int) -> int:
        """How many died in the 24 hours, and at most one hour more, before ``now``."""
        return sum(count for start, count in self.slots if start > now - _LAST_DAY_MS)

    def to_json(self) -> list[Any]:
        """As stored in a queue's record."""
        return [self.last, self.last_wall, *self.slots]

    @classmethod
    def from_json(cls, data: list[Any]) -> Deaths:
        """Read what ``to_json`` made. Raises ``TypeError`` or ``ValueError`` for anything else."""
        last, last_wall, *slots = data
        return cls(last, last_wall, tuple((start, count) for start, count in slots))


def _merged(slots: tuple[tuple[int, int], ...], now: int) -> tuple[tuple[int, int], ...]:
    """Slots in order, without those that are too old, and by the hour where they are no part of the last one."""
    counts: dict[int, int] = {}
    for start, count in slots:
        if start > now - _LAST_DAY_MS:
            begin = start if start > now - _LAST_HOUR_MS else start - start % _HOUR_MS
            counts[begin] = counts.get(begin, 0) + count
    return tuple(sorted(counts.items()))


NO_DEATHS: Final = Deaths()


#: The phase of a lease that its consumer has not activated yet.
ORDERED: Final = "ordered"


def message_id_of(key: str) -> str:
    """The id of a message, which ends its key ``msg:<queue>:<id>``."""
    return key[key.rfind(":") + 1 :]


@dataclass(slots=True)
class Entry:
    """The changing facts of one message. Its body is stored beside it and never changes.

    ``seq`` is the id of its published event: publish order. ``due`` is when a delayed message becomes ready,
    ``failures`` how many failed attempts its history remembers (the history is a fact of the store). ``size`` is the
    length of its body and headers as stored, ``reason`` why it died, ``dead_at`` when it died or was done. ``phase`` is
    that of its lease, or of a dead letter. After ``expires`` it is not wanted any more, after
    ``fallback`` anyone may have it (0: never); ``due_wall`` is the Unix time (ms) for which it was published. Of the
    messages of a queue with the same ``order_key`` one is delivered at a time. ``claim`` is what it claims against
    others of its kind for as long as it is there (``claim_fact``). ``holder_uid`` is the user who has it leased,
    ``publisher_uid`` the one whose stored bytes it counts for, in decimal digits; '' if there is none, or if it is
    unknown. ``retry_limit`` is its own limit of deliveries; 0: that of its queue's policy. ``returned_seq`` is the id
    of the event that last returned it to the end of its priority run; 0: none did. ``parts`` is how many parts were
    appended to its body, which the store has beside it (``part_fact``); a message that gathers parts is ready at
    ``due``. A message that was drafted has named parts in the same place; ``unset`` of them have no value yet. While it
    is a draft, ``expires`` is when it is dropped. ``name`` is the one that its publisher gave it, '' if none.
    """

    key: str
    queue: str
    state: State
    priority: int
    seq: int
    created_wall: int
    created: int
    target: str = ""
    attempt: int = 0
    due: int = 0
    lease_id: str = ""
    consumer_id: str = ""
    lease_until: int = 0
    leased_at: int = 0
    dead_at: int = 0
    failures: int = 0
    phase: str = ""
    size: int = 0
    reason: str = ""
    expires: int = 0
    fallback: int = 0
    due_wall: int = 0
    order_key: str = ""
    claim: str = ""
    holder_uid: str = ""
    publisher_uid: str = ""
    retry_limit: int = 0
    returned_seq: int = 0
    parts: int = 0
    unset: int = 0
    name: str = ""

    def copy(self) -> Entry:
        """The entry as it is now, to be changed. ``dataclasses.replace`` takes six times as long."""
        return Entry(
            self.key, self.queue, self.state, self.priority, self.seq, self.created_wall, self.created, self.target,
            self.attempt, self.due, self.lease_id, self.consumer_id, self.lease_until, self.leased_at, self.dead_at,
            self.failures, self.phase, self.size, self.reason, self.expires, self.fallback, self.due_wall,
            self.order_key, self.claim, self.holder_uid, self.publisher_uid, self.retry_limit,
            self.returned_seq, self.parts, self.unset, self.name,
        )  # fmt: skip

    @property
    def position(self) -> int:
        """Its position in its priority run: the ready messages of a run are delivered in this order, those that
        returned to the end by when they did, all others by when they were published."""
        return self.returned_seq or self.seq

    @property
    def next_expiry(self) -> int:
        """The engine time at which it expires, or its target does (then anyone may have it), if it is still waiting;
        whichever comes first. 0 means never."""
        if self.target and self.fallback:
            return min(self.fallback, self.expires) if self.expires else self.fallback
        return self.expires


#: How an entry's facts are called in JSON: as in the events that made them. What has its default is left out.
_ENTRY_NAMES: Final = {
    "key": "key",
    "queue": "queue",
    "state": "state",
    "published": "seq",
    "createdMs": "created_wall",
    "createdEngineMs": "created",
    "priority": "priority",
    "target": "target",
    "attempt": "attempt",
    "dueEngineMs": "due",
    "lease": "lease_id",
    "consumer": "consumer_id",
    "untilEngineMs": "lease_until",
    "leasedEngineMs": "leased_at",
    "diedEngineMs": "dead_at",
    "failures": "failures",
    "phase": "phase",
    "bytes": "size",
    "reason": "reason",
    "expiresEngineMs": "expires",
    "fallbackEngineMs": "fallback",
    "deliverAtMs": "due_wall",
    "orderingKey": "order_key",
    "claim": "claim",
    "uid": "holder_uid",
    "publisherUid": "publisher_uid",
    "retryLimit": "retry_limit",
    "place": "returned_seq",
    "parts": "parts",
    "unset": "unset",
    "name": "name",
}


def entry_to_json(entry: Entry) -> dict[str, Any]:
    """An entry as JSON has it; a text that is empty and a number that is 0 are left out."""
    shown = {name: getattr(entry, attribute) for name, attribute in _ENTRY_NAMES.items()}
    return {name: value for name, value in shown.items() if value or name in ("published", "createdEngineMs")}


def entry_from_json(data: dict[str, Any]) -> Entry:
    """Read what ``entry_to_json`` made. Raises ``KeyError``, ``TypeError`` or ``ValueError`` for anything else."""
    facts = {attribute: data[name] for name, attribute in _ENTRY_NAMES.items() if name in data}
    return Entry(**{"priority": 0, "created_wall": 0, **facts, "state": State(facts["state"])})


class BodyReference(NamedTuple):
    """The reference to a body that a store has in a file: its length, and its BLAKE2b digest of 16 bytes in hex.
    ``queue`` is the one in which the message was born, and in whose directory its body stays; '' while it is there."""

    length: int
    digest: str
    queue: str = ""

    @classmethod
    def of(cls, body: bytes) -> BodyReference:
        """The reference of a body."""
        return cls(len(body), blake2b(body, digest_size=16).hexdigest())

    def to_json(self) -> dict[str, Any]:
        """The reference as it is stored in events and in the store."""
        born = {"queue": self.queue} if self.queue else {}
        return {"bytes": self.length, "blake2b": self.digest, **born}

    def fits(self, body: bytes) -> bool:
        """Whether it is the reference of a body."""
        return self[:2] == self.of(body)[:2]

    def moved(self, source: str, target: str) -> BodyReference:
        """The reference of a message that goes from one queue to another."""
        born = self.queue or source
        return self._replace(queue="" if born == target else born)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> BodyReference:
        """Read what ``to_json`` made. Raises ``KeyError``."""
        return cls(data["bytes"], data["blake2b"], data.get("queue", ""))


NO_LAYER: Final[Layer] = {}
#: The total that a number of the tally comes from.
_TALLIED: Final = {"completed": "acked", "abandoned": "abandoned"}
_NO_COUNTS: Final = {state.value: 0 for state in State}


def no_counts() -> dict[str, int]:
    """Counters of an empty queue, by state."""
    return _NO_COUNTS.copy()


@dataclass(slots=True)
class QueueRecord:
    """A queue: counters by state, totals of what ever happened, pauses, and the policy set at run time.

    ``created_with`` is the layer of its policy that came with the request that created it.
    ``bytes`` is the size of its messages that are not dead, ``reasons`` counts its dead letters by reason code,
    ``used`` is when something last happened in it, ``deaths`` when messages died. ``gathering_keys`` has the key of
    the message to which parts are appended, by the account whose parts it gathers (``*``: everyone's); it may have
    become ready, or be gone. ``tally_from`` is what to take off the totals for the ``tally``. ``log`` is what only a
    log has, of ``kind`` ``log``. Never changed in place.
    """

    name: str
    kind: str = "queue"
    created_wall: int = 0
    expires_at: int = 0
    publish_paused: bool = False
    consume_paused: bool = False
    override: Layer = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=no_counts)
    totals: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    used: int = 0
    deaths: Deaths = NO_DEATHS
    gathering_keys: dict[str, str] = field(default_factory=dict)
    created_with: Layer = field(default_factory=dict)
    tally_from: dict[str, int] = field(default_factory=dict)
    log: LogRecord | None = None

    @property
    def tally(self) -> dict[str, int]:
        """How many messages were completed and abandoned without being kept, since the tally was last reset."""
        return {name: self.totals.get(total, 0) - self.tally_from.get(total, 0) for name, total in _TALLIED.items()}

    def count_kept(self, total: str, messages: int = 1) -> None:
        """Outcomes that ``total`` has counted are kept, and so no part of the tally."""
        self.tally_from = self.tally_from | {total: self.tally_from.get(total, 0) + messages}

    def reset_tally(self, tally: Mapping[str, int]) -> None:
        """Begin the tally anew, at the numbers of ``tally``, or at 0."""
        begun = {total: self.totals.get(total, 0) - tally.get(name, 0) for name, total in _TALLIED.items()}
        self.tally_from = {total: number for total, number in begun.items() if number}

    def total(self, name: str) -> None:
        """Count one more of ``name`` in the totals."""
        self.totals[name] = self.totals.get(name, 0) + 1

    def copy(self) -> QueueRecord:
        """The record as it is now. Every group makes one of each queue that it changes, and ``dataclasses.replace``
        takes eight times as long."""
        return QueueRecord(
            self.name,
            self.kind,
            self.created_wall,
            self.expires_at,
            self.publish_paused,
            self.consume_paused,
            self.override,
            self.counts.copy(),
            self.totals.copy(),
            self.bytes,
            self.reasons.copy(),
            self.used,
            self.deaths,
            self.gathering_keys,
            self.created_with,
            self.tally_from,
            self.log and self.log.copy(),
        )

    def take_numbers(self, other: QueueRecord) -> None:
        """Take over all counters of another record, which must not be used any more."""
        self.counts, self.totals, self.bytes = other.counts, other.totals, other.bytes
        self.reasons, self.used, self.deaths = other.reasons, other.used, other.deaths

    def to_json(self) -> dict[str, Any]:
        """The record as stored."""
        return {
            "name": self.name,
            "kind": self.kind,
            "createdMs": self.created_wall,
            "expiresAtEngineMs": self.expires_at,
            "publishPaused": self.publish_paused,
            "consumePaused": self.consume_paused,
            "override": self.override,
            "counts": self.counts,
            "totals": self.totals,
            "bytes": self.bytes,
            "reasons": self.reasons,
            "usedEngineMs": self.used,
            **({"deaths": self.deaths.to_json()} if self.deaths.slots else {}),
            **({"gathering": self.gathering_keys} if self.gathering_keys else {}),
            **({"createdWith": self.created_with} if self.created_with else {}),
            **({"tallyFrom": self.tally_from} if self.tally_from else {}),
            **({"log": self.log.to_json()} if self.log else {}),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> QueueRecord:
        """Read what ``to_json`` made. Raises ``KeyError`` for anything else."""
        return cls(
            name=data["name"],
            kind=data["kind"],
            created_wall=data["createdMs"],
            expires_at=data["expiresAtEngineMs"],
            publish_paused=data["publishPaused"],
            consume_paused=data["consumePaused"],
            override=data["override"],
            counts=no_counts() | data["counts"],
            totals=data["totals"],
            bytes=data.get("bytes", 0),
            reasons=data.get("reasons", {}),
            used=data.get("usedEngineMs", 0),
            deaths=Deaths.from_json(data["deaths"]) if "deaths" in data else NO_DEATHS,
            gathering_keys=data.get("gathering", {}),
            created_with=data.get("createdWith", NO_LAYER),
            tally_from=data.get("tallyFrom", {}),
            log=LogRecord.from_json(data["log"]) if "log" in data else None,
        )
