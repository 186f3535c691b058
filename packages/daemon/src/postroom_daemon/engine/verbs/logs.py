"""append, read, move_reader, delete_reader, list_readers: records that stay, and readers at their own positions."""

from __future__ import annotations

from binascii import b2a_base64
from typing import Any, Final

import orjson

from postroom_common.body import Form, Part, encode_message
from postroom_common.errors import CommandError
from postroom_common.events import EventType
from postroom_common.log_blocks import block_of_part, check_blocks, open_block
from postroom_common.policy import Layer, Policy
from postroom_common.protocol import BATCH_LIMIT, READERS_LIMIT, Command, ErrorCode, message_key

from ...model.log_record import LOG, LogRecord
from ...model.records import NO_LAYER, QueueRecord
from ...model.request import MessageView, json_body
from ...policy.access_rules import Verb
from ...stores.log.contract import Page
from ...stores.log.records import records_of
from ..admission import check_body, check_rate
from ..context import Context, Decision, Draft
from ..fields import Fields, common_fields, read_fields
from .addresses import policy_at_creation, queue_created
from .consume import QueueMissing
from .lookup import as_of, check_payload_as, existing_queue
from .policies import check_creation, creation_layer
from .publish import refuse_all

#: The encoding of a body that is blocks of records, in the frames of the lane.
_RECORDS: Final = "records"
_NO_ATTRIBUTES: Final[tuple[Any, ...]] = ("{}", {})
#: The fields of a read that say where it begins.
_PLACES: Final = ("after", "reader", "start", "sinceMs")
_APPENDED: Final = EventType.APPENDED


# --- append ---------------------------------------------------------------------------------------------------------


def append(context: Context, fields: Fields) -> Decision:
    """Append records to a log, all or none: at once, or when their delay is over. Creates the log if the request or the
    configuration says so.

    Raises ``CommandError``: ERR_INVALID_REQUEST, ERR_PARSE_ERROR, ERR_FORBIDDEN, ERR_QUEUE_NOT_FOUND, ERR_WRONG_KIND,
    ERR_PAUSED, ERR_DRAINING, ERR_STORAGE_FULL, ERR_MESSAGE_TOO_LARGE, ERR_VALIDATION_FAILED, ERR_RATE_LIMITED,
    ERR_QUEUE_FULL.
    """
    queue = fields["queue"]
    context.require(Verb.PUBLISH, queue)
    record, created = context.store.queue(queue), dict[str, Any]()
    if record is None:
        created = _created(context, queue, fields["createWith"])
        policy = policy_at_creation(context, queue, created.get("createdWith", NO_LAYER))
    else:
        if fields["createWith"] is not None:
            check_creation(fields["createWith"])
        if record.log is None:
            raise _is_queue(queue, "publish adds messages to it")
        policy = _policy_of(context, record)
        if record.publish_paused:
            raise CommandError(ErrorCode.PAUSED, f"appending to log {queue!r} is paused")
    refuse_all(context)
    blocks = _blocks(context, fields)
    _check(context, queue, policy, blocks)
    if record is None or record.log is None:
        raise QueueMissing(created)
    _check_space(context, record.log, policy, queue, sum(map(len, blocks)))
    if fields["delayMs"]:
        return Decision(_later(context, queue, fields["delayMs"], blocks), reply={"as": "appendedLater"})
    drafts = [appended(record.log, queue, block) for block in blocks]
    return Decision(drafts, reply={"as": "appended"} if len(drafts) > 1 else None)


def appended(log: LogRecord, queue: str, block: bytes) -> Draft:
    """The event that appends a record."""
    record = b2a_base64(block, newline=False).decode()
    return {"type": _APPENDED, "queue": queue, "log": log.created, "record": record}


def _created(context: Context, queue: str, create_with: dict[str, Any] | None) -> Draft:
    """The event that creates a log for its first records. Raises ``CommandError``."""
    layer: Layer = NO_LAYER
    if create_with is None:
        if policy_at_creation(context, queue).kind != LOG:
            raise CommandError(ErrorCode.QUEUE_NOT_FOUND, f"there is no log {queue!r}: create it, or give createWith")
    else:
        layer = creation_layer(context, queue, {"kind": LOG} | create_with)
        if policy_at_creation(context, queue, layer).kind != LOG:
            raise CommandError(ErrorCode.INVALID_REQUEST, f"createWith makes no log of {queue!r}: its kind is queue")
    return queue_created(context, queue, layer)


def _blocks(context: Context, fields: Fields) -> list[bytes]:
    """The blocks of the records that a request appends. Raises ``CommandError``."""
    items = fields["messages"]
    if items is None:
        return _blocks_of(context, fields)
    if "message" in context.payload:
        raise CommandError(ErrorCode.INVALID_REQUEST, "give message or messages, not both")
    blocks: list[bytes] = []
    common = common_fields(Command.APPEND, queue=fields["queue"])
    for number, item in enumerate(items):
        try:
            if type(item) is not dict:
                raise CommandError(ErrorCode.PARSE_ERROR, "an item must be an object")
            blocks += _blocks_of(context, read_fields(Command.APPEND, item, common))
        except CommandError as error:
            raise CommandError(error.code, f"messages[{number}]: {error}; nothing was changed") from error
    if not 1 <= len(blocks) <= BATCH_LIMIT:
        raise CommandError(ErrorCode.INVALID_REQUEST, f"messages must have 1 to {BATCH_LIMIT:,} records")
    return blocks


def _blocks_of(context: Context, fields: Fields) -> list[bytes]:
    message, attributes = fields["message"], fields["attributes"]
    try:
        if fields["encoding"] == _RECORDS:
            if type(message) is not bytes:
                raise ValueError("encoding records is for the body of a frame")
            blocks = check_blocks(message)
            if not 1 <= len(blocks) <= BATCH_LIMIT:
                raise ValueError(f"the body must have 1 to {BATCH_LIMIT:,} records, but has {len(blocks):,}")
            return blocks
        part = context.read_body(fields)[0]
        return [block_of_part(part, {} if attributes in _NO_ATTRIBUTES else _attributes(attributes))]
    except ValueError as error:
        raise CommandError(ErrorCode.INVALID_REQUEST, str(error)) from None


def _attributes(given: str | dict[str, Any]) -> dict[str, Any]:
    attributes: Any = orjson.loads(given) if isinstance(given, str) else given
    if type(attributes) is not dict:
        raise ValueError("attributes of a record must be an object")
    return attributes


def _check(context: Context, queue: str, policy: Policy, blocks: list[bytes]) -> None:
    """Check the limits and the schema of a log. Raises ``CommandError``."""
    largest, limit = max(map(len, blocks)), policy.max_message_bytes
    if limit and largest > limit:
        raise CommandError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a record has {largest} bytes with its attributes; log {queue!r} takes at most {limit}"
            " (limits.messageBytes)",
        )
    if policy.publish_per_sec:
        context.pending.published[queue] = len(blocks) - 1
        check_rate(context, queue, policy)
    if context.policies.checks(queue, policy):
        for block in blocks:
            part = open_block(block)[0]
            part = part if part.form is Form.JSON else part._replace(form=Form.TEXT)
            problem = check_body(context.policies, policy, queue, part)
            if problem:  # a log has no dead letters
                raise CommandError(ErrorCode.VALIDATION_FAILED, problem)


def _check_space(context: Context, log: LogRecord, policy: Policy, queue: str, size: int) -> None:
    """Raise ``CommandError`` (ERR_QUEUE_FULL) if a log is full of records that one of its readers has not processed."""
    limit = policy.log_retention_bytes
    if not limit or not policy.log_keep_unread or not log.readers or log.bytes + size <= limit:
        return
    slowest = min(log.readers, key=lambda name: log.readers[name][0])
    position = log.readers[slowest][0]
    surplus = context.store.logs.trimmable(log.created, 0, limit, log.last)
    if surplus and surplus.last > position:
        raise CommandError(
            ErrorCode.QUEUE_FULL,
            f"log {queue!r} has {log.bytes} bytes; its limit is {limit} (log.retentionBytes), and {slowest!r} has"
            f" processed none after {position} (log.keepUnread)",
        )


def _later(context: Context, queue: str, delay_ms: int, blocks: list[bytes]) -> list[Draft]:
    """The events of records that are appended later: until then each is a delayed message."""
    now = context.now
    return [
        {
            "type": EventType.PUBLISHED,
            "queue": queue,
            "key": message_key(queue, context.ids.message(now.wall)),
            "dueEngineMs": now.engine + delay_ms,
            "message": orjson.Fragment(encode_message((Part(block, Form.BINARY),))),
        }
        for block in blocks
    ]


# --- read -----------------------------------------------------------------------------------------------------------


def read(context: Context, fields: Fields) -> Decision:
    """The next records after a position, or a wait for them.

    Raises ``CommandError``: ERR_INVALID_REQUEST, ERR_FORBIDDEN, ERR_QUEUE_NOT_FOUND, ERR_WRONG_KIND,
    ERR_POSITION_TRIMMED, ERR_POSITION_NOT_FOUND.
    """
    is_raw = fields["payloadAs"] == "raw"
    if not is_raw:
        check_payload_as(fields)
    elif context.read_body is json_body:
        raise CommandError(ErrorCode.INVALID_REQUEST, "payloadAs raw is for the lane")
    if fields["ifTrimmed"] not in ("error", "skip"):
        raise CommandError(ErrorCode.INVALID_REQUEST, "ifTrimmed must be error or skip")
    log = _existing(context, fields["queue"], Verb.CONSUME)
    after = _place(context, log, fields)
    trimmed = 0 < after < log.trimmed
    if trimmed:
        if fields["ifTrimmed"] == "error":
            raise CommandError(
                ErrorCode.POSITION_TRIMMED,
                f"log {fields['queue']!r} no longer has all records after {after}: the oldest is at {log.first}",
            )
        after = 0
    elif fields["exact"] and after and not context.store.logs.has(log.created, after):
        raise CommandError(ErrorCode.POSITION_NOT_FOUND, f"log {fields['queue']!r} has no record at {after}")
    page = _page(context, log.created, after, fields["max"], fields["maxBytes"])
    if not page.raw and fields["waitMs"] and not trimmed:
        resume = dict.fromkeys(_PLACES) | {"after": after, "exact": None}
        return Decision(wait_until=context.now.engine + fields["waitMs"], resume=resume)
    data: dict[str, Any] = {
        "count": page.records,
        "last": page.last if page.raw else after,
        "first": log.first,
        "end": log.last,
        "created": log.created,
    }
    if trimmed:
        data["trimmed"] = True
    if is_raw:
        return Decision(data=data | {"rawBytes": page.raw})
    as_value, none = fields["payloadAs"] == "value", fields["payloadAs"] == "none"
    return Decision(data={"records": [_view(*one, as_value, none) for one in records_of(page.raw)]} | data)


def _page(context: Context, *place: int) -> Page:
    """The records of a log behind a position, within limits."""
    if context.page is None or context.page[0] != place:
        context.page = place, context.store.logs.read(*place)
    return context.page[1]


def _place(context: Context, log: LogRecord, fields: Fields) -> int:
    """The position after which a read begins. Raises ``CommandError`` if it says that twice."""
    given = [name for name in _PLACES if fields[name] is not None]
    if len(given) > 1:
        raise CommandError(ErrorCode.INVALID_REQUEST, f"give one of {', '.join(_PLACES)}, not {' and '.join(given)}")
    if fields["reader"] is not None:
        return log.readers.get(fields["reader"], (0, 0))[0]
    if fields["start"] is not None:
        if fields["start"] not in ("oldest", "newest"):
            raise CommandError(ErrorCode.INVALID_REQUEST, "start must be oldest or newest")
        return log.last if fields["start"] == "newest" else 0
    if fields["sinceMs"] is not None:
        return context.store.logs.before_time(log.created, fields["sinceMs"])
    return fields["after"] or 0


def _view(wall: int, position: int, block: bytes, as_value: bool, none: bool) -> dict[str, Any] | MessageView:
    """A record in an answer."""
    fields = {"position": position, "wallMs": wall}
    if none:
        return fields
    part, attributes = open_block(block)
    return MessageView(fields, as_value, None, (part,), Part(orjson.dumps(attributes), Form.JSON))


# --- readers --------------------------------------------------------------------------------------------------------


def move_reader(context: Context, fields: Fields) -> Decision:
    """Record the position of the last record that a reader has processed; a new name makes a reader. Raises
    ``CommandError``: ERR_FORBIDDEN, ERR_QUEUE_NOT_FOUND, ERR_WRONG_KIND, ERR_INVALID_REQUEST for a position after the
    last record, and for too many readers."""
    queue, reader, position = fields["queue"], fields["reader"], fields["position"]
    log = _existing(context, queue, Verb.CONSUME)
    if position > log.last:
        raise CommandError(ErrorCode.INVALID_REQUEST, f"position must be at most {log.last}, that of the last record")
    before = log.readers.get(reader)
    if before is None and len(log.readers) >= READERS_LIMIT:
        raise CommandError(ErrorCode.INVALID_REQUEST, f"log {queue!r} has {READERS_LIMIT:,} readers: delete one first")
    data = {"queue": queue, "reader": reader, "position": position}
    if before and before[0] == position:
        return Decision(data=data | {"asOfEvent": context.store.applied})
    draft = {"type": EventType.READER_MOVED, "log": log.created, **data}
    return Decision([draft], reply={"as": "operation", "data": data})


def delete_reader(context: Context, fields: Fields) -> Decision:
    """Delete a reader: it keeps no records any more. Raises ``CommandError``: ERR_FORBIDDEN, ERR_QUEUE_NOT_FOUND,
    ERR_WRONG_KIND, ERR_READER_NOT_FOUND."""
    queue, reader = fields["queue"], fields["reader"]
    log = _existing(context, queue, Verb.CONSUME)
    if reader not in log.readers:
        raise CommandError(ErrorCode.READER_NOT_FOUND, f"log {queue!r} has no reader {reader!r}")
    data = {"queue": queue, "reader": reader}
    draft = {"type": EventType.READER_DELETED, "log": log.created, **data}
    return Decision([draft], reply={"as": "operation", "data": data | {"deleted": True}})


def list_readers(context: Context, fields: Fields) -> Decision:
    """The readers of a log by name. Raises ``CommandError``: ERR_FORBIDDEN, ERR_QUEUE_NOT_FOUND, ERR_WRONG_KIND."""
    log = _existing(context, fields["queue"], None)
    readers = [
        {
            "reader": name,
            "position": position,
            "movedEngineMs": moved,
            "isBehind": position < log.last,
            "isOvertaken": 0 < position < log.trimmed,
        }
        for name, (position, moved) in sorted(log.readers.items())
    ]
    return Decision(data={"readers": readers, "first": log.first, "end": log.last, **as_of(context)})


# --- what they share ------------------------------------------------------------------------------------------------


def _existing(context: Context, queue: str, verb: Verb | None) -> LogRecord:
    record = existing_queue(context, queue, verb)
    if record.log is None:
        raise _is_queue(queue, "consume_next leases its messages")
    _policy_of(context, record)
    return record.log


def _policy_of(context: Context, record: QueueRecord) -> Policy:
    """The policy of a log. Raises ``CommandError`` (ERR_QUEUE_NOT_FOUND) if it is about to be deleted, because its time
    is over."""
    policy = context.policies.applied(record.name, record)[0]
    if 0 < policy.log_expire_at_ms <= context.now.wall:
        raise CommandError(ErrorCode.QUEUE_NOT_FOUND, f"there is no log {record.name!r}: its time is over")
    return policy


def _is_queue(queue: str, use: str) -> CommandError:
    return CommandError(ErrorCode.WRONG_KIND, f"{queue!r} is a queue, not a log: {use}")
