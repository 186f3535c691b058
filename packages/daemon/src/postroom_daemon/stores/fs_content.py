"""What a message's file holds: a line with the message, then lines with facts that its name has no room for.

Each line is a JSON object with a checksum at its end, as in the journal. The first is written once. The others are
added, and hold all such facts as they stand from an event on: the name says which of them counts. A line that a crash
has cut short is passed over.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from postroom_common.errors import DamagedRecord
from postroom_common.events import decode_line, encode_line

from ..records import Entry

FORMAT: Final = 1
#: Bytes of a file's fact lines that make it worth writing anew.
FACT_BYTES_LIMIT: Final = 16384

_MESSAGE: Final = b',"message":'
_TAIL: Final = len(b',"crc":"01234567"}')


def first_line(entry: Entry, envelope: bytes) -> bytes:
    """The line with the message, and with what never changes about it."""
    facts: dict[str, Any] = {"id": entry.seq, "format": FORMAT, "key": entry.key, "queue": entry.queue}
    if entry.priority:
        facts["priority"] = entry.priority
    if entry.target:
        facts["target"] = entry.target
    facts |= {"createdMs": entry.created_wall, "createdEngineMs": entry.created}
    return encode_line({**facts, "message": orjson.Fragment(envelope)})


def fact_line(event_id: int, facts: dict[str, Any]) -> bytes:
    """A line with all facts that the name cannot hold, as they stand from ``event_id`` on."""
    return encode_line({"id": event_id, "facts": facts})


def head_of(content: bytes) -> dict[str, Any] | None:
    """The first line, read; None when it is not intact."""
    line, newline, _ = content.partition(b"\n")
    try:
        return decode_line(line) if newline else None
    except DamagedRecord:
        return None


def envelope_of(content: bytes, key: str) -> bytes | None:
    """The message in a file's content; None when it is damaged or another message's."""
    head = head_of(content)
    if head is None or head.get("key") != key or head.get("format") != FORMAT:
        return None
    line = content.partition(b"\n")[0]
    # Inside a JSON text the quotes would be escaped: the first match is the field.
    return line[line.index(_MESSAGE) + len(_MESSAGE) : -_TAIL]


def facts_of(content: bytes, up_to: int) -> tuple[int, dict[str, Any]]:
    """The last intact facts of an event up to ``up_to``, with that event's id; 0 and none when there are none."""
    for line in reversed(content.split(b"\n")[1:]):
        try:
            found = decode_line(line) if line else {}
        except DamagedRecord:
            continue
        if type(found.get("facts")) is dict and found.get("id", up_to + 1) <= up_to:
            return found["id"], found["facts"]
    return 0, {}


def target_of(content: bytes, facts: dict[str, Any]) -> str:
    """The target that a name had no room for: that of the facts, or where these are lost, of the message's line."""
    target = facts.get("target") or (head_of(content) or {}).get("target", "")
    return target if type(target) is str else ""
