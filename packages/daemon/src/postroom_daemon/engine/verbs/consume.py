"""consume_next: lease the next message or messages of a queue, or of any that a pattern matches; or wait for one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, takewhile
from typing import Final

from postroom_common.errors import CommandError, PostroomError
from postroom_common.events import EventType
from postroom_common.protocol import ErrorCode, State

from ...model.log_record import LOG
from ...model.records import ORDERED, Entry
from ...policy.access_rules import Verb
from ...stores.errors import BodyLost, BodyUnread
from ..admission import leases_left
from ..context import Context, Decision, Draft, no_message
from ..fields import Fields
from ..heads import Heads, available_from
from ..selection import dead_letters
from .addresses import (
    is_dead_letter_address,
    is_log,
    policy_at_creation,
    queue_created,
    queues_with_dead_letters,
)
from .lookup import check_payload_as
from .policies import check_creation, creation_layer
from .settle import lease_ms
from .terminations import QUARANTINED

#: Maximum number of dead letters that are skipped because they are leased, quarantined or without a body.
_SKIP_LIMIT: Final = 2000
#: Maximum size of the bodies and headers in one answer; the first message is delivered whatever its size.
DELIVERED_BYTES = 4 * 1024 * 1024
#: Used for every message, and slow to look up in their classes.
_LEASED: Final = EventType.LEASED
_READY, _DEAD = State.READY, State.DEAD
_CONSUME: Final = Verb.CONSUME


class QueueMissing(PostroomError):
    """The queue does not exist, and the request creates it: ``draft`` is the event to record before the request can be
    decided."""

    def __init__(self, draft: Draft) -> None:
        super().__init__(f"there is no queue {draft['queue']!r}")
        self.draft = draft


class Expired(PostroomError):
    """The time to live of the next message, ``entry``, is over: it must expire before another one can be leased."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(f"{entry.key}: its time to live is over")
        self.entry = entry


def consume_next(context: Context, fields: Fields) -> Decision:
    """Lease the next message for this consumer; with ``max`` up to that many messages, one after the other. If there is
    none, the answer is empty, or the request waits (``waitMs``).

    Raises ``CommandError``: ERR_INVALID_REQUEST for an unknown ``payloadAs`` or an invalid pattern or policy,
    ERR_FORBIDDEN, ERR_QUOTA_EXCEEDED for an account with its maximum of leases, ERR_QUEUE_NOT_FOUND for a queue that
    must exist. Raises ``BodyLost``, ``BodyUnread`` or
    ``Expired`` if the next message cannot be delivered, ``QueueMissing`` if the queue is to be created.
    """
    check_payload_as(fields)
    most, consumer = fields["max"], fields["consumerId"] or context.who.client_id
    heads = None
    if fields["createWith"] is not None:
        check_creation(fields["createWith"])
    if fields["queuePattern"] is None:
        entries = _next(context, fields["queue"], consumer, most or 1, DELIVERED_BYTES)
    else:
        heads = _heads(context, fields)
        if not heads.advance():
            return Decision(work=context.patterns.complete(heads))
        entries = _next_of_any(context, heads, consumer, most or 1, DELIVERED_BYTES)
    if not entries:
        if fields["createWith"] is not None:
            _see_to_queue(context, fields)
        if fields["mustExist"]:
            _check_existence(context, fields)
        if fields["waitMs"]:
            return Decision(wait_until=context.now.engine + fields["waitMs"])
        return Decision(data=no_message(fields))
    decision = Decision(_leases(context, fields, consumer, entries))
    if most is not None:
        decision.reply = {"as": "deliveries"}
        decision.more = _further(context, fields, consumer, entries, heads)
    return decision


def _heads(context: Context, fields: Fields) -> Heads:
    """The queues from which a request by pattern may consume. Raises ``CommandError``."""
    if fields["queue"]:
        raise CommandError(ErrorCode.INVALID_REQUEST, "give queue or queuePattern, not both")
    if fields["createWith"] is not None:
        raise CommandError(ErrorCode.INVALID_REQUEST, "createWith is for a queue: a queuePattern creates none")
    if fields["mustExist"]:
        raise CommandError(ErrorCode.INVALID_REQUEST, "mustExist is for a queue: a queuePattern may match none")
    access, account = context.access, context.who.account
    return context.patterns.heads(
        fields["queuePattern"],
        None if access.is_open(_CONSUME) or access.is_operator(account) else account,
        lambda queue: access.may(account, _CONSUME, queue),
        access.changes,
        context.store,
        context.now.engine,
    )


def _next_of_any(context: Context, heads: Heads, consumer: str, most: int, space: int) -> list[Entry]:
    """As ``_next``, from the queue whose next message has been available longest."""
    store = context.store

    def look(queue: str) -> Entry | None:
        record = store.queue(queue)
        if record is None or record.kind == LOG:
            return None
        return next(iter(_candidates(context, queue, consumer, 1)), None)

    def is_blocked(queue: str) -> bool | None:
        record = store.queue(queue)
        if record is None or not record.counts[_READY]:
            return None
        most_inflight = context.policies.effective(queue, record).max_inflight
        return record.consume_paused or 0 < most_inflight <= record.counts[State.INFLIGHT]

    queue = heads.next_queue(look, is_blocked, context.now.engine)
    if not queue:
        return []
    entries = _next(context, queue, consumer, most, space)
    others = heads.others_from()
    if others and len(entries) > 1:
        return [entries[0], *takewhile(lambda entry: available_from(entry) <= others, entries[1:])]
    return entries


def _see_to_queue(context: Context, fields: Fields) -> None:
    """Raise ``QueueMissing`` if the queue of the request does not exist. Raises ``CommandError`` for a policy that is
    invalid, or that the user may not set."""
    queue, policy = fields["queue"], fields["createWith"]
    if context.store.queue(queue) is None and not is_dead_letter_address(context, queue):
        layer = creation_layer(context, queue, policy)
        if policy_at_creation(context, queue, layer).kind == LOG:
            raise is_log(queue, "create_queue or append creates it")
        raise QueueMissing(queue_created(context, queue, layer))


def _check_existence(context: Context, fields: Fields) -> None:
    """Raise ``CommandError`` (ERR_QUEUE_NOT_FOUND) if the queue of the request does not exist, nor dead letters of that
    name."""
    queue = fields["queue"]
    if context.store.queue(queue) is None and not is_dead_letter_address(context, queue):
        raise CommandError(ErrorCode.QUEUE_NOT_FOUND, f"there is no queue {queue!r}")


def _further(
    context: Context, fields: Fields, consumer: str, first: list[Entry], heads: Heads | None
) -> Callable[[], list[Draft]]:
    """A function that leases the messages after ``first``, as long as there are any and the answer has space."""
    left, space = fields["max"] - len(first), DELIVERED_BYTES - _size(first)

    def further() -> list[Draft]:
        nonlocal left, space
        if left <= 0 or space <= 0:
            return []
        try:
            if heads:
                entries = _next_of_any(context, heads, consumer, left, space)
            else:
                entries = _next(context, fields["queue"], consumer, left, space)
        except (CommandError, BodyLost, BodyUnread, Expired):
            return []  # the next request handles it
        left, space = left - len(entries), space - _size(entries)
        return _leases(context, fields, consumer, entries) if space >= 0 else []

    return further


def _size(entries: list[Entry]) -> int:
    return sum(entry.size for entry in entries)


def _leases(context: Context, fields: Fields, consumer: str, entries: list[Entry]) -> list[Draft]:
    """The events that lease messages."""
    account = context.who.account
    account_field = "uid" if type(account) is int else "principal"
    payload_as, seconds = fields["payloadAs"], fields["orderedSec"]
    queue, until, ordered = "", 0, 0
    drafts: list[Draft] = []
    for entry in entries:
        if entry.queue != queue:
            queue = entry.queue
            policy = context.free_queues.get(queue) or context.policies.effective(queue, context.store.queue(queue))
            if entry.state is not _DEAD:
                ordered = policy.ordered_ms if seconds is None else seconds and max(1, round(seconds * 1000))
            until = context.now.engine + (ordered or lease_ms(policy, fields))
        is_dead = entry.state is _DEAD
        draft: Draft = {
            "type": _LEASED,
            "queue": queue,
            "key": entry.key,
            "lease": context.ids.lease(),
            "consumer": consumer,
            account_field: account,
            "untilEngineMs": until,
            "attempt": entry.attempt if is_dead else entry.attempt + 1,
        }
        if ordered:
            draft["phase"] = ORDERED
            draft["attempt"] = entry.attempt
        if payload_as != "text":
            draft["as"] = payload_as
        if is_dead:
            draft["ofDead"] = True
        drafts.append(draft)
    return drafts


def _next(context: Context, queue: str, consumer: str, most: int, space: int) -> list[Entry]:
    """The messages to lease: at most ``most``, as many as can be leased whatever becomes of those before them, or dead
    letters if the queue is a dead-letter address. Their bodies can be read, and have at most ``space`` bytes together,
    except that of the first one. Raises what ``consume_next`` raises."""
    store, quotas, account = context.store, context.quotas, context.who.account
    has_limit = quotas.limits_leases and account not in quotas.exempt
    leases = context.consumers.leases_of_account(account) if has_limit else 0
    entries: list[Entry] = []
    is_free, now = queue in context.free_queues, context.now.engine
    next_ready, envelope = store.several.next_ready, store.bodies.envelope
    for entry in next_ready(queue, consumer, most) if is_free else _candidates(context, queue, consumer, most):
        space -= entry.size
        if entries and space < 0:
            break
        try:
            if entry.state is _READY:
                if 0 < entry.expires <= now:
                    raise Expired(entry)
                envelope(entry.key)
                if entry.parts:
                    store.bodies.appended(entry)
            if has_limit:
                quotas.check_leases(account, leases)
                leases += entry.state is _READY
        except (CommandError, BodyLost, BodyUnread, Expired):
            if not entries:
                raise
            break
        entries.append(entry)
    return entries


def _candidates(context: Context, queue: str, consumer: str, most: int) -> Iterable[Entry]:
    """At most ``most`` messages that come next, or dead letters if ``queue`` is a dead-letter address. Raises
    ``CommandError`` (ERR_FORBIDDEN)."""
    record = context.store.queue(queue)
    if record is None and is_dead_letter_address(context, queue):
        return islice(_oldest_dead_letters(context, queue), most)
    context.require(_CONSUME, queue)
    if record is None or record.consume_paused:
        return ()
    if record.kind == LOG:
        raise is_log(queue, "read returns its records")
    policy = context.policies.effective(queue, record)
    if policy.measured:
        context.statistics.measure(queue, context.now.engine)
    if policy.max_inflight or policy.max_inflight_per_consumer:
        left = leases_left(context, queue, consumer, policy, record)
        if left == 0:
            return ()
        if left is not None:
            most = min(most, left)
    if policy.oldest_every:  # every n-th delivery is that of the oldest message
        before = policy.oldest_every - 1 - record.totals.get("leased", 0) % policy.oldest_every
        if before == 0:
            oldest = context.store.pages.oldest_ready(queue, consumer)
            return [oldest] if oldest else []
        most = min(most, before)
    elif not (policy.max_inflight or policy.max_inflight_per_consumer) and _CONSUME in context.access.free:
        context.free_queues[queue] = policy
    return context.store.several.next_ready(queue, consumer, most)


def _oldest_dead_letters(context: Context, name: str) -> Iterator[Entry]:
    """The dead letters of all queues with this address from which the user may consume, oldest first. Pauses and
    in-flight limits do not apply. Raises ``CommandError`` (ERR_FORBIDDEN)."""
    entries = dead_letters(context.store, queues_with_dead_letters(context, name, Verb.CONSUME, by_address=True))
    skipped = 0
    for entry in entries:
        if skipped == _SKIP_LIMIT:
            break
        if entry.lease_id or entry.phase == QUARANTINED:
            skipped += 1
            continue
        try:
            context.store.bodies.message(entry)
        except (BodyLost, BodyUnread):
            skipped += 1
            continue
        yield entry
