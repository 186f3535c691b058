"""consume_next: lease the next message, or wait for one."""

from __future__ import annotations

from postroom_common.errors import CommandError, PostroomError
from postroom_common.events import EventType
from postroom_common.protocol import ErrorCode, State

from ...model.records import Entry, QueueRecord
from ...policy.access_rules import Verb
from ..admission import leases_left
from ..context import Context, Decision, Draft
from ..fields import Fields
from .consume_dead import oldest_letter
from .creation import addresses_dead_letters
from .settle import lease_ms


class TimeOver(PostroomError):
    """The message that is next, ``key``, is not wanted any more: it must lapse before another one is looked for."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key}: its time is over")
        self.key = key


def consume_next(context: Context, fields: Fields) -> Decision:
    """Lease the message that is next for this consumer.

    Without one: the empty answer, or a wish to wait when ``waitMs`` is given. Raises ``CommandError`` for a
    ``payloadAs`` that does not exist and for who may not consume, ``BodyLost`` when that message has lost its body,
    ``BodyUnread`` when the disk does not give it, ``TimeOver`` when nobody wants it any more; and for a user who has as
    many leases as one may (ERR_QUOTA_EXCEEDED).
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
    if context.store.in_flight:
        context.quotas.check_leases(context.who.account, context.store.in_flight.of_account(context.who.account))
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
    """The message to lease, or the letter by a name of dead letters; its body is there. Raises as ``consume_next``."""
    store = context.store
    record = store.queue(queue)
    if record is None and addresses_dead_letters(context, queue):
        return oldest_letter(context, queue)
    context.require(Verb.CONSUME, queue)
    if record is None:
        return None
    entry = None if record.consume_paused else _allowed(context, queue, consumer, record)
    if entry:
        if 0 < entry.expires <= context.now.engine:
            raise TimeOver(entry.key)
        store.envelope(entry.key)
    return entry


def _allowed(context: Context, queue: str, consumer: str, record: QueueRecord) -> Entry | None:
    """The message that comes next, if the limits in flight allow one. By policy, every so many deliveries it is the
    oldest."""
    policy = context.policies.effective(queue, record)
    if leases_left(context, queue, consumer, policy, record) == 0:
        return None
    if policy.oldest_every and (record.totals.get("leased", 0) + 1) % policy.oldest_every == 0:
        return context.store.pages.oldest_ready(queue, consumer)
    return context.store.next_ready(queue, consumer)
