"""ack, nack, release, extend_lease, activate, abandon: commands for the holder of a lease, and the events when a lease
ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from postroom_common.errors import CommandError
from postroom_common.events import EventType
from postroom_common.policy import Policy, dlq_name
from postroom_common.protocol import ErrorCode, ReasonCode, State

from ...model.facts import cut_reason
from ...model.lifecycle import attempts_left, backoff_ms
from ...model.records import ORDERED, Entry
from ...policy.access_rules import Verb
from ...stores.base import Cursor
from ..context import Context, Decision, Draft
from ..fields import Fields
from ..replies import delivery_to_wire
from .lookup import check_payload_as, check_state, existing_message, find_message
from .terminations import QUARANTINED, abandoned, about, died, failure, kept

#: Used for every message, and slow to look up in their classes.
_ACKED: Final = EventType.ACKED
_CONSUME: Final = Verb.CONSUME
_DEAD: Final = State.DEAD


def ack(context: Context, fields: Fields) -> Decision:
    """Acknowledge a message: it is gone, or done if the policy keeps it. Raises ``CommandError`` unless the caller has
    its lease, and that is active."""
    return Decision(acked(context, fields))


def acked(context: Context, fields: Fields) -> list[Draft]:
    """The event of an ``ack``. Raises what that raises."""
    entry = leased_message(context, fields, is_active=True)
    queue = entry.queue
    draft: Draft = {"type": _ACKED, "queue": queue, "key": entry.key, "lease": entry.lease_id}
    keep = context.keeps.get(queue)
    if keep is None:
        keep = context.keeps[queue] = context.policies.effective(queue, context.store.queue(queue)).done_keep
    if keep != "none" and entry.state is not _DEAD:
        draft |= kept(context, entry, keep)
    else:
        if entry.claim:
            draft["claim"] = entry.claim
        if entry.name:
            draft["name"] = entry.name
    draft["heldMs"] = context.now.engine - entry.leased_at
    return [draft]


def nack(context: Context, fields: Fields) -> Decision:
    """Fail a delivery: with ``requeue`` the policy decides about a retry, otherwise the message dies. Raises what
    ``ack`` raises."""
    return Decision(nacked(context, fields))


def nacked(context: Context, fields: Fields) -> list[Draft]:
    """The events of a ``nack``. Raises what that raises."""
    entry = leased_message(context, fields, is_active=True)
    reason = fields["reason"]
    if entry.state is State.DEAD:
        return [_released_dead_letter(entry)]
    if fields["requeue"]:
        return failed(context, entry, ReasonCode.NACKED, reason, fields["delayMs"])
    return died(context, entry, failure(entry, ReasonCode.REJECTED, reason))


def release(context: Context, fields: Fields) -> Decision:
    """Return a message as if it had not been delivered: to its place, or to the end if the policy says so and a
    consumer got it. Raises ``CommandError`` unless the caller has its lease."""
    entry = leased_message(context, fields)
    draft = _released(entry)
    if fields["undelivered"]:
        draft["undelivered"] = True
    elif entry.state is not State.DEAD:
        draft |= return_to(entry, context.policies.effective(entry.queue, context.store.queue(entry.queue)))
    return Decision([draft])


def extend_lease(context: Context, fields: Fields) -> Decision:
    """Make a lease last ``visibilityTimeoutSec`` from now (default: the policy's, for the phase that it is in). Raises
    what ``release`` raises."""
    entry = leased_message(context, fields)
    policy = context.policies.effective(entry.queue, context.store.queue(entry.queue))
    duration = lease_ms(policy, fields)
    if entry.phase == ORDERED and policy.ordered_ms and fields["visibilityTimeoutSec"] is None:
        duration = policy.ordered_ms
    return Decision([about(EventType.LEASE_EXTENDED, entry) | {"untilEngineMs": context.now.engine + duration}])


def activate(context: Context, fields: Fields) -> Decision:
    """End the first phase of a lease: from now on it is a counted delivery, and lasts ``visibilityTimeoutSec``
    (default: the policy's). One that is active stays as it is. The answer has the message. Raises what ``release``
    raises, ERR_INVALID_REQUEST for an unknown ``payloadAs``, and ``BodyLost`` or ``BodyUnread``."""
    check_payload_as(fields)
    entry = leased_message(context, fields)
    context.store.bodies.envelope(entry.key)
    if entry.parts:
        context.store.bodies.appended(entry)
    if entry.phase != ORDERED:
        shown = entry.lease_until, entry.attempt, fields["payloadAs"], context.store, context.policies, context.now
        return Decision(data=delivery_to_wire(entry, *shown))
    policy = context.policies.effective(entry.queue, context.store.queue(entry.queue))
    draft = about(EventType.ACTIVATED, entry)
    draft["attempt"] = entry.attempt + 1
    draft["untilEngineMs"] = context.now.engine + lease_ms(policy, fields)
    if fields["payloadAs"] != "text":
        draft["as"] = fields["payloadAs"]
    return Decision([draft])


def abandon(context: Context, fields: Fields) -> Decision:
    """Give up a message in whatever state. Whoever may consume may abandon one in flight; any other requires
    ``operate``. Raises ``CommandError``: ERR_FORBIDDEN, ERR_MESSAGE_NOT_FOUND, ERR_LEASE_MISMATCH if it is not leased
    under the ``leaseId``, and what ``check_state`` raises."""
    key, lease = fields["messageKey"], fields["leaseId"]
    stored = find_message(context, key)
    entry = existing_message(context, key, _CONSUME if stored and stored.lease_id else Verb.OPERATE)
    if lease and lease != entry.lease_id:
        raise CommandError(ErrorCode.LEASE_MISMATCH, f"lease {lease!r} does not hold {entry.key}")
    check_state(entry, fields["ifState"])
    return Decision(abandoned(context, entry, fields["reason"]))


def lease_ms(policy: Policy, fields: Fields) -> int:
    """The lease duration (ms): as requested, or else by the queue's policy."""
    seconds = fields["visibilityTimeoutSec"]
    return policy.visibility_ms if seconds is None else round(float(seconds) * 1000)


def lease_expired(context: Context, entry: Entry) -> list[Draft]:
    """The events when a lease runs out."""
    if entry.state is State.DEAD:
        return [_released_dead_letter(entry)]
    if entry.phase == ORDERED:
        policy = context.policies.effective(entry.queue, context.store.queue(entry.queue))
        return [_released(entry) | return_to(entry, policy)]
    return failed(context, entry, ReasonCode.LEASE_EXPIRED, f"the lease of {entry.consumer_id} ended")


def failed(context: Context, entry: Entry, code: ReasonCode, reason: str, delay_ms: int | None = None) -> list[Draft]:
    """The events of a failed delivery: a retry after ``delay_ms`` (default: the policy's backoff), or the death of the
    message if its attempts are spent. A nack gives the attempt back if the policy says so."""
    policy = context.policies.effective(entry.queue, context.store.queue(entry.queue))
    counts = policy.nack_counts or code is not ReasonCode.NACKED
    if counts and not attempts_left(policy, entry.retry_limit, entry.attempt):
        text = f"retry limit exceeded (attempt {entry.attempt})" + (f": {reason}" if reason else "")
        return died(context, entry, failure(entry, ReasonCode.RETRY_LIMIT, text) | {"cause": code})
    if _fails_alike(context, entry, policy.same_reason_limit, code, reason):
        text = f"{policy.same_reason_limit} attempts in a row failed alike" + (f": {reason}" if reason else "")
        return died(context, entry, failure(entry, ReasonCode.POISON, text) | {"cause": code}, QUARANTINED)
    if delay_ms is None:
        delay_ms = backoff_ms(policy, entry.attempt, context.ids.chance() if policy.jitter else 0)
    return [
        {
            **about(EventType.RETRIED, entry),
            "dueEngineMs": context.now.engine + delay_ms,
            "failure": failure(entry, code, reason),
            **({} if counts else {"attempt": entry.attempt - 1}),
            **return_to(entry, policy),
        }
    ]


def return_to(entry: Entry, policy: Policy) -> Draft:
    """What the event of a return says of the place. The messages of an ordering key stay in the order of publishing."""
    return {"returnTo": "end"} if policy.return_to == "end" and not entry.order_key else {}


def _fails_alike(context: Context, entry: Entry, limit: int, code: ReasonCode, reason: str) -> bool:
    """Whether this is the ``limit``-th attempt in a row that failed for the same reason."""
    if not limit or entry.failures < limit - 1:
        return False
    history = context.store.facts.history(entry)
    last = history[len(history) - limit + 1 :]
    # A consumer that crashes gives no reason, and its name is not part of the reason.
    text = None if code is ReasonCode.LEASE_EXPIRED else cut_reason(reason)
    alike = [one["reasonCode"] == code and text in (None, cut_reason(one["reasonMessage"])) for one in last]
    return len(alike) == limit - 1 and all(alike)


def body_lost(context: Context, key: str) -> Draft:
    """The event for a ready message with a lost body: it dies even if its queue stores no dead letters, so that the
    rest of its body is preserved."""
    entry = context.store.get(key)
    assert entry is not None
    text = "its body is missing or damaged in the store"
    return about(EventType.DIED, entry) | {"failure": failure(entry, ReasonCode.BODY_LOST, text)}


def _released_dead_letter(entry: Entry) -> Draft:
    """The end of a dead letter's lease: it stays dead."""
    return about(EventType.RELEASED, entry) | {"attempt": entry.attempt, "state": State.DEAD}


def _released(entry: Entry) -> Draft:
    """The end of a lease as if the message had not been delivered."""
    if entry.state is State.DEAD:
        return _released_dead_letter(entry)
    counted = entry.phase != ORDERED
    return about(EventType.RELEASED, entry) | {"attempt": entry.attempt - counted}


def undelivered(entry: Entry | None, lease: str) -> list[Draft]:
    """The event for a lease that never reached its consumer; none if it has ended meanwhile."""
    if entry is None or entry.lease_id != lease:
        return []
    return [_released(entry) | {"undelivered": True}]


def key_by_lease(context: Context, fields: Fields) -> str:
    """The key of the message with the lease that a request names instead of the message; the fields have it from now
    on. With ``queue``, the message must be one of that queue, or a dead letter of that address.

    Raises ``CommandError``: ERR_INVALID_REQUEST without a lease, ERR_LEASE_EXPIRED if no message has it, ERR_FORBIDDEN,
    ERR_LEASE_MISMATCH.
    """
    lease, queue, leases = fields["leaseId"], fields["queue"], context.leases
    if not lease:
        raise CommandError(ErrorCode.INVALID_REQUEST, "messageKey is required, or else leaseId")
    if not leases.is_complete:
        leases.build(_all_leased(context))
    key = leases.key_of(lease)
    if key is None:
        raise CommandError(ErrorCode.LEASE_EXPIRED, f"no message has the lease {lease!r}: it has ended, or never began")
    if queue:
        entry = existing_message(context, key, _CONSUME)
        if queue != entry.queue and not (entry.state is State.DEAD and queue == _address(context, entry.queue)):
            raise CommandError(ErrorCode.LEASE_MISMATCH, f"lease {lease!r} holds no message of queue {queue!r}")
    fields["messageKey"] = key
    return key


def _all_leased(context: Context) -> Iterator[Entry]:
    """All leased messages, and leased dead letters."""
    after: Cursor = ()
    while True:
        page, after = context.store.pages.leases("", after, 1000)
        yield from page
        if not after:
            return


def _address(context: Context, queue: str) -> str:
    return dlq_name(queue, context.policies.effective(queue, context.store.queue(queue)))


def leased_message(context: Context, fields: Fields, is_active: bool = False) -> Entry:
    """The message that the caller has leased; ``is_active``: its lease must not be in the first phase.

    Raises ``CommandError``: ERR_FORBIDDEN, ERR_MESSAGE_NOT_FOUND, ERR_LEASE_EXPIRED, ERR_LEASE_MISMATCH, ERR_BAD_STATE,
    and for a request that names neither message nor lease.
    """
    key = fields["messageKey"] or key_by_lease(context, fields)
    entry = context.store.get(key)
    if entry is None or _CONSUME not in context.access.free:
        entry = existing_message(context, key, _CONSUME)
    if not entry.lease_id:
        raise CommandError(ErrorCode.LEASE_EXPIRED, f"{key} is not leased now: it is {entry.state}")
    lease = fields["leaseId"]
    if lease:
        if lease != entry.lease_id:
            raise CommandError(ErrorCode.LEASE_MISMATCH, f"lease {lease!r} does not hold {key}")
    elif not fields["anyHolder"] and (
        (fields["consumerId"] or context.who.client_id) != entry.consumer_id or not _is_holder(context, entry)
    ):
        raise CommandError(ErrorCode.LEASE_MISMATCH, f"{key} is leased to another consumer; send its leaseId")
    if context.now.engine >= entry.lease_until:
        raise CommandError(ErrorCode.LEASE_EXPIRED, f"the lease of {key} is over")
    if is_active and entry.phase == ORDERED:
        text = f"{key} is {ORDERED}: its lease must be activated first, or be released"
        raise CommandError(ErrorCode.BAD_STATE, text)
    return entry


def _is_holder(context: Context, entry: Entry) -> bool:
    """Whether the principal belongs to the account that got the lease, because anybody can use any consumer name."""
    account = context.who.account
    return entry.holder_uid in ("", str(account)) or context.access.is_operator(account)
