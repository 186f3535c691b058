"""The events that lead to the state of each queue and message of WebSocket MQ."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, Final

import orjson

from postroom_common.body import NO_PART, Form, Part, encode_draft, encode_message
from postroom_common.errors import ConfigurationError, PostroomError
from postroom_common.events import EventType
from postroom_common.policy import Layer, Policy, read_layer
from postroom_common.protocol import (
    NAME_LIMIT,
    NAMED_PARTS_LIMIT,
    NO_PRIORITY,
    REQUEST_BYTES_CEILING,
    VISIBILITY_MS_LIMIT,
    ReasonCode,
    State,
    message_key,
    queue_name_problem,
)
from postroom_common.websocket_mq import CREATE_WITH, MqState, is_blocked, to_policy

from ...engine.admission import claim_of_content, content_key
from ...engine.context import Draft
from ...model.records import ORDERED
from ...platform.clock import Now
from ...platform.ids import Ids
from ...policy.policies import Policies
from ..foreign_data import Taken, Unusable, UnusableRow, at_wall, clamped
from .database import MqDatabase, MqMessage, MqQueue

#: Who has the leases of imported messages: the server did not record it.
_CONSUMER: Final = "websocket-mq"
_FAILURES: Final = {
    MqState.FAILED: (ReasonCode.REJECTED, "failed in WebSocket MQ"),
    MqState.ABANDONED: (ReasonCode.ABANDONED, "abandoned in WebSocket MQ"),
}
_LOWEST: Final = -(2**31)
_HIGHEST: Final = 2**31 - 1
_JSON_TYPE: Final = "application/json"
_HASH_DIGITS: Final = 64


class MqEvents(Taken):
    """Events made from a database; the counts are complete when ``requests`` has ended."""

    def __init__(self, source: MqDatabase, now: Now, policies: Policies, ids: Ids) -> None:
        super().__init__()
        self._source = source
        self._now = now
        self._policies = policies
        self._ids = ids
        self._queues: dict[str, Policy] = {}
        self._claims: set[tuple[str, str]] = set()

    def requests(self) -> Iterator[list[Draft]]:
        """The events, those of one queue or message as one request. Raises ``StoreError``."""
        for queue in self._source.queues():
            problem = queue_name_problem(queue.id) if isinstance(queue, MqQueue) else None
            if isinstance(queue, UnusableRow):
                self.unusable.append(queue)
            elif problem:
                self.unusable.append(UnusableRow(f"the id of a queue {problem}", queue.row, is_message=False))
            else:
                yield self._queue(queue)
        for message in self._source.messages():
            if isinstance(message, UnusableRow):
                self.unusable.append(message)
                continue
            try:
                life = self._life(message)
            except Unusable as problem:
                self.unusable.append(UnusableRow(str(problem), message.row))
                continue
            yield life
            self.counts[f"messages {message.state.name.lower()}"] += 1

    # --- queues -------------------------------------------------------------------------------------------------------

    def _queue(self, queue: MqQueue) -> list[Draft]:
        """The events that create a queue with its configuration and its tally."""
        created = _layer(dict(CREATE_WITH))
        drafts = [self._about(EventType.QUEUE_CREATED, queue.id) | {"kind": "queue", "createdWith": created}]
        override: Layer = {}
        try:
            tree = to_policy(queue.config | {"concurrency": _whole(queue.config["concurrency"])})
            override = _layer(tree)
        except PostroomError as error:
            reason = f"the queue is imported without its configuration: {error}"
            self.unusable.append(UnusableRow(reason, queue.row, is_message=False))
        policy = self._policies.resulting(queue.id, override, created)
        if override:
            facts: Draft = {"override": override, "policy": policy.to_wire()}
            drafts.append(self._about(EventType.POLICY_SET, queue.id) | facts)
            if is_blocked(tree):
                facts = {"operation": "consume", "paused": {"publish": False, "consume": True}}
                drafts.append(self._about(EventType.PAUSED, queue.id) | facts)
        if any(queue.tally.values()):
            drafts.append(self._about(EventType.TALLY_RESET, queue.id) | {"tally": queue.tally})
            self.counts["outcomes that were not kept"] += sum(queue.tally.values())
        self.counts["queues"] += 1
        self._queues[queue.id] = policy
        return drafts

    def _about(self, type_: EventType, queue: str) -> Draft:
        return {"type": type_, "queue": queue}

    # --- messages -----------------------------------------------------------------------------------------------------

    def _life(self, m: MqMessage) -> list[Draft]:
        """The events that lead to the state that a message has. Raises ``Unusable``."""
        policy = self._queues.get(m.queue)
        if policy is None:
            raise Unusable("its queue was not imported")
        parts = _parts(m)
        wall = clamped(m.since, self._now.wall)
        key = message_key(m.queue, self._ids.message(wall))
        about: Draft = {"queue": m.queue, "key": key, **at_wall(self._now, wall)}
        events = self._published(m, parts, policy)
        if m.state in (MqState.ORDERED, MqState.ACTIVE, MqState.FAILED, MqState.COMPLETED):
            events.append(self._leased(m, policy))
        attempt = events[-1].get("attempt", 0)
        lease = {"lease": events[-1]["lease"]} if attempt else {}
        if m.state is MqState.COMPLETED:
            events.append({"type": EventType.ACKED, **lease, "heldMs": 0, "keep": "message"})
        elif m.state in _FAILURES:
            code, text = _FAILURES[m.state]
            consumer = _CONSUMER if attempt else ""
            failure = {"reasonCode": code, "reasonMessage": text, "attempt": attempt, "consumerId": consumer}
            kept = {"keep": "message"} if m.state is MqState.ABANDONED else {}
            events.append({"type": EventType.DIED, **lease, "failure": failure, **kept})
        return [about | event for event in events]

    def _published(self, m: MqMessage, parts: list[Part | None], policy: Policy) -> list[Draft]:
        """The events that publish a message and set its parts."""
        envelope = encode_draft([name for name, _ in m.slots], 0, None, {}) if parts else encode_message((NO_PART,))
        published: Draft = {"type": EventType.PUBLISHED, "priority": self._priority(m)}
        if 0 < len(m.id) <= NAME_LIMIT:
            published["name"] = m.id
        else:
            self.counts["ids that changed"] += 1
        if parts:
            published["drafting"] = len(parts)
        if m.state is MqState.DRAFTING and policy.draft_ms:
            published["expiresEngineMs"] = max(1, self._until(m, policy.draft_ms))
        claim = self._claim(m, parts)
        if claim and not parts:
            published["claim"] = claim
        events = [published | {"message": orjson.Fragment(envelope)}]
        size, unset = len(envelope), len(parts)
        for number, part in enumerate(parts, 1):
            if part is None:
                continue
            content = orjson.dumps(part.stored())
            size, unset = size + len(content), unset - 1
            drafted: Draft = {"type": EventType.PART_SET, "part": number, "bytes": size, "unset": unset}
            if not unset:
                drafted |= {"state": State.READY} | ({"claim": claim} if claim else {})
            events.append(drafted | {"content": orjson.Fragment(content)})
        return events

    def _leased(self, m: MqMessage, policy: Policy) -> Draft:
        """The event of the lease that a message has, or had before its outcome."""
        leased: Draft = {"type": EventType.LEASED, "lease": self._ids.lease(), "consumer": _CONSUMER}
        until, attempt, phase = self._now.engine, 1, {}
        if m.state is MqState.ORDERED:
            until, attempt, phase = self._until(m, policy.ordered_ms), 0, {"phase": ORDERED}
        elif m.state is MqState.ACTIVE:
            until = self._until(m, policy.visibility_ms)
        latest = self._now.engine + VISIBILITY_MS_LIMIT
        return leased | {"untilEngineMs": clamped(until, latest), "attempt": attempt, **phase}

    def _until(self, m: MqMessage, milliseconds: int) -> int:
        """The engine time at which the time of a message in its state is over, which may be in the past."""
        return self._now.engine + min(m.since, self._now.wall) + milliseconds - self._now.wall

    def _priority(self, m: MqMessage) -> int:
        """The priority of a message. The server sorts what is no number above all numbers."""
        if m.priority is None:
            return NO_PRIORITY
        is_number = type(m.priority) in (int, float) and math.isfinite(m.priority)
        number = math.floor(m.priority) if is_number else _HIGHEST
        if number != m.priority or not _LOWEST <= number <= _HIGHEST:
            self.counts["priorities that changed"] += 1
        return min(max(number, _LOWEST), _HIGHEST)

    def _claim(self, m: MqMessage, parts: list[Part | None]) -> Draft:
        """The claim of a message that the server has hashed; {} if there is none, or an earlier message has it. It is
        made from the parts, because the hash may be older than they are."""
        given = [part for part in parts if part]
        if not m.hash or len(given) < len(parts):
            return {}
        if not parts and len(m.hash) != _HASH_DIGITS:
            return {}
        name = claim_of_content(content_key(given) if parts else m.hash)
        if (m.queue, name) in self._claims:
            return {}
        self._claims.add((m.queue, name))
        return {"name": name}


def _parts(m: MqMessage) -> list[Part | None]:
    """The named parts of a message, None for one that is not set. Raises ``Unusable``."""
    if len(m.slots) > NAMED_PARTS_LIMIT:
        raise Unusable(f"it has {len(m.slots):,} slots, and a message at most {NAMED_PARTS_LIMIT} parts")
    parts = [None if value is None else _part(name, value) for name, value in m.slots]
    is_outcome = m.state in (MqState.COMPLETED, MqState.ABANDONED)
    if not parts and not is_outcome:
        raise Unusable("it has no slots")
    if m.state is MqState.DRAFTING and None not in parts:
        raise Unusable("it is drafting, but all of its slots are set")
    if m.state not in (MqState.DRAFTING, MqState.ABANDONED) and None in parts:
        raise Unusable(f"it is {m.state.name.lower()}, but some of its slots are not set")
    return parts


def _part(name: str, value: bytes) -> Part:
    """A slot with its value, which the door reads as it would read one that a client has set. Raises ``Unusable``."""
    if not 0 < len(name) <= NAME_LIMIT:
        raise Unusable(f"the name of a slot has {len(name):,} characters; 1 to {NAME_LIMIT} are possible")
    if len(value) > REQUEST_BYTES_CEILING:
        raise Unusable(f"slot {name!r} has {len(value):,} bytes; at most {REQUEST_BYTES_CEILING:,} are possible")
    try:
        orjson.loads(value)
        return Part(value, Form.JSON, _JSON_TYPE, name)
    except orjson.JSONDecodeError:
        pass
    try:
        json.loads(value.decode(), parse_constant=_refuse)  # half of a surrogate pair is JSON
    except (ValueError, RecursionError):
        raise Unusable(f"slot {name!r} is no JSON") from None
    return Part(value, Form.TEXT, _JSON_TYPE, name)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _whole(concurrency: Any) -> Any:
    """A limit as an integer: 1.5 lets a second message through. The server lets all through if it is no number."""
    if type(concurrency) is float and math.isfinite(concurrency):
        return math.ceil(concurrency)
    return concurrency if type(concurrency) is int else None


def _layer(tree: dict[str, Any]) -> Layer:
    """A policy as a layer. Raises ``ConfigurationError`` for one that is not in range."""
    corrections: list[str] = []
    layer = read_layer(tree, "policy", corrections.append)
    if corrections:
        raise ConfigurationError("; ".join(corrections))
    return layer
