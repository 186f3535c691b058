"""The key-values of a store beside its messages and the records of its queues: their names, and what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from postroom_common.events import Event
from postroom_common.protocol import HISTORY_LIMIT, ReasonCode

#: Characters of an earlier reason that a history retains; the journal has all of it.
_OLD_REASON: Final = 200
#: Which state is being loaded into a store, and how far; None once that is done.
FACT_LOADING: Final = "loading"
#: Prefix of the names of histories.
HISTORY: Final = "history:"


def history_fact(key: str) -> str:
    """Name of the fact that keeps a message's failed attempts: a list, newest last. It is apart from the entry, which
    is read and written at each delivery."""
    return HISTORY + key


#: Prefix of the names of parts.
PART: Final = "part:"
#: Digits of the number in the name of a part.
PART_DIGITS: Final = 6


def part_fact(key: str, number: int) -> str:
    """Name of the fact that is a part of a message, as it is stored: the first that was appended has number 1. Like the
    history, it is apart from the entry and from the first part, so that appending costs the same however many there
    are."""
    return f"{PART}{number:0{PART_DIGITS}d}:{key}"


#: Prefix of the names of facts that find a message by its name.
NAME: Final = "name:"


def name_fact(key: str) -> str:
    """Name of the fact that has the real key of a message, by the one that ends in its name (``named_key``)."""
    return NAME + key


def last_failure(history: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Why a message died, from the failed attempts in its history; a placeholder if that is lost."""
    return history[-1] if history else _LOST_FAILURE


_LOST_FAILURE: Final = {
    "reasonMessage": "its history is lost",
    "reasonCode": ReasonCode.BODY_LOST,
    "failedAtMs": 0,
    "attempt": 0,
    "consumerId": "",
}


def with_failure(history: list[dict[str, Any]], event: Event) -> list[dict[str, Any]]:
    """A message's failed attempts with that of an event added; the last ones only, and only the newest reason uncut."""
    before = [*history]
    if before:
        before[-1] = before[-1] | {"reasonMessage": cut_reason(before[-1]["reasonMessage"])}
    return [*before, event["failure"] | {"failedAtMs": event["wallMs"]}][-HISTORY_LIMIT:]


def cut_reason(text: str) -> str:
    """The part of a reason that a history retains once there is a newer one."""
    return text[:_OLD_REASON]


def dlq_fact(name: str) -> str:
    """Name of the fact that a queue's policy, set at run time, addresses its dead letters by ``name``."""
    return f"dlq:{name}"


#: Prefixes of the names of facts, by kind.
CLAIM: Final = "claim:"
CLAIM_END: Final = "claim-end:"
SCHEDULE: Final = "schedule:"


def claim_fact(queue: str, claim: str) -> str:
    """Name of the fact that a message of ``queue`` was published under ``claim``, so that a second one is not: its key
    (``key``), and until when the claim counts (``untilEngineMs``; 0: while the message is there)."""
    return f"{CLAIM}{queue}\0{claim}"


def claim_end_fact(until: int, queue: str, claim: str) -> str:
    """Name of the fact that such a claim ends at a time: these names sort by it."""
    return f"{CLAIM_END}{until:016d}:{queue}\0{claim}"


def schedule_fact(name: str) -> str:
    """Name of the fact that a schedule publishes messages."""
    return SCHEDULE + name


#: The fact that a drain is on: no new messages are taken.
FACT_DRAINING = "draining"
#: The fact that has the policy patterns: a list of objects with ``pattern`` and ``policy``, a layer.
FACT_POLICY_PATTERNS = "policyPatterns"
#: Prefixes of the facts that belong to the state of a root beside its queues and messages, in order.
CARRIED_FACTS: Final = (CLAIM_END, CLAIM, "dlq:", FACT_DRAINING, NAME, FACT_POLICY_PATTERNS, SCHEDULE)
#: Names of single facts: whose journal it is, and how the clocks last stood.
FACT_EPOCH = "epoch"
FACT_CLOCK = "clock"
#: Ranges of events that the store has never seen, until an operator has taken note: lists of first and last id.
FACT_LOSSES = "losses"
#: Ranges that are recorded separately; further ones lengthen the last.
LOSSES_LIMIT: Final = 100
#: The fact that there are, or were, logs.
FACT_LOGS = "logs"
#: The fact that the journal has a mark of its end, so that this may not be missing.
FACT_END_MARK = "endMark"
#: What was lost without the events being known, until an operator accepts it: what, number and keys of messages.
FACT_DAMAGE = "damage"
#: Damages that are recorded separately; further ones are counted in the last.
DAMAGE_LIMIT: Final = 100
#: Message keys that a damage names.
DAMAGE_KEYS_LIMIT: Final = 20


def with_loss(losses: list[list[int]], first: int, last: int) -> list[list[int]]:
    """The ranges that were lost, one more with them."""
    if len(losses) < LOSSES_LIMIT:
        return [*losses, [first, last]]
    return [*losses[:-1], [losses[-1][0], last]]


class Loss(NamedTuple):
    """Something that is lost or uncertain: ``what`` is a sentence for the operator, without a full stop and without the
    keys; ``keys`` are those of the messages concerned, ``events`` ranges of the events, as far as they are known (a
    message was published by the event ``Entry.seq``)."""

    what: str
    keys: Sequence[str] = ()
    events: Sequence[tuple[int, int]] = ()


def with_damage(damage: list[dict[str, Any]], what: str, messages: int, keys: list[str]) -> list[dict[str, Any]]:
    """The damage that was found, with one more. ``messages`` is the number of those that it concerns, 0: unknown."""
    if len(damage) < DAMAGE_LIMIT:
        return [*damage, {"what": what, "messages": messages, "keys": keys}]
    last = damage[-1]
    return [*damage[:-1], {**last, "messages": last["messages"] + messages, "more": last.get("more", 0) + 1}]


def damage_text(one: dict[str, Any]) -> str:
    """A damage in words, with the keys of its messages."""
    count, keys = one["messages"], ", ".join(one["keys"])
    further = f", and {count - len(one['keys'])} more" if count > len(one["keys"]) else ""
    more = f"; and {one['more']} further damages" if one.get("more") else ""
    return f"{one['what']}: {keys}{further}{more}" if keys else f"{one['what']}{more}"


def without_losses(losses: list[list[int]], noted: list[list[int]]) -> list[list[int]]:
    """The ranges that were lost, but for those that lie in one of ``noted``."""
    return [span for span in losses if not any(first <= span[0] and span[1] <= last for first, last in noted)]
