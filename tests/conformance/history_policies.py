"""The policies of the histories, and what they say of retries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Policy:
    """The keys of a policy that make a difference here; all of them are set at a time."""

    limit: int = 5
    backoff: str = "exponential"
    initial_s: int = 1
    longest_s: int = 60
    dead_letters: bool = True
    dlq_most: int = 0
    ttl_s: int = 0
    ttl_action: str = "dead-letter"
    messages: int = 0
    overflow: str = "reject"
    deduplication: str = "off"
    window_s: int = 3
    oldest_every: int = 0
    inflight: int = 0
    inflight_per_consumer: int = 0
    at_end: bool = False
    nack_counts: bool = True
    gather_s: int = 0
    ordered_s: int = 0
    keep_done: str = "none"
    done_most: int = 0
    keep_abandoned: str = "message"
    draft_s: int = 0

    def wire(self) -> dict[str, Any]:
        return {
            "retry": {
                "limit": self.limit,
                "backoff": self.backoff,
                "initialDelaySec": self.initial_s,
                "maxDelaySec": self.longest_s,
                "returnTo": "end" if self.at_end else "place",
                "nackCounts": self.nack_counts,
            },
            "dlq": {"enabled": self.dead_letters, "maxMessages": self.dlq_most},
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
            "gatherWindowSec": self.gather_s,
            "orderedSec": self.ordered_s,
            "done": {"keep": self.keep_done, "maxMessages": self.done_most},
            "abandon": {"keep": self.keep_abandoned},
            "draftingSec": self.draft_s,
        }

    def delay_ms(self, attempt: int) -> int:
        """The wait behind failed delivery number ``attempt``."""
        if self.backoff == "fixed":
            return 1000 * self.initial_s
        grown = self.initial_s * (attempt if self.backoff == "linear" else 2 ** (attempt - 1))
        return 1000 * min(grown, self.longest_s)


#: The first is the default.
POLICIES = (
    Policy(),
    Policy(limit=1, deduplication="window", inflight=1, dlq_most=2),
    Policy(limit=0, backoff="fixed", initial_s=2, dead_letters=False, inflight_per_consumer=1),
    Policy(limit=3, backoff="linear", initial_s=2, longest_s=5, deduplication="while-present", oldest_every=2),
    Policy(limit=4, longest_s=3, dead_letters=False, ttl_s=2, draft_s=1),
    Policy(ttl_s=1, ttl_action="drop", oldest_every=2, inflight=3, inflight_per_consumer=1),
    Policy(ttl_s=1, dead_letters=False, limit=2, deduplication="window"),
    Policy(messages=2, deduplication="while-present"),
    Policy(messages=2, overflow="drop-oldest", inflight=1),
    Policy(messages=2, overflow="dead-letter", deduplication="window", dlq_most=1),
    Policy(messages=2, overflow="dead-letter", deduplication="while-present", dead_letters=False),
    Policy(deduplication="while-present", oldest_every=3, inflight_per_consumer=2),
    Policy(limit=1, ttl_s=1, dlq_most=1, deduplication="while-present"),
    Policy(limit=3, backoff="fixed", at_end=True, draft_s=30),
    Policy(limit=2, at_end=True, nack_counts=False, oldest_every=2),
    Policy(limit=1, nack_counts=False, messages=2, overflow="drop-oldest", at_end=True),
    Policy(ordered_s=2, at_end=True, keep_done="message", done_most=2),
    Policy(ordered_s=1, inflight=1, keep_done="message", deduplication="while-present", keep_abandoned="headers"),
    Policy(ordered_s=3, limit=1, dead_letters=False, keep_done="headers", messages=2),
    Policy(keep_done="message", dlq_most=2, keep_abandoned="none", oldest_every=2),
)
#: That of the queue that gathers.
GATHERING = Policy(limit=2, gather_s=2, inflight_per_consumer=2, keep_done="headers", keep_abandoned="headers")
