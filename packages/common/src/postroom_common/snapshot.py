"""The snapshot of a device: what its lines are, and which fields they have. ``docs/snapshot.md`` says it for people.

A snapshot is JSON lines in one gzip file: a header, lines of state and history, a trailer. ``snapshot_writer`` makes
one, ``snapshot_reader`` reads and checks one. These three need the standard library alone: they also run where a
fleet's files are read, on machines that have nothing else of the product.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, NamedTuple

#: Of what is written. A reader takes older majors (``upgrade``), refuses newer ones, and passes over what a newer minor
#: has added.
FORMAT_MAJOR: Final = 2
FORMAT_MINOR: Final = 0
OLDEST_MAJOR: Final = 1

SUFFIX: Final = ".jsonl.gz"
#: What a file is called while it is written: ``.<name>.part``. Readers of directories pass over names with a dot first.
PART_SUFFIX: Final = ".part"

Line = dict[str, Any]


class Kind(StrEnum):
    """What a line tells of. A reader passes over kinds that it does not know, and counts them."""

    HEADER = "header"
    QUEUE = "queue"
    LEASE = "lease"
    DEAD = "dead"
    CONSUMER = "consumer"
    METRIC = "metric"
    EVENT = "event"
    TRAFFIC = "traffic"
    TRAILER = "trailer"
    #: Only in bundles, behind their last snapshot.
    BUNDLE = "bundle"


class Type(StrEnum):
    """What a field holds. No number is NaN or infinite, and no integer has more than 64 bits."""

    INTEGER = "integer"
    NUMBER = "number"
    STRING = "string"
    BOOLEAN = "boolean"
    #: Integers by name.
    COUNTS = "counts"
    #: Any JSON value. Readers with fixed columns keep its text.
    JSON = "json"


class Field(NamedTuple):
    """A field of a kind of line. One that is not required is absent where it says nothing."""

    name: str
    type: Type
    meaning: str
    required: bool = False


def _fields(*fields: tuple[str, Type, str]) -> tuple[Field, ...]:
    """A name that ends in ``*`` is required."""
    return tuple(Field(name.rstrip("*"), kind, meaning, name.endswith("*")) for name, kind, meaning in fields)


_I, _N, _S, _B, _C, _J = Type.INTEGER, Type.NUMBER, Type.STRING, Type.BOOLEAN, Type.COUNTS, Type.JSON

#: The first three fields of every line, in this order: a line that was torn from its file still says whose it is.
COMMON: Final = _fields(
    ("device*", _S, "the device's name: `nodeId` of its configuration, or what `--device` said"),
    ("snapshot*", _S, "id of the snapshot: 32 hex digits, drawn at random"),
    ("kind*", _S, "what the line tells of"),
)

#: Every kind's fields behind the common ones. One name has one type in all kinds.
FIELDS: Final[dict[Kind, tuple[Field, ...]]] = {
    Kind.HEADER: _fields(
        ("major*", _I, "version of the format: another one is read by other rules"),
        ("minor*", _I, "version of the format: a higher one has added fields or kinds"),
        ("root*", _S, "id of the data directory; events are numbered within it"),
        ("epoch*", _I, "its epoch when the snapshot was taken"),
        ("daemonVersion", _S, "version of the daemon"),
        ("consoleVersion", _S, "version of what wrote the file"),
        ("backend", _S, "how the daemon stores: `sqlite`, `filesystem`, `hybrid`"),
        ("durability", _S, "`journal.durability` in force"),
        ("status", _S, "of the daemon's health: `ok`, `degraded`"),
        ("draining", _B, "whether it takes no new messages"),
        ("wallMs*", _I, "the device's wall clock, Unix milliseconds. It may be wrong"),
        ("engineMs*", _I, "its engine time: milliseconds that only go forward"),
        ("asOfEvent*", _I, "all lines of state are as of this event"),
        ("consistent*", _B, "false: the journal could not be read, so lines of state are as of several events"),
        ("firstEvent", _I, "first event of the slice; absent when it has none"),
        ("lastEvent", _I, "last event of the slice; absent when it has none"),
        ("previousEvent", _I, "up to where the slice of the previous snapshot went: absent in the first of a folder"),
        ("since", _S, "where the slice was to begin, as it was asked for"),
        ("availableFrom", _I, "the first event that the journal still had"),
        ("continuous", _B, "whether the slice begins right behind `previousEvent`"),
        ("cut", _B, "true: the slice ends before `asOfEvent`, by `--max-size`; the next one goes on there"),
        ("holes", _J, "pairs of first and last event that the device knows to be missing or lost"),
        ("redaction*", _S, "`payload`, `attributes` or `none`"),
        ("hiddenAttributes", _J, "patterns of attributes whose values were left out"),
        ("trafficSampleEvery", _I, "each so-manieth that went well has a line; errors have one, many refusals few"),
        ("trafficFromMs", _I, "wall clock behind which the slice of the traffic log begins"),
    ),
    Kind.QUEUE: _fields(
        ("queue*", _S, "its name"),
        ("ready*", _I, "messages that may be delivered"),
        ("inflight*", _I, "messages that are leased"),
        ("delayed*", _I, "messages that are not due yet"),
        ("held*", _I, "messages that an operator keeps back"),
        ("dead*", _I, "dead letters"),
        ("oldestReadyAgeMs", _I, "age of the oldest ready message"),
        ("oldestLeaseAgeMs", _I, "age of the oldest lease"),
        ("oldestDeadAgeMs", _I, "time since the oldest dead letter died"),
        ("queueBytes", _I, "of the messages that are not dead"),
        ("publishPaused", _B, "whether publishing is paused"),
        ("consumePaused", _B, "whether consuming is paused"),
        ("reasons", _C, "dead letters by reason"),
        ("totals", _C, "what ever happened, by kind: `published`, `acked`, `died`, …"),
        ("opening", _I, "messages that it held before the slice's first event; only in the first snapshot of a folder"),
        ("policy", _J, "the policy in force, in the shape of the configuration"),
    ),
    Kind.LEASE: _fields(
        ("queue*", _S, "queue of the message"),
        ("message*", _S, "its key"),
        ("lease", _S, "id of the lease, where it is known"),
        ("consumer", _S, "who holds it"),
        ("uid", _I, "the user that asked for it"),
        ("attempt", _I, "which delivery it is"),
        ("leasedEngineMs", _I, "engine time at which it was given"),
        ("untilEngineMs", _I, "engine time at which it ends"),
        ("ofDead", _B, "true: of a dead letter"),
    ),
    Kind.DEAD: _fields(
        ("queue*", _S, "queue of the message"),
        ("message*", _S, "its key"),
        ("reasonCode", _S, "why it died"),
        ("reasonMessage", _S, "the same in words"),
        ("cause", _S, "reason of the last failure, where attempts were spent"),
        ("diedMs", _I, "when, by the wall clock"),
        ("attempt", _I, "the delivery that was the last"),
        ("consumer", _S, "who had it"),
        ("quarantined", _B, "true: set apart"),
        ("leased", _B, "true: somebody has it by the name of the dead letters"),
        ("history", _J, "its failed attempts, the last 32"),
        ("payloadBytes", _I, "length of its body"),
        ("payloadDigest", _S, "BLAKE2b of the body, 16 bytes as hex"),
        ("payloadShape", _S, "its structure without its values"),
        ("payload", _S, "the body as text, binary as base64; only with `--redact none`"),
        ("contentType", _S, "of the body"),
        ("attributes", _J, "attributes of the message"),
    ),
    Kind.CONSUMER: _fields(
        ("queue*", _S, "queue that it consumes"),
        ("consumer*", _S, "its id"),
        ("inflight*", _I, "messages that it holds"),
        ("delivered", _I, "messages that it was given since the daemon started"),
        ("askedEngineMs", _I, "when it last asked"),
        ("deliveredEngineMs", _I, "when it was last given one"),
    ),
    Kind.METRIC: _fields(
        ("name*", _S, "of the metric: of `metrics`, or of the disk in `health`, with a dot for each level"),
        ("value*", _N, "its value; counters count since the daemon started"),
        ("labels", _J, "what it is divided by"),
    ),
    Kind.EVENT: _fields(
        ("root*", _S, "data directory whose event it is"),
        ("epoch*", _I, "epoch of the event"),
        ("event*", _I, "its id; with device, root and epoch it is the key"),
        ("type*", _S, "what happened: the types of the journal"),
        ("engineMs*", _I, "engine time"),
        ("wallMs*", _I, "wall clock"),
        ("requestEnd", _I, "id of the last event of the same request"),
        ("queue", _S, "queue of the message"),
        ("message", _S, "its key"),
        ("priority", _I, "published: its priority"),
        ("dueEngineMs", _I, "not before"),
        ("expiresEngineMs", _I, "not wanted from then on"),
        ("target", _S, "published: only for this consumer"),
        ("orderingKey", _S, "published: its ordering key"),
        ("deduplicationKey", _S, "published: what it was not to be published twice by"),
        ("payloadBytes", _I, "published: length of its body"),
        ("payloadDigest", _S, "published: BLAKE2b of the body, 16 bytes as hex"),
        ("payloadShape", _S, "published: its structure without its values"),
        ("payload", _S, "published: the body; only with `--redact none`"),
        ("contentType", _S, "published: of the body"),
        ("attributes", _J, "published: attributes"),
        ("traceId", _S, "published: trace id"),
        ("lease", _S, "the lease that began, went on or ended"),
        ("consumer", _S, "who has or had it"),
        ("attempt", _I, "which delivery"),
        ("untilEngineMs", _I, "end of the lease"),
        ("heldMs", _I, "acked: time since it was leased"),
        ("ofDead", _B, "true: of a dead letter"),
        ("reasonCode", _S, "of the failure"),
        ("reasonMessage", _S, "of the failure, in words"),
        ("cause", _S, "of the failure: reason of the last attempt"),
        ("to", _S, "queue in which it is from then on"),
        ("state", _S, "released: state in which it is again"),
        ("phase", _S, "`quarantined`"),
        ("client", _S, "client that asked, on the last event of its request"),
        ("uid", _I, "user that asked"),
        ("request", _S, "id of the request, as in the traffic log"),
        ("bootId", _S, "clock_marked: boot of the machine"),
        ("bootMs", _I, "clock_marked: milliseconds since that boot"),
        ("clean", _B, "clock_marked: true at an orderly stop"),
        ("ext", _J, "what else the event says, by its names in the journal"),
    ),
    Kind.TRAFFIC: _fields(
        ("root*", _S, "data directory"),
        ("wallMs*", _I, "when it was answered"),
        ("engineMs*", _I, "engine time at which it was decided"),
        ("client", _S, "client"),
        ("uid", _I, "user"),
        ("command*", _S, "what was asked for"),
        ("queue", _S, "queue that it named"),
        ("code*", _S, "`OK`, or the error"),
        ("ms", _N, "from taking the request to its answer"),
        ("requestBytes", _I, "length of the request"),
        ("request", _S, "id of the request"),
    ),
    Kind.TRAILER: _fields(
        ("lines*", _I, "lines before this one, the header among them"),
        ("counts*", _C, "lines by kind"),
        ("firstEvent", _I, "as in the header"),
        ("lastEvent", _I, "as in the header"),
        ("lineCrc*", _I, "sum of the CRC-32 of all lines before this one, without their newlines"),
        ("digest*", _S, "SHA-256 of all bytes before this line"),
    ),
    Kind.BUNDLE: _fields(
        ("members*", _J, "ids of the snapshots before this line, in order"),
    ),
}

#: Fields of an event in the journal that have a column of another name; those of its type that are not here, nor in
#: ``FIELDS``, go to ``ext``.
EVENT_NAMES: Final = {"id": "event", "key": "message", "req": "requestEnd"}


def upgrade(line: Line) -> Line:
    """A line of an older major as today's would be. Pure; a line of today's is returned as it is.

    Version 1 is told from today's by its names alone (they are not used by these kinds any more), so lines can be taken
    one by one, in any order.
    """
    kind = line.get("kind")
    renamed = RENAMED.get(kind) if isinstance(kind, str) else None
    if renamed is None or not any(name in line for name in renamed):
        return line
    return {renamed.get(name, name): value for name, value in line.items()}


#: Names of version 1 that are others now, by kind.
RENAMED: Final[dict[str, dict[str, str]]] = {
    Kind.QUEUE: {"pausedPublish": "publishPaused", "pausedConsume": "consumePaused"},
    Kind.LEASE: {"deadlineEngineMs": "untilEngineMs"},
    Kind.DEAD: {"reason": "reasonCode", "size": "payloadBytes", "digest": "payloadDigest"},
    Kind.EVENT: {"reason": "reasonCode", "requestId": "request"},
    Kind.TRAFFIC: {"bytes": "requestBytes", "requestId": "request"},
}
