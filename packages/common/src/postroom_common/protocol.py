"""Constants of the mailbox protocol: every name and number that client and daemon must agree on.

This module is the only source. ``scripts/generate-protocol`` generates the client's ``_protocol.py`` from it, and
``scripts/generate-protocol-tables`` the tables of ``docs/protocol.md``. It imports nothing from Postroom.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeGuard

PROTOCOL_VERSION: Final = 1

#: Default limit and highest configurable limit of one request file, in bytes.
REQUEST_BYTES_DEFAULT: Final = 4 * 1024 * 1024
REQUEST_BYTES_CEILING: Final = 64 * 1024 * 1024
#: Maximum nesting depth of objects and arrays in a request, including the envelope.
JSON_DEPTH_LIMIT: Final = 128
#: A queue name is 1 to this many bytes of UTF-8 without control characters.
QUEUE_NAME_BYTES_LIMIT: Final = 256
#: Characters that no id contains: the slash, control characters, line separators, and those that change the direction
#: of text. The characters themselves: not every Python knows escapes for them in a pattern.
_NEVER_IN_AN_ID: Final = "/\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
#: Pattern of a client id or request id. No leading dot and no slash, so an id is safe as a file name.
ID_PATTERN: Final = f"(?![.])[^{_NEVER_IN_AN_ID}]+"
#: A client id or request id has at most this many bytes of UTF-8.
ID_BYTES_LIMIT: Final = 128
#: The rule for ids, for people.
ID_RULE: Final = "1 to 128 bytes of UTF-8, not beginning with a dot, without slashes and control characters"
#: The rules for the names of principals that are no local users, and of a gateway's doors, for people.
PRINCIPAL_RULE: Final = "scheme:name such as token:scanner-7, an id with a scheme of a-z, 0-9 and -, which is not uid"
GATEWAY_DOOR_RULE: Final = "1 to 32 of a-z, 0-9 and -, beginning with a letter; not mailbox or lane"
#: Maximum length of a free-text field (reason, type, trace id, consumer id), in characters.
TEXT_LIMIT: Final = 4096
#: Maximum number of entries that a list command returns in one page.
PAGE_LIMIT: Final = 1000
#: Longest lease (7 days) and longest wait (1 hour), in milliseconds.
VISIBILITY_MS_LIMIT: Final = 7 * 24 * 3600 * 1000
WAIT_MS_LIMIT: Final = 3600 * 1000
#: Longest delay, in milliseconds (366 days).
DELAY_MS_LIMIT: Final = 366 * 24 * 3600 * 1000
#: Highest limit of the deliveries of a message.
RETRY_LIMIT_LIMIT: Final = 2**31 - 1
#: Maximum number of messages or items in one batch.
BATCH_LIMIT: Final = 1000
#: Maximum number of queues that one publish by pattern reaches.
MATCHED_QUEUES_LIMIT: Final = BATCH_LIMIT
#: Maximum length of a pattern for the names of queues, in characters.
PATTERN_LIMIT: Final = 1024
#: Maximum number of policy patterns.
POLICY_PATTERNS_LIMIT: Final = 256
#: Latest Unix time that a field may hold, in milliseconds (end of the year 9999).
WALL_MS_LIMIT: Final = 253_402_300_799_999
#: Age in milliseconds up to which the daemon leaves a request file in place that it cannot parse, or that has two hard
#: links, because its client may still be writing it.
SETTLE_MS: Final = 2000
#: Maximum number of failed attempts in the history of a message.
HISTORY_LIMIT: Final = 32
#: Maximum number of parts that are appended to a gathering message, and of its bytes if its queue has no limit.
APPENDED_PARTS_LIMIT: Final = 4096
GATHERED_BYTES_LIMIT: Final = 4 * 1024 * 1024
#: Maximum number of parts of a draft, of the characters of their names and of the name of a message, and of the bytes
#: of all parts if the queue has no limit.
NAMED_PARTS_LIMIT: Final = 256
NAME_LIMIT: Final = 255
DRAFT_BYTES_LIMIT: Final = REQUEST_BYTES_CEILING
#: The priority below all numbers.
NO_PRIORITY: Final = -(2**31) - 1

#: Maximum number of targets of a pipe, of readers of a log, and of the bytes of the records in one answer.
PIPE_TARGETS_LIMIT: Final = 16
READERS_LIMIT: Final = 1000
READ_BYTES_LIMIT: Final = 4 * 1024 * 1024

REQUESTS_DIR: Final = "requests"
#: The socket of the lane, in the root of the mailbox, and its version; see docs/lane.md.
LANE_SOCKET: Final = "lane.sock"
CLUSTER_SOCKET: Final = "cluster.sock"
LANE_VERSION: Final = 1
RESPONSES_DIR: Final = "responses"
DEAD_DIR: Final = "dead"
REQUEST_SUFFIX: Final = ".json"
TEMP_SUFFIX: Final = ".tmp"


class Command(StrEnum):
    """Commands of the mailbox protocol, by canonical name."""

    PUBLISH = "publish"
    PUBLISH_BATCH = "publish_batch"
    DRAFT = "draft"
    SET = "set"
    APPEND = "append"
    CONSUME_NEXT = "consume_next"
    ACK = "ack"
    ACK_BATCH = "ack_batch"
    ACK_AND_PUBLISH = "ack_and_publish"
    NACK = "nack"
    NACK_BATCH = "nack_batch"
    RELEASE = "release"
    EXTEND_LEASE = "extend_lease"
    ACTIVATE = "activate"
    ABANDON = "abandon"
    READ = "read"
    MOVE_READER = "move_reader"
    DELETE_READER = "delete_reader"
    LIST_READERS = "list_readers"
    STATUS = "status"
    HEALTH = "health"
    METRICS = "metrics"
    LIST_QUEUES = "list_queues"
    QUEUE_STATISTICS = "queue_statistics"
    LIST_CONSUMERS = "list_consumers"
    LIST_INFLIGHT = "list_inflight"
    BROWSE = "browse"
    GET_MESSAGE = "get_message"
    LIST_DLQ = "list_dlq"
    COUNT_DLQ = "count_dlq"
    REPROCESS_DLQ = "reprocess_dlq"
    DROP_DLQ = "drop_dlq"
    QUARANTINE_DLQ = "quarantine_dlq"
    HOLD = "hold"
    UNHOLD = "unhold"
    MOVE = "move"
    PURGE = "purge"
    CREATE_QUEUE = "create_queue"
    DELETE_QUEUE = "delete_queue"
    PAUSE = "pause"
    RESUME = "resume"
    DRAIN = "drain"
    SET_POLICY = "set_policy"
    GET_POLICY = "get_policy"
    SET_POLICY_PATTERNS = "set_policy_patterns"
    GET_POLICY_PATTERNS = "get_policy_patterns"
    SET_SCHEDULE = "set_schedule"
    DELETE_SCHEDULE = "delete_schedule"
    LIST_SCHEDULES = "list_schedules"
    READ_STATE = "read_state"
    IMPORT_STATE = "import_state"


#: Aliases of commands. Names and aliases are compared case-insensitively.
ALIASES: Final[dict[str, Command]] = {
    "consumenext": Command.CONSUME_NEXT,
    "consume": Command.CONSUME_NEXT,
    "extendlease": Command.EXTEND_LEASE,
    "extend": Command.EXTEND_LEASE,
    "listdlq": Command.LIST_DLQ,
    "dlq": Command.LIST_DLQ,
    "reprocessdlq": Command.REPROCESS_DLQ,
    "reprocess": Command.REPROCESS_DLQ,
    "queues": Command.LIST_QUEUES,
}


class ErrorCode(StrEnum):
    """Error codes of a response, each with its meaning and the advice for the client."""

    meaning: str
    advice: str

    def __new__(cls, code: str, meaning: str, advice: str) -> ErrorCode:
        member = str.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        member.advice = advice
        return member

    INVALID_REQUEST = (
        "ERR_INVALID_REQUEST",
        "A required field is missing, or a value is out of bounds.",
        "Correct the request. The text names the field.",
    )
    PARSE_ERROR = (
        "ERR_PARSE_ERROR",
        "A field has the wrong JSON type.",
        "Correct the request. The text names the field and the expected type.",
    )
    UNKNOWN_COMMAND = (
        "ERR_UNKNOWN_COMMAND",
        "The daemon does not know this command.",
        "Correct the name, or upgrade the daemon.",
    )
    TIMEOUT = (
        "ERR_TIMEOUT",
        "The deadline had passed when the daemon read the request. Nothing was changed.",
        "Send a new request with a later deadline.",
    )
    FORBIDDEN = (
        "ERR_FORBIDDEN",
        "The owner of the request file has no permission for this, or does not own the client id.",
        "Use a client id of your own, or ask the device's owner for a permission.",
    )
    QUEUE_NOT_FOUND = (
        "ERR_QUEUE_NOT_FOUND",
        "The command needs an existing queue, and no queue has this name.",
        "Check the name with list_queues. publish and set_policy create a queue, create_queue also a log.",
    )
    QUEUE_EXISTS = (
        "ERR_QUEUE_EXISTS",
        "A queue or log has this name already. Nothing was changed.",
        "Use another name, or use what exists.",
    )
    WRONG_KIND = (
        "ERR_WRONG_KIND",
        "The command is for a queue, and this is a log, or the other way round. Nothing was changed.",
        "Use the command that the text names.",
    )
    MESSAGE_NOT_FOUND = (
        "ERR_MESSAGE_NOT_FOUND",
        "No message has this key: it was acknowledged or dropped, or never existed.",
        "If you repeat your own ack, treat it as done. Otherwise check the key.",
    )
    LEASE_EXPIRED = (
        "ERR_LEASE_EXPIRED",
        "The lease has ended. Nothing was changed.",
        "Discard the work. A ready or delayed message is delivered again; list_dlq shows a dead one.",
    )
    LEASE_MISMATCH = (
        "ERR_LEASE_MISMATCH",
        "Another lease or consumer has the message. Nothing was changed.",
        "If you sent your leaseId, discard the work. Otherwise send the leaseId.",
    )
    BAD_STATE = (
        "ERR_BAD_STATE",
        "The message is not in a state that the command allows. Nothing was changed.",
        "Read the text: it names the state of the message, and those that the command allows.",
    )
    VALIDATION_FAILED = (
        "ERR_VALIDATION_FAILED",
        "The message violates the queue's schema. Nothing was stored.",
        "Correct the message. The text names every violated rule.",
    )
    DLQ_NOT_FOUND = (
        "ERR_DLQ_NOT_FOUND",
        "No dead letter has this key.",
        "Check the key with list_dlq.",
    )
    PAUSED = (
        "ERR_PAUSED",
        "Publishing to this queue is paused.",
        "Try again later, or resume the queue.",
    )
    DRAINING = (
        "ERR_DRAINING",
        "The daemon is draining: it accepts no new messages.",
        "Try again later, or end the drain.",
    )
    QUEUE_FULL = (
        "ERR_QUEUE_FULL",
        "The queue has reached its limit of messages or bytes. Nothing was stored.",
        "Try again when messages have been consumed, or raise the limit.",
    )
    RATE_LIMITED = (
        "ERR_RATE_LIMITED",
        "The queue has reached its limit of publishes per second. Nothing was stored.",
        "Try again after the time in the text.",
    )
    QUOTA_EXCEEDED = (
        "ERR_QUOTA_EXCEEDED",
        "The owner of the request file has reached a quota. Nothing was changed.",
        "Do what the text says: wait, read answers, settle leases or consume messages.",
    )
    MESSAGE_TOO_LARGE = (
        "ERR_MESSAGE_TOO_LARGE",
        "The message is larger than the queue's policy allows. Nothing was stored.",
        "Send less, or raise the limit.",
    )
    DUPLICATE_MESSAGE = (
        "ERR_DUPLICATE_MESSAGE",
        "Another message of the queue has this name, or its parts are equal and the queue refuses that.",
        "Use another name, or discard the draft. Nothing was changed.",
    )
    PART_NOT_FOUND = (
        "ERR_PART_NOT_FOUND",
        "The message has no part of this name.",
        "Check the name: a draft has the parts with which it was made.",
    )
    POSITION_TRIMMED = (
        "ERR_POSITION_TRIMMED",
        "Records after this position are no longer kept: the reader was overtaken.",
        "Read with ifTrimmed skip, which continues at the oldest record. The text names it.",
    )
    POSITION_NOT_FOUND = (
        "ERR_POSITION_NOT_FOUND",
        "The log has no record at this position.",
        "Check the position: it is that of a record of this log, as append and read return them.",
    )
    READER_NOT_FOUND = (
        "ERR_READER_NOT_FOUND",
        "The log has no reader of this name.",
        "Check the name with list_readers. move_reader creates a reader.",
    )
    QUEUE_NOT_EMPTY = (
        "ERR_QUEUE_NOT_EMPTY",
        "The queue still has messages, so it was not deleted. Nothing was changed.",
        "Purge it first, or wait until it is empty.",
    )
    SCHEDULE_NOT_FOUND = (
        "ERR_SCHEDULE_NOT_FOUND",
        "No schedule has this name.",
        "Check the name with list_schedules.",
    )
    STORAGE_FULL = (
        "ERR_STORAGE_FULL",
        "The disk is too full for another message. ack and nack still work.",
        "Free space on the device, or try again later.",
    )
    STORAGE_FAILED = (
        "ERR_STORAGE_FAILED",
        "The disk refused a write. Nothing was changed.",
        "Try again. Check the device's disk and the daemon's log.",
    )
    NOT_LEADER = (
        "ERR_NOT_LEADER",
        "This node of a cluster follows another one, or none leads. Nothing was changed.",
        "Ask the node that data.leader names, at data.address. If data.leader is empty, try again later.",
    )
    ANSWER_LOST = (
        "ERR_ANSWER_LOST",
        "The request was executed, but its answer is no longer available.",
        "Do not send it again. Read the state (status, list_dlq) to learn its effect.",
    )
    INTERNAL_ERROR = (
        "ERR_INTERNAL_ERROR",
        "The daemon failed on this request. Nothing was changed.",
        "Report it with the daemon's log. Trying again may help.",
    )


class State(StrEnum):
    """States of a message. ``phase`` refines them."""

    READY = "ready"
    DELAYED = "delayed"
    GATHERING = "gathering"
    DRAFTING = "drafting"
    INFLIGHT = "inflight"
    HELD = "held"
    DEAD = "dead"
    DONE = "done"


class ReasonCode(StrEnum):
    """Why a message died or an attempt failed. The list is closed; the reason text beside the code is free."""

    REJECTED = "REJECTED"
    RETRY_LIMIT = "RETRY_LIMIT"
    LEASE_EXPIRED = "LEASE_EXPIRED"
    NACKED = "NACKED"
    VALIDATION_ERROR = "VALIDATION_ERROR"
    MESSAGE_EXPIRED = "MESSAGE_EXPIRED"
    BODY_LOST = "BODY_LOST"
    QUEUE_FULL = "QUEUE_FULL"
    POISON = "POISON"
    PURGED = "PURGED"
    ABANDONED = "ABANDONED"
    DRAFT_EXPIRED = "DRAFT_EXPIRED"
    APPENDED = "APPENDED"


class Kind(StrEnum):
    """JSON kinds of a payload field. The values are the names in error texts and documents."""

    TEXT = "string"
    QUEUE = "queue name"
    INTEGER = "integer"
    NUMBER = "number"
    FLAG = "boolean"
    OBJECT = "object"
    ARRAY = "array"
    ATTRIBUTES = "string or object"
    VALUE = "any value"
    SCALAR = "string or number"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a command's payload.

    ``default`` None means that the field has no default. ``low`` and ``high`` are the inclusive bounds of a number;
    ``high`` of a text is its length in characters, ``TEXT_LIMIT`` if absent.
    A ``required`` field must be present, unless the field is that is given ``instead_of`` it. JSON null counts as
    absent, except for ``Kind.VALUE``.
    """

    name: str
    kind: Kind
    help: str
    required: bool = False
    default: Any = None
    low: int | float | None = None  # not only float: compiled code would turn 2**63 - 1 into 2**63
    high: int | float | None = None
    instead_of: str = ""


_QUEUE = Field("queue", Kind.QUEUE, "name of the queue", required=True)
_KEY = Field("messageKey", Kind.TEXT, "key of the message, as returned by publish or consume_next", required=True)
_LEASED_KEY = Field(
    "messageKey", Kind.TEXT, "key of the message, as returned by consume_next; leaseId alone is enough", default=""
)
_LEASE = Field(
    "leaseId", Kind.TEXT, "lease id of the delivery; without it, consumerId must be that of the lease holder"
)
_ANY_HOLDER = Field(
    "anyHolder",
    Kind.FLAG,
    "whoever has the lease; a leaseId that is given must still be that of the lease",
    default=False,
)
_LEASE_QUEUE = Field("queue", Kind.TEXT, "without messageKey: the queue in which the lease must be", default="")
_CREATE_WITH = Field(
    "createWith", Kind.OBJECT, "policy with which the queue is created if it does not exist; {}: without one"
)
_DELIVERED_AS = Field(
    "payloadAs",
    Kind.TEXT,
    "text: payload and attributes as strings; value: as JSON values; none: without body and headers",
    default="text",
)
_CONSUMER = Field("consumerId", Kind.TEXT, "name of the consumer; the clientId if absent")
_VISIBILITY = Field(
    "visibilityTimeoutSec",
    Kind.NUMBER,
    "lease duration in seconds (fractions allowed); the queue's policy applies if absent",
    low=0.001,
    high=VISIBILITY_MS_LIMIT / 1000,
)
_NO_PRIORITY = Field("noPriority", Kind.FLAG, "true: below every priority; shown as null", default=False)
_ENCODING = Field("encoding", Kind.TEXT, "base64 if message is binary data as base64 text", default="")
_CONTENT_TYPE = Field("contentType", Kind.TEXT, "media type of the body", default="")
_PRIORITY = Field("priority", Kind.INTEGER, "higher is delivered first", low=-(2**31), high=2**31 - 1)
_TARGET_CONSUMER = Field(
    "targetConsumerId", Kind.TEXT, "only this consumer receives the message; empty for any consumer", default=""
)
_ORDERING_KEY = Field(
    "orderingKey", Kind.TEXT, "messages with the same key are delivered one at a time, in order", default=""
)
_TYPE = Field("type", Kind.TEXT, "message type of the application", default="")
_TARGET_QUEUE = Field("to", Kind.TEXT, "destination queue; each letter's own queue if absent", default="")
_FILTER = Field("filter", Kind.OBJECT, "selects messages (see Filters); all if absent")
_UP_TO = Field(
    "upToEvent",
    Kind.INTEGER,
    "only messages published up to this event; copy it from the first answer into every later request",
    low=0,
    high=2**63 - 1,
)
_IF_STATE = Field(
    "ifState",
    Kind.TEXT,
    "only if the message is in this state, or its lease in this phase (ordered, active)",
    default="",
)
_DRY_RUN = Field("dryRun", Kind.FLAG, "change nothing; only count", default=False)
_AFTER = Field("after", Kind.TEXT, "continue after this position: next of the previous page", default="")
_PREVIEW = Field("previewBytes", Kind.INTEGER, "number of body bytes to show", default=256, low=0, high=65536)
_LOG = Field("queue", Kind.QUEUE, "name of the log", required=True)
_READER = Field("reader", Kind.TEXT, "name of the reader", required=True, high=NAME_LIMIT)
_OPERATION = Field("operation", Kind.TEXT, "consume or publish", default="consume")
_LIMIT = Field("limit", Kind.INTEGER, "maximum number of entries to return", default=100, low=1, high=PAGE_LIMIT)

#: Commands for tools, without a subcommand in the client's CLI. Only the daemon's own user and root may send them.
TOOL_COMMANDS: Final = frozenset({Command.READ_STATE, Command.IMPORT_STATE})

#: Payload fields of every command. The daemon's checks, the client's options and the documents derive from them.
FIELDS: Final[dict[Command, tuple[Field, ...]]] = {
    Command.PUBLISH: (
        _QUEUE,
        Field(
            "message",
            Kind.VALUE,
            "the body: a string is stored byte for byte, any other value as an equal JSON value",
            default="{}",
        ),
        Field("attributes", Kind.ATTRIBUTES, "application headers", default="{}"),
        _PRIORITY,
        Field(
            "delayMs",
            Kind.INTEGER,
            "milliseconds before the message can be consumed",
            default=0,
            low=0,
            high=DELAY_MS_LIMIT,
        ),
        _TARGET_CONSUMER,
        _ENCODING,
        _CONTENT_TYPE,
        _TYPE,
        Field("version", Kind.SCALAR, "version of that message type"),
        Field("traceId", Kind.TEXT, "trace id; passed on unchanged", default=""),
        Field(
            "deduplicationKey",
            Kind.TEXT,
            "key for deduplication: if the policy says so, a second message with it is not stored",
            default="",
        ),
        Field("timestamp", Kind.SCALAR, "time assigned by the application; passed on unchanged"),
        Field("traceparent", Kind.TEXT, "W3C trace context; passed on unchanged", default=""),
        Field("correlationId", Kind.TEXT, "id that relates a reply to a request; passed on unchanged", default=""),
        Field("replyTo", Kind.TEXT, "queue in which the publisher expects the reply; passed on unchanged", default=""),
        Field("ttlMs", Kind.INTEGER, "milliseconds after which the message expires", low=1, high=DELAY_MS_LIMIT),
        Field(
            "deliverAt",
            Kind.INTEGER,
            "Unix time (ms) before which the message cannot be consumed",
            low=0,
            high=WALL_MS_LIMIT,
        ),
        _ORDERING_KEY,
        Field(
            "targetFallbackMs",
            Kind.INTEGER,
            "milliseconds after which any consumer may receive it if its target has not",
            low=1,
            high=DELAY_MS_LIMIT,
        ),
        Field(
            "retryLimit",
            Kind.SCALAR,
            f"deliveries before the message dies, 1 to {RETRY_LIMIT_LIMIT:,}; policy: the queue's limit as it is now",
        ),
        Field(
            "queuePattern",
            Kind.TEXT,
            "instead of queue: regular expression; publish to every queue in whose name it is found",
            high=PATTERN_LIMIT,
            instead_of="queue",
        ),
        _CREATE_WITH,
        _NO_PRIORITY,
    ),
    Command.PUBLISH_BATCH: (
        Field("queue", Kind.TEXT, "queue of the messages that name none", default=""),
        Field("messages", Kind.ARRAY, f"1 to {BATCH_LIMIT:,} objects with the fields of publish", required=True),
    ),
    Command.DRAFT: (
        _QUEUE,
        Field("parts", Kind.ARRAY, f"1 to {NAMED_PARTS_LIMIT} names of the parts", required=True),
        Field(
            "name",
            Kind.TEXT,
            "name by which the message is found, unique in its queue; a message key may have it in place of the id",
            default="",
            high=NAME_LIMIT,
        ),
        Field("attributes", Kind.ATTRIBUTES, "application headers", default="{}"),
        _PRIORITY,
        _NO_PRIORITY,
        _TYPE,
        Field(
            "ttlMs",
            Kind.INTEGER,
            "milliseconds after which the message expires, from when it is ready",
            low=1,
            high=DELAY_MS_LIMIT,
        ),
        _ORDERING_KEY,
        _TARGET_CONSUMER,
        _CREATE_WITH,
        Field("mustExist", Kind.FLAG, "refuse if the queue does not exist, instead of creating it", default=False),
    ),
    Command.SET: (
        _LEASED_KEY,
        Field("part", Kind.TEXT, "name of the part to set; without it, the body of a leased message", default=""),
        Field(
            "message",
            Kind.VALUE,
            "the part or body: a string is stored byte for byte, any other value as an equal JSON value",
            default="{}",
        ),
        _ENCODING,
        _CONTENT_TYPE,
        Field("attributes", Kind.ATTRIBUTES, "without part: other application headers; unchanged if absent"),
        _LEASE,
        _CONSUMER,
        _LEASE_QUEUE,
        _ANY_HOLDER,
    ),
    Command.APPEND: (
        _LOG,
        Field(
            "message",
            Kind.VALUE,
            "the body of the record: a string is stored byte for byte, any other value as an equal JSON value",
            default="{}",
        ),
        Field("attributes", Kind.ATTRIBUTES, "application headers: an object of strings", default="{}"),
        _ENCODING,
        _CONTENT_TYPE,
        Field(
            "messages",
            Kind.ARRAY,
            f"instead of message: 1 to {BATCH_LIMIT:,} objects with message, attributes, encoding and contentType",
        ),
        Field(
            "delayMs",
            Kind.INTEGER,
            "milliseconds after which the records are appended",
            default=0,
            low=0,
            high=DELAY_MS_LIMIT,
        ),
        Field("createWith", Kind.OBJECT, "policy with which the log is created if it does not exist; {}: without one"),
    ),
    Command.READ: (
        _LOG,
        Field(
            "after",
            Kind.INTEGER,
            "only records after this position; 0, as without it: from the oldest on",
            low=0,
            high=2**63 - 1,
        ),
        Field("reader", Kind.TEXT, "instead of after: only records after the position of this reader", high=NAME_LIMIT),
        Field("start", Kind.TEXT, "instead of after: oldest or newest, which is after all records that there are"),
        Field(
            "sinceMs",
            Kind.INTEGER,
            "instead of after: only records appended at this Unix time (ms) or later",
            low=0,
            high=WALL_MS_LIMIT,
        ),
        Field("max", Kind.INTEGER, "maximum number of records to return", default=100, low=1, high=PAGE_LIMIT),
        Field(
            "maxBytes",
            Kind.INTEGER,
            "maximum size of the records to return; the first is returned whatever its size",
            default=READ_BYTES_LIMIT,
            low=1,
            high=READ_BYTES_LIMIT,
        ),
        Field("exact", Kind.FLAG, "refuse a position, other than 0, at which the log has no record", default=False),
        Field(
            "ifTrimmed",
            Kind.TEXT,
            "what to do if records after the position are no longer kept: error, or skip them",
            default="error",
        ),
        Field(
            "waitMs",
            Kind.INTEGER,
            "milliseconds to wait if there is no record",
            default=0,
            low=0,
            high=WAIT_MS_LIMIT,
        ),
        Field(
            "waitLock", Kind.FLAG, "true if the client holds flock on its request file while it waits", default=False
        ),
        Field(
            "payloadAs",
            Kind.TEXT,
            "text, value or none, as for consume_next; raw, over the lane: all records as they are stored",
            default="text",
        ),
    ),
    Command.MOVE_READER: (
        _LOG,
        _READER,
        Field(
            "position",
            Kind.INTEGER,
            "position of the last record that it has processed; 0: none",
            required=True,
            low=0,
            high=2**63 - 1,
        ),
    ),
    Command.DELETE_READER: (_LOG, _READER),
    Command.LIST_READERS: (_LOG,),
    Command.CREATE_QUEUE: (
        _QUEUE,
        Field("createWith", Kind.OBJECT, 'policy with which it is created; {"kind": "log"}: as a log'),
        Field("mustBeNew", Kind.FLAG, "refuse if the queue exists", default=True),
    ),
    Command.CONSUME_NEXT: (
        _QUEUE,
        _CONSUMER,
        _VISIBILITY,
        Field(
            "max",
            Kind.INTEGER,
            "maximum number of messages to lease; if given, the answer contains messages",
            low=1,
            high=BATCH_LIMIT,
        ),
        Field(
            "waitMs",
            Kind.INTEGER,
            "milliseconds to wait if no message is available",
            default=0,
            low=0,
            high=WAIT_MS_LIMIT,
        ),
        Field(
            "waitLock", Kind.FLAG, "true if the client holds flock on its request file while it waits", default=False
        ),
        _DELIVERED_AS,
        Field(
            "queuePattern",
            Kind.TEXT,
            "instead of queue: regular expression; consume from any queue in whose name it is found",
            high=PATTERN_LIMIT,
            instead_of="queue",
        ),
        _CREATE_WITH,
        Field(
            "orderedSec",
            Kind.NUMBER,
            "seconds of the phase ordered, before activate; 0: without it; the queue's policy applies if absent",
            low=0,
            high=VISIBILITY_MS_LIMIT / 1000,
        ),
        Field(
            "mustExist",
            Kind.FLAG,
            "true: an error if the queue does not exist, or is deleted while the request waits",
            default=False,
        ),
    ),
    Command.ACK: (_LEASED_KEY, _LEASE, _CONSUMER, _LEASE_QUEUE, _ANY_HOLDER),
    Command.ACK_BATCH: (
        _CONSUMER,
        Field("items", Kind.ARRAY, f"1 to {BATCH_LIMIT:,} objects with the fields of ack", required=True),
    ),
    Command.ACK_AND_PUBLISH: (
        _LEASED_KEY,
        _LEASE,
        _CONSUMER,
        _LEASE_QUEUE,
        _ANY_HOLDER,
        Field("messages", Kind.ARRAY, f"1 to {BATCH_LIMIT:,} objects with the fields of publish", required=True),
    ),
    Command.NACK: (
        _LEASED_KEY,
        _LEASE,
        _CONSUMER,
        _LEASE_QUEUE,
        _ANY_HOLDER,
        Field("reason", Kind.TEXT, "why it failed, for the failure record", default=""),
        Field("requeue", Kind.FLAG, "true: retry as the queue's policy says; false: dead letter", default=False),
        Field(
            "delayMs",
            Kind.INTEGER,
            "with requeue: milliseconds before the retry; the policy's backoff if absent",
            low=0,
            high=DELAY_MS_LIMIT,
        ),
    ),
    Command.NACK_BATCH: (
        _CONSUMER,
        Field("items", Kind.ARRAY, f"1 to {BATCH_LIMIT:,} objects with the fields of nack", required=True),
    ),
    Command.RELEASE: (
        _LEASED_KEY,
        _LEASE,
        _CONSUMER,
        _LEASE_QUEUE,
        _ANY_HOLDER,
        Field(
            "undelivered",
            Kind.FLAG,
            "true: the message did not reach its consumer; it returns to its place, whatever the policy says",
            default=False,
        ),
    ),
    Command.EXTEND_LEASE: (_LEASED_KEY, _LEASE, _CONSUMER, _LEASE_QUEUE, _ANY_HOLDER, _VISIBILITY),
    Command.ACTIVATE: (_LEASED_KEY, _LEASE, _CONSUMER, _LEASE_QUEUE, _ANY_HOLDER, _VISIBILITY, _DELIVERED_AS),
    Command.ABANDON: (
        _KEY,
        Field("leaseId", Kind.TEXT, "if given, the message must be leased under it"),
        Field("reason", Kind.TEXT, "why, for the failure record", default=""),
        _IF_STATE,
    ),
    Command.STATUS: (_QUEUE,),
    Command.HEALTH: (),
    Command.METRICS: (Field("format", Kind.TEXT, "prometheus: all metrics in the Prometheus text format", default=""),),
    Command.LIST_QUEUES: (
        _LIMIT,
        Field("after", Kind.TEXT, "only names after this one: next of the previous page", default=""),
        Field("policies", Kind.FLAG, "return the policy in force of each queue", default=False),
    ),
    Command.QUEUE_STATISTICS: (
        Field("queue", Kind.TEXT, "name of the queue; all queues that are measured if absent", default=""),
        _LIMIT,
        Field("after", Kind.TEXT, "only names after this one: next of the previous page", default=""),
    ),
    Command.LIST_CONSUMERS: (
        Field("queue", Kind.TEXT, "name of the queue; all queues if absent", default=""),
        _LIMIT,
        _AFTER,
    ),
    Command.LIST_INFLIGHT: (
        Field("queue", Kind.TEXT, "name of the queue; all queues if absent", default=""),
        _LIMIT,
        _AFTER,
    ),
    Command.BROWSE: (
        _QUEUE,
        Field(
            "state",
            Kind.TEXT,
            "ready, delayed, gathering, drafting, inflight, held, dead or done",
            default="ready",
        ),
        _LIMIT,
        _AFTER,
        _PREVIEW,
        _FILTER,
        Field("fullBodies", Kind.FLAG, "return whole bodies in payload", default=False),
    ),
    Command.GET_MESSAGE: (
        _KEY,
        _DELIVERED_AS,
        Field(
            "events", Kind.INTEGER, "maximum number of events to return, the latest ones", default=0, low=0, high=1000
        ),
    ),
    Command.LIST_DLQ: (
        _QUEUE,
        _LIMIT,
        _AFTER,
        _PREVIEW,
        _FILTER,
        Field("fullBodies", Kind.FLAG, "return whole bodies in payload", default=False),
    ),
    Command.COUNT_DLQ: (_QUEUE,),
    Command.REPROCESS_DLQ: (
        Field("messageKey", Kind.TEXT, "key of one dead letter; without it, queue and filter select", default=""),
        Field("queue", Kind.TEXT, "queue in which they died, or a dead-letter address", default=""),
        _FILTER,
        _LIMIT,
        _AFTER,
        _TARGET_QUEUE,
        _DRY_RUN,
    ),
    Command.DROP_DLQ: (
        Field("messageKey", Kind.TEXT, "key of one dead letter; without it, queue and filter select", default=""),
        Field("queue", Kind.TEXT, "queue in which they died, or a dead-letter address", default=""),
        _FILTER,
        _LIMIT,
        _AFTER,
        _DRY_RUN,
    ),
    Command.QUARANTINE_DLQ: (
        _KEY,
        Field("reason", Kind.TEXT, "why, as a note for operators", default=""),
        Field("quarantined", Kind.FLAG, "false lifts the quarantine", default=True),
    ),
    Command.HOLD: (_KEY, Field("reason", Kind.TEXT, "why, as a note for operators", default="")),
    Command.UNHOLD: (_KEY,),
    Command.MOVE: (
        Field("to", Kind.QUEUE, "destination queue", required=True),
        Field("messageKey", Kind.TEXT, "key of one message; without it, queue, state and filter select", default=""),
        Field("queue", Kind.TEXT, "source queue", default=""),
        Field("state", Kind.TEXT, "ready, delayed, gathering or held; all of these if absent", default=""),
        _FILTER,
        _LIMIT,
        _AFTER,
        _UP_TO,
        _DRY_RUN,
    ),
    Command.PURGE: (
        _QUEUE,
        Field(
            "state",
            Kind.TEXT,
            "ready, delayed, gathering, drafting, held, dead, done, or any; all of these but dead and done if absent",
            default="",
        ),
        _FILTER,
        _LIMIT,
        _AFTER,
        _UP_TO,
        _DRY_RUN,
        Field("resetTally", Kind.FLAG, "set the tally of the queue to 0 with the last page", default=False),
        Field(
            "messageKey",
            Kind.TEXT,
            "only this message of the queue, whatever its state, also in flight; without state and filter",
            default="",
        ),
        _IF_STATE,
    ),
    Command.DELETE_QUEUE: (
        _QUEUE,
        Field("discard", Kind.FLAG, "drop its messages, too, whatever their state; 1,000 at a time", default=False),
    ),
    Command.PAUSE: (_QUEUE, _OPERATION),
    Command.RESUME: (_QUEUE, _OPERATION),
    Command.SET_POLICY: (
        _QUEUE,
        Field(
            "policy",
            Kind.OBJECT,
            "keys that override the configuration; null removes an override",
            required=True,
        ),
        _CREATE_WITH,
    ),
    Command.GET_POLICY: (
        _QUEUE,
        Field("explain", Kind.FLAG, "return the layer that each key comes from", default=False),
        Field("createWith", Kind.OBJECT, "if the queue does not exist: the policy as if it were created with this one"),
    ),
    Command.SET_POLICY_PATTERNS: (
        Field(
            "patterns",
            Kind.ARRAY,
            "objects with pattern and policy, in order: the first that matches a queue's name applies to it",
            required=True,
        ),
    ),
    Command.GET_POLICY_PATTERNS: (),
    Command.DRAIN: (Field("draining", Kind.FLAG, "false ends the drain", default=True),),
    Command.SET_SCHEDULE: (
        Field("name", Kind.TEXT, "name of the schedule; replaces an existing one", required=True),
        _QUEUE,
        Field("cron", Kind.TEXT, "five crontab fields, or @every with an interval such as 90s, 5m, 1h", required=True),
        Field("timezone", Kind.TEXT, "time zone of the five fields", default="UTC"),
        Field("missed", Kind.TEXT, "what to do about missed runs: skip, once or all", default="once"),
        Field("message", Kind.VALUE, "the body", default="{}"),
        Field("attributes", Kind.ATTRIBUTES, "application headers", default="{}"),
        Field("priority", Kind.INTEGER, "higher is delivered first", low=-(2**31), high=2**31 - 1),
        Field("ttlMs", Kind.INTEGER, "milliseconds after which the message expires", low=1, high=DELAY_MS_LIMIT),
        Field("orderingKey", Kind.TEXT, "as for publish", default=""),
    ),
    Command.DELETE_SCHEDULE: (Field("name", Kind.TEXT, "name of the schedule", required=True),),
    Command.LIST_SCHEDULES: (_LIMIT, _AFTER),
    Command.READ_STATE: (
        Field("part", Kind.TEXT, "what to read: head, queues, facts, messages or records", default="head"),
        Field("after", Kind.TEXT, "continue after this position: next of the previous page", default=""),
        _LIMIT,
    ),
    Command.IMPORT_STATE: (
        Field(
            "engineMs",
            Kind.INTEGER,
            "engine time of the source when the state was read",
            required=True,
            low=0,
            high=2**53,
        ),
        Field("wallMs", Kind.INTEGER, "Unix time when the state was read", required=True, low=0, high=2**53),
        Field("queues", Kind.VALUE, "array of queues as returned by read_state"),
        Field("messages", Kind.VALUE, "array of messages as returned by read_state, in publishing order"),
        Field("facts", Kind.VALUE, "array of facts as returned by read_state"),
    ),
}

_COMMANDS: Final[dict[str, Command]] = {command.value: command for command in Command} | ALIASES
_ID = re.compile(ID_PATTERN)
_PLAIN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_PRINCIPAL = re.compile(r"(?!uid:)[a-z][a-z0-9-]*:(?![*]\Z).")
_GATEWAY_DOOR = re.compile("(?!mailbox$|lane$)[a-z][a-z0-9-]{0,31}")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def is_id(text: object) -> TypeGuard[str]:
    """Whether ``text`` is a valid client id or request id, and therefore safe as part of a path."""
    if not isinstance(text, str):
        return False
    if _PLAIN_ID.fullmatch(text):
        return True
    try:
        return _ID.fullmatch(text) is not None and len(text.encode()) <= ID_BYTES_LIMIT
    except UnicodeEncodeError:  # half a surrogate pair
        return False


def is_principal(text: object) -> TypeGuard[str]:
    """Whether ``text`` names a principal that is no local user: ``scheme:name``, such as ``token:scanner-7``. It is an
    id; the scheme is not ``uid``, and the name is not ``*``, which in a rule means all names of a scheme."""
    return is_id(text) and _PRINCIPAL.match(text) is not None


def is_gateway_door(text: object) -> TypeGuard[str]:
    """Whether ``text`` is a name that a gateway may give to one of its doors."""
    return isinstance(text, str) and _GATEWAY_DOOR.fullmatch(text) is not None


def queue_name_problem(name: str) -> str | None:
    """What is wrong with a queue name, or None."""
    if name.isascii() and name.isprintable() and 0 < len(name) <= QUEUE_NAME_BYTES_LIMIT:
        return None
    if not name:
        return "must not be empty"
    if len(name.encode("utf-8", "surrogatepass")) > QUEUE_NAME_BYTES_LIMIT:
        return f"must be at most {QUEUE_NAME_BYTES_LIMIT} bytes of UTF-8"
    if _CONTROL.search(name):
        return "must not contain control characters"
    return None


def message_key(queue: str, message_id: str) -> str:
    """The key of a message: the queue it was published to, and its id. It stays the same when the message moves."""
    return f"msg:{queue}:{message_id}"


def named_key(queue: str, name: str) -> str:
    """The key of a message that was published to ``queue`` with a name, written with that instead of its id."""
    return message_key(queue, name.replace("%", "%25").replace(":", "%3A"))


def birthplace(key: str) -> str:
    """The queue to which the message with this key was published; "" if ``key`` is not a message key."""
    return key.removeprefix("msg:").rpartition(":")[0]


def resolve_command(name: str) -> Command | None:
    """The command with this name or alias, in any case, or None."""
    return _COMMANDS.get(name) or _COMMANDS.get(name.lower())
