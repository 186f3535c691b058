"""The stream that slaves of smss follow: the records of all topics as entries of its binlog, in the order of their
event ids.

The daemon has no such list. It is merged from the topics, round by round: a round begins with a list of the topics as
of an event, and ends with the last record up to that event. What a topic in the list was before, or is not any more, is
an entry, too. An entry is ``u32 length of the line | line | payload``, and the line has, with tabs between them: time
of writing, command, event id, time of receiving, topic, length of the payload.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

from ...contract import DaemonUnavailable, Peer
from . import texts
from .codec import ALIVE, OK, Op, split_records
from .texts import Refused, TopicGone
from .topics import Topic, Topics

#: Pause (s) between two rounds of which the first found nothing.
_PAUSE_S: Final = 0.5
#: Pause (s) behind a round with news, for each topic that it has listed, and the longest: the daemon lists all of them.
_PAUSE_OF_TOPIC_S: Final = 50e-6
_BUSY_PAUSE_S: Final = 0.1
#: Records of a topic that are read at once, and their bytes: there may be many topics.
_PAGE_RECORDS: Final = 100
_PAGE_BYTES: Final = 16 * 1024
#: A larger entry is read again when its turn comes, if others come first.
_KEPT_BYTES: Final = 64 * 1024
_I64: Final = struct.Struct("<q")
_U32: Final = struct.Struct("<I")


class Replica:
    """The stream of one connection, behind an event id that its slave has processed. ``alive_s`` is the longest time
    without a sign of life."""

    def __init__(self, peer: Peer, topics: Topics, after: int, alive_s: float) -> None:
        self._peer = peer
        self._topics = topics
        self._after = after
        self._alive_s = alive_s
        self._known: dict[int, Topic] = {}
        self._written_s = time.monotonic()

    async def start(self) -> None:
        """Check that the stream can begin. Raises ``Refused``."""
        if self._after < 0:
            raise Refused(texts.WRONG_REPLICA_EVENT)
        overview = await self._topics.overview()
        if self._after > overview.as_of:
            raise Refused(texts.NO_EVENT)
        self._known = {one.created: one for one in overview.topics if one.created <= self._after}

    async def run(self) -> None:
        """Write entries for ever. Raises ``Refused`` if there are records missing: the retention was faster."""
        while True:
            try:
                has_news = await self._round()
            except DaemonUnavailable:  # such as while it restarts
                has_news = False
            await asyncio.sleep(pause_s(len(self._known)) if has_news else _PAUSE_S)
            if time.monotonic() - self._written_s >= self._alive_s:
                self._write(ALIVE)

    async def _round(self) -> bool:
        """Write what has happened since the last round; whether that is anything."""
        overview = await self._topics.overview()
        if overview.as_of <= self._after:
            return False
        listed = {one.created: one for one in overview.topics if one.created <= overview.as_of}
        free = _Free(self._after)
        if overview.is_whole:
            again = {one.name: created for created, one in listed.items()}
            gone = [one for created, one in self._known.items() if created not in listed]
            gone.sort(
                key=lambda one: again.get(one.name, overview.as_of + 1)
            )  # it was deleted before it was made again
            free.wanted = iter(gone)
        cursors = [_Cursor(self._topics, one, self._after) for one in listed.values() if one.last > self._after]
        for one in listed.values():
            if one.created > self._after:
                cursors.append(_Cursor(self._topics, one, self._after, is_new=True))
        entries: list[tuple[int, int, bytes, _Cursor]] = []
        for order, cursor in enumerate(cursors):
            await _refill(entries, order, cursor, keeps_next=False)
        has_news = False
        while entries and entries[0][0] <= overview.as_of:
            event_id, order, entry, cursor = heappop(entries)
            for deletion in free.before(event_id):
                self._write(deletion)
            self._write(entry or await cursor.again(event_id))
            has_news = True
            self._after = max(self._after, event_id)
            await self._peer.drain()
            await _refill(entries, order, cursor)
        for deletion in free.before(overview.as_of + 1):
            self._write(deletion)
            has_news = True
        self._after = overview.as_of
        self._known = listed if overview.is_whole else self._known | listed
        return has_news

    def _write(self, data: bytes) -> None:
        self._written_s = time.monotonic()
        self._peer.write(data)


def pause_s(topics: int) -> float:
    """The pause behind a round with news that has listed some topics."""
    return min(topics * _PAUSE_OF_TOPIC_S, _BUSY_PAUSE_S)


class _Free:
    """Event ids that no entry has. The daemon does not say by which event a topic was deleted; it is one of these."""

    def __init__(self, after: int) -> None:
        self._next = after + 1
        self.wanted: Iterator[Topic] = iter(())

    def before(self, event_id: int) -> Iterator[bytes]:
        """The entries of deletions, each with a free id before that of the next entry."""
        while self._next < event_id:
            topic = next(self.wanted, None)
            if topic is None:
                break
            yield _entry(Op.DELETE, self._next, time.time_ns() // 1_000_000, topic.name, b"")
            self._next += 1
        self._next = max(self._next, event_id + 1)


class _Cursor:
    """The entries of one topic behind an event id, in order; with ``is_new`` its creation alone."""

    def __init__(self, topics: Topics, topic: Topic, after: int, is_new: bool = False) -> None:
        self._topics = topics
        self._topic = topic
        self._after = after
        self._is_new = is_new
        self._page: Iterator[tuple[int, int, bytes]] = iter(())
        self._is_last = is_new

    async def next(self) -> tuple[int, bytes] | None:
        """The next entry with its event id; None if there is none."""
        topic = self._topic
        if self._is_new:
            self._is_new = False
            expires = _I64.pack(topic.expire_at_ms) + b"\n"
            return topic.created, _entry(Op.CREATE, topic.created, topic.created_ms, topic.name, expires)
        while True:
            for wall_ms, event_id, block in self._page:
                self._after = event_id
                return event_id, _entry(Op.PUB, event_id, wall_ms, topic.name, block + b"\n")
            if self._is_last:
                return None
            try:
                page = await self._topics.read(topic.name.encode(), self._after, _PAGE_RECORDS, most_bytes=_PAGE_BYTES)
            except TopicGone:
                return None
            if page.topic != topic.created or not page.number:
                return None
            self._is_last = page.last >= page.end
            self._page = split_records(page.raw)

    async def again(self, event_id: int) -> bytes:
        """The entry with an event id, which was returned before; nothing if it is gone."""
        topic = self._topic
        try:
            page = await self._topics.read(topic.name.encode(), event_id - 1, 1)
        except TopicGone:
            return b""
        for wall_ms, found, block in split_records(page.raw):
            if found == event_id and page.topic == topic.created:
                return _entry(Op.PUB, event_id, wall_ms, topic.name, block + b"\n")
        return b""


async def _refill(
    entries: list[tuple[int, int, bytes, _Cursor]], order: int, cursor: _Cursor, keeps_next: bool = True
) -> None:
    """Add the next entry of a topic to those of the others. A large one is added without its bytes, unless it is the
    next of all and ``keeps_next``."""
    found = await cursor.next()
    if found:
        event_id, entry = found
        is_next = keeps_next and (not entries or event_id < entries[0][0])
        is_kept = is_next or len(entry) <= _KEPT_BYTES
        heappush(entries, (event_id, order, entry if is_kept else b"", cursor))


def _entry(op: int, event_id: int, wall_ms: int, topic: str, payload: bytes) -> bytes:
    """What a slave gets of one entry."""
    line = f"{wall_ms}\t{op:d}\t{event_id}\t{wall_ms}\t{topic}\t{len(payload)}\n".encode()
    return b"".join((OK, _U32.pack(4 + len(line) + len(payload)), _U32.pack(len(line)), line, payload))
