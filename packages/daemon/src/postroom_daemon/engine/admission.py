"""Whether a queue accepts a message or grants a lease: limits, validation of bodies, and deduplication.

The limits of messages and bytes are exact, also within a batch and within a group of requests.

A message is published under a claim, which its queue remembers until a given time, or as long as it has the message.
The name of a claim is a digest, so that all names have the same length."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256
from typing import Any, Final

import orjson

from postroom_common.body import Form, Part
from postroom_common.codec import strict_loads
from postroom_common.errors import CommandError, PostroomError
from postroom_common.policy import Policy
from postroom_common.protocol import ErrorCode, ReasonCode, State

from ..model.facts import claim_fact
from ..model.records import Entry, QueueRecord
from ..policy.policies import Policies
from .context import Context, Draft, Unfolded
from .verbs.terminations import dropped

#: Maximum number of messages that one request drops to make space.
DROPS_LIMIT = 2000
_FIRST_PAGE: Final = 32
#: Maximum length of a text that says what is wrong with a body.
_TEXT_LIMIT: Final = 2000


class QueueFull(PostroomError):
    """The queue is full, and its policy makes messages that do not fit dead letters."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def check_size(policy: Policy, queue: str, parts: Sequence[Part]) -> None:
    """Raise ``CommandError`` (ERR_MESSAGE_TOO_LARGE) for a body above the size limit of its queue."""
    if policy.max_message_bytes:
        size = sum(len(part.data) for part in parts)
        if size > policy.max_message_bytes:
            raise CommandError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the body has {size} bytes; queue {queue!r} takes at most {policy.max_message_bytes}"
                " (limits.messageBytes)",
            )


def check_rate(context: Context, queue: str, policy: Policy) -> None:
    """Raise ``CommandError`` (ERR_RATE_LIMITED) if messages arrive faster than the queue allows."""
    rate = policy.publish_per_sec
    if rate:
        count = context.pending.published.get(queue, 0) + 1
        wait_ms = context.rates.wait_ms(queue, rate, count, context.now.engine)
        if wait_ms:
            raise CommandError(
                ErrorCode.RATE_LIMITED,
                f"queue {queue!r} takes {rate:.15g} messages a second (limits.publishPerSec):"
                f" try again in {wait_ms} ms",
            )


def make_space(context: Context, queue: str, record: QueueRecord | None, policy: Policy, size: int) -> list[Draft]:
    """The events that make space in a queue for one more message of ``size`` bytes: if its policy says so, its oldest
    ready messages are dropped. They are recorded as pending.

    Raises ``CommandError`` (ERR_QUEUE_FULL, or ERR_MESSAGE_TOO_LARGE for a message that can never fit), or
    ``QueueFull`` if the policy makes the message a dead letter."""
    if not policy.max_messages and not policy.max_bytes:
        return []
    if policy.max_bytes and size > policy.max_bytes:
        raise CommandError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the message has {size} bytes with its headers; queue {queue!r} holds at most {policy.max_bytes}"
            " (limits.bytes)",
        )
    messages, total = _stored(context, queue, record)
    text = _excess(policy, queue, messages + 1, total + size)
    if not text:
        return []
    if policy.overflow == "dead-letter":
        raise QueueFull(text)
    victims: list[Entry] = []
    if policy.overflow == "drop-oldest":
        oldest = _Oldest(context, queue)
        while _excess(policy, queue, messages + 1, total + size):
            victim = oldest.next()
            if victim is None:
                break
            victims.append(victim)
            messages, total = messages - 1, total - victim.size
        # If limits were lowered, one request does not drop everything above them; it only must not add to it.
        if oldest.ended or not victims:
            text = f"{text}; no ready message is left that could be dropped" if oldest.ended else text
            victims = []
    if not victims:
        raise CommandError(ErrorCode.QUEUE_FULL, text)
    for victim in victims:
        context.pending.take(victim)
    return [draft for victim in victims for draft in dropped(victim, ReasonCode.QUEUE_FULL, text)]


def has_space(context: Context, queue: str, record: QueueRecord | None, policy: Policy, size: int) -> bool:
    """Whether a message of a queue may grow by ``size`` bytes."""
    return not policy.max_bytes or _stored(context, queue, record)[1] + size <= policy.max_bytes


def count_for_publisher(context: Context, draft: Draft, size: int) -> None:
    """Count a message, or a part, for its publisher's quota of stored bytes. Raises ``CommandError`` if it exceeds the
    quota, ``Unfolded`` if it may not once messages are removed that were acknowledged."""
    account, usage = context.who.account, context.usage
    draft["publisher"] = account
    if usage:
        stored = usage.of_account(account) + context.pending.stored + context.unfolded_bytes.get(account, 0)
        if context.unfolded_keys and not context.quotas.may_store(account, stored + size):
            raise Unfolded("messages are about to be removed")
        context.quotas.check_stored(account, stored, size)
        context.pending.stored += size


def leases_left(context: Context, queue: str, consumer: str, policy: Policy, record: QueueRecord) -> int | None:
    """How many more messages of a queue a consumer may lease now by the in-flight limits; None: no limit."""
    left: list[int] = []
    if policy.max_inflight:
        left.append(policy.max_inflight - record.counts[State.INFLIGHT])
    if policy.max_inflight_per_consumer:
        left.append(policy.max_inflight_per_consumer - context.consumers.leases_of(queue, consumer))
    return max(0, min(left)) if left else None


def _stored(context: Context, queue: str, record: QueueRecord | None) -> tuple[int, int]:
    """Number and bytes of a queue's messages that are neither dead nor done, including pending ones."""
    messages, size = context.pending.added.get(queue, (0, 0))
    if record is None:
        return messages, size
    counts = record.counts
    return messages + sum(counts.values()) - counts[State.DEAD] - counts[State.DONE], size + record.bytes


def _excess(policy: Policy, queue: str, messages: int, size: int) -> str:
    """Which limit a queue would exceed with ``messages`` messages of ``size`` bytes; '' if none."""
    if policy.max_messages and messages > policy.max_messages:
        return f"queue {queue!r} holds {messages - 1} messages; its limit is {policy.max_messages} (limits.messages)"
    if policy.max_bytes and size > policy.max_bytes:
        return f"queue {queue!r} would hold {size} bytes; its limit is {policy.max_bytes} (limits.bytes)"
    return ""


class _Oldest:
    """The ready messages of a queue in the order of publishing, without those that the request has dropped already.
    ``ended``: no more are left."""

    def __init__(self, context: Context, queue: str) -> None:
        self.ended = False
        self._store, self._pending = context.store, context.pending
        self._queue = queue
        self._returned: set[str] = set()

    def next(self) -> Entry | None:
        """The next message; None if there is none, or if the request has dropped its maximum."""
        pending = self._pending
        if len(pending.settled) + len(self._returned) >= DROPS_LIMIT:
            return None
        if not pending.settled and not self._returned:
            oldest = self._store.pages.oldest_ready(self._queue)
        else:
            oldest = self._next_stored()
        oldest = oldest or self._first(pending.fresh.get(self._queue))
        if oldest is None:
            self.ended = True
        else:
            self._returned.add(oldest.key)
        return oldest

    def _next_stored(self) -> Entry | None:
        """The next message of the store, which is read in pages of increasing size."""
        pending, queue = self._pending, self._queue
        while True:
            first = self._first(pending.ready.get(queue))
            asked = pending.asked.get(queue, 0)
            if first or asked > DROPS_LIMIT:
                return first
            limit = asked * 4 or _FIRST_PAGE
            entries = self._store.pages.oldest(queue, limit)
            pending.ready[queue] = deque(entries)
            pending.asked[queue] = limit if len(entries) == limit else DROPS_LIMIT + 1

    def _first(self, entries: deque[Entry] | None) -> Entry | None:
        while entries and entries[0].key in self._pending.settled:
            entries.popleft()
        return next((one for one in entries or () if one.key not in self._returned), None)


def check_body(policies: Policies, policy: Policy, queue: str, part: Part) -> str:
    """What is wrong with the body of a message that becomes a dead letter; '' if it is valid.

    Raises ``CommandError`` (ERR_VALIDATION_FAILED) if the queue rejects invalid messages, and for an unusable schema.
    """
    checks = policies.checks(queue, policy)
    if not checks:
        return ""
    problems: list[str] = []
    try:
        if part.form is Form.BINARY:
            raise ValueError("the body is binary")
        value = part.value() if part.form is Form.JSON else strict_loads(part.data)
    except (ValueError, RecursionError) as error:
        problems.append(f"JSON parse error: {error}")
    else:
        for check in checks:
            problems += check.problems(value)
    text = _joined(problems)
    if text and policy.on_invalid == "reject":
        raise CommandError(ErrorCode.VALIDATION_FAILED, text)
    return text


def _joined(problems: list[str]) -> str:
    text = "; ".join(problems)
    if len(text) <= _TEXT_LIMIT:
        return text
    shown: list[str] = []
    for problem in problems:
        if sum(map(len, shown)) + 2 * len(shown) + len(problem) > _TEXT_LIMIT:
            break
        shown.append(problem)
    if not shown:
        return problems[0][:_TEXT_LIMIT]
    return "; ".join([*shown, f"and {len(problems) - len(shown)} more"])


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim: it lasts until ``until`` (engine ms); 0: as long as the queue has the message."""

    name: str
    until: int

    def to_json(self) -> dict[str, Any]:
        """The claim as a field of the event."""
        return {"name": self.name, "untilEngineMs": self.until} if self.until else {"name": self.name}


def claim_of(context: Context, policy: Policy, key: str, parts: Sequence[Part]) -> Claim | None:
    """The claim of a message with this ``deduplicationKey`` ('': none) and body, which may contain a key; None if there
    is none."""
    if policy.deduplication == "off":
        return None
    key = key or _key_in(parts[0])
    if key:
        name = _digest(b"key", key.encode())
    elif policy.deduplicate_content:
        name = _digest(b"body", b"\0".join(map(_content, parts)))
    else:
        return None
    return Claim(name, context.now.engine + policy.deduplication_ms if policy.deduplication == "window" else 0)


def claim_of_parts(context: Context, policy: Policy, parts: Sequence[Part]) -> Claim | None:
    """The claim of a message with named parts, which is that of their content; None if there is none."""
    if policy.deduplication == "off" or not policy.deduplicate_content:
        return None
    name = claim_of_content(content_key(parts))
    return Claim(name, context.now.engine + policy.deduplication_ms if policy.deduplication == "window" else 0)


def claim_of_content(key: str) -> str:
    """The name of the claim of a message with named parts, by its ``content_key``."""
    return _digest(b"parts", key.encode())


def content_key(parts: Sequence[Part]) -> str:
    """SHA-256, in hex, of the JSON object that has the JSON text of each part by its name, all keys sorted."""
    texts = {}
    for part in parts:
        value = part.value() if part.form is Form.JSON else part.as_json()
        texts[part.name] = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    return sha256(orjson.dumps(texts, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _key_in(part: Part) -> str:
    """The ``deduplicationKey`` of a body that is a message envelope of the C++ system; "" if there is none."""
    if part.form is Form.BINARY or b'"deduplicationKey"' not in part.data:
        return ""
    try:
        tree = orjson.loads(part.data)
    except orjson.JSONDecodeError:
        return ""
    key = tree.get("deduplicationKey") if type(tree) is dict else None
    return key if type(key) is str else ""


def first_of(context: Context, queue: str, claim: Claim) -> str | None:
    """The key of the message that already has this claim, if the claim is still valid."""
    pending, store = context.pending, context.store
    key = pending.claims.get((queue, claim.name))
    if key and (claim.until or key not in pending.settled):
        return key
    stored = store.facts.get(claim_fact(queue, claim.name))
    if stored is None:
        return None
    if stored["untilEngineMs"]:
        return stored["key"] if stored["untilEngineMs"] > context.now.engine else None
    entry = None if stored["key"] in pending.settled else store.get(stored["key"])
    return entry.key if entry and entry.queue == queue else None


def _content(part: Part) -> bytes:
    """Bytes that are equal for equal bodies, whatever the order of an object's keys."""
    return orjson.dumps(part.value(), option=orjson.OPT_SORT_KEYS) if part.form is Form.JSON else part.data


def _digest(kind: bytes, data: bytes) -> str:
    return blake2b(data, digest_size=16, person=kind).hexdigest()
