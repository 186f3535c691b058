"""publish_batch, ack_batch, nack_batch, ack_and_publish: several messages in one request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from postroom_common.errors import CommandError
from postroom_common.protocol import BATCH_LIMIT, Command, ErrorCode

from ..context import Context, Decision, Draft
from ..fields import Fields, common_fields, read_fields
from ..replies import duplicate_of
from . import settle
from .publish import Outcome, admit_item

_NO_OBJECT: Final = "an item must be an object"


def publish_batch(context: Context, fields: Fields) -> Decision:
    """Publish messages independently: if one is refused, the others are not affected.

    Raises ``CommandError`` for an invalid batch, and ERR_STORAGE_FULL.
    """
    items = _items(fields, "messages")
    _refuse_without_space(context)
    common = common_fields(Command.PUBLISH, queue=fields["queue"])
    return _each(items, lambda item: admit_item(context, item, common))


def ack_batch(context: Context, fields: Fields) -> Decision:
    """Acknowledge messages independently. Raises ``CommandError`` for an invalid batch."""
    return _settled(context, fields, Command.ACK, settle.acked, ErrorCode.MESSAGE_NOT_FOUND)


def nack_batch(context: Context, fields: Fields) -> Decision:
    """Report messages as failed independently. Raises ``CommandError`` for an invalid batch."""
    return _settled(context, fields, Command.NACK, settle.nacked, ErrorCode.LEASE_EXPIRED)


def ack_and_publish(context: Context, fields: Fields) -> Decision:
    """Acknowledge a message and publish others, all or nothing.

    Raises ``CommandError`` for the reasons of ``ack``, for an invalid batch, and for the first message that is refused,
    which the text names.
    """
    items = _items(fields, "messages")
    _refuse_without_space(context)
    drafts = settle.acked(context, fields)
    entry = context.store.get(drafts[-1]["key"])
    assert entry is not None
    context.pending.take(entry)
    common = common_fields(Command.PUBLISH)
    shown: list[Any] = [len(drafts)]
    for number, item in enumerate(items):
        try:
            if type(item) is not dict:
                raise CommandError(ErrorCode.PARSE_ERROR, _NO_OBJECT)
            made, result = admit_item(context, item, common)
        except CommandError as error:
            raise CommandError(error.code, f"messages[{number}]: {error}; nothing was changed") from error
        drafts += made
        shown.append(len(made) if result is None else [len(made), _to_store(result)])
    return Decision(drafts, reply=_reply(shown) | {"from": 1})


def _settled(
    context: Context,
    fields: Fields,
    command: Command,
    settle_one: Callable[[Context, Fields], list[Draft]],
    settled_code: ErrorCode,
) -> Decision:
    """Apply a command that settles one message to each item of a batch."""
    consumer, settled = fields["consumerId"], context.pending.settled
    common = common_fields(command, consumerId=consumer)

    def decide(item: dict[str, Any]) -> Outcome:
        one = read_fields(command, item, common)
        if not one["consumerId"]:
            one["consumerId"] = consumer
        key = one["messageKey"] or settle.key_by_lease(context, one)
        if key in settled:
            raise CommandError(settled_code, f"{key} was settled by an item before this one")
        drafts = settle_one(context, one)
        real = drafts[-1]["key"]
        if real != key and real in settled:  # the item has the message's name
            raise CommandError(settled_code, f"{key} was settled by an item before this one")
        settled.add(real)
        return drafts, None

    return _each(_items(fields, "items"), decide)


def _items(fields: Fields, name: str) -> list[Any]:
    """The array of a batch. Raises ``CommandError`` for one that is empty or too long."""
    items: list[Any] = fields[name]
    if not 1 <= len(items) <= BATCH_LIMIT:
        text = f"{name} must have 1 to {BATCH_LIMIT:,} items, but has {len(items):,}: send several requests"
        raise CommandError(ErrorCode.INVALID_REQUEST, text if items else f"{name} is empty: give at least one item")
    return items


def _refuse_without_space(context: Context) -> None:
    """Raise ``CommandError`` on a full disk for the whole batch, which can be repeated unchanged later."""
    if not context.vitals.has_space_to_publish():
        raise CommandError(ErrorCode.STORAGE_FULL, "the disk is too full to take another message")


def _each(items: list[Any], decide: Callable[[dict[str, Any]], Outcome]) -> Decision:
    """Decide each item independently; a refusal becomes its result."""
    drafts: list[Draft] = []
    shown: list[Any] = []
    for item in items:
        try:
            if type(item) is not dict:
                raise CommandError(ErrorCode.PARSE_ERROR, _NO_OBJECT)
            made, result = decide(item)
        except CommandError as error:
            shown.append([0, {"error": {"code": error.code, "message": str(error)}}])
            continue
        drafts += made
        shown.append(len(made) if result is None else [len(made), _to_store(result)])
    if drafts:
        return Decision(drafts, reply=_reply(shown))
    results = [duplicate_of(result) if type(result) is str else result for _, result in shown]
    once = any("error" not in result for result in results)
    return Decision(data={"results": results}, once=once, refused=not once, reply=_reply(shown))


def _to_store(result: dict[str, Any]) -> Any:
    """A result as the journal stores it: only the key for a duplicate, because there may be many."""
    return result["messageKey"] if result.get("duplicate") else result


def _reply(shown: list[Any]) -> dict[str, Any]:
    """The ``reply`` of the last event: for each item the number of its events, and its result if they do not determine
    it; nothing if each item has one event."""
    return {"as": "results"} | ({} if shown.count(1) == len(shown) else {"items": shown})
