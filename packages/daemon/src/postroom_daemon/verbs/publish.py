"""publish: a new message."""

from __future__ import annotations

from typing import Any

import orjson

from postroom_common.body import CARRIED, Part, part_from_wire
from postroom_common.errors import CommandError
from postroom_common.events import EventType
from postroom_common.policy import Policy
from postroom_common.protocol import ErrorCode, message_key

from ..context import Context, Decision, Draft
from ..fields import Fields
from .creation import queue_created


def publish(context: Context, fields: Fields) -> Decision:
    """Add a message to a queue, which is made if it does not exist.

    Raises ``CommandError``: ERR_PAUSED, ERR_STORAGE_FULL, and for a body that cannot be kept.
    """
    queue = fields["queue"]
    record = context.store.queue(queue)
    if record and record.publish_paused:
        raise CommandError(ErrorCode.PAUSED, f"publishing to queue {queue!r} is paused")
    if not context.vitals.room_to_publish():
        raise CommandError(ErrorCode.STORAGE_FULL, "the disk is too full to take another message")
    envelope: dict[str, Any] = {"parts": [part_from_wire(fields["message"], fields["encoding"], fields["contentType"])]}
    attributes = _attributes(fields["attributes"])
    if attributes:
        envelope["attributes"] = attributes
    for name in CARRIED:
        if fields[name] not in (None, ""):
            envelope[name] = fields[name]
    draft: Draft = {
        "type": EventType.PUBLISHED,
        "queue": queue,
        "key": message_key(queue, context.ids.message(context.now.wall)),
    }
    priority = fields["priority"]
    if priority is None:
        priority = _priority_of(attributes)
    if priority:
        draft["priority"] = priority
    policy = context.policies.effective(queue, record)
    draft |= _times(context, fields, policy)
    if fields["targetConsumerId"]:
        draft["target"] = fields["targetConsumerId"]
        fallback = fields["targetFallbackMs"] or policy.target_fallback_ms
        if fallback:
            draft["fallbackEngineMs"] = context.now.engine + fallback
    if fields["orderingKey"]:
        draft["orderingKey"] = fields["orderingKey"]
    if fields["deduplicationKey"]:
        draft["deduplicationKey"] = fields["deduplicationKey"]
    draft["message"] = orjson.Fragment(orjson.dumps(envelope))
    return Decision([draft] if record else [queue_created(context, queue), draft])


def _times(context: Context, fields: Fields, policy: Policy) -> Draft:
    """When it may be consumed, and until when it is wanted."""
    now = context.now
    times: Draft = {}
    due = now.engine + fields["delayMs"] if fields["delayMs"] else 0
    if fields["deliverAt"] is not None:
        times["deliverAtMs"] = fields["deliverAt"]
        due = max(due, now.engine + fields["deliverAt"] - now.wall)
    if due > now.engine:
        times["dueEngineMs"] = due
    ttl = fields["ttlMs"] or policy.ttl_ms
    if ttl:
        times["expiresEngineMs"] = now.engine + ttl
    return times


def _attributes(value: Any) -> Part | None:
    if value in ("{}", {}):
        return None
    return {"text" if type(value) is str else "json": value}


def _priority_of(attributes: Part | None) -> int:
    """``attributes.priority``, which counts where the top level has none."""
    if attributes is None:
        return 0
    tree = attributes.get("json")
    if tree is None and '"priority"' in attributes["text"]:
        try:
            tree = orjson.loads(attributes["text"])
        except orjson.JSONDecodeError:
            return 0
    value = tree.get("priority") if type(tree) is dict else None
    return value if type(value) is int and -(2**31) <= value < 2**31 else 0
