"""publish: a new message, if its queue accepts it; or one in each queue that a pattern matches."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple

import orjson

from postroom_common.body import Part, encode_message, encode_text
from postroom_common.errors import CommandError
from postroom_common.events import EventType
from postroom_common.policy import Layer, Policy
from postroom_common.protocol import (
    MATCHED_QUEUES_LIMIT,
    REQUEST_BYTES_CEILING,
    Command,
    ErrorCode,
    ReasonCode,
    State,
)

from ...model.log_record import LOG
from ...model.records import NO_LAYER, Entry, QueueRecord, message_id_of
from ...policy.access_rules import Verb
from ..admission import (
    Claim,
    QueueFull,
    check_body,
    check_rate,
    check_size,
    claim_of,
    count_for_publisher,
    first_of,
    make_space,
)
from ..context import Context, Decision, Draft
from ..fields import Fields, read_fields
from ..replies import duplicate_of
from . import gathering
from .addresses import is_log, queue_created
from .options import NO_OPTIONS, options_in, record_options
from .policies import check_creation, creation_layer
from .terminations import died, failure

#: Those of a message that has only a body.
_PLAIN: Final = frozenset({"queue", "message", "encoding", "contentType"})
#: Used for every message, and slow to look up in their classes.
_PUBLISHED: Final = EventType.PUBLISHED
_PUBLISH: Final = Verb.PUBLISH


Outcome = tuple[list[Draft], dict[str, Any] | None]
"""The outcome of one item of a request: its events, the last of which is its own, and its result if that event does not
determine it (see ``replies``)."""


class Target(NamedTuple):
    """A queue to which the principal may publish now: its record, if it exists, its policy, and whether that accepts
    every message. ``created_with`` is the layer of its policy if this request creates it, or one before it did."""

    record: QueueRecord | None
    policy: Policy
    is_open: bool
    created_with: Layer


def publish(context: Context, fields: Fields) -> Decision:
    """Publish a message to a queue, which is created if it does not exist; or to all that a pattern matches. Raises
    what ``admit`` raises."""
    queue = fields["queue"]
    open_policy = context.open_queues.get(queue)
    if open_policy is None:
        if not queue:
            return _publish_to_matching(context, fields)
        target = target_of(context, fields)
        if target.record is None or not target.is_open:
            return _decision(*_admitted(context, fields, target))
        open_policy = target.policy
        if _PUBLISH in context.access.free:
            context.open_queues[queue] = open_policy
    elif fields["createWith"] is not None or fields["queuePattern"] is not None:
        _check_place(fields)
    return Decision([_accepted(context, fields, open_policy)])


def _decision(drafts: list[Draft], result: dict[str, Any] | None) -> Decision:
    if result is None:
        return Decision(drafts)
    if not drafts:
        return Decision(data=result, once=True, reply={"as": "duplicate", "of": result["messageKey"]})
    return Decision(drafts, reply={"as": "data", "data": result})


def _publish_to_matching(context: Context, fields: Fields) -> Decision:
    """Publish a message to each queue that a pattern matches and to which the principal may publish. A queue that does
    not accept it does not affect the others. Raises ``CommandError``: ERR_INVALID_REQUEST, also for a pattern that
    matches too many queues, ERR_DRAINING, ERR_STORAGE_FULL, and for an invalid body."""
    text = fields["queuePattern"]
    if fields["createWith"] is not None:
        raise CommandError(ErrorCode.INVALID_REQUEST, "createWith is for a queue: a queuePattern creates none")
    refuse_all(context)
    matching = context.patterns.matching(text, context.store, context.now.engine)
    if not matching.advance():
        return Decision(work=context.patterns.complete(matching))
    if matching.names is None:
        raise CommandError(
            ErrorCode.INVALID_REQUEST,
            f"queuePattern {text[:80]!r} matches more than {MATCHED_QUEUES_LIMIT:,} queues: use patterns that match"
            " fewer",
        )
    queues = sorted(queue for queue in matching.names if context.may(_PUBLISH, queue))
    parts = context.read_body(fields)
    context.read_body = lambda _: parts
    size = len(queues) * sum(len(part.data) for part in parts)
    if size > REQUEST_BYTES_CEILING:
        raise CommandError(
            ErrorCode.INVALID_REQUEST,
            f"in {len(queues):,} queues the message takes {size:,} bytes; at most {REQUEST_BYTES_CEILING:,} are"
            " possible: use patterns that match fewer",
        )
    return _decision_by_queue(context, fields | {"queuePattern": None}, queues)


def _decision_by_queue(context: Context, fields: Fields, queues: list[str]) -> Decision:
    """Decide about one message for each of some queues, independently."""
    drafts: list[Draft] = []
    items: list[tuple[str, int, Any]] = []
    refused: dict[str, Any] = {}
    for queue in queues:
        try:
            events, result = admit(context, fields | {"queue": queue})
        except CommandError as error:
            if error.code == ErrorCode.INVALID_REQUEST:
                raise  # whatever the queue is
            refused[queue] = {"code": error.code, "message": str(error)}
            continue
        drafts += events
        items.append((queue, len(events), result["messageKey"] if result and result.get("duplicate") else result))
    if not drafts:
        data = {"published": {queue: duplicate_of(key) for queue, _, key in items}, "refused": refused}
        return Decision(data=data, once=bool(items), refused=not items)
    reply: dict[str, Any] = {"as": "byQueue"} | ({"refused": refused} if refused else {})
    if any(count != 1 or result is not None for _, count, result in items):
        reply["items"] = items
    return Decision(drafts, reply=reply)


def admit(context: Context, fields: Fields) -> Outcome:
    """Decide about one message of a request, after those recorded in ``context.pending``, and record it there.

    A duplicate has no events. A message that the queue does not accept, but stores as a dead letter by policy, is
    published and dies at once. Raises ``CommandError``, and then records nothing: ERR_FORBIDDEN, ERR_PAUSED,
    ERR_DRAINING, ERR_STORAGE_FULL, ERR_MESSAGE_TOO_LARGE, ERR_VALIDATION_FAILED, ERR_RATE_LIMITED, ERR_QUEUE_FULL,
    ERR_QUOTA_EXCEEDED, and for an invalid body."""
    queue, pending = fields["queue"], context.pending
    open_policy = pending.open.get(queue)
    if open_policy:
        if fields["createWith"] is not None or fields["queuePattern"] is not None:
            _check_place(fields)
        return [_accepted(context, fields, open_policy)], None
    if not queue:
        raise CommandError(ErrorCode.INVALID_REQUEST, "queuePattern is not possible for one of several messages")
    return _admitted(context, fields, target_of(context, fields))


def _admitted(context: Context, fields: Fields, target: Target) -> Outcome:
    """Decide about a message for a queue that takes messages now."""
    queue, pending = fields["queue"], context.pending
    record, policy, is_open, created_with = target
    made: list[Draft] = []
    if not record and queue not in pending.queues:
        made.append(queue_created(context, queue, created_with))
    parts = context.read_body(fields)
    if is_open:
        draft, _ = _published(context, fields, policy, parts)
        _record_created(context, made)
        pending.open[queue] = policy
        return [*made, draft], None
    claim = claim_of(context, policy, fields["deduplicationKey"], parts)
    first = first_of(context, queue, claim) if claim else None
    if first:
        return [], duplicate_of(first)
    check_size(policy, queue, parts)
    invalid = check_body(context.policies, policy, queue, parts[0])
    check_rate(context, queue, policy)
    gathers = policy.gather_ms and not invalid and gathering.gathers(fields, parts, claim)
    part = gathering.part_of(fields, parts[0]) if gathers else None
    appended = gathering.append(context, fields, policy, record, part, claim) if part else None
    if appended:
        return [appended], None
    draft, size = _published(context, fields, policy, parts, part)
    if claim and policy.dlq_enabled:  # a dead letter has its claim, too
        draft["claim"] = claim.to_json()
    if invalid:
        end = _end(context, draft, size, ReasonCode.VALIDATION_ERROR, invalid)
        before: list[Draft] = []
    else:
        try:
            before, end = make_space(context, queue, record, policy, size), []
        except QueueFull as full:
            if part:  # it dies instead of gathering others
                del draft["gathering"], draft["dueEngineMs"]
            before, end = [], _end(context, draft, size, ReasonCode.QUEUE_FULL, full.text)
        except CommandError:
            pending.stored -= size if "publisher" in draft else 0
            raise
    is_stored = not end or end[-1]["type"] is EventType.DIED
    if claim and is_stored:
        draft["claim"] = claim.to_json()
    drafts = [*made, *before, draft, *end]
    _record(context, drafts, draft, claim if is_stored else None, size)
    if part and not end:
        pending.gathering_entries[queue, draft["gathering"]] = _entry(context, draft, size)
    if policy.overflow == "drop-oldest" and not end and "dueEngineMs" not in draft:
        context.pending.fresh.setdefault(queue, deque()).append(_entry(context, draft, size))
    return drafts, _result(draft["key"], end, is_stored)


def admit_item(context: Context, item: dict[str, Any], common: Fields) -> Outcome:
    """As ``admit``, for an item of a batch, whose other fields are ``common``."""
    policy = context.pending.open.get(common["queue"])
    message = item.get("message")
    if policy and type(message) is str and len(item) == 1:
        return [_plain(context, common["queue"], policy, encode_text(message))[0]], None
    context.payload = item
    return admit(context, read_fields(Command.PUBLISH, item, common))


def _result(key: str, end: list[Draft], is_stored: bool) -> dict[str, Any] | None:
    if not end:
        return None
    why = end[-1]["failure"]
    state = State.DEAD if is_stored else "dropped"
    shown = {"state": state, "reasonCode": why["reasonCode"], "reason": why["reasonMessage"]}
    return {"messageId": message_id_of(key), "messageKey": key, **shown}


def _created_with(context: Context, fields: Fields) -> Layer:
    """The layer with which a queue is, or is to be, created that does not exist. Raises ``CommandError``."""
    queue = fields["queue"]
    if queue in context.pending.queues:
        return context.pending.created_with.get(queue, NO_LAYER)
    policy = fields["createWith"]
    return creation_layer(context, queue, policy) if policy else NO_LAYER


def _record_created(context: Context, made: list[Draft]) -> None:
    for draft in made:
        context.pending.queues.add(draft["queue"])
        if "createdWith" in draft:
            context.pending.created_with[draft["queue"]] = draft["createdWith"]


def target_of(context: Context, fields: Fields) -> Target:
    """The queue to which a request publishes. Raises ``CommandError``: ERR_INVALID_REQUEST, ERR_FORBIDDEN, ERR_PAUSED,
    ERR_DRAINING, ERR_STORAGE_FULL, ERR_WRONG_KIND."""
    queue = fields["queue"]
    _check_place(fields)
    context.require(_PUBLISH, queue)
    record = context.store.queue(queue)
    if record and record.publish_paused:
        raise CommandError(ErrorCode.PAUSED, f"publishing to queue {queue!r} is paused")
    refuse_all(context)
    created_with = NO_LAYER if record else _created_with(context, fields)
    shown = QueueRecord(queue, created_with=created_with) if created_with else record
    policy, is_open = context.policies.applied(queue, shown)
    if (record.kind if record else policy.kind) == LOG:
        raise is_log(queue, "append adds records to it")
    if policy.measured:
        context.statistics.measure(queue, context.now.engine)
    return Target(record, policy, is_open, created_with)


def _check_place(fields: Fields) -> None:
    """Raise ``CommandError`` for a request that says twice where to publish, or an invalid policy of a new queue."""
    if fields["queuePattern"] is not None:
        raise CommandError(ErrorCode.INVALID_REQUEST, "give queue or queuePattern, not both")
    if fields["createWith"] is not None:
        check_creation(fields["createWith"])


def refuse_all(context: Context) -> None:
    """Raise ``CommandError`` if no queue takes messages now: ERR_DRAINING, ERR_STORAGE_FULL."""
    if context.draining:
        raise CommandError(ErrorCode.DRAINING, "the daemon takes no new messages until the drain is ended")
    if not context.vitals.has_space_to_publish():
        raise CommandError(ErrorCode.STORAGE_FULL, "the disk is too full to take another message")


def _published(
    context: Context, fields: Fields, policy: Policy, parts: tuple[Part, ...], first: Part | None = None
) -> tuple[Draft, int]:
    """The event of a new message, and its stored size. With ``first``, it gathers parts, of which this is the first."""
    queue, now = fields["queue"], context.now
    if not first and options_in(fields) == NO_OPTIONS:
        return _plain(context, queue, policy, encode_message(parts))
    draft: Draft = {"type": _PUBLISHED, "queue": queue, "key": f"msg:{queue}:{context.ids.message(now.wall)}"}
    envelope = record_options(draft, fields, policy, parts, now)
    if first:
        envelope = gathering.begin(context, draft, policy, first)
    size = len(envelope)
    if context.who.account not in context.quotas.exempt:
        count_for_publisher(context, draft, size)
    draft["message"] = orjson.Fragment(envelope)
    return draft, size


def _accepted(context: Context, fields: Fields, policy: Policy) -> Draft:
    """The event of a new message for a queue that accepts every message. Raises ``CommandError`` for an invalid body
    or option."""
    if not context.payload.keys() <= _PLAIN:
        return _published(context, fields, policy, context.read_body(fields))[0]
    message = fields["message"]
    is_text = type(message) is str and not fields["encoding"] and not fields["contentType"]
    envelope = encode_text(message) if is_text else encode_message(context.read_body(fields))
    return _plain(context, fields["queue"], policy, envelope)[0]


def _plain(context: Context, queue: str, policy: Policy, envelope: bytes) -> tuple[Draft, int]:
    """As ``_published``, for a message without options, as it is stored."""
    now, size = context.now, len(envelope)
    draft: Draft = {"type": _PUBLISHED, "queue": queue, "key": f"msg:{queue}:{context.ids.message(now.wall)}"}
    if policy.ttl_ms:
        draft["expiresEngineMs"] = now.engine + policy.ttl_ms
    if context.who.account not in context.quotas.exempt:
        count_for_publisher(context, draft, size)
    draft["message"] = orjson.Fragment(envelope)
    return draft, size


def _entry(context: Context, draft: Draft, size: int) -> Entry:
    """A message as it will be stored."""
    waiting = State.GATHERING if "gathering" in draft else State.DELAYED
    state = waiting if "dueEngineMs" in draft else State.READY
    claim = draft.get("claim", {})
    name = claim.get("name", "") if "untilEngineMs" not in claim else ""
    return Entry(draft["key"], draft["queue"], state, 0, 0, context.now.wall, context.now.engine, size=size, claim=name)


def _end(context: Context, draft: Draft, size: int, code: ReasonCode, text: str) -> list[Draft]:
    """The events after publishing a message that its queue does not accept."""
    entry = _entry(context, draft, size)
    return died(context, entry, failure(entry, code, text))


def _record(context: Context, drafts: list[Draft], draft: Draft, claim: Claim | None, size: int) -> None:
    """Record what this item changes, for the next items of the request."""
    pending, queue = context.pending, draft["queue"]
    if drafts[0]["type"] is EventType.QUEUE_CREATED:
        _record_created(context, drafts[:1])
    pending.published[queue] = pending.published.get(queue, 0) + 1
    if claim:
        pending.claims[queue, claim.name] = draft["key"]
    if drafts[-1] is draft:
        pending.add(queue, 1, size)
