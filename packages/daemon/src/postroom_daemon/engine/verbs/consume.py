"""consume_next: lease the next message, or wait for one."""

from __future__ import annotations

from typing import Final

from postroom_common.errors import CommandError, PostroomError
from postroom_common.events import EventType
from postroom_common.protocol import ErrorCode, State

from ...model.records import Entry, QueueRecord
from ...policy.access_rules import Verb
from ...stores.base import BodyLost, BodyUnread
from ..admission import leases_left
from ..context import Context, Decision, Draft
from ..fields import Fields
from ..selection import dead_letters
from .addresses import is_dead_letter_address, queues_with_dead_letters
from .settle import lease_ms
from .terminations import QUARANTINED

#: Maximum number of dead letters that are skipped because they are leased, quarantined or without a body.
_SKIP_LIMIT: Final = 2000


class Expired(PostroomError):
    """The time to live of the next message, ``entry``, is over: it must expire before another one can be leased."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(f"{entry.key}: its time to live is over")
        self.entry = entry


def consume_next(context: Context, fields: Fields) -> Decision:
    """Lease the next message for this consumer. If there is none, the answer is empty, or the request waits
    (``waitMs``).

    Raises ``CommandError``: ERR_INVALID_REQUEST for an unknown ``payloadAs``, ERR_FORBIDDEN, ERR_QUOTA_EXCEEDED for an
    account with its maximum of leases. Raises ``BodyLost``, ``BodyUnread`` or ``Expired`` if the next message
    cannot be delivered.
    """
    if fields["payloadAs"] not in ("text", "value"):
        raise CommandError(ErrorCode.INVALID_REQUEST, "payloadAs must be text or value")
    now = context.now.engine
    consumer = fields["consumerId"] or context.who.client_id
    entry = _next(context, fields["queue"], consumer)
    if entry is None:
        if fields["waitMs"]:
            return Decision(wait_until=now + fields["waitMs"])
        return Decision(data={"message": None})
    if context.quotas.limits_leases:
        context.quotas.check_leases(context.who.account, context.consumers.leases_of_account(context.who.account))
    draft: Draft = {
        "type": EventType.LEASED,
        "queue": entry.queue,
        "key": entry.key,
        "lease": context.ids.lease(),
        "consumer": consumer,
        **context.who.event_fields(),
        "untilEngineMs": now + lease_ms(context, entry.queue, fields),
        "attempt": entry.attempt if entry.state is State.DEAD else entry.attempt + 1,
    }
    if fields["payloadAs"] == "value":
        draft["as"] = "value"
    if entry.state is State.DEAD:
        draft["ofDead"] = True
    return Decision([draft])


def _next(context: Context, queue: str, consumer: str) -> Entry | None:
    """The message to lease, or the dead letter if ``queue`` is a dead-letter address; its body can be read. Raises what
    ``consume_next`` raises."""
    store = context.store
    record = store.queue(queue)
    if record is None and is_dead_letter_address(context, queue):
        return _oldest_dead_letter(context, queue)
    context.require(Verb.CONSUME, queue)
    if record is None:
        return None
    entry = None if record.consume_paused else _allowed(context, queue, consumer, record)
    if entry:
        if 0 < entry.expires <= context.now.engine:
            raise Expired(entry)
        store.envelope(entry.key)
    return entry


def _allowed(context: Context, queue: str, consumer: str, record: QueueRecord) -> Entry | None:
    """The next message, if the in-flight limits allow one. By policy it is the oldest one at every n-th delivery."""
    policy = context.policies.effective(queue, record)
    if leases_left(context, queue, consumer, policy, record) == 0:
        return None
    if policy.oldest_every and (record.totals.get("leased", 0) + 1) % policy.oldest_every == 0:
        return context.store.pages.oldest_ready(queue, consumer)
    return context.store.next_ready(queue, consumer)


def _oldest_dead_letter(context: Context, name: str) -> Entry | None:
    """The oldest dead letter of all queues with this address from which the user may consume. Pauses and in-flight
    limits do not apply. Raises ``CommandError`` (ERR_FORBIDDEN)."""
    entries = dead_letters(context.store, queues_with_dead_letters(context, name, Verb.CONSUME, by_address=True))
    for skipped, entry in enumerate(entries):
        if skipped == _SKIP_LIMIT:
            break
        if entry.lease_id or entry.phase == QUARANTINED:
            continue
        try:
            context.store.envelope(entry.key)
        except (BodyLost, BodyUnread):
            continue
        return entry
    return None
