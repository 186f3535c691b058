"""The journal's events: one JSON object a line, closed by a checksum of the bytes before it.

Every event is a self-sufficient fact. Common fields, in this order: ``id`` (dense, increasing), ``epoch``,
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

#: Fields that every event has, besides its ``type``.
_NUMBERS: Final = ("id", "epoch", "req", "grp", "engineMs", "wallMs")
#: Those that every event has.
COMMON_FIELDS: Final = (*_NUMBERS, "type")
_take_common: Final = itemgetter(*COMMON_FIELDS)
_MARK = b',"crc":"'
_TAIL = len(_MARK) + 8 + 2  # ,"crc":"01234567"}


class EventType(StrEnum):
    """Event types. A reader passes over a type that it does not know."""

    EPOCH_STARTED = "epoch_started"
    CLOCK_MARKED = "clock_marked"
    GAP = "gap"
    LOSS_ACCEPTED = "loss_accepted"
    QUEUE_CREATED = "queue_created"
    POLICY_SET = "policy_set"
    PAUSED = "paused"
    RESUMED = "resumed"
    PUBLISHED = "published"
    LEASED = "leased"
    LEASE_EXTENDED = "lease_extended"
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
    QUEUE_DELETED = "queue_deleted"
    DRAIN_SET = "drain_set"
    SCHEDULE_SET = "schedule_set"
    SCHEDULE_DELETED = "schedule_deleted"
    SCHEDULE_FIRED = "schedule_fired"
    IMPORTED = "imported"
    ANSWERED = "answered"


#: Types that are counted in the totals of their queue, under their own names.
COUNTED_TYPES: Final = (
    EventType.PUBLISHED,
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
    """One line, newline included: a JSON object, closed by the checksum of what stands before it."""
    body = orjson.dumps(fields)[:-1]
    return b'%b,"crc":"%08x"}\n' % (body, crc32(body))


def decode_line(line: bytes) -> dict[str, Any]:
    """Read what ``encode_line`` made, with or without its newline.

    Raises ``DamagedRecord`` when the checksum does not hold.
    """
    text = line.rstrip(b"\n")
    body, mark = text[:-_TAIL], text[-_TAIL:]
    if not mark.startswith(_MARK) or mark[-10:] != b'%08x"}' % crc32(body):
        raise DamagedRecord("checksum does not hold")
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise DamagedRecord(str(error)) from None
    if type(fields) is not dict:
        raise DamagedRecord("no object")
    return fields


#: An event's journal line.
encode_event = encode_line


def decode_event(line: bytes) -> Event:
    """Read a journal line, with or without its newline.

    Raises ``DamagedRecord`` when the checksum does not hold, and for what is no event.
    """
    event = decode_line(line)
    try:
        event_id, epoch, req, grp, engine_ms, wall_ms, kind = _take_common(event)
    except KeyError:
        raise DamagedRecord("no event") from None
    # A loop over the names takes twice as long, which is felt at thousands of events a second.
    is_counted = type(event_id) is type(epoch) is type(req) is type(grp) is type(engine_ms) is type(wall_ms) is int
    if not is_counted or type(kind) is not str:
        raise DamagedRecord("no event")
    return event


def raw_json(value: Any) -> bytes:
    """The JSON bytes of an event's field, whether it was just built (a Fragment) or read back from a line."""
    return orjson.dumps(value)
