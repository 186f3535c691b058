"""What docs/protocol.md and docs/configuration.md promise of messages and queues, in the plainest form.

The model knows nothing of the engine, the life cycle or the fold: it looks at all messages each time, without an index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.bench import Sent

#: How long a lease lasts that asks for no time.
VISIBILITY_MS = 30_000
#: States in which a message waits to be consumed.
WAITS = ("ready", "delayed")
#: States in which a message counts for the limits of its queue.
ALIVE = ("ready", "delayed", "inflight", "held")


@dataclass(frozen=True)
class Policy:
    """The keys of a policy that make a difference here; all of them are set at a time."""

    limit: int = 5
    backoff: str = "exponential"
    initial_s: int = 1
    longest_s: int = 60
    dead_letters: bool = True
    ttl_s: int = 0
    ttl_action: str = "dead-letter"
    messages: int = 0
    overflow: str = "reject"
    deduplication: str = "off"
    window_s: int = 3
    oldest_every: int = 0
    inflight: int = 0
    inflight_per_consumer: int = 0

    def wire(self) -> dict[str, Any]:
        return {
            "retry": {
                "limit": self.limit,
                "backoff": self.backoff,
                "initialDelaySec": self.initial_s,
                "maxDelaySec": self.longest_s,
            },
            "dlq": {"enabled": self.dead_letters},
            "ttlSec": self.ttl_s,
            "ttlAction": self.ttl_action,
            "limits": {
                "messages": self.messages,
                "overflow": self.overflow,
                "inflight": self.inflight,
                "inflightPerConsumer": self.inflight_per_consumer,
            },
            "deduplication": {"mode": self.deduplication, "windowSec": self.window_s},
            "priority": {"oldestEvery": self.oldest_every},
        }

    def delay_ms(self, attempt: int) -> int:
        if self.backoff == "fixed":
            return 1000 * self.initial_s
        grown = self.initial_s * (attempt if self.backoff == "linear" else 2 ** (attempt - 1))
        return 1000 * min(grown, self.longest_s)


@dataclass(eq=False)
class Message:
    """What the model knows of one message. ``order`` is its place among all that were ever published."""

    key: str
    queue: str
    priority: int
    order: int
    target: str = ""
    ordering_key: str = ""
    expires: int = 0
    created: int = 0
    state: str = "ready"
    due: int = 0
    attempt: int = 0
    lease: str = ""
    consumer: str = ""
    until: int = 0
    died: int = 0


@dataclass(eq=False)
class Waiting:
    """A request that waits for messages. ``most`` is 0 where it did not ask for several."""

    sents: list[Sent]
    queue: str
    consumer: str
    until: int
    most: int = 0


def nothing(most: int) -> dict[str, Any]:
    """The answer to a request that gets no message."""
    return {"messages": []} if most else {"message": None}


class Full(Exception):
    """A queue takes no more."""


@dataclass
class Model:
    """All messages, and what was said of the queues. ``now`` is engine time."""

    policies: tuple[Policy, ...]
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
    order: int = 0

    def of(self, queue: str) -> Policy:
        return self.policies[self.policy.get(queue, 0)]

    def in_state(self, queue: str, *states: str) -> list[Message]:
        return [m for m in self.messages if m.queue == queue and m.state in states]

    def dues(self) -> Iterator[int]:
        """The times at which something happens by itself."""
        for message in self.messages:
            if message.state == "delayed":
                yield message.due
            if message.state == "inflight":
                yield message.until
            if message.state in WAITS and message.expires:
                yield message.expires
        yield from (one.until for one in self.waiting)

    # What happens by itself, at the head of a group.

    def tick(self) -> None:
        for message in self.messages:
            if message.state == "delayed" and message.due <= self.now:
                message.state = "ready"
        for message in self.messages:
            if message.state == "inflight" and message.until <= self.now:
                self.fail(message)
        for message in self.messages:
            if message.state in WAITS and self.is_over(message):
                self.lapse(message)
        for one in [w for w in self.waiting if w.until <= self.now]:
            self.waiting.remove(one)
            for sent in one.sents:
                assert sent.data == nothing(one.most)
        for queue in self.queues:
            self.serve(queue)

    def is_over(self, message: Message) -> bool:
        return 0 < message.expires <= self.now

    def lapse(self, message: Message) -> None:
        """A message that waits is no longer wanted."""
        if self.of(message.queue).ttl_action == "drop":
            message.state = "gone"
        else:
            self.bury(message)

    def fail(self, message: Message, delay_ms: int | None = None) -> None:
        """A delivery has failed."""
        policy = self.of(message.queue)
        if message.attempt >= max(1, policy.limit):
            self.bury(message)
            return
        wait_ms = policy.delay_ms(message.attempt) if delay_ms is None else delay_ms
        message.state, message.due = "delayed", self.now + wait_ms

    def bury(self, message: Message) -> None:
        kept = self.of(message.queue).dead_letters
        message.state, message.died = ("dead" if kept else "gone"), self.now

    # Publishing.

    def duplicate_of(self, queue: str, key: str) -> Message | None:
        """The message that stands in the way of another one with this deduplication key."""
        first, until = self.claims.get((queue, key), (None, 0))
        if not key or first is None or self.of(queue).deduplication == "off":
            return None
        stands = until > self.now if until else first.state != "gone" and first.queue == queue
        return first if stands else None

    def make_room(self, queue: str) -> bool:
        """Whether there is room for one more message, which is made if the policy says so. Raises ``Full``."""
        policy = self.of(queue)
        alive = len(self.in_state(queue, *ALIVE))
        if not policy.messages or alive < policy.messages:
            return True
        if policy.overflow == "dead-letter":
            return False
        ready = sorted(self.in_state(queue, "ready"), key=lambda m: m.order)
        too_many = alive + 1 - policy.messages
        if policy.overflow == "reject" or len(ready) < too_many:
            raise Full
        for message in ready[:too_many]:
            message.state = "gone"
        return True

    def claim(self, message: Message, key: str) -> None:
        policy = self.of(message.queue)
        if key and policy.deduplication != "off" and message.state != "gone":
            until = self.now + 1000 * policy.window_s if policy.deduplication == "window" else 0
            self.claims[message.queue, key] = (message, until)

    # What operators do.

    def reprocess(self, message: Message) -> None:
        """It has the time that its queue's policy gives to new messages."""
        message.state, message.attempt = "ready", 0
        ttl_s = self.of(message.queue).ttl_s
        message.expires = self.now + 1000 * ttl_s if ttl_s else 0

    def unhold(self, message: Message) -> None:
        message.state = "delayed" if message.due > self.now else "ready"

    def move(self, message: Message, queue: str) -> None:
        """It keeps its place and its end; what it was published under while it is there is free again."""
        self.claims = {name: one for name, one in self.claims.items() if one[0] is not message or one[1]}
        message.queue = queue

    # Consuming.

    def its_turn(self, message: Message) -> bool:
        """Whether no other message of its ordering key goes before it."""
        line = [m for m in self.in_state(message.queue, *ALIVE) if m.ordering_key == message.ordering_key != ""]
        return not any(m.order < message.order or m.state == "inflight" for m in line if m is not message)

    def candidate(self, queue: str, consumer: str) -> Message | None:
        """The message that ``consumer`` would be given."""
        policy, leased = self.of(queue), self.in_state(queue, "inflight")
        if queue in self.consume_paused or 0 < policy.inflight <= len(leased):
            return None
        if 0 < policy.inflight_per_consumer <= sum(m.consumer == consumer for m in leased):
            return None
        mine = [m for m in self.in_state(queue, "ready") if m.target in ("", consumer) and self.its_turn(m)]
        if policy.oldest_every and (self.delivered[queue] + 1) % policy.oldest_every == 0:
            return min(mine, key=lambda m: m.order, default=None)
        return min(mine, key=lambda m: (-m.priority, m.order), default=None)

    def pick(self, queue: str, consumer: str) -> Message | None:
        """As ``candidate``; those that nobody wants any more end on the way."""
        while (message := self.candidate(queue, consumer)) and self.is_over(message):
            self.lapse(message)
        return message

    def deliver(self, sents: list[Sent], queue: str, consumer: str, most: int, visibility_ms: int) -> bool:
        """Lease what there is to one request, and look at what it was told. False: there is nothing."""
        message = self.pick(queue, consumer)
        count = 0
        while message and not self.is_over(message):
            told = [sent.data["messages"][count] if most else sent.data for sent in sents]
            self.lease(message, told, consumer, visibility_ms)
            count += 1
            message = self.candidate(queue, consumer) if count < most else None
        if count and most:
            assert [len(sent.data["messages"]) for sent in sents] == [count] * len(sents)
        return count > 0

    def lease(self, message: Message, told: list[dict[str, Any]], consumer: str, visibility_ms: int) -> None:
        for data in told:
            assert data["message"]["messageKey"] == message.key
            assert data["message"]["attempt"] == message.attempt + 1
            assert data["lease"]["consumerId"] == consumer
            assert data["lease"]["leaseUntilEngineMs"] == self.now + visibility_ms
        message.state, message.attempt = "inflight", message.attempt + 1
        message.consumer, message.until = consumer, self.now + visibility_ms
        message.lease = told[0]["lease"]["leaseId"]
        assert message.lease not in [lease for _, lease, _ in self.leases]
        self.leases.append((message, message.lease, consumer))
        self.delivered[message.queue] += 1

    def serve(self, queue: str) -> None:
        """Nobody waits for what he could have."""
        for one in [w for w in self.waiting if w.queue == queue]:
            if self.would_get(one):
                self.waiting.remove(one)
                self.deliver(one.sents, queue, one.consumer, one.most, VISIBILITY_MS)

    def would_get(self, one: Waiting) -> bool:
        return self.pick(one.queue, one.consumer) is not None
