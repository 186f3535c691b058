"""What is true of a device: what its programs did, and what they were answered. Nothing is read from its files."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Message:
    """A message in the eyes of its publisher and its consumers; times in milliseconds since the fleet began. ``boots``
    is how often the machine had been switched on when it was published."""

    queue: str
    published: int
    boots: int
    leased: int | None = None
    attempts: int = 0
    end: str = ""


@dataclass(slots=True)
class Latency:
    """Milliseconds, of messages whose way was not crossed by a power cut: there, engine time may know less."""

    publish_to_lease: list[int] = field(default_factory=list)
    lease_to_ack: list[int] = field(default_factory=list)
    publish_to_ack: list[int] = field(default_factory=list)

    def wire(self) -> dict[str, list[int]]:
        """As the truth is written."""
        return {
            "publishToLeaseMs": self.publish_to_lease,
            "leaseToAckMs": self.lease_to_ack,
            "publishToAckMs": self.publish_to_ack,
        }


class Ledger:
    """Counts by queue, and every message by its key."""

    def __init__(self) -> None:
        self.messages: dict[str, Message] = {}
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._latency: defaultdict[str, Latency] = defaultdict(Latency)

    def published(self, queue: str, key: str, now: int, boots: int) -> None:
        """A publish was answered with a new key."""
        self.messages[key] = Message(queue, now, boots)
        self.counts[queue]["published"] += 1

    def duplicate(self, queue: str) -> None:
        """A publish was answered with the key of a message that was there already."""
        self.counts[queue]["duplicatesRefused"] += 1

    def leased(self, key: str, attempt: int, now: int, boots: int) -> None:
        """A message was handed to a consumer."""
        message = self.messages[key]
        message.attempts = attempt
        self.counts[message.queue]["deliveries"] += 1
        if message.leased is None and message.boots == boots:
            self._latency[message.queue].publish_to_lease.append(now - message.published)
        message.leased = now

    def acked(self, key: str, now: int, boots: int) -> None:
        """Its consumer is done with it."""
        message = self.messages[key]
        message.end = "acked"
        self.counts[message.queue]["acked"] += 1
        latency = self._latency[message.queue]
        assert message.leased is not None
        latency.lease_to_ack.append(now - message.leased)
        if message.boots == boots:
            latency.publish_to_ack.append(now - message.published)

    def failed(self, key: str, state: str) -> None:
        """Its consumer gave it back; ``state`` is what the daemon made of it."""
        message = self.messages[key]
        self.counts[message.queue]["failures"] += 1
        if state == "dead":
            message.end = "dead"
            self.counts[message.queue]["dead"] += 1

    def purged(self, queue: str, count: int) -> None:
        """An operator removed so many messages."""
        self.counts[queue]["purged"] += count

    def wire(self, ends: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """By queue. ``ends`` is what the daemon answered at the end: counts by state, dead letters by reason, of which
        those that ``expired`` had no consumer."""
        names = ("published", "duplicatesRefused", "deliveries", "acked", "failures", "purged")
        found = {}
        for queue, end in ends.items():
            counts = self.counts[queue]
            expired = end["deadByReason"].get("MESSAGE_EXPIRED", 0)
            dead = {"dead": end["dead"], "expired": expired}
            found[queue] = {name: counts[name] for name in names} | end | dead | self._latency[queue].wire()
        return found
