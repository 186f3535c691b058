"""publish_batch, consume_next with ``max``, ack_batch, nack_batch, ack_and_publish: several messages in one request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from postroom_common.errors import CommandError
from postroom_common.protocol import BATCH_LIMIT, Command, ErrorCode

from ...stores.base import BodyLost, BodyUnread
from ..context import Context, Decision, Draft, no_message
from ..fields import Fields, read_fields
from . import consume, settle
from .publish import admit

#: Bodies and headers that one reply brings, in bytes; the first message comes whatever its size.
DELIVERED_BYTES: Final = 4 * 1024 * 1024

Outcome = tuple[list[Draft], dict[str, Any] | None]
"""What an item comes to: its events, and what the reply says of it where these do not say it (``replies``)."""


def publish_batch(context: Context, fields: Fields) -> Decision:
    """Add messages to queues, each by itself: one that is refused changes nothing for the others.

    Raises ``CommandError`` for what is no batch, and ERR_STORAGE_FULL.
    """
    items = _items(fields, "messages")
    _refuse_without_room(context)
    queue = fields["queue"]

    def decide(item: dict[str, Any]) -> Outcome:
        if queue and item.get("queue") is None:
            item = {**item, "queue": queue}
        return _admitted(context, item)

    return _each(items, decide)


def ack_batch(context: Context, fields: Fields) -> Decision:
    """Settle messages as done, each by itself. Raises ``CommandError`` for what is no batch."""
    return _settled(context, fields, Command.ACK, settle.ack, ErrorCode.MESSAGE_NOT_FOUND)


def nack_batch(context: Context, fields: Fields) -> Decision:
    """Settle messages as failed, each by itself. Raises ``CommandError`` for what is no batch."""
    return _settled(context, fields, Command.NACK, settle.nack, ErrorCode.LEASE_EXPIRED)


def ack_and_publish(context: Context, fields: Fields) -> Decision:
    """Settle a message as done and add others, all of it or nothing.

    Raises ``CommandError`` as ``ack`` does, for what is no batch, and for the first message that is refused: the text
    names it.
    """
    items = _items(fields, "messages")
    _refuse_without_room(context)
    drafts = settle.ack(context, fields).drafts
    entry = context.store.get(fields["messageKey"])
    assert entry is not None
    context.pending.take(entry)
    outcomes: list[Outcome] = [(drafts, None)]
    for number, item in enumerate(items):
        try:
            outcomes.append(_admitted(context, _an_object(item)))
        except CommandError as error:
            raise CommandError(error.code, f"messages[{number}]: {error}; nothing was changed") from error
    return Decision(_all_drafts(outcomes), reply=_reply(outcomes) | {"from": 1})


def consume_next(context: Context, fields: Fields) -> Decision:
    """Lease the message that is next for this consumer; with ``max``, up to so many, as they come one after the other.

    Raises as ``consume.consume_next``.
    """
    decision = consume.consume_next(context, fields)
    if fields["max"] is None:
        return decision
    if decision.data is not None:
        return Decision(data=no_message(fields))
    if decision.drafts:
        decision.reply = {"as": "deliveries"}
        decision.more = _further(context, fields, decision.drafts)
    return decision


def _further(context: Context, fields: Fields, first: list[Draft]) -> Callable[[], list[Draft]]:
    """Leases the messages behind the first: one by one, since each may end what may be leased, or let another of its
    ordering key come to its turn."""
    left = fields["max"] - 1
    space = DELIVERED_BYTES - _size(context, first)

    def further() -> list[Draft]:
        nonlocal left, space
        if left <= 0 or space <= 0:
            return []
        try:
            drafts = consume.consume_next(context, fields).drafts
        except (CommandError, BodyLost, BodyUnread, consume.Expired):
            return []  # the next request sees to it
        left, space = left - 1, space - _size(context, drafts)
        return drafts if space >= 0 else []

    return further


def _size(context: Context, drafts: list[Draft]) -> int:
    entries = [context.store.get(draft["key"]) for draft in drafts]
    return sum(entry.size for entry in entries if entry)


def _settled(
    context: Context,
    fields: Fields,
    command: Command,
    verb: Callable[[Context, Fields], Decision],
    settled_code: ErrorCode,
) -> Decision:
    """Give each item of a batch to the verb that settles one message."""
    consumer = fields["consumerId"]

    def decide(item: dict[str, Any]) -> Outcome:
        one = read_fields(command, item)
        one["consumerId"] = one["consumerId"] or consumer
        key = one["messageKey"]
        if key in context.pending.settled:
            raise CommandError(settled_code, f"{key} was settled by an item before this one")
        drafts = verb(context, one).drafts
        context.pending.settled.add(key)
        return drafts, None

    return _each(_items(fields, "items"), decide)


def _admitted(context: Context, item: dict[str, Any]) -> Outcome:
    """One message as ``publish`` takes it."""
    admitted = admit(context, read_fields(Command.PUBLISH, item))
    return admitted.drafts, admitted.result


def _items(fields: Fields, name: str) -> list[Any]:
    """The array of a batch. Raises ``CommandError`` for one that is empty or too long."""
    items: list[Any] = fields[name]
    if not 1 <= len(items) <= BATCH_LIMIT:
        text = f"{name} must have 1 to {BATCH_LIMIT:,} items, but has {len(items):,}: send several requests"
        raise CommandError(ErrorCode.INVALID_REQUEST, text if items else f"{name} is empty: give at least one item")
    return items


def _refuse_without_room(context: Context) -> None:
    """A batch that only the disk refuses is refused whole: it can be sent again as it is."""
    if not context.vitals.has_space_to_publish():
        raise CommandError(ErrorCode.STORAGE_FULL, "the disk is too full to take another message")


def _an_object(item: Any) -> dict[str, Any]:
    if type(item) is not dict:
        raise CommandError(ErrorCode.PARSE_ERROR, "an item must be an object")
    return item


def _each(items: list[Any], decide: Callable[[dict[str, Any]], Outcome]) -> Decision:
    """Decide each item by itself; a refusal becomes its result."""
    outcomes: list[Outcome] = []
    for item in items:
        try:
            outcomes.append(decide(_an_object(item)))
        except CommandError as error:
            outcomes.append(([], {"error": {"code": error.code, "message": str(error)}}))
    drafts = _all_drafts(outcomes)
    if not drafts:
        results = [result or {} for _, result in outcomes]
        once = any("error" not in result for result in results)
        return Decision(data={"results": results}, once=once, refused=not once, reply=_reply(outcomes))
    return Decision(drafts, reply=_reply(outcomes))


def _all_drafts(outcomes: list[Outcome]) -> list[Draft]:
    return [draft for drafts, _ in outcomes for draft in drafts]


def _kept(result: dict[str, Any]) -> Any:
    """A result as the journal keeps it: of a duplicate no more than the key, since there may be many."""
    return result["messageKey"] if result.get("duplicate") else result


def _reply(outcomes: list[Outcome]) -> dict[str, Any]:
    """What the last event says of the results: for each item the number of its events, and its result where these do
    not say it; nothing where each item made one event."""
    items = [[len(drafts), _kept(result)] if result is not None else len(drafts) for drafts, result in outcomes]
    return {"as": "results"} | ({"items": items} if any(item != 1 for item in items) else {})
