"""draft, set: a message whose named parts get their values one after the other, and is ready when it has all of them.

The parts lie beside the message, as those of a gathered one do, so that setting one costs the same however large the
others are.
"""

from __future__ import annotations

from typing import Any

import orjson

from postroom_common.body import GATHERED, Part, decode_message, draft_of, encode_draft, value_from_wire
from postroom_common.errors import CommandError
from postroom_common.events import EventType
from postroom_common.policy import Policy
from postroom_common.protocol import (
    DRAFT_BYTES_LIMIT,
    NAME_LIMIT,
    NAMED_PARTS_LIMIT,
    ErrorCode,
    State,
    message_key,
    named_key,
)

from ...model.facts import part_fact
from ...model.records import Entry, QueueRecord
from ...policy.access_rules import Verb
from ..admission import (
    QueueFull,
    check_body,
    check_rate,
    check_size,
    claim_of_parts,
    count_for_publisher,
    first_of,
    make_space,
)
from ..context import Context, Decision, Draft
from ..fields import Fields
from .addresses import queue_created
from .lookup import existing_message, find_message, policy_of
from .options import attributes_in, priority_of
from .publish import target_of
from .settle import leased_message
from .terminations import about


def draft(context: Context, fields: Fields) -> Decision:
    """Store a message whose parts have no value yet. The queue is created as by ``publish``. Raises ``CommandError``:
    what ``publish`` raises for a message without a body, ERR_DUPLICATE_MESSAGE for a name that is in use, and with
    ``mustExist`` ERR_QUEUE_NOT_FOUND."""
    names = names_of_parts(fields["parts"])
    queue, now, name = fields["queue"], context.now, fields["name"]
    target = target_of(context, fields | {"queuePattern": None})
    record, policy = target.record, target.policy
    if record is None and fields["mustExist"]:
        raise CommandError(ErrorCode.QUEUE_NOT_FOUND, f"there is no queue {queue!r}")
    if name and find_message(context, named_key(queue, name)):
        raise CommandError(ErrorCode.DUPLICATE_MESSAGE, f"a message of queue {queue!r} has the name {name!r}")
    check_rate(context, queue, policy)
    attributes = attributes_in(fields)
    carried = {"type": fields["type"]} if fields["type"] else {}
    envelope = encode_draft(names, fields["ttlMs"] or 0, attributes, carried)
    made: Draft = {
        "type": EventType.PUBLISHED,
        "queue": queue,
        "key": message_key(queue, context.ids.message(now.wall)),
    }
    made["drafting"] = len(names)
    facts = {
        "name": name,
        "priority": priority_of(fields, attributes),
        "target": fields["targetConsumerId"],
        "orderingKey": fields["orderingKey"],
        "expiresEngineMs": now.engine + policy.draft_ms if policy.draft_ms else 0,
    }
    made |= {fact: value for fact, value in facts.items() if value}
    size = len(envelope)
    if context.who.account not in context.quotas.exempt:
        count_for_publisher(context, made, size)
    made["message"] = orjson.Fragment(envelope)
    before = _space(context, queue, record, policy, size)
    if record is None:
        before = [queue_created(context, queue, target.created_with), *before]
    return Decision([*before, made], reply={"as": "drafted"})


def set_part(context: Context, fields: Fields) -> Decision:
    """Give a part of a draft a value, or replace the value that it has, also in a message that is ready, or will be
    again after a delay. With its last part a draft becomes ready, at the end of its priority run. Without ``part``:
    see ``_set_body``.

    Raises ``CommandError``: ERR_FORBIDDEN, ERR_MESSAGE_NOT_FOUND, ERR_BAD_STATE, ERR_PART_NOT_FOUND,
    ERR_MESSAGE_TOO_LARGE, ERR_VALIDATION_FAILED, ERR_DUPLICATE_MESSAGE, ERR_QUEUE_FULL, ERR_QUOTA_EXCEEDED,
    ERR_STORAGE_FULL, and for an invalid body.
    """
    if not context.vitals.has_space_to_publish():
        raise CommandError(ErrorCode.STORAGE_FULL, "the disk is too full for another part")
    if not fields["part"]:
        return _set_body(context, fields)
    if not fields["messageKey"]:
        raise CommandError(ErrorCode.INVALID_REQUEST, "messageKey is required with part")
    entry = existing_message(context, fields["messageKey"], Verb.PUBLISH)
    if entry.state not in (State.DRAFTING, State.READY, State.DELAYED):
        text = f"{entry.key} is {entry.state}: parts can be set of messages that are drafting or ready"
        raise CommandError(ErrorCode.BAD_STATE, text)
    stored = draft_of(context.store.bodies.envelope(entry.key)) if entry.parts else {}
    if fields["part"] not in stored.get("parts", ()):
        raise CommandError(ErrorCode.PART_NOT_FOUND, f"{entry.key} has no part {fields['part']!r}")
    part = context.read_body(fields)[0]._replace(name=fields["part"])
    return Decision([_part_set(context, entry, stored, part)])


def _part_set(context: Context, entry: Entry, stored: dict[str, Any], part: Part) -> Draft:
    """The event that sets a part of a message. Raises ``CommandError``."""
    policy, now = policy_of(context, entry.queue), context.now
    number = stored["parts"].index(part.name) + 1
    is_empty = entry.unset == entry.parts
    before = None if is_empty else context.store.facts.get(part_fact(entry.key, number))
    content = orjson.dumps(part.stored())
    size = entry.size + len(content) - (len(orjson.dumps(before)) if before else 0)
    made = about(EventType.PART_SET, entry) | {"part": number, "bytes": size}
    made["unset"] = entry.unset - 1 if entry.unset and not before else entry.unset
    _check_parts(context, entry, policy, number, part, made)
    _check_growth(context, entry, policy, size)
    if entry.state is State.DRAFTING and not made["unset"]:
        made["state"] = State.READY
        if not entry.order_key:  # the messages of an ordering key stay in the order of publishing
            made["returnTo"] = "end"
        ttl = stored.get("ttlMs") or policy.ttl_ms
        if ttl:
            made["expiresEngineMs"] = now.engine + ttl
        if entry.target and policy.target_fallback_ms:
            made["fallbackEngineMs"] = now.engine + policy.target_fallback_ms
    made["content"] = orjson.Fragment(content)
    return made


def _check_parts(context: Context, entry: Entry, policy: Policy, number: int, part: Part, made: Draft) -> None:
    """Check all parts of a message, of which one is set. If they are complete, their claim is recorded in the event,
    with the one that it replaces. Raises ``CommandError``."""
    is_complete = not made["unset"]
    is_unique = policy.deduplication != "off" and policy.deduplicate_content
    if not policy.max_message_bytes and not (is_complete and (is_unique or policy.schema or entry.claim)):
        return
    parts = {**_parts_that_are_set(context, entry), number: part}
    check_size(policy, entry.queue, [*parts.values()])
    if not is_complete:
        return
    in_order = [parts[place] for place in sorted(parts)]
    if policy.schema:
        _check_schema(context, policy, entry.queue, in_order)
    claim = claim_of_parts(context, policy, in_order)
    first = first_of(context, entry.queue, claim) if claim else None
    if first and first != entry.key:
        raise CommandError(ErrorCode.DUPLICATE_MESSAGE, f"{first} has the same parts")
    shown = claim.to_json() if claim else {}
    if entry.claim and (claim is None or claim.name != entry.claim):
        shown["replaces"] = entry.claim
    if shown:
        made["claim"] = shown


def _parts_that_are_set(context: Context, entry: Entry) -> dict[int, Part]:
    """The parts of a draft that have a value, by their numbers."""
    given = iter(decode_message(context.store.bodies.message(entry)).parts)
    beside = context.store.bodies.appended(entry)
    return {number: next(given) for number, part in enumerate(beside, 1) if part is not None}


def _check_schema(context: Context, policy: Policy, queue: str, parts: list[Part]) -> None:
    """Check the object of all parts by their names against the schema of a queue. Raises ``CommandError``."""
    text = check_body(context.policies, policy, queue, object_of(parts))
    if text:
        raise CommandError(ErrorCode.VALIDATION_FAILED, text)


def object_of(parts: list[Part]) -> Part:
    """The JSON object of named parts, in which text and base64 of binary ones are strings."""
    return value_from_wire({part.name: part.as_json() for part in parts})


def _check_growth(context: Context, entry: Entry, policy: Policy, size: int) -> None:
    """Raise ``CommandError`` if a message may not have ``size`` bytes in all: ERR_MESSAGE_TOO_LARGE, ERR_QUEUE_FULL,
    ERR_QUOTA_EXCEEDED. Its bytes count for the account that has drafted it."""
    growth = size - entry.size
    if growth <= 0:
        return
    if not policy.max_message_bytes and size > DRAFT_BYTES_LIMIT:
        text = f"the message would have {size:,} bytes; at most {DRAFT_BYTES_LIMIT:,} are possible"
        raise CommandError(ErrorCode.MESSAGE_TOO_LARGE, text)
    record = context.store.queue(entry.queue)
    if policy.max_bytes and record and record.bytes + growth > policy.max_bytes:
        text = f"queue {entry.queue!r} would hold {record.bytes + growth} bytes; its limit is {policy.max_bytes}"
        raise CommandError(ErrorCode.QUEUE_FULL, f"{text} (limits.bytes)")
    publisher, usage = entry.publisher_uid, context.usage
    if publisher and usage:
        account = int(publisher) if publisher.isdigit() else publisher
        context.quotas.check_stored(account, usage.of_account(account), growth)


def _space(context: Context, queue: str, record: QueueRecord | None, policy: Policy, size: int) -> list[Draft]:
    """The events that make space for a draft. A draft never becomes a dead letter instead. Raises ``CommandError``."""
    try:
        return make_space(context, queue, record, policy, size)
    except QueueFull as full:
        raise CommandError(ErrorCode.QUEUE_FULL, full.text) from None


def _set_body(context: Context, fields: Fields) -> Decision:
    """Replace the body of a leased message, and its attributes if some are given; its headers stay. Raises
    ``CommandError``: what ``ack`` raises, and ERR_INVALID_REQUEST for a message with several parts."""
    entry = leased_message(context, fields)
    message = decode_message(context.store.bodies.envelope(entry.key))
    if entry.parts or GATHERED in message.carried:
        raise CommandError(ErrorCode.INVALID_REQUEST, f"{entry.key} has several parts: its body cannot be replaced")
    policy, parts = policy_of(context, entry.queue), context.read_body(fields)
    check_size(policy, entry.queue, parts)
    text = check_body(context.policies, policy, entry.queue, parts[0])
    if text:
        raise CommandError(ErrorCode.VALIDATION_FAILED, text)
    envelope = message._replace(parts=parts, attributes=attributes_in(fields, message.attributes)).encode()
    size = len(envelope)
    _check_growth(context, entry, policy, size)
    made = about(EventType.BODY_SET, entry) | {"bytes": size, "state": entry.state}
    made["message"] = orjson.Fragment(envelope)
    return Decision([made])


def names_of_parts(given: Any) -> list[str]:
    """The names of the parts of a draft, each once. Raises ``CommandError``."""
    for name in given:
        if type(name) is not str or not 0 < len(name) <= NAME_LIMIT:
            raise CommandError(
                ErrorCode.INVALID_REQUEST, f"each of parts must be a string of 1 to {NAME_LIMIT} characters"
            )
    names = list(dict.fromkeys(given))
    if not 1 <= len(names) <= NAMED_PARTS_LIMIT:
        raise CommandError(
            ErrorCode.INVALID_REQUEST, f"parts must have 1 to {NAMED_PARTS_LIMIT} names, but has {len(names):,}"
        )
    return names
