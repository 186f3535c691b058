"""The limits of queues: how large a message may be, how fast messages may come, how many may wait, how many may be in
flight.

The limits of messages and bytes are exact, also within a request of several messages and a group of requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from postroom_common.body import Part
from postroom_common.errors import CommandError, PostroomError
from postroom_common.policy import Policy
from postroom_common.protocol import ErrorCode, ReasonCode, State

from ..model.records import Entry, QueueRecord
from ..policy.policies import Policies
from .context import Context, Draft
from .verbs.terminations import dropped

#: Messages that one request drops to make room.
DROPS_LIMIT: Final = 2000
_FEW: Final = 32


class QueueFull(PostroomError):
    """A queue that keeps as dead letters what it has no room for has no room."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def takes_anything(policies: Policies, policy: Policy, queue: str) -> bool:
    """Whether nothing of a queue's policy can keep a message out."""
    limited = policy.max_message_bytes or policy.publish_per_sec or policy.max_messages or policy.max_bytes
    return not limited and policy.deduplication == "off" and not policies.has_checks(queue, policy)


def check_size(policy: Policy, queue: str, parts: Sequence[Part]) -> None:
    """Raise ``CommandError`` (ERR_MESSAGE_TOO_LARGE) for a body that is larger than a queue allows."""
    if policy.max_message_bytes:
        size = sum(len(part.data) for part in parts)
        if size > policy.max_message_bytes:
            raise CommandError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the body has {size} bytes; queue {queue!r} takes at most {policy.max_message_bytes}"
                " (limits.messageBytes)",
            )


def check_rate(context: Context, queue: str, policy: Policy) -> None:
    """Raise ``CommandError`` (ERR_RATE_LIMITED) while messages come faster than a queue allows."""
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


def make_room(context: Context, queue: str, record: QueueRecord | None, policy: Policy, size: int) -> list[Draft]:
    """What has to happen so that a queue has room for one more message of ``size`` bytes: by its policy, its oldest
    ready messages are dropped. That is noted as pending.

    Raises ``CommandError`` (ERR_QUEUE_FULL, or ERR_MESSAGE_TOO_LARGE for one that never fits), or ``QueueFull`` where
    the policy is to keep it as a dead letter.
    """
    if not policy.max_messages and not policy.max_bytes:
        return []
    if policy.max_bytes and size > policy.max_bytes:
        raise CommandError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the message has {size} bytes with its headers; queue {queue!r} holds at most {policy.max_bytes}"
            " (limits.bytes)",
        )
    messages, total = _held(context, queue, record)
    text = _lacking(policy, queue, messages + 1, total + size)
    if not text:
        return []
    if policy.overflow == "dead-letter":
        raise QueueFull(text)
    victims: list[Entry] = []
    if policy.overflow == "drop-oldest":
        oldest = _Oldest(context, queue)
        while _lacking(policy, queue, messages + 1, total + size):
            victim = oldest.next()
            if victim is None:
                break
            victims.append(victim)
            messages, total = messages - 1, total - victim.size
        # Where the limits were lowered, a request does not drop all that is too much: it is enough that there are not
        # more.
        if oldest.ended or not victims:
            text = f"{text}; no ready message is left that could be dropped" if oldest.ended else text
            victims = []
    if not victims:
        raise CommandError(ErrorCode.QUEUE_FULL, text)
    for victim in victims:
        context.pending.take(victim)
    return [draft for victim in victims for draft in dropped(victim, ReasonCode.QUEUE_FULL, text)]


def leases_left(context: Context, queue: str, consumer: str, policy: Policy, record: QueueRecord) -> int | None:
    """How many more messages of a queue may be leased to a consumer now, by the limits in flight. None: any number."""
    left: list[int] = []
    if policy.max_inflight:
        left.append(policy.max_inflight - record.counts[State.INFLIGHT])
    if policy.max_inflight_per_consumer:
        left.append(policy.max_inflight_per_consumer - context.consumers.leases_of(queue, consumer))
    return max(0, min(left)) if left else None


def _held(context: Context, queue: str, record: QueueRecord | None) -> tuple[int, int]:
    """Messages of a queue that are not dead, and their bytes, with those that are pending."""
    messages, size = context.pending.added.get(queue, (0, 0))
    if record is None:
        return messages, size
    return messages + sum(record.counts.values()) - record.counts[State.DEAD], size + record.bytes


def _lacking(policy: Policy, queue: str, messages: int, size: int) -> str:
    """What a queue has no room for, if it held so much; '' if it has."""
    if policy.max_messages and messages > policy.max_messages:
        return f"queue {queue!r} holds {messages - 1} messages; its limit is {policy.max_messages} (limits.messages)"
    if policy.max_bytes and size > policy.max_bytes:
        return f"queue {queue!r} would hold {size} bytes; its limit is {policy.max_bytes} (limits.bytes)"
    return ""


class _Oldest:
    """The ready messages of a queue in publish order that no item of the request has dropped yet. ``ended``: there are
    no more."""

    def __init__(self, context: Context, queue: str) -> None:
        self.ended = False
        self._store, self._pending = context.store, context.pending
        self._queue = queue
        self._given: set[str] = set()

    def next(self) -> Entry | None:
        """The next one, or None: there is none, or the request has dropped enough."""
        pending = self._pending
        if len(pending.settled) + len(self._given) >= DROPS_LIMIT:
            return None
        if not pending.settled and not self._given:
            found = self._store.pages.oldest_ready(self._queue)
        else:
            found = self._stored()
        found = found or self._first(pending.fresh.get(self._queue))
        if found is None:
            self.ended = True
        else:
            self._given.add(found.key)
        return found

    def _stored(self) -> Entry | None:
        """Of those that the store has: they are asked for a few at a time, and then more of them."""
        pending, queue = self._pending, self._queue
        while True:
            found = self._first(pending.ready.get(queue))
            asked = pending.asked.get(queue, 0)
            if found or asked > DROPS_LIMIT:
                return found
            limit = asked * 4 or _FEW
            entries = self._store.pages.oldest(queue, limit)
            pending.ready[queue] = deque(entries)
            pending.asked[queue] = limit if len(entries) == limit else DROPS_LIMIT + 1

    def _first(self, entries: deque[Entry] | None) -> Entry | None:
        while entries and entries[0].key in self._pending.settled:
            entries.popleft()
        return next((one for one in entries or () if one.key not in self._given), None)
