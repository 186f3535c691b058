"""One subscription: records that are pushed batch by batch, each after the ack of the one before."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple

from ...contract import Peer
from .codec import ACK_BYTES, ALIVE, cut_records, encode_push, read_ack
from .texts import Refused, TopicGone
from .topics import PAGE_BYTES, Page, Topics

#: Time limit (s) of an ack, if the client names none.
_ACK_S: Final = 3.0
#: Most records of a page: as many as the largest batch has.
_PAGE_RECORDS: Final = 255
#: Pages of a backlog that are read ahead: while one waits for its turn, the next one is on its way.
_PAGES_AHEAD: Final = 2
_ACK: Final = 0
_ACK_AND_END: Final = 1


class Subscribers:
    """Who subscribes now, by topic: each name once."""

    def __init__(self) -> None:
        self._names: set[tuple[bytes, bytes]] = set()

    def enter(self, topic: bytes, who: bytes) -> None:
        """Somebody subscribes. Raises ``Refused`` if somebody does under this name."""
        if (topic, who) in self._names:
            raise Refused(f"{who.decode(errors='replace')} regiester exist", "register_exist")  # smss's own text
        self._names.add((topic, who))

    def leave(self, topic: bytes, who: bytes) -> None:
        """The subscription has ended."""
        self._names.discard((topic, who))


class Terms(NamedTuple):
    """What a client asks for: records of a topic behind an event id, at most ``batch`` at a time."""

    topic: bytes
    who: bytes
    after: int
    batch: int
    ack_timeout_ns: int


class SubscriptionLost(Exception):
    """The client did not ack in time, or sent what is no ack: its connection is to be closed."""


class Subscription:
    """A subscription of one connection. ``alive_s`` is the longest time without a sign of life for the client."""

    def __init__(self, peer: Peer, topics: Topics, terms: Terms, alive_s: float) -> None:
        self._peer = peer
        self._topics = topics
        self._terms = terms
        self._alive_s = alive_s
        self._loop = asyncio.get_running_loop()
        self._ack_s = terms.ack_timeout_ns / 1e9 if terms.ack_timeout_ns > 0 else _ACK_S
        self._page_records = _PAGE_RECORDS // terms.batch * terms.batch
        self._ack: asyncio.Future[int] | None = None  # of the batch that was pushed
        self._received = b""
        self._first: Page | None = None
        #: The pages that come next, in order.
        self._ahead: deque[asyncio.Task[Page]] = deque()
        #: Whether the client has ended it: what it sends from then on is a request.
        self.has_ended = False

    async def start(self) -> None:
        """Read the first records. Raises ``Refused`` if there can be no such subscription."""
        terms = self._terms
        self._first = await self._topics.first(terms.topic, terms.after, self._page_records)

    async def run(self) -> None:
        """Push records until the client ends it. Raises ``TopicGone`` if the topic was deleted, another ``Refused`` if
        the records that come next cannot be read, ``SubscriptionLost``."""
        assert self._first
        page, self._first = self._first, None
        topic = page.topic
        try:
            while not await self._deliver(page):
                after = page.last
                del page  # is not needed while the client waits
                page = await self._next(after)
                if page.topic != topic:  # it was deleted, and there is another one of this name
                    raise TopicGone
        finally:
            for reading in self._ahead:
                reading.cancel()

    async def _deliver(self, page: Page) -> bool:
        """Push the records of a page; whether the client has ended the subscription."""
        if not self._ahead:
            self._read_behind(page)
        for count, records in cut_records(page.raw, page.number, self._terms.batch):
            if await self._push(count, records):
                return True
        return False

    async def _next(self, after: int) -> Page:
        """The next page. The client gets signs of life until there is one."""
        if not self._ahead:
            self._read(after)
        reading = self._ahead[0]
        while not reading.done():
            await asyncio.wait((reading,), timeout=self._alive_s)
            if not reading.done():
                self._peer.write(ALIVE)
        self._ahead.popleft()
        if self._ahead:
            self._came(self._ahead[-1])
        return reading.result()

    def _read(self, after: int) -> None:
        """Begin to read the next page, and to wait for it if need be."""
        work = self._topics.read(self._terms.topic, after, self._page_records, wait=True)
        reading = self._loop.create_task(work)
        self._ahead.append(reading)
        reading.add_done_callback(self._came)

    def _came(self, reading: asyncio.Task[Page]) -> None:
        """A page has come, or will soon. Its error is for whoever needs the page; nobody may."""
        is_there = reading.done() and not reading.cancelled() and not reading.exception()
        if is_there and self._ahead and self._ahead[-1] is reading:
            self._read_behind(reading.result())

    def _read_behind(self, page: Page) -> None:
        """Read on behind a page if there is more, unless enough is read ahead. Larger records are not: a client that
        reads slowly has one of them in memory, not three."""
        if page.last < page.end and len(page.raw) <= PAGE_BYTES and len(self._ahead) < _PAGES_AHEAD:
            self._read(page.last)

    async def _push(self, count: int, records: bytes) -> bool:
        """Push a batch, and wait for its ack; whether that ends the subscription."""
        ack: asyncio.Future[int] = self._loop.create_future()
        self._ack = ack
        self._peer.write(encode_push(count, records))
        timer = self._loop.call_later(self._ack_s, self._lose)
        try:
            return await ack == _ACK_AND_END
        finally:
            timer.cancel()
            self._ack = None

    def _lose(self) -> None:
        if self._ack and not self._ack.done():
            self._ack.set_exception(SubscriptionLost())

    def received(self, data: bytes) -> bytes:
        """Bytes of the client have arrived; returns those behind the end of the subscription. Raises ``ValueError`` if
        they are no ack of what was pushed."""
        ack = self._ack
        if ack is None or ack.done():
            raise ValueError("bytes without a batch that they could ack")
        data = self._received + data
        if len(data) < ACK_BYTES:
            self._received = data
            return b""
        self._received = b""
        code, rest = read_ack(data[:ACK_BYTES]), data[ACK_BYTES:]
        if code not in (_ACK, _ACK_AND_END) or (rest and code == _ACK):
            raise ValueError("not an ack")
        self.has_ended = code == _ACK_AND_END
        ack.set_result(code)
        return rest
