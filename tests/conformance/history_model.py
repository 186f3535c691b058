"""What docs/protocol.md and docs/configuration.md promise of messages and queues, in the plainest form.

The model knows nothing of the engine, the life cycle or the fold: it looks at all messages each time, without an index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.bench import Sent
from tests.conformance.history_messages import (
    ALIVE,
    LAPSES,
    PARTS,
    SETTABLE,
    Message,
    New,
    Schedule,
    Waiting,
    nothing,
)
from tests.conformance.history_policies import GATHERING, POLICIES, Policy

#: The queue that gathers.
GATHERS = "g"
#: How long a lease lasts that asks for no time.
VISIBILITY_MS = 30_000
#: Chores are done so long after they were done before.
CHORES_EVERY_MS = 1000
#: A run of a schedule that is late by more was missed.
GRACE_MS = 60_000


class Refused(Exception):
    """A request, or an item of one, comes to nothing but this error code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class Model:
    """All messages, and what was said of the queues. ``now`` is engine time."""

    now: int = 0
    messages: list[Message] = field(default_factory=list)
    leases: list[tuple[Message, str, str]] = field(default_factory=list)
    queues: set[str] = field(default_factory=set)
    publish_paused: set[str] = field(default_factory=set)
    consume_paused: set[str] = field(default_factory=set)
    policy: dict[str, int] = field(default_factory=dict)
    waiting: list[Waiting] = field(default_factory=list)
    claims: dict[tuple[str, str], tuple[Message, int]] = field(default_factory=dict)
    delivered: Counter[str] = field(default_factory=Counter)
    schedules: dict[str, Schedule] = field(default_factory=dict)
    gathering: Message | None = None
    draining: bool = False
    order: int = 0
    chores_from: int = 0

    def of(self, queue: str) -> Policy:
        return GATHERING if queue == GATHERS else POLICIES[self.policy.get(queue, 0)]

    def in_state(self, queue: str, *states: str) -> list[Message]:
        return [m for m in self.messages if m.queue == queue and m.state in states]

    def find(self, key: str) -> Message | None:
        return next((m for m in self.messages if m.key == key and m.state != "gone"), None)

    def letters(self, queue: str) -> list[Message]:
        """Dead letters, oldest death first."""
        return sorted(self.in_state(queue, "dead"), key=lambda m: (m.died, m.order))

    def done(self, queue: str) -> list[Message]:
        """Messages that are done, oldest end first."""
        return sorted(self.in_state(queue, "done"), key=lambda m: (m.died, m.order))

    def surplus_of_done(self, queue: str) -> int:
        most = self.of(queue).done_most
        return max(0, len(self.done(queue)) - most) if most else 0

    def dues(self) -> Iterator[int]:
        """The times at which something happens by itself, but for chores."""
        for message in self.messages:
            if message.state in ("delayed", "gathering"):
                yield message.due
            if message.lease:
                yield message.until
            if message.state in LAPSES and message.expires:
                yield message.expires
        yield from (one.until for one in self.waiting)

    # What happens by itself, at the head of a group.

    def tick(self, born: Iterator[str]) -> None:
        """``born`` are the keys of what the schedules have published."""
        for message in self.messages:
            if message.state in ("delayed", "gathering") and message.due <= self.now:
                message.state = "ready"
        for message in sorted(self.messages, key=lambda m: (m.until, m.order)):
            if message.lease and message.until <= self.now:
                self.fail(message)
        for message in sorted(self.messages, key=lambda m: (m.expires, m.order)):
            if message.state in LAPSES and self.is_over(message):
                self.lapse(message)
        if self.now >= self.chores_from:
            self.chores_from = self.now + CHORES_EVERY_MS
            self.fire(born)
            self.claims = {name: one for name, one in self.claims.items() if not 0 < one[1] <= self.now}
            for queue in self.queues:
                self.keep_few(queue, self.letters(queue)[:-1], self.of(queue).dlq_most)
                for message in self.done(queue)[: self.surplus_of_done(queue)]:
                    message.state = "gone"
        assert next(born, None) is None
        for one in [w for w in self.waiting if w.until <= self.now]:
            self.waiting.remove(one)
            for sent in one.sents:
                assert sent.data == nothing(one.most)
        self.serve()

    def has_chores(self) -> bool:
        """Whether something waits for the next chores."""
        surplus = any(0 < self.of(queue).dlq_most < len(self.letters(queue)) for queue in self.queues)
        surplus |= any(self.surplus_of_done(queue) for queue in self.queues)
        over = any(0 < until <= self.now for _, until in self.claims.values())
        return surplus or over or any(one.next <= self.now for one in self.schedules.values())

    def fire(self, born: Iterator[str]) -> None:
        """Publish what the schedules have to publish by now."""
        for _, one in sorted(self.schedules.items()):
            if one.next > self.now:
                continue
            last = one.begin + (self.now - one.begin) // one.every * one.every
            runs = range(one.next, last + 1, one.every) if one.missed == "all" else range(last, last + 1)
            if one.missed == "skip" and self.now - last > GRACE_MS:
                runs = range(0)
            one.next = last + one.every
            for _ in runs:
                try:
                    message = self.publish(one.new)
                except Refused:
                    continue
                message.key = next(born)

    def is_over(self, message: Message) -> bool:
        return 0 < message.expires <= self.now

    def lapse(self, message: Message) -> None:
        """A message that waits is no longer wanted."""
        if message.state == "drafting" or self.of(message.queue).ttl_action == "drop":
            message.state = "gone"
        else:
            self.bury(message)

    def fail(self, message: Message, delay_ms: int | None = None, nacked: bool = False) -> None:
        """A delivery has failed. A dead letter stays one."""
        policy = self.of(message.queue)
        if message.ordered:
            message.state = "ready"
            self.put_back(message)
        elif message.state != "dead":
            counts = policy.nack_counts or not nacked
            if counts and message.attempt >= max(1, policy.limit):
                self.bury(message)
            else:
                wait_ms = policy.delay_ms(message.attempt) if delay_ms is None else delay_ms
                message.state, message.due = "delayed", self.now + wait_ms
                message.attempt -= not counts
                self.put_back(message)
        message.end_lease()

    def put_back(self, message: Message) -> None:
        """A message returns to its place, or behind all others."""
        if self.of(message.queue).at_end and not message.ordering_key:
            self.order += 1
            message.place = self.order

    def bury(self, message: Message) -> None:
        """A message dies, and the oldest letters give way to it."""
        policy = self.of(message.queue)
        if policy.dead_letters and message.state != "dead":
            self.keep_few(message.queue, self.letters(message.queue), policy.dlq_most - 1)
        message.state, message.died = ("dead" if policy.dead_letters else "gone"), self.now
        message.end_lease()

    def complete(self, message: Message) -> None:
        """A message is done, and stays if the policy says so; a dead letter does not."""
        kept = message.state != "dead" and self.of(message.queue).keep_done != "none"
        message.state, message.died = "done" if kept else "gone", self.now
        if kept and self.of(message.queue).keep_done == "headers":
            self.keep_headers(message)
        message.end_lease()

    def abandon(self, message: Message) -> None:
        """A message is given up, whatever it was."""
        policy = self.of(message.queue)
        message.apart = False
        if policy.keep_abandoned == "none":
            message.state = "gone"
            message.end_lease()
            return
        self.bury(message)
        if policy.keep_abandoned == "headers":
            self.keep_headers(message)

    @staticmethod
    def keep_headers(message: Message) -> None:
        """A message loses its body and its parts."""
        message.parts, message.unset = 0, None

    def keep_few(self, queue: str, among: list[Message], most: int) -> None:
        """Drop the oldest free ones ``among`` the letters of a queue while these are too many."""
        surplus = len(self.letters(queue)) - most if self.of(queue).dlq_most else 0
        for letter in [one for one in among if one.is_free][: max(0, surplus)]:
            letter.state = "gone"

    # Publishing.

    def publish(self, new: New) -> Message:
        """The new message, or the one that it is a duplicate of. Raises ``Refused``."""
        queue = new.queue
        self.check_open(queue)
        first = self.duplicate_of(queue, new.deduplication_key)
        if first:
            return first
        if gathers(new) and self.appends():
            assert self.gathering
            self.gathering.parts += 1
            return self.gathering
        room = self.make_room(queue)
        self.order += 1
        message = Message("", queue, new.priority, self.order, target=new.target, ordering_key=new.ordering_key)
        ttl = new.ttl or 1000 * self.of(queue).ttl_s
        message.expires, message.created = self.now + ttl if ttl else 0, self.now
        if new.delay:
            message.state, message.due = "delayed", self.now + new.delay
        if gathers(new):
            message.state, message.due, message.parts = "gathering", self.now + 1000 * GATHERING.gather_s, 1
            self.gathering = message
        if not room:
            self.bury(message)
        self.messages.append(message)
        self.queues.add(queue)
        self.claim(message, new.deduplication_key)
        return message

    def check_open(self, queue: str) -> None:
        """Raise ``Refused`` if a queue takes nothing now."""
        if queue in self.publish_paused:
            raise Refused("ERR_PAUSED")
        if self.draining:
            raise Refused("ERR_DRAINING")

    def draft(self, new: New, name: str) -> Message:
        """The new draft. Raises ``Refused``."""
        queue, names = new.queue, [m.name for m in self.messages if m.state != "gone"]
        self.check_open(queue)
        if name and (queue, name) in names:
            raise Refused("ERR_DUPLICATE_MESSAGE")
        if not self.make_room(queue):
            raise Refused("ERR_QUEUE_FULL")
        self.order += 1
        message = Message("", queue, new.priority, self.order, target=new.target, ordering_key=new.ordering_key)
        message.state, message.unset, message.parts = "drafting", PARTS, len(PARTS)
        message.name, message.created = (queue, name) if name else ("", ""), self.now
        draft_s = self.of(queue).draft_s
        message.expires = self.now + 1000 * draft_s if draft_s else 0
        self.messages.append(message)
        self.queues.add(queue)
        return message

    def set_part(self, message: Message | None, part: str) -> Message:
        """The message, one of whose parts has a value now. Raises ``Refused``."""
        if message is None:
            raise Refused("ERR_MESSAGE_NOT_FOUND")
        if message.state not in SETTABLE:
            raise Refused("ERR_BAD_STATE")
        if message.unset is None:
            raise Refused("ERR_PART_NOT_FOUND")
        message.unset = tuple(one for one in message.unset if one != part)
        if message.state == "drafting" and not message.unset:
            message.state = "ready"
            ttl_s = self.of(message.queue).ttl_s
            message.expires = self.now + 1000 * ttl_s if ttl_s else 0
            if not message.ordering_key:
                self.order += 1
                message.place = self.order
        return message

    def appends(self) -> bool:
        """Whether there is a message that takes parts."""
        one = self.gathering
        return one is not None and (one.state, one.queue) == ("gathering", GATHERS) and not self.is_over(one)

    def duplicate_of(self, queue: str, key: str) -> Message | None:
        """The message that stands in the way of another one with this deduplication key."""
        first, until = self.claims.get((queue, key), (None, 0))
        if not key or first is None or self.of(queue).deduplication == "off":
            return None
        stands = until > self.now if until else first.state != "gone" and first.queue == queue
        return first if stands else None

    def make_room(self, queue: str) -> bool:
        """Whether there is room for one more message, which is made if the policy says so. Raises ``Refused``."""
        policy = self.of(queue)
        alive = len(self.in_state(queue, *ALIVE))
        if not policy.messages or alive < policy.messages:
            return True
        if policy.overflow == "dead-letter":
            return False
        ready = sorted(self.in_state(queue, "ready"), key=lambda m: m.turn)
        too_many = alive + 1 - policy.messages
        if policy.overflow == "reject" or len(ready) < too_many:
            raise Refused("ERR_QUEUE_FULL")
        for message in ready[:too_many]:
            message.state = "gone"
        return True

    def claim(self, message: Message, key: str) -> None:
        policy = self.of(message.queue)
        if key and policy.deduplication != "off" and message.state != "gone":
            until = self.now + 1000 * policy.window_s if policy.deduplication == "window" else 0
            self.claims[message.queue, key] = (message, until)

    # What operators do.

    def reprocess(self, message: Message, queue: str) -> None:
        """It has the time that the policy of its queue from now on gives to new messages."""
        message.state, message.attempt, message.apart = "ready", 0, False
        if queue != message.queue:
            self.move(message, queue)
        self.put_back(message)
        ttl_s = self.of(queue).ttl_s
        message.expires = self.now + 1000 * ttl_s if ttl_s else 0

    def unhold(self, message: Message) -> None:
        message.state = "delayed" if message.due > self.now else "ready"

    def move(self, message: Message, queue: str) -> None:
        """It keeps its place and its end; what it was published under while it is there is free again."""
        self.claims = {name: one for name, one in self.claims.items() if one[0] is not message or one[1]}
        message.queue = queue
        self.queues.add(queue)

    def delete(self, queue: str) -> None:
        """Forget an empty queue, and all that was said of it."""
        self.queues.discard(queue)
        self.publish_paused.discard(queue)
        self.consume_paused.discard(queue)
        self.policy.pop(queue, None)
        self.delivered.pop(queue, None)

    # Consuming.

    def its_turn(self, message: Message) -> bool:
        """Whether no other message of its ordering key goes before it."""
        line = [m for m in self.in_state(message.queue, *ALIVE) if m.ordering_key == message.ordering_key != ""]
        return not any(m.order < message.order or m.state == "inflight" for m in line if m is not message)

    def candidate(self, name: str, consumer: str) -> Message | None:
        """The message that ``consumer`` would be given: of a queue, or of the dead letters that a name addresses."""
        if name.endswith(".dlq"):
            return next((m for m in self.letters(name.removesuffix(".dlq")) if m.is_free), None)
        policy, leased = self.of(name), self.in_state(name, "inflight")
        if name in self.consume_paused or 0 < policy.inflight <= len(leased):
            return None
        if 0 < policy.inflight_per_consumer <= sum(m.consumer == consumer for m in leased):
            return None
        mine = [m for m in self.in_state(name, "ready") if m.target in ("", consumer) and self.its_turn(m)]
        if policy.oldest_every and (self.delivered[name] + 1) % policy.oldest_every == 0:
            return min(mine, key=lambda m: m.turn, default=None)
        return min(mine, key=lambda m: (-m.priority, m.turn), default=None)

    def pick(self, name: str, consumer: str) -> Message | None:
        """As ``candidate``; those that nobody wants any more end on the way."""
        while (message := self.candidate(name, consumer)) and message.state != "dead" and self.is_over(message):
            self.lapse(message)
        return message

    def deliver(self, sents: list[Sent], name: str, consumer: str, most: int, visibility_ms: int) -> bool:
        """Lease what there is to one request, and look at what it was told. False: there is nothing."""
        message = self.pick(name, consumer)
        count = 0
        while message and (message.state == "dead" or not self.is_over(message)):
            reported = [sent.data["messages"][count] if most else sent.data for sent in sents]
            self.lease(message, reported, consumer, visibility_ms)
            count += 1
            message = self.candidate(name, consumer) if count < most else None
        if count and most:
            assert [len(sent.data["messages"]) for sent in sents] == [count] * len(sents)
        return count > 0

    def lease(self, message: Message, reported: list[dict[str, Any]], consumer: str, visibility_ms: int) -> None:
        policy = self.of(message.queue)
        ordered = policy.ordered_s > 0 and message.state != "dead"
        if ordered:
            visibility_ms = 1000 * policy.ordered_s
        attempt = message.attempt + (message.state != "dead" and not ordered)
        for data in reported:
            assert data["message"]["messageKey"] == message.key
            assert data["message"]["attempt"] == attempt
            assert len(data["message"].get("parts", ())) == message.parts - len(message.unset or ())
            assert data["lease"]["consumerId"] == consumer
            assert data["lease"].get("phase") == ("ordered" if ordered else None)
            assert data["lease"]["leaseUntilEngineMs"] == self.now + visibility_ms
        if message.state != "dead":
            message.state, message.attempt = "inflight", attempt
        message.consumer, message.until, message.ordered = consumer, self.now + visibility_ms, ordered
        message.lease = reported[0]["lease"]["leaseId"]
        assert message.lease not in [lease for _, lease, _ in self.leases]
        self.leases.append((message, message.lease, consumer))
        if message.state != "dead":
            self.delivered[message.queue] += 1

    def serve(self) -> None:
        """Nobody waits for what he could have."""
        for one in list(self.waiting):
            if self.pick(one.queue, one.consumer):
                self.waiting.remove(one)
                self.deliver(one.sents, one.queue, one.consumer, one.most, VISIBILITY_MS)

    # All or nothing.

    def copied(self) -> Model:
        """A model that goes on from here without this one."""
        of = {id(message): copy(message) for message in self.messages}
        model = copy(self)
        model.messages = list(of.values())
        model.leases = [(of[id(message)], lease, consumer) for message, lease, consumer in self.leases]
        model.claims = {name: (of[id(message)], until) for name, (message, until) in self.claims.items()}
        model.gathering = self.gathering and of[id(self.gathering)]
        model.queues = set(self.queues)
        return model


def gathers(new: New) -> bool:
    """Whether it becomes a part of a message."""
    return new.queue == GATHERS and not (new.delay or new.target or new.ordering_key)
