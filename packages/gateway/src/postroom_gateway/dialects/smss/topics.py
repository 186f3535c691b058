"""The topics of smss: logs of the daemon."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from postroom_common.errors import CommandError
from postroom_common.protocol import DELAY_MS_LIMIT, WALL_MS_LIMIT, Command

from ...contract import Answer, Daemon, Principal
from . import texts
from .appends import Appends, Settle
from .codec import count_blocks
from .texts import Refused, TopicGone, refusal

_NAME_BYTES_LIMIT: Final = 128
#: A topic lives so long (ms) at least, and a message is delayed by so much at least.
_SHORTEST_LIFE_MS: Final = 10_000
_SHORTEST_DELAY_MS: Final = 1000
#: Bytes of a payload that are no message yet.
_EMPTY_BYTES: Final = 8
#: Most bytes of records that are read at once, for one subscriber; a record that is larger comes alone.
PAGE_BYTES: Final = 128 * 1024
#: Number of topics on a page of the daemon's list.
_PAGE: Final = 1000
#: Folders of the reference, in which topics have a place by the hash of their names.
_FOLDERS: Final = 10
_SALTS: Final = (b"talk is cheap, show me your code", b"The world is beautiful")


class Page(NamedTuple):
    """Records of a topic. ``raw`` is what a subscriber gets, ``number`` how many these are, ``last`` the event id to go
    on from. ``topic`` is the event id by which the topic was created, ``end`` that of its last record when this was
    read; 0: it never had one."""

    raw: bytes
    number: int
    last: int
    topic: int
    end: int


class Topic(NamedTuple):
    """A topic: its name, the event id and the time (ms) of its creation, when it ends (ms; 0: never), and the event id
    of its last record; 0: it never had one."""

    name: str
    created: int
    created_ms: int
    expire_at_ms: int
    last: int


class Overview(NamedTuple):
    """All topics as of an event. ``is_whole``: none was deleted while they were listed."""

    topics: Sequence[Topic]
    as_of: int
    is_whole: bool


class Topics:
    """What one principal does with topics. All methods raise ``Refused``, and what ``Daemon.request`` raises."""

    def __init__(
        self, daemon: Daemon, principal: Principal, door: str, appends: Appends, retention_hours: float
    ) -> None:
        self._daemon = daemon
        self._principal = principal
        self._door = door
        self._appends = appends
        self._retention_hours = retention_hours

    async def create(self, topic: bytes, expire_at_ms: int) -> None:
        """Create a topic that lives until a time; 0: for ever."""
        name = name_of(topic)
        if name is None:
            raise Refused(texts.WRONG_NAME)
        if expire_at_ms and expire_at_ms < time.time() * 1000 + _SHORTEST_LIFE_MS:
            raise Refused(texts.WRONG_EXPIRY)
        rules = {"expireAtMs": min(expire_at_ms, WALL_MS_LIMIT), "retentionHours": self._retention_hours}
        policy = {"kind": "log", "log": rules}
        await self._ask(Command.CREATE_QUEUE, {"queue": name, "createWith": policy})

    async def delete(self, topic: bytes) -> None:
        """Delete a topic with its messages, those that are delayed too."""
        name = existing(topic)
        await self._status(name)
        while not (await self._ask(Command.DELETE_QUEUE, {"queue": name, "discard": True})).data["deleted"]:
            pass

    def publish(self, topic: bytes, payload: bytes, settle: Settle) -> None:
        """Append messages to a topic, all of them or none, and call ``settle`` later."""
        if len(payload) <= _EMPTY_BYTES:
            raise Refused(texts.SHORT_PAYLOAD)
        blocks = _count(payload, texts.WRONG_PAYLOAD)
        self._appends.append(self._principal, existing(topic), payload, blocks, settle)

    async def publish_later(self, topic: bytes, payload: bytes, delay_ms: int) -> None:
        """Append messages to a topic after a time."""
        if len(payload) <= _EMPTY_BYTES:
            raise Refused(texts.WRONG_DELAY)
        _count(payload, texts.WRONG_DELAY)
        if delay_ms < _SHORTEST_DELAY_MS:
            raise Refused(texts.SHORT_DELAY)
        if delay_ms > DELAY_MS_LIMIT:
            raise Refused(texts.LONG_DELAY)
        request = {"queue": existing(topic), "encoding": "records", "bodyBytes": len(payload), "delayMs": delay_ms}
        await self._ask(Command.APPEND, request, (payload,))

    # --- reading ------------------------------------------------------------------------------------------------------

    async def read(self, topic: bytes, after: int, most: int, wait: bool = False, most_bytes: int = PAGE_BYTES) -> Page:
        """The records behind an event id; none if there is none, unless it waits for one."""
        return _page(await self._read(existing(topic), after, most, most_bytes, wait_ms=None if wait else 0))

    async def first(self, topic: bytes, after: int, most: int) -> Page:
        """The first records for a subscriber who has processed those up to an event id, which the topic must have; any
        will do for a topic that never had a record. Waits for nothing."""
        name = existing(topic)
        if after < 0:
            await self._status(name)
            raise Refused(texts.NO_EVENT)
        if not after:
            return _page(await self._read(name, 0, most))
        try:
            return _page(await self._read(name, after, most, exact=True))
        except Refused as refused:
            page = _page(await self._read(name, 0, 1))
            if page.end:
                raise refused from None
            return page

    async def _read(
        self,
        name: str,
        after: int,
        most: int,
        most_bytes: int = PAGE_BYTES,
        exact: bool = False,
        wait_ms: int | None = 0,
    ) -> Answer:
        request = {"queue": name, "payloadAs": "raw", "after": after, "max": most, "maxBytes": most_bytes}
        if exact:
            request["exact"] = True
        return await self._ask(Command.READ, request, wait_ms=wait_ms)

    # --- what there is ------------------------------------------------------------------------------------------------

    async def info(self, topic: bytes) -> bytes:
        """A topic as JSON."""
        if not topic:
            raise Refused(texts.NO_NAME)
        name = existing(topic)
        return orjson.dumps(_described(_topic(name, (await self._status(name))["log"])))

    async def list_topics(self, up_to: int = 0) -> bytes:
        """All topics as JSON, or those that were created by an event id; nothing if there are none."""
        topics = [one for one in (await self.overview()).topics if not up_to or one.created <= up_to]
        topics.sort(key=lambda one: one.name.encode())
        return orjson.dumps([_described(one) for one in topics]) if topics else b""

    async def overview(self) -> Overview:
        """All topics, as far as they have names that smss allows."""
        found: list[Topic] = []
        ends: list[int] = []
        after = ""
        while not ends or after:
            page = (await self._ask(Command.LIST_QUEUES, {"limit": _PAGE, "after": after})).data
            rows = [row for row in page["queues"] if row.get("log") and name_of(row["queue"].encode())]
            found += [_topic(row["queue"], row["log"]) for row in rows]
            ends.append(page["asOfEvent"])
            after = page["next"]
        return Overview(found, ends[0], ends[0] == ends[-1])

    async def _status(self, name: str) -> Mapping[str, Any]:
        """What the daemon says of a topic. Raises ``TopicGone``, also for a queue that is no log."""
        status = (await self._ask(Command.STATUS, {"queue": name})).data
        if not status["exists"] or not status.get("log"):
            raise TopicGone
        return status

    async def _ask(
        self, command: str, payload: dict[str, Any], bodies: Sequence[bytes] = (), wait_ms: int | None = 0
    ) -> Answer:
        try:
            return await self._daemon.request(
                self._principal, command, payload, bodies, door=self._door, wait_ms=wait_ms
            )
        except CommandError as error:
            raise refusal(error) from None


def name_of(topic: bytes) -> str | None:
    """The name of a topic; None if it cannot be one. No name is a path, or could be taken for one."""
    return _name_of(topic) if 0 < len(topic) <= _NAME_BYTES_LIMIT else None


@lru_cache(maxsize=4096)
def _name_of(topic: bytes) -> str | None:
    try:
        name = topic.decode()
    except UnicodeDecodeError:
        return None
    if name in (".", "..") or any(one in "/\\" or one.isspace() or not one.isprintable() for one in name):
        return None
    return name


def existing(topic: bytes) -> str:
    """The name of a topic that may exist. Raises ``TopicGone``."""
    name = name_of(topic)
    if name is None:
        raise TopicGone
    return name


def _count(payload: bytes, text: str) -> int:
    try:
        return count_blocks(payload)
    except ValueError as error:
        raise Refused(f"{text}: {error}") from None


def _page(answer: Answer) -> Page:
    data = answer.data
    raw = answer.bodies[0] if answer.bodies else b""
    return Page(raw, data["count"], data["last"], data["created"], data["end"])


def _topic(name: str, log: Mapping[str, Any]) -> Topic:
    return Topic(name, log["created"], log["createdMs"], log["expireAtMs"], log["last"])


def _described(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "createTimeStamp": topic.created_ms,
        "expireAt": topic.expire_at_ms,
        "createEventId": topic.created,
        "stateChangeTime": topic.created_ms,
        "stateChangeEventId": topic.created,
        "state": 0,
        "topicRoot": topic_root(topic.name),
    }


def topic_root(name: str) -> str:
    """Where the reference keeps a topic, which its list shows. Nothing is kept there."""
    first, second = (_fnv(name.encode() + salt) % _FOLDERS for salt in _SALTS)
    return f"/{first}/{second}/{name}"


def _fnv(data: bytes) -> int:
    """FNV-1a with 64 bits."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value
