"""The content of a message's file: a line with the message, then lines with facts that do not fit into its name, and
with parts that were appended to its body.

Each line is a JSON object with a checksum at its end, as in the journal. The first is written once. The others are
added. A line with facts holds all of them as they stand from an event on: the name says which of them counts. A line
that a crash has cut short is skipped.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from postroom_common.errors import DamagedRecord
from postroom_common.events import decode_line, encode_line, is_intact, raw_json

from ...model.records import Entry
from ...platform.files import LOST_ERRNOS
from .names import INSIDE, FileName, queue_of_key
from .tree import Tree

FORMAT: Final = 4
#: Facts that a name may have no room for, and that the first line has as they were when it was written.
KEPT_INSIDE: Final = ("target", "order_key", "claim", "name")
#: Bytes of fact lines that make a file worth rewriting.
FACT_BYTES_LIMIT: Final = 16384

#: Facts that count only in the line that the name refers to.
_CHANGING: Final = ("lease_id", "consumer_id", "holder_uid", "queue")
_MESSAGE: Final = b',"message":'
_PART: Final = b'{"part":'
_TAIL: Final = len(b',"crc":"01234567"}')


def first_line(entry: Entry, envelope: bytes) -> bytes:
    """The line with the message, and with what never changes about it."""
    facts: dict[str, Any] = {"id": entry.seq, "format": FORMAT, "key": entry.key, "queue": entry.queue}
    if entry.priority:
        facts["priority"] = entry.priority
    for name in KEPT_INSIDE:
        if getattr(entry, name):
            facts[name] = getattr(entry, name)
    facts |= {"createdMs": entry.created_wall, "createdEngineMs": entry.created}
    return encode_line({**facts, "message": orjson.Fragment(envelope)})


def fact_line(event_id: int, facts: dict[str, Any]) -> bytes:
    """A line with all facts that the name cannot hold, valid from ``event_id`` on."""
    return encode_line({"id": event_id, "facts": facts})


def part_line(number: int, part: bytes) -> bytes:
    """A line with a part, as it is stored, that was appended to the body."""
    return encode_line({"part": number, "content": orjson.Fragment(part)})


def parts_of(content: bytes) -> dict[int, bytes]:
    """The intact parts that were appended, by their numbers."""
    parts: dict[int, bytes] = {}
    for line in content.split(b"\n")[1:]:
        if line.startswith(_PART):
            try:
                found = decode_line(line)
            except DamagedRecord:
                continue
            parts[found["part"]] = raw_json(found["content"])
    return parts


def fact_bytes(content: bytes) -> int:
    """The length of all lines with facts."""
    return sum(len(line) for line in content.split(b"\n")[1:] if not line.startswith(_PART))


def head_of(content: bytes) -> dict[str, Any] | None:
    """The first line, read; None when it is not intact."""
    line, newline, _ = content.partition(b"\n")
    try:
        return decode_line(line) if newline else None
    except DamagedRecord:
        return None


def envelope_of(content: bytes, key: str) -> bytes | None:
    """The message in a file's content; None when it is damaged or another message's."""
    line, newline, _ = content.partition(b"\n")
    at = line.find(_MESSAGE)  # inside a JSON text the quotes would be escaped: the first match is the field
    if not newline or at < 0 or not is_intact(line):
        return None
    if line.find(b',"format":%d,"key":"%b","queue":' % (FORMAT, key.encode("utf-8", "surrogatepass")), 0, at) < 0:
        try:  # another format, or a key that JSON escapes
            head = orjson.loads(line[:at] + b"}")
        except orjson.JSONDecodeError:
            return None
        if type(head) is not dict or head.get("key") != key or head.get("format") not in range(1, FORMAT + 1):
            return None
    return line[at + len(_MESSAGE) : -_TAIL]


def facts_of(content: bytes, up_to: int) -> tuple[int, dict[str, Any]]:
    """The last intact facts of an event up to ``up_to``, with that event's id; 0 and {} if there are none."""
    for line in reversed(content.split(b"\n")[1:]):
        try:
            found = decode_line(line) if line else {}
        except DamagedRecord:
            continue
        if type(found.get("facts")) is dict and found.get("id", up_to + 1) <= up_to:
            return found["id"], found["facts"]
    return 0, {}


def facts_for_name(name: FileName, content: bytes, line: int, facts: dict[str, Any]) -> dict[str, Any]:
    """What of the facts in a file's line counts for its name. Of an older line, which is there when a power cut has
    taken the newer one, that is what does not change with each lease or move; and what the first line has as well is
    taken from there, if need be."""
    known = {fact: text for fact, text in facts.items() if fact not in INSIDE}
    if line != name.inside:
        known = {fact: text for fact, text in known.items() if fact not in _CHANGING}
    for fact in INSIDE:
        if name.is_inside(fact):
            value = facts.get(fact) or (head_of(content) or {}).get(fact, "")
            known[fact] = value if type(value) is str else ""
    return known


def facts_inside(tree: Tree, directory: str, place: str, name: FileName) -> tuple[int, dict[str, Any]]:
    """The line inside a file that its name refers to, or an older one if that is lost, and the facts in it that
    count."""
    content = read_or_nothing(tree, directory, place)
    line, facts = facts_of(content, name.inside)
    return line, facts_for_name(name, content, line, facts)


def read_or_nothing(tree: Tree, directory: str, place: str) -> bytes:
    """The content of a file; b"" if it cannot be read."""
    try:
        return tree.read(directory, place)
    except OSError as error:
        if error.errno not in LOST_ERRNOS:
            raise
        return b""


def message_of(tree: Tree, directory: str, place: str, name: FileName, there: str) -> tuple[str, str]:
    """The key and the queue that a file contains; '' if it is not intact. ``there`` is the queue in whose directory it
    lies: a message that has moved, and has lost the line with its queue, belongs where it is."""
    content = read_or_nothing(tree, directory, place)
    head = head_of(content) or {}
    key, queue = head.get("key"), head.get("queue")
    if type(key) is str and not name.key_is_inside:
        queue = queue_of_key(key)  # the first line may have been written elsewhere, before the message came home
    elif name.is_moved:
        line, facts = facts_of(content, name.inside)
        queue = facts.get("queue") if line == name.inside else there
    return (key, queue) if type(key) is type(queue) is str and key and queue else ("", "")
