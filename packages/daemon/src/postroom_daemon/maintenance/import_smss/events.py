"""The events that lead to the topics of smss, their messages, and those that are delayed."""

from __future__ import annotations

import heapq
from array import array
from binascii import b2a_base64
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

import orjson

from postroom_common.body import Form, Part, encode_message
from postroom_common.events import EventType
from postroom_common.log_blocks import check_blocks
from postroom_common.protocol import REQUEST_BYTES_CEILING, WALL_MS_LIMIT, message_key, queue_name_problem

from ...engine.context import Draft
from ...model.log_record import LOG
from ...platform.clock import Clock, Now
from ...platform.ids import Ids
from ..foreign_data import ImportRefused, Taken, Unusable, UnusableRow, at_wall, begin_time, clamped, shown_row, text_of
from .files import HIGHEST, Damage, Entry, Message, Op, SmssFiles

_I64: Final = Struct("<q")
#: What is before the messages in the payload of a delay: when it is due (Unix ms), and the event id of its request.
_DELAY: Final = Struct("<qq")
_FOR_EVER: Final = 2**62
_BY_ID: Final = attrgetter("event_id")
#: What a message in the binlog is remembered by: event id, wall time, file, offset and length.
_NUMBERS: Final = 5


@dataclass(slots=True)
class _Stored:
    """What the files of a topic have: the ids of its messages, in order, and the time of the oldest (Unix ms).
    ``begins_damaged``: something was before the first of them."""

    directories: list[Path] = field(default_factory=list)
    ids: array[int] = field(default_factory=lambda: array("q"))
    oldest: int = _FOR_EVER
    begins_damaged: bool = False

    def lacks(self, event_id: int) -> bool:
        """Whether a message of the binlog is missing here. Messages before the first were removed by the retention."""
        at = bisect_left(self.ids, event_id)
        if at == 0 and self.ids and not self.begins_damaged:
            return False
        return at == len(self.ids) or self.ids[at] != event_id


@dataclass(slots=True)
class _Topic:
    """A topic. ``created`` is the event id of its creation, 0 if the binlog does not have that any more. It ends at
    ``expire_ms`` (Unix ms; 0: never). ``found`` has the numbers of the messages that only the binlog has."""

    created: int = 0
    created_ms: int = 0
    expire_ms: int = 0
    name: str = ""
    stored: _Stored = field(default_factory=_Stored)
    found: array[int] = field(default_factory=lambda: array("q"))

    @property
    def first(self) -> int:
        """The event id of its first message; 0 if it has none."""
        return min([*self.stored.ids[:1], *self.found[:1]], default=0)

    @property
    def oldest_ms(self) -> int:
        """The time of the oldest that is known of it."""
        found = min(self.found[1::_NUMBERS], default=_FOR_EVER)
        return max(1, min(self.created_ms or _FOR_EVER, self.stored.oldest, found))


class _Delayed(NamedTuple):
    topic: bytes
    wall_ms: int
    due_ms: int
    blocks: bytes


#: The files of a topic that has none.
_NOTHING: Final = _Stored()


class SmssEvents(Taken):
    """Events made from a data directory. After ``scan``: ``last_id`` is the highest event id of smss, ``first_id`` the
    one with which its binlog begins, and ``permanent`` are the topics of which nobody knows how long they are to
    live. The counts are complete when ``requests`` has ended."""

    def __init__(self, source: SmssFiles, ids: Ids, retention_hours: float, expire: Mapping[str, int]) -> None:
        super().__init__()
        self.first_id = self.last_id = 0
        self.permanent: list[str] = []
        self._source = source
        self._ids = ids
        self._retention_hours = retention_hours
        self._expire = expire
        self._stored: dict[bytes, _Stored] = {}
        self._topics: dict[bytes, _Topic] = {}
        self._deleted: dict[bytes, int] = {}
        self._delayed: dict[int, _Delayed] = {}
        self._now = Now(0, 0)

    # --- what there is ------------------------------------------------------------------------------------------------

    def scan(self, clock: Clock) -> None:
        """Find out what there is; engine time begins with the oldest of it. Raises ``ImportRefused``, ``OSError``."""
        for name, directory in self._source.topics():
            self._scan_topic(self._stored.setdefault(name, _Stored()), directory)
        for entry in self._source.binlog(self._note_damage):
            self._see(entry)
        for name, stored in self._stored.items():
            last = max(stored.ids, default=0)
            if name not in self._topics and last <= self._deleted.get(name, -1):
                self.counts["left directories of deleted topics"] += 1
                continue
            self._topics.setdefault(name, _Topic()).stored = stored
            self.last_id = max(self.last_id, last)
        self._name_topics()
        numbers = {0}
        for topic in sorted(self._topics.values(), key=lambda topic: not topic.created):
            if topic.created in numbers:  # unknown, or given twice
                topic.created = self._free_number(topic, numbers)
            numbers.add(topic.created)
        oldest = min((topic.oldest_ms for topic in self._topics.values()), default=_FOR_EVER)
        begin_time(clock, None if oldest == _FOR_EVER else oldest)
        self._now = clock.now()

    def _scan_topic(self, stored: _Stored, directory: Path) -> None:
        """Note what is in the files of a topic."""
        stored.directories.append(directory)
        before, is_sorted, last = len(self.unusable), True, 0
        for message in self._source.messages(directory, self._note_damage):
            stored.begins_damaged |= not stored.ids and len(self.unusable) > before
            stored.ids.append(message.event_id)
            stored.oldest = min(stored.oldest, message.wall_ms)
            is_sorted &= message.event_id > last
            last = message.event_id
        if not is_sorted or len(stored.directories) > 1:
            stored.ids = array("q", sorted(stored.ids))

    def _see(self, entry: Entry) -> None:
        """Note what an entry of the binlog says about topics and delays, and the messages that only it has."""
        count = 1
        if entry.op == Op.CREATE and len(entry.payload) == _I64.size:
            (expire_ms,) = _I64.unpack(entry.payload)
            self._topics[entry.topic] = _Topic(entry.event_id, entry.wall_ms, expire_ms)
        elif entry.op == Op.DELETE:
            self._topics.pop(entry.topic, None)
            self._deleted[entry.topic] = entry.event_id
        elif entry.op == Op.DELAY and len(entry.payload) > _DELAY.size:
            due_ms, request = _DELAY.unpack_from(entry.payload)
            self._delayed[request] = _Delayed(entry.topic, entry.wall_ms, due_ms, entry.payload[_DELAY.size :])
        elif entry.op in (Op.PUB, Op.DELAY_APPLY):
            start = 0
            if entry.op == Op.DELAY_APPLY and len(entry.payload) > _DELAY.size:
                start = _DELAY.size
                self._delayed.pop(_DELAY.unpack_from(entry.payload)[1], None)
            topic, stored = self._topics.setdefault(entry.topic, _Topic()), self._stored.get(entry.topic, _NOTHING)
            blocks, offset = _blocks(entry.payload[start:]), entry.place + start
            for event_id, block in enumerate(blocks, entry.event_id):
                if stored.lacks(event_id):
                    topic.found.extend((event_id, entry.wall_ms, entry.file, offset, len(block)))
                offset += len(block)
            count = max(1, len(blocks))
        self.first_id = self.first_id or entry.event_id
        self.last_id = max(self.last_id, entry.event_id + count - 1)

    def _name_topics(self) -> None:
        """Name the topics. One whose name no log can have is left out. Raises ``ImportRefused`` if the end of a topic
        is given that is not there."""
        for name, topic in [*self._topics.items()]:
            try:
                topic.name = text_of(name, "the name of a topic")
                problem = queue_name_problem(topic.name)
            except Unusable as unusable:
                problem = str(unusable)
            if problem:
                row = shown_row(["topic", "messages"], [name, len(topic.stored.ids)])
                self.unusable.append(UnusableRow(f"the name of a topic: {problem}", row))
                del self._topics[name]
            elif not topic.created and topic.name not in self._expire:
                self.permanent.append(topic.name)
        self.permanent.sort()
        unknown = sorted(set(self._expire) - {topic.name for topic in self._topics.values()})
        if unknown:
            raise ImportRefused(f"there is no topic {unknown[0]!r} whose end could be given")

    def _free_number(self, topic: _Topic, numbers: set[int]) -> int:
        """An event id for the creation of a topic: before its first message, unless there is none."""
        number = topic.first - 1
        while number in numbers:
            number -= 1
        if number > 0:
            return number
        self.last_id += 1
        return self.last_id

    def _note_damage(self, damage: Damage) -> None:
        names = ("file", "offset", "bytes", "begin")
        row = shown_row(names, (damage.file, damage.offset, damage.length, damage.data))
        self.unusable.append(UnusableRow("these bytes are no intact record", row, is_message=False))

    # --- events -------------------------------------------------------------------------------------------------------

    def requests(self) -> Iterator[list[Draft]]:
        """The events, those of one topic or message as one request. Raises ``OSError``."""
        for topic in self._topics.values():
            yield [self._created(topic)]
            yield from self._messages(topic)
        for delayed in self._delayed.values():
            there = self._topics.get(delayed.topic)
            if there is None or delayed.due_ms < there.created_ms:  # its topic was gone when it was due
                self.counts["delayed messages without a topic"] += 1
            else:
                yield from self._later(there.name, delayed)

    def _created(self, topic: _Topic) -> Draft:
        expire_ms = self._expire.get(topic.name, topic.expire_ms)
        layer = {"kind": LOG, "log.retentionHours": self._retention_hours}
        layer["log.expireAtMs"] = clamped(expire_ms, WALL_MS_LIMIT)
        self.counts["topics"] += 1
        return {
            "type": EventType.QUEUE_CREATED,
            "queue": topic.name,
            "kind": LOG,
            "createdWith": layer,
            "log": topic.created,
            **at_wall(self._now, topic.created_ms or self._now.wall),
        }

    def _messages(self, topic: _Topic) -> Iterator[list[Draft]]:
        """The events of a topic's messages. One whose event id is not higher than those before gets a new one."""
        last = 0
        files = [self._source.messages(path, lambda damage: None) for path in topic.stored.directories]
        for message in heapq.merge(*files, self._missing(topic), key=_BY_ID):
            problem = _problem(message.block)
            if problem:
                row = shown_row(("topic", "eventId", "block"), (topic.name, message.event_id, message.block))
                self.unusable.append(UnusableRow(problem, row))
                continue
            draft: Draft = {"type": EventType.APPENDED, "queue": topic.name, "log": topic.created}
            if message.event_id > last:
                draft["position"] = last = message.event_id
            else:
                last = _FOR_EVER
                self.counts["event ids that changed"] += 1
            draft["record"] = b2a_base64(message.block, newline=False).decode()
            self.counts["messages stored"] += 1
            yield [draft | at_wall(self._now, message.wall_ms)]

    def _missing(self, topic: _Topic) -> Iterator[Message]:
        """The messages that only the binlog has."""
        found = topic.found
        for at in range(0, len(found), _NUMBERS):
            event_id, wall_ms, file, offset, length = found[at : at + _NUMBERS]
            self.counts["of them from the binlog only"] += 1
            yield Message(wall_ms, event_id, self._source.binlog_bytes(file, offset, length))

    def _later(self, name: str, delayed: _Delayed) -> Iterator[list[Draft]]:
        """The events of delayed messages: until they are due, each is a delayed message of its log."""
        due = min(max(1, self._now.engine + delayed.due_ms - self._now.wall), HIGHEST)
        for block in _blocks(delayed.blocks):
            problem = _problem(block)
            if problem:
                self.unusable.append(UnusableRow(problem, shown_row(("topic", "delayed"), (name, block))))
                continue
            self.counts["messages delayed"] += 1
            yield [
                {
                    "type": EventType.PUBLISHED,
                    "queue": name,
                    "key": message_key(name, self._ids.message(delayed.wall_ms)),
                    "dueEngineMs": due,
                    "message": orjson.Fragment(encode_message((Part(block, Form.BINARY),))),
                    **at_wall(self._now, delayed.wall_ms),
                }
            ]


def _blocks(data: bytes) -> list[bytes]:
    """The blocks that follow each other, by their lengths alone."""
    blocks: list[bytes] = []
    at = 0
    while at + 8 <= len(data):
        end = at + 8 + int.from_bytes(data[at : at + 4], "little")
        if end > len(data):
            break
        blocks.append(data[at:end])
        at = end
    return blocks


def _problem(block: bytes) -> str:
    """Why a block cannot be a record; "" if it can."""
    if len(block) > REQUEST_BYTES_CEILING:
        return f"a message of {len(block):,} bytes; at most {REQUEST_BYTES_CEILING:,} are possible"
    try:
        check_blocks(block)
    except ValueError as problem:
        return str(problem)
    return ""
