"""The format of device snapshots: the kinds of lines and their fields. ``docs/snapshot.md`` describes it.

A snapshot is one gzip file of JSON lines: a header, lines of state and history, a trailer. ``snapshot_writer`` writes
snapshots, ``snapshot_reader`` reads and checks them. These three modules need only the standard library, because they
also run on machines that process a fleet's files and have nothing else of Postroom installed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, NamedTuple

#: Format version of written snapshots. A reader accepts older majors (``upgrade``), refuses newer ones, and ignores
#: fields and kinds that a newer minor has added.
FORMAT_MAJOR: Final = 2
FORMAT_MINOR: Final = 3
OLDEST_MAJOR: Final = 1

SUFFIX: Final = ".jsonl.gz"
#: A file that is being written is named ``.<name>.part``. Readers of directories ignore names that start with a dot.
PART_SUFFIX: Final = ".part"

Line = dict[str, Any]


class Kind(StrEnum):
    """The kind of a line. A reader ignores unknown kinds, and counts them."""

    HEADER = "header"
    QUEUE = "queue"
    LEASE = "lease"
    DEAD = "dead"
    CONSUMER = "consumer"
    METRIC = "metric"
    EVENT = "event"
    TRAFFIC = "traffic"
    TRAILER = "trailer"
    #: Only in bundles, after the last snapshot.
    BUNDLE = "bundle"


class Type(StrEnum):
    """The type of a field. No number is NaN or infinite, and no integer has more than 64 bits."""

    INTEGER = "integer"
    NUMBER = "number"
    STRING = "string"
    BOOLEAN = "boolean"
    #: Integers by name.
    COUNTS = "counts"
    #: Any JSON value. Readers with fixed columns store its text.
    JSON = "json"


class Field(NamedTuple):
    """A field of a kind of line. An optional field is absent if it has no value."""

    name: str
    type: Type
    meaning: str
    required: bool = False


def _fields(*fields: tuple[str, Type, str]) -> tuple[Field, ...]:
    """Fields from tuples of name, type and meaning. A ``*`` at the end of a name marks a required field."""
    return tuple(Field(name.rstrip("*"), kind, meaning, name.endswith("*")) for name, kind, meaning in fields)


_I, _N, _S, _B, _C, _J = Type.INTEGER, Type.NUMBER, Type.STRING, Type.BOOLEAN, Type.COUNTS, Type.JSON

#: The first three fields of every line, in this order: even a line outside its file identifies its snapshot.
COMMON: Final = _fields(
    ("device*", _S, "name of the device: `nodeId` of its configuration, that of its cluster, or `--device`"),
    ("snapshot*", _S, "id of the snapshot: 32 random hexadecimal digits"),
    ("kind*", _S, "kind of the line"),
)

#: The fields of each kind after the common ones. A name has the same type in all kinds.
FIELDS: Final[dict[Kind, tuple[Field, ...]]] = {
    Kind.HEADER: _fields(
        ("major*", _I, "major version of the format: a different one follows different rules"),
        ("minor*", _I, "minor version of the format: a higher one has additional fields or kinds"),
        ("root*", _S, "id of the root; events are numbered per root"),
        ("epoch*", _I, "epoch of the root when the snapshot was taken"),
        ("daemonVersion", _S, "version of the daemon"),
        ("consoleVersion", _S, "version of the console that wrote the file"),
        ("backend", _S, "backend of the daemon: `sqlite`, `filesystem`, `hybrid`"),
        ("durability", _S, "`journal.durability` in force"),
        ("node", _S, "`nodeId` of the node that it was taken from, if the device is a cluster"),
        ("role", _S, "role of that node: `leads`, `follows`, or `waits` for a leader"),
        ("status", _S, "health of the daemon: `ok`, `degraded`"),
        ("draining", _B, "whether the daemon is draining: it accepts no new messages"),
        ("wallMs*", _I, "wall clock of the device in Unix milliseconds; may be wrong"),
        ("engineMs*", _I, "engine time in milliseconds; only moves forward"),
        ("asOfEvent*", _I, "all lines of state reflect the events up to this one"),
        ("consistent*", _B, "false: the journal could not be read, so lines of state reflect different events"),
        ("firstEvent", _I, "first event of the slice; absent if the slice is empty"),
        ("lastEvent", _I, "last event of the slice; absent if the slice is empty"),
        ("previousEvent", _I, "last event of the previous snapshot's slice; absent in the first one of a directory"),
        ("since", _S, "requested start of the slice"),
        ("availableFrom", _I, "first event that the journal still had"),
        ("continuous", _B, "whether the slice starts directly after `previousEvent`"),
        ("cut", _B, "true: `--max-size` ended the slice before `asOfEvent`; the next one continues there"),
        ("holes", _J, "pairs of first and last event id: events that are missing or lost on the device"),
        ("redaction*", _S, "`payload`, `attributes` or `none`"),
        ("hiddenAttributes", _J, "patterns of the attributes whose values are omitted"),
        ("trafficSampleEvery", _I, "one in this many successful requests has a line, all errors, few refusals"),
        ("trafficFromMs", _I, "wall clock at which the slice of the traffic log starts"),
    ),
    Kind.QUEUE: _fields(
        ("queue*", _S, "name of the queue"),
        ("ready*", _I, "ready messages"),
        ("inflight*", _I, "messages in flight"),
        ("delayed*", _I, "delayed messages, and messages that gather parts"),
        ("held*", _I, "messages on hold, and drafts"),
        ("gathering", _I, "those of `delayed` that gather parts"),
        ("done", _I, "messages that are done, and kept"),
        ("ordered", _I, "those of `inflight` whose lease is in its first phase"),
        ("drafting", _I, "those of `held` that are drafts"),
        ("dead*", _I, "dead letters"),
        ("oldestReadyAgeMs", _I, "age of the oldest ready message"),
        ("oldestLeaseAgeMs", _I, "age of the oldest lease"),
        ("oldestDeadAgeMs", _I, "time since the oldest dead letter died"),
        ("queueBytes", _I, "size of the messages that are neither dead nor done"),
        ("publishPaused", _B, "whether publishing is paused"),
        ("consumePaused", _B, "whether consuming is paused"),
        ("reasons", _C, "dead letters by reason"),
        ("tally", _C, "`completed` and `abandoned`: outcomes that were not kept"),
        ("totals", _C, "counts of events since the queue was created: `published`, `acked`, `died`, …"),
        ("records", _I, "records of a log; absent for a queue"),
        ("recordBytes", _I, "size of the records of a log"),
        ("firstPosition", _I, "lowest position at which a log may have a record"),
        ("lastPosition", _I, "position of the last record of a log, 0 before the first"),
        ("readers", _C, "positions of the named readers of a log, by reader"),
        ("lag", _C, "positions from that of each named reader of a log to the last record; 0: at the end"),
        ("opening", _I, "messages before the slice's first event; only in the first snapshot of a directory"),
        ("policy", _J, "the policy in force, in the shape of the configuration"),
    ),
    Kind.LEASE: _fields(
        ("queue*", _S, "queue of the message"),
        ("message*", _S, "message key"),
        ("lease", _S, "lease id, if known"),
        ("consumer", _S, "consumer that has the lease"),
        ("uid", _I, "user that requested the lease"),
        ("principal", _S, "principal of a gateway that requested the lease, instead of `uid`"),
        ("attempt", _I, "number of the delivery"),
        ("leasedEngineMs", _I, "engine time at which the lease started"),
        ("untilEngineMs", _I, "engine time at which the lease ends"),
        ("ofDead", _B, "true for a dead letter"),
        ("phase", _S, "`ordered` in its first phase"),
    ),
    Kind.DEAD: _fields(
        ("queue*", _S, "queue of the message"),
        ("message*", _S, "message key"),
        ("reasonCode", _S, "reason code of its death"),
        ("reasonMessage", _S, "reason text of its death"),
        ("cause", _S, "reason code of the last failure, if no attempt was left"),
        ("diedMs", _I, "wall clock at its death"),
        ("attempt", _I, "number of its last delivery"),
        ("consumer", _S, "consumer of its last delivery"),
        ("quarantined", _B, "true if quarantined"),
        ("leased", _B, "true while it is leased by its dead-letter address"),
        ("history", _J, "its last failed attempts, at most 32"),
        ("payloadBytes", _I, "length of the body"),
        ("payloadDigest", _S, "BLAKE2b digest of the body, 16 bytes in hexadecimal"),
        ("payloadShape", _S, "structure of the body without its values"),
        ("payload", _S, "the body as text, binary data as base64; only with `--redact none`"),
        ("contentType", _S, "media type of the body"),
        ("attributes", _J, "attributes of the message"),
    ),
    Kind.CONSUMER: _fields(
        ("queue*", _S, "queue that the consumer uses"),
        ("consumer*", _S, "id of the consumer"),
        ("inflight*", _I, "messages leased to it"),
        ("delivered", _I, "messages delivered to it since the daemon started"),
        ("askedEngineMs", _I, "when it last asked for a message"),
        ("deliveredEngineMs", _I, "when it last got a message"),
    ),
    Kind.METRIC: _fields(
        ("name*", _S, "dotted name of a figure of `metrics`, or of the disk in `health`"),
        ("value*", _N, "value of the metric; counters start with the daemon"),
        ("labels", _J, "labels of the metric"),
    ),
    Kind.EVENT: _fields(
        ("root*", _S, "id of the root"),
        ("epoch*", _I, "epoch of the event"),
        ("event*", _I, "event id; the key together with device, root and epoch"),
        ("type*", _S, "type of the event, as in the journal"),
        ("engineMs*", _I, "engine time"),
        ("wallMs*", _I, "wall clock"),
        ("requestEnd", _I, "id of the last event of the same request"),
        ("queue", _S, "queue of the message"),
        ("message", _S, "message key"),
        ("priority", _I, "published: priority; -2,147,483,649 for a message without one"),
        ("dueEngineMs", _I, "engine time before which it is not delivered"),
        ("expiresEngineMs", _I, "engine time at which it expires"),
        ("target", _S, "published: the only consumer that may receive it"),
        ("orderingKey", _S, "published: ordering key"),
        ("deduplicationKey", _S, "published: deduplication key"),
        ("payloadBytes", _I, "published, appended: length of the body"),
        ("payloadDigest", _S, "published, appended: BLAKE2b digest of the body, 16 bytes in hexadecimal"),
        ("payloadShape", _S, "published, appended: structure of the body without its values"),
        ("payload", _S, "published, appended: the body; only with `--redact none`"),
        ("contentType", _S, "published, appended: media type of the body"),
        ("attributes", _J, "published, appended: attributes"),
        ("traceId", _S, "published: trace id"),
        ("lease", _S, "lease that started, was extended or ended"),
        ("consumer", _S, "consumer of the lease"),
        ("attempt", _I, "number of the delivery"),
        ("untilEngineMs", _I, "end of the lease"),
        ("heldMs", _I, "acked: milliseconds since the lease started"),
        ("ofDead", _B, "true for a dead letter"),
        ("reasonCode", _S, "reason code of the failure"),
        ("reasonMessage", _S, "reason text of the failure"),
        ("cause", _S, "died: reason code of the last failure"),
        ("to", _S, "destination queue"),
        ("state", _S, "released: state after the release; died, dropped: state before, if it had ended"),
        ("phase", _S, "`quarantined`, `ordered`, or empty"),
        ("keep", _S, "acked, died: what is kept of the message, `message` or `headers`"),
        ("client", _S, "client that sent the request; on its last event"),
        ("uid", _I, "user that sent the request"),
        ("request", _S, "request id, as in the traffic log"),
        ("bootId", _S, "clock_marked: id of the boot"),
        ("bootMs", _I, "clock_marked: milliseconds since boot"),
        ("clean", _B, "clock_marked: true at an orderly stop"),
        ("ext", _J, "other fields of the event, by their names in the journal"),
    ),
    Kind.TRAFFIC: _fields(
        ("root*", _S, "id of the root"),
        ("wallMs*", _I, "wall clock when it was answered"),
        ("engineMs*", _I, "engine time at which it was decided"),
        ("client", _S, "client id"),
        ("uid", _I, "user that sent the request"),
        ("principal", _S, "principal of a gateway for which the request was sent, instead of `uid`"),
        ("door", _S, "door by which the request came: `lane`, or one of a gateway; absent for the mailbox"),
        ("command*", _S, "name of the command"),
        ("queue", _S, "queue that the request named"),
        ("code*", _S, "`OK`, or the error code"),
        ("ms", _N, "milliseconds from reading the request to its answer"),
        ("requestBytes", _I, "length of the request"),
        ("request", _S, "request id"),
    ),
    Kind.TRAILER: _fields(
        ("lines*", _I, "number of lines before this one, including the header"),
        ("counts*", _C, "number of lines by kind"),
        ("firstEvent", _I, "as in the header"),
        ("lastEvent", _I, "as in the header"),
        ("lineCrc*", _I, "sum of the CRC-32 of all previous lines, without their newlines"),
        ("digest*", _S, "SHA-256 of all bytes before this line"),
    ),
    Kind.BUNDLE: _fields(
        ("members*", _J, "ids of the snapshots before this line, in order"),
    ),
}

#: Fields of a journal event whose name in a snapshot differs. Fields neither here nor in ``FIELDS`` go to ``ext``.
EVENT_NAMES: Final = {"id": "event", "key": "message", "req": "requestEnd"}


def upgrade(line: Line) -> Line:
    """A line of any supported major in the form of the current one. Pure; a current line is returned unchanged.

    Version 1 is recognised by its field names alone (the current version does not use them in these kinds), so lines
    can be upgraded one at a time, in any order.
    """
    kind = line.get("kind")
    renamed = RENAMED.get(kind) if isinstance(kind, str) else None
    if renamed is None or not any(name in line for name in renamed):
        return line
    return {renamed.get(name, name): value for name, value in line.items()}


#: Field names of version 1 and their current names, by kind.
RENAMED: Final[dict[str, dict[str, str]]] = {
    Kind.QUEUE: {"pausedPublish": "publishPaused", "pausedConsume": "consumePaused"},
    Kind.LEASE: {"deadlineEngineMs": "untilEngineMs"},
    Kind.DEAD: {"reason": "reasonCode", "size": "payloadBytes", "digest": "payloadDigest"},
    Kind.EVENT: {"reason": "reasonCode", "requestId": "request"},
    Kind.TRAFFIC: {"bytes": "requestBytes", "requestId": "request"},
}
