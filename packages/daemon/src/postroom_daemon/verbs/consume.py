"""consume_next: lease the next message, or wait for one."""

from __future__ import annotations

from postroom_common.errors import CommandError, PostroomError
from postroom_common.events import EventType
from postroom_common.protocol import ErrorCode

from ..admission import leases_left
from ..context import Context, Decision, Draft
from ..fields import Fields
from ..records import Entry, QueueRecord
from .consume_dead import consume_dead
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
    ``payloadAs`` that does not exist, ``BodyLost`` when that message has lost its body,
    ``BodyUnread`` when the disk does not give it, ``TimeOver`` when nobody wants it any more.
    """
    if fields["payloadAs"] not in ("text", "value"):
        raise CommandError(ErrorCode.INVALID_REQUEST, "payloadAs must be text or value")
    queue, now = fields["queue"], context.now.engine
    consumer = fields["consumerId"] or context.who.client_id
    record = context.store.queue(queue)
    if record is None and addresses_dead_letters(context, queue):
        return consume_dead(context, fields)
    entry = _next(context, queue, consumer, record) if record and not record.consume_paused else None
    if entry is None:
        if fields["waitMs"]:
            return Decision(wait_until=now + fields["waitMs"])
        return Decision(data={"message": None})
    if 0 < entry.expires <= now:
        raise TimeOver(entry.key)
    context.store.check_body(entry.key)
    draft: Draft = {
        "type": EventType.LEASED,
        "queue": queue,
        "key": entry.key,
        "lease": context.ids.lease(),
        "consumer": consumer,
        "uid": context.who.uid,
        "untilEngineMs": now + lease_ms(context, queue, fields),
        "attempt": entry.attempt + 1,
    }
    if fields["payloadAs"] == "value":
        draft["as"] = "value"
    return Decision([draft])


def _next(context: Context, queue: str, consumer: str, record: QueueRecord) -> Entry | None:
    """The message to lease, if the limits in flight allow one. By policy, every so many deliveries it is the oldest."""
    policy = context.policies.effective(queue, record)
    if leases_left(context, queue, consumer, policy, record) == 0:
        return None
    if policy.oldest_every and (record.totals.get("leased", 0) + 1) % policy.oldest_every == 0:
        return context.store.oldest_ready(queue, consumer)
    return context.store.next_ready(queue, consumer)
