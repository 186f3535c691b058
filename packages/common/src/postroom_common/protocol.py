"""The mailbox protocol's constants: every name and number that both sides must agree on.

This module is the only source. The client's ``_protocol.py`` is generated from it, and the tables in
``docs/protocol.md`` are checked against it. It imports nothing of Postroom.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeGuard

PROTOCOL_VERSION: Final = 1

#: Default and hard ceiling of one request file, in bytes.
REQUEST_BYTES_DEFAULT: Final = 4 * 1024 * 1024
REQUEST_BYTES_CEILING: Final = 64 * 1024 * 1024
#: Containers inside containers that a request may have, the envelope itself counted.
JSON_DEPTH_LIMIT: Final = 128
#: A queue name is 1 to this many bytes of UTF-8 without control characters.
QUEUE_NAME_BYTES_LIMIT: Final = 256
#: What a client or request id may look like. No leading dot, no slash: safe as a file name.
ID_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
#: Longest free-text field (reason, type, trace id, consumer id), in characters.
TEXT_LIMIT: Final = 4096
#: Largest page that a list command returns.
PAGE_LIMIT: Final = 1000
#: Longest lease and longest wait, in milliseconds (7 days, 1 hour).
VISIBILITY_MS_LIMIT: Final = 7 * 24 * 3600 * 1000
WAIT_MS_LIMIT: Final = 3600 * 1000
#: Longest delay, in milliseconds (366 days).
DELAY_MS_LIMIT: Final = 366 * 24 * 3600 * 1000
#: Messages that one batch may have.
BATCH_LIMIT: Final = 1000
#: Unix time, in milliseconds, that no field may be beyond (the year 9999).
WALL_MS_LIMIT: Final = 253_402_300_799_999
#: A request file that cannot be parsed, or has two links, is left alone until it is this old (ms):
#: its writer may still be at it.
SETTLE_MS: Final = 2000
#: Attempts that a failure record remembers.
HISTORY_LIMIT: Final = 32

REQUESTS_DIR: Final = "requests"
RESPONSES_DIR: Final = "responses"
DEAD_DIR: Final = "dead"
REQUEST_SUFFIX: Final = ".json"
TEMP_SUFFIX: Final = ".tmp"


class Command(StrEnum):
    """Commands of the mailbox, by their canonical names."""

    PUBLISH = "publish"
    PUBLISH_BATCH = "publish_batch"
    CONSUME_NEXT = "consume_next"
    ACK = "ack"
    ACK_BATCH = "ack_batch"
    ACK_AND_PUBLISH = "ack_and_publish"
    NACK = "nack"
    NACK_BATCH = "nack_batch"
    RELEASE = "release"
    EXTEND_LEASE = "extend_lease"
    STATUS = "status"
    HEALTH = "health"
    METRICS = "metrics"
    LIST_QUEUES = "list_queues"
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
    DELETE_QUEUE = "delete_queue"
    PAUSE = "pause"
    RESUME = "resume"
    DRAIN = "drain"
    SET_POLICY = "set_policy"
    GET_POLICY = "get_policy"
    SET_SCHEDULE = "set_schedule"
    DELETE_SCHEDULE = "delete_schedule"
    LIST_SCHEDULES = "list_schedules"
    READ_STATE = "read_state"
    IMPORT_STATE = "import_state"


#: Other spellings that are accepted, all compared without regard to case.
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
    """Error codes of a response, each with what it means and what a client does about it."""

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
        "A required field is missing, or a value is outside what the field allows.",
        "Correct the request; the message names the field.",
    )
    PARSE_ERROR = (
        "ERR_PARSE_ERROR",
        "A field has the wrong JSON type.",
        "Correct the request; the message names the field and the expected type.",
    )
    UNKNOWN_COMMAND = (
        "ERR_UNKNOWN_COMMAND",
        "The daemon does not know this command.",
        "Correct the name, or upgrade the daemon.",
    )
    TIMEOUT = (
        "ERR_TIMEOUT",
        "The request's deadline had passed before the daemon looked at it. Nothing was done.",
        "Send a new request with a later deadline.",
    )
    FORBIDDEN = (
        "ERR_FORBIDDEN",
        "The user who owns the request file may not act as this client, or not do this.",
        "Ask the device's owner for access; a client id must be your own.",
    )
    QUEUE_NOT_FOUND = (
        "ERR_QUEUE_NOT_FOUND",
        "The command needs an existing queue and there is none of that name.",
        "Check the name with list_queues; a publish or a set_policy makes the queue.",
    )
    MESSAGE_NOT_FOUND = (
        "ERR_MESSAGE_NOT_FOUND",
        "No message has this key: it was acknowledged, dropped, or never existed.",
        "Treat an ack as done if it was yours; otherwise check the key.",
    )
    LEASE_EXPIRED = (
        "ERR_LEASE_EXPIRED",
        "The lease is over: the message is not leased now, or its time has passed. Nothing was changed.",
        "Drop the work. If the message is ready or delayed it is delivered again; if it is dead, list_dlq shows it.",
    )
    LEASE_MISMATCH = (
        "ERR_LEASE_MISMATCH",
        "The message is leased, but not under this lease or not to this consumer. Nothing was changed.",
        "Drop the work if the leaseId was yours: another delivery has the message. Else send the delivery's leaseId.",
    )
    VALIDATION_FAILED = (
        "ERR_VALIDATION_FAILED",
        "The message breaks the queue's schema. Nothing was stored.",
        "Correct the message; every broken rule is named.",
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
        "The daemon takes no new messages, so that it can be stopped once all are worked off.",
        "Try again later, or end the drain.",
    )
    QUEUE_FULL = (
        "ERR_QUEUE_FULL",
        "The queue holds as many messages, or bytes, as its policy allows. Nothing was stored.",
        "Try again once messages have been consumed, or raise the limit.",
    )
    RATE_LIMITED = (
        "ERR_RATE_LIMITED",
        "Messages are published to this queue faster than its policy allows. Nothing was stored.",
        "Try again after the time that the message names.",
    )
    QUOTA_EXCEEDED = (
        "ERR_QUOTA_EXCEEDED",
        "The user who owns the request file has as much of something as the daemon allows one user. Nothing was done.",
        "Do what the message says: wait, read answers, settle leases, or let messages be consumed first.",
    )
    MESSAGE_TOO_LARGE = (
        "ERR_MESSAGE_TOO_LARGE",
        "The message is larger than the queue's policy allows. Nothing was stored.",
        "Send less, or raise the limit.",
    )
    QUEUE_NOT_EMPTY = (
        "ERR_QUEUE_NOT_EMPTY",
        "A queue that holds messages is not deleted. Nothing was changed.",
        "Purge it first, or wait until it is worked off.",
    )
    SCHEDULE_NOT_FOUND = (
        "ERR_SCHEDULE_NOT_FOUND",
        "No schedule has this name.",
        "Check the name with list_schedules.",
    )
    STORAGE_FULL = (
        "ERR_STORAGE_FULL",
        "The disk is too full to take another message. Ack and nack still work.",
        "Try again later; free space on the device.",
    )
    STORAGE_FAILED = (
        "ERR_STORAGE_FAILED",
        "The disk refused a write. Nothing was changed.",
        "Try again; look at the device's disk and the daemon's log.",
    )
    ANSWER_LOST = (
        "ERR_ANSWER_LOST",
        "The request was executed, but its answer is no longer there to be given.",
        "Do not send it anew: look at the state (status, list_dlq) to learn what it came to.",
    )
    INTERNAL_ERROR = (
        "ERR_INTERNAL_ERROR",
        "The daemon failed at this request. Nothing was changed.",
        "Report it with the daemon's log; trying again may help.",
    )


class State(StrEnum):
    """Base states of a message (``phase`` refines them; ``drafting`` is reserved)."""

    READY = "ready"
    DELAYED = "delayed"
    INFLIGHT = "inflight"
    HELD = "held"
    DEAD = "dead"


class ReasonCode(StrEnum):
    """Why a message died or an attempt failed. The list is closed; the text beside it is free."""

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


class Kind(StrEnum):
    """JSON kinds of a payload field, named as the error texts and the documents name them."""

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

    ``default`` None means absent. ``low`` and ``high`` are inclusive bounds of a number;
    a ``required`` field must be there. JSON null counts as absent, except for ``Kind.VALUE``.
    """

    name: str
    kind: Kind
    help: str
    required: bool = False
    default: Any = None
    low: float | None = None
    high: float | None = None


_QUEUE = Field("queue", Kind.QUEUE, "name of the queue", required=True)
_KEY = Field("messageKey", Kind.TEXT, "key of the message, as publish or consume_next gave it", required=True)
_LEASE = Field("leaseId", Kind.TEXT, "the delivery's lease; without it consumerId must be the holder's")
_CONSUMER = Field("consumerId", Kind.TEXT, "who consumes; the clientId if absent")
_VISIBILITY = Field(
    "visibilityTimeoutSec",
    Kind.NUMBER,
    "length of the lease in seconds (fractions allowed); the queue's policy if absent",
    low=0.001,
    high=VISIBILITY_MS_LIMIT / 1000,
)
_TARGET_QUEUE = Field("to", Kind.TEXT, "name of the queue to bring them to; their own if absent", default="")
_FILTER = Field("filter", Kind.OBJECT, "which messages are meant, see Filters; all if absent")
_UP_TO = Field(
    "upToEvent",
    Kind.INTEGER,
    "only messages published up to this event: give what the first reply says to each further request",
    low=0,
    high=2**63 - 1,
)
_DRY_RUN = Field("dryRun", Kind.FLAG, "change nothing; count what would be changed", default=False)
_AFTER = Field("after", Kind.TEXT, "continue behind this: the previous page's next", default="")
_PREVIEW = Field("previewBytes", Kind.INTEGER, "bytes of the body to show", default=256, low=0, high=65536)
_OPERATION = Field("operation", Kind.TEXT, "what is meant: consume or publish", default="consume")
_LIMIT = Field("limit", Kind.INTEGER, "most entries to return", default=100, low=1, high=PAGE_LIMIT)

#: Commands that tools give, and no word of a command line. Only the daemon's own user and root may give them.
TOOL_COMMANDS: Final = frozenset({Command.READ_STATE, Command.IMPORT_STATE})

#: Every command's payload fields: feeds the daemon's checks, the client's options, the documents.
FIELDS: Final[dict[Command, tuple[Field, ...]]] = {
    Command.PUBLISH: (
        _QUEUE,
        Field(
            "message", Kind.VALUE, "the body: a string is kept byte for byte, any other value as itself", default="{}"
        ),
        Field("attributes", Kind.ATTRIBUTES, "application headers", default="{}"),
        Field("priority", Kind.INTEGER, "higher is delivered first", low=-(2**31), high=2**31 - 1),
        Field("delayMs", Kind.INTEGER, "milliseconds before it can be consumed", default=0, low=0, high=DELAY_MS_LIMIT),
        Field("targetConsumerId", Kind.TEXT, "only this consumer may have it; empty for anyone", default=""),
        Field("encoding", Kind.TEXT, "base64 when message is a base64 text of binary data", default=""),
        Field("contentType", Kind.TEXT, "media type of the body", default=""),
        Field("type", Kind.TEXT, "application's message type", default=""),
        Field("version", Kind.SCALAR, "application's version of that type"),
        Field("traceId", Kind.TEXT, "trace id, carried through", default=""),
        Field(
            "deduplicationKey",
            Kind.TEXT,
            "application's key of this fact: by policy, a second one is not stored",
            default="",
        ),
        Field("timestamp", Kind.SCALAR, "application's time of this fact, carried through"),
        Field("traceparent", Kind.TEXT, "W3C trace context, carried through", default=""),
        Field("correlationId", Kind.TEXT, "which request this belongs to, carried through", default=""),
        Field("replyTo", Kind.TEXT, "queue in which an answer is awaited, carried through", default=""),
        Field("ttlMs", Kind.INTEGER, "milliseconds after which it is no longer wanted", low=1, high=DELAY_MS_LIMIT),
        Field("deliverAt", Kind.INTEGER, "Unix ms before which it is not consumed", low=0, high=WALL_MS_LIMIT),
        Field("orderingKey", Kind.TEXT, "messages with the same key are delivered one after the other", default=""),
        Field(
            "targetFallbackMs",
            Kind.INTEGER,
            "milliseconds after which anyone may have it, if its target has not",
            low=1,
            high=DELAY_MS_LIMIT,
        ),
    ),
    Command.PUBLISH_BATCH: (
        Field("queue", Kind.TEXT, "queue of those that name none", default=""),
        Field("messages", Kind.ARRAY, f"1 to {BATCH_LIMIT:,} objects with the fields of publish", required=True),
    ),
    Command.CONSUME_NEXT: (
        _QUEUE,
        _CONSUMER,
        _VISIBILITY,
        Field("max", Kind.INTEGER, "most messages to lease; given, the reply has messages", low=1, high=BATCH_LIMIT),
        Field("waitMs", Kind.INTEGER, "milliseconds to wait for a message", default=0, low=0, high=WAIT_MS_LIMIT),
        Field("waitLock", Kind.FLAG, "the client holds flock on its request file while it waits", default=False),
        Field("payloadAs", Kind.TEXT, "text: payload and attributes as strings; value: as JSON values", default="text"),
    ),
    Command.ACK: (_KEY, _LEASE, _CONSUMER),
    Command.ACK_BATCH: (
        _CONSUMER,
        Field("items", Kind.ARRAY, f"1 to {BATCH_LIMIT:,} objects with the fields of ack", required=True),
    ),
    Command.ACK_AND_PUBLISH: (
        _KEY,
        _LEASE,
        _CONSUMER,
        Field("messages", Kind.ARRAY, f"1 to {BATCH_LIMIT:,} objects with the fields of publish", required=True),
    ),
    Command.NACK: (
        _KEY,
        _LEASE,
        _CONSUMER,
        Field("reason", Kind.TEXT, "why, for the failure record", default=""),
        Field("requeue", Kind.FLAG, "true: retry by the queue's policy; false: dead letter", default=False),
        Field(
            "delayMs",
            Kind.INTEGER,
            "with requeue: milliseconds before it is tried again; the policy's backoff if absent",
            low=0,
            high=DELAY_MS_LIMIT,
        ),
    ),
    Command.NACK_BATCH: (
        _CONSUMER,
        Field("items", Kind.ARRAY, f"1 to {BATCH_LIMIT:,} objects with the fields of nack", required=True),
    ),
    Command.RELEASE: (_KEY, _LEASE, _CONSUMER),
    Command.EXTEND_LEASE: (_KEY, _LEASE, _CONSUMER, _VISIBILITY),
    Command.STATUS: (_QUEUE,),
    Command.HEALTH: (),
    Command.METRICS: (
        Field("format", Kind.TEXT, "prometheus: all figures as the text that Prometheus reads", default=""),
    ),
    Command.LIST_QUEUES: (
        _LIMIT,
        Field("after", Kind.TEXT, "names greater than this only: the previous page's next", default=""),
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
        Field("state", Kind.TEXT, "ready, delayed, inflight, held or dead", default="ready"),
        _LIMIT,
        _AFTER,
        _PREVIEW,
        _FILTER,
        Field("fullBodies", Kind.FLAG, "show whole bodies, in payload", default=False),
    ),
    Command.GET_MESSAGE: (
        _KEY,
        Field("payloadAs", Kind.TEXT, "text: payload and attributes as strings; value: as JSON values", default="text"),
        Field(
            "events", Kind.INTEGER, "most events of its history to show, the latest ones", default=0, low=0, high=1000
        ),
    ),
    Command.LIST_DLQ: (
        _QUEUE,
        _LIMIT,
        _AFTER,
        _PREVIEW,
        _FILTER,
        Field("fullBodies", Kind.FLAG, "show whole bodies, in payload", default=False),
    ),
    Command.COUNT_DLQ: (_QUEUE,),
    Command.REPROCESS_DLQ: (
        Field("messageKey", Kind.TEXT, "key of one dead letter; else queue and filter say which", default=""),
        Field("queue", Kind.TEXT, "the queue in which they died, or the name of its dead letters", default=""),
        _FILTER,
        _LIMIT,
        _AFTER,
        _TARGET_QUEUE,
        _DRY_RUN,
    ),
    Command.DROP_DLQ: (
        Field("messageKey", Kind.TEXT, "key of one dead letter; else queue and filter say which", default=""),
        Field("queue", Kind.TEXT, "the queue in which they died, or the name of its dead letters", default=""),
        _FILTER,
        _LIMIT,
        _AFTER,
        _DRY_RUN,
    ),
    Command.QUARANTINE_DLQ: (
        _KEY,
        Field("reason", Kind.TEXT, "why, for whoever looks at it later", default=""),
        Field("quarantined", Kind.FLAG, "false takes it back", default=True),
    ),
    Command.HOLD: (_KEY, Field("reason", Kind.TEXT, "why, for whoever looks at it later", default="")),
    Command.UNHOLD: (_KEY,),
    Command.MOVE: (
        Field("to", Kind.QUEUE, "name of the queue to bring them to", required=True),
        Field("messageKey", Kind.TEXT, "key of one message; else queue, state and filter say which", default=""),
        Field("queue", Kind.TEXT, "the queue in which they are", default=""),
        Field("state", Kind.TEXT, "ready, delayed or held; all of these if absent", default=""),
        _FILTER,
        _LIMIT,
        _AFTER,
        _UP_TO,
        _DRY_RUN,
    ),
    Command.PURGE: (
        _QUEUE,
        Field("state", Kind.TEXT, "ready, delayed, held or dead; ready, delayed and held if absent", default=""),
        _FILTER,
        _LIMIT,
        _AFTER,
        _UP_TO,
        _DRY_RUN,
    ),
    Command.DELETE_QUEUE: (_QUEUE,),
    Command.PAUSE: (_QUEUE, _OPERATION),
    Command.RESUME: (_QUEUE, _OPERATION),
    Command.SET_POLICY: (
        _QUEUE,
        Field(
            "policy",
            Kind.OBJECT,
            "keys to set over the configuration; null takes one back",
            required=True,
        ),
    ),
    Command.GET_POLICY: (
        _QUEUE,
        Field("explain", Kind.FLAG, "say of each key which layer it comes from", default=False),
    ),
    Command.DRAIN: (Field("draining", Kind.FLAG, "false ends it", default=True),),
    Command.SET_SCHEDULE: (
        Field("name", Kind.TEXT, "name of the schedule; one of that name is replaced", required=True),
        _QUEUE,
        Field("cron", Kind.TEXT, "five fields, or @every with a time such as 90s, 5m, 1h", required=True),
        Field("timezone", Kind.TEXT, "name of a time zone for the five fields", default="UTC"),
        Field("missed", Kind.TEXT, "runs missed while off: skip, once or all", default="once"),
        Field("message", Kind.VALUE, "the body", default="{}"),
        Field("attributes", Kind.ATTRIBUTES, "application headers", default="{}"),
        Field("priority", Kind.INTEGER, "higher is delivered first", low=-(2**31), high=2**31 - 1),
        Field("ttlMs", Kind.INTEGER, "milliseconds after which it is no longer wanted", low=1, high=DELAY_MS_LIMIT),
        Field("orderingKey", Kind.TEXT, "as of publish", default=""),
    ),
    Command.DELETE_SCHEDULE: (Field("name", Kind.TEXT, "name of the schedule", required=True),),
    Command.LIST_SCHEDULES: (_LIMIT, _AFTER),
    Command.READ_STATE: (
        Field("part", Kind.TEXT, "what to read: head, queues, facts or messages", default="head"),
        Field("after", Kind.TEXT, "continue behind this: the previous page's next", default=""),
        _LIMIT,
    ),
    Command.IMPORT_STATE: (
        Field("engineMs", Kind.INTEGER, "engine time there when the state was read", required=True, low=0, high=2**53),
        Field("wallMs", Kind.INTEGER, "Unix time when the state was read", required=True, low=0, high=2**53),
        Field("queues", Kind.VALUE, "array of queues as read_state shows them"),
        Field("messages", Kind.VALUE, "array of messages as read_state shows them, in the order of publishing"),
        Field("facts", Kind.VALUE, "array of facts as read_state shows them"),
    ),
}

_COMMANDS: Final[dict[str, Command]] = {command.value: command for command in Command} | ALIASES
_ID = re.compile(ID_PATTERN)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def is_id(text: object) -> TypeGuard[str]:
    """Whether ``text`` may be a client id or request id, and so part of a path."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def queue_name_problem(name: str) -> str | None:
    """What is wrong with a queue name, or None."""
    if not name:
        return "must not be empty"
    if len(name.encode("utf-8", "surrogatepass")) > QUEUE_NAME_BYTES_LIMIT:
        return f"must be at most {QUEUE_NAME_BYTES_LIMIT} bytes of UTF-8"
    if _CONTROL.search(name):
        return "must not contain control characters"
    return None


def message_key(queue: str, message_id: str) -> str:
    """The key of a message: its birthplace and id. It never changes, wherever the message goes."""
    return f"msg:{queue}:{message_id}"


def birthplace(key: str) -> str:
    """The queue in which the message of a key was published; "" for what is no key."""
    return key.removeprefix("msg:").rpartition(":")[0]


def resolve_command(name: str) -> Command | None:
    """The command meant by a name or alias in any case, or None."""
    return _COMMANDS.get(name) or _COMMANDS.get(name.lower())
