"""The events of the journal: one JSON object per line, with a checksum of the preceding bytes as its last field.

An event contains all data needed to apply it. Common fields, in this order: ``id`` (dense, increasing), ``epoch``,
``req`` (id of the last event of the same request), ``grp`` (id of the last event of the same group), ``engineMs``,
``wallMs``, ``type``; then the fields of its type; on a request's last event ``by`` (uid, client, request, digest) and,
if the request has more than one event, ``n``, their number; ``crc`` last: CRC-32 (zlib), eight hex digits, over all
bytes of the line before ``,"crc"``.
"""

from __future__ import annotations

from enum import StrEnum
from operator import itemgetter
from typing import Any, Final
from zlib import crc32

import orjson

from .errors import DamagedRecord

JOURNAL_FORMAT: Final = 1

Event = dict[str, Any]

#: The numeric fields of every event.
_NUMBERS: Final = ("id", "epoch", "req", "grp", "engineMs", "wallMs")
#: The fields of every event.
COMMON_FIELDS: Final = (*_NUMBERS, "type")
_take_common: Final = itemgetter(*COMMON_FIELDS)
_MARK = b',"crc":"'
_TAIL = len(_MARK) + 8 + 2  # ,"crc":"01234567"}


class EventType(StrEnum):
    """Event types. ``docs/journal.md`` says how a reader handles an unknown type."""

    EPOCH_STARTED = "epoch_started"
    CLOCK_MARKED = "clock_marked"
    GAP = "gap"
    LOSS_ACCEPTED = "loss_accepted"
    DAMAGE_FOUND = "damage_found"
    QUEUE_CREATED = "queue_created"
    POLICY_SET = "policy_set"
    POLICY_PATTERNS_SET = "policy_patterns_set"
    PAUSED = "paused"
    RESUMED = "resumed"
    PUBLISHED = "published"
    PART_APPENDED = "part_appended"
    PART_SET = "part_set"
    BODY_SET = "body_set"
    LEASED = "leased"
    LEASE_EXTENDED = "lease_extended"
    ACTIVATED = "activated"
    ACKED = "acked"
    RELEASED = "released"
    RETRIED = "retried"
    DIED = "died"
    DROPPED = "dropped"
    REPROCESSED = "reprocessed"
    HELD = "held"
    UNHELD = "unheld"
    MOVED = "moved"
    RETARGETED = "retargeted"
    RESCHEDULED = "rescheduled"
    QUARANTINED = "quarantined"
    CLAIMED = "claimed"
    CLAIMS_ENDED = "claims_ended"
    TALLY_RESET = "tally_reset"
    QUEUE_DELETED = "queue_deleted"
    DRAIN_SET = "drain_set"
    SCHEDULE_SET = "schedule_set"
    SCHEDULE_DELETED = "schedule_deleted"
    SCHEDULE_FIRED = "schedule_fired"
    APPENDED = "appended"
    TRIMMED = "trimmed"
    READER_MOVED = "reader_moved"
    READER_DELETED = "reader_deleted"
    IMPORTED = "imported"
    ANSWERED = "answered"


#: Types that the totals of a queue count, under the same names.
COUNTED_TYPES: Final = (
    EventType.PUBLISHED,
    EventType.PART_APPENDED,
    EventType.LEASED,
    EventType.ACKED,
    EventType.RELEASED,
    EventType.RETRIED,
    EventType.DIED,
    EventType.DROPPED,
    EventType.REPROCESSED,
    EventType.HELD,
    EventType.UNHELD,
    EventType.MOVED,
)


def encode_line(fields: dict[str, Any]) -> bytes:
    """A line with its newline: a JSON object whose last field is the checksum of the preceding bytes."""
    body = orjson.dumps(fields)[:-1]
    return b'%b,"crc":"%08x"}\n' % (body, crc32(body))


def is_intact(text: bytes) -> bool:
    """Whether a line of ``encode_line``, without its newline, has its right checksum."""
    return text[-_TAIL:] == b'%b%08x"}' % (_MARK, crc32(text[:-_TAIL]))


def decode_line(line: bytes) -> dict[str, Any]:
    """Parse a line of ``encode_line``, with or without its newline.

    Raises ``DamagedRecord`` if the checksum is wrong, or the line is not a JSON object.
    """
    text = line.rstrip(b"\n")
    if not is_intact(text):
        raise DamagedRecord("wrong checksum")
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise DamagedRecord(str(error)) from None
    if type(fields) is not dict:
        raise DamagedRecord("not an object")
    return fields


#: An event's journal line.
encode_event = encode_line


def decode_event(line: bytes) -> Event:
    """Parse a journal line, with or without its newline.

    Raises ``DamagedRecord`` if the checksum is wrong, or the line is not an event.
    """
    event = decode_line(line)
    try:
        event_id, epoch, req, grp, engine_ms, wall_ms, kind = _take_common(event)
    except KeyError:
        raise DamagedRecord("no event") from None
    # A loop over the names takes twice as long, which matters at thousands of events per second.
    is_counted = type(event_id) is type(epoch) is type(req) is type(grp) is type(engine_ms) is type(wall_ms) is int
    if not is_counted or type(kind) is not str:
        raise DamagedRecord("no event")
    return event


def raw_json(value: Any) -> bytes:
    """The JSON bytes of a field of an event, either new (a Fragment) or parsed from a line."""
    return orjson.dumps(value)
