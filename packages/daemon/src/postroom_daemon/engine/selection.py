"""Pages of messages that match a filter, with bounded work per request whatever the backlog.

A request checks a limited number of messages, reads a limited number of bytes, and takes a limited time. Then its page
ends; it may be short or empty and still has a ``next``. A client that wants all messages continues until there is no
``next``. Time decides only where a page ends.
"""

from __future__ import annotations

import base64
import heapq
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import orjson

from postroom_common.errors import CommandError
from postroom_common.protocol import ErrorCode, State

from ..model.records import Entry
from ..stores.base import Cursor, Store
from ..stores.errors import BodyLost, BodyUnread
from .context import Context
from .filters import Filter

#: Maximum number of messages that one request checks, and of bytes of bodies that it reads (one body may exceed it).
LOOKS: Final = 2000
READ_BYTES: Final = 8 * 1024 * 1024
#: CPU time and elapsed time (ns) after which a request checks no further message, because others wait.
LOOK_NS: Final = 15_000_000
WAIT_NS: Final = 50_000_000
#: Number of messages with short bodies that are checked however long it takes, so that a busy machine does not cut
#: small pages.
_UNTIMED: Final = 16
_SHORT_BYTES: Final = 65_536
_DEAD_PAGE: Final = 100
_SEAL_BYTES: Final = 6
#: Three numbers of 64 bits and two separators.
_DEAD_CURSOR_LENGTH: Final = 62


@dataclass(slots=True)
class Page:
    """Selected messages, and the cursor of the next page; '' if there is none."""

    entries: list[Entry]
    next: str


class Search:
    """Checks messages against a filter, within the limits of one request."""

    def __init__(self, context: Context, wanted: Filter, up_to: int | None = None, moment: int | None = None) -> None:
        """``up_to``: match only messages published by events up to this one. ``moment``: the engine time for ages
        (None: now)."""
        self._context, self._wanted, self._up_to = context, wanted, up_to
        self._moment = context.now.engine if moment is None else moment
        self._looks, self._bytes = LOOKS, READ_BYTES
        self._works_until, self._ends_ns = time.thread_time_ns() + LOOK_NS, time.monotonic_ns() + WAIT_NS
        self._values = wanted.values
        self._has_checked = False  # each request checks at least one message

    @property
    def is_over(self) -> bool:
        """Whether the limits of the request are reached."""
        if self._looks <= 0 or self._bytes <= 0 or self._wanted.values <= 0:
            return True
        is_short = READ_BYTES - self._bytes <= _SHORT_BYTES and self._wanted.values == self._values
        if not self._has_checked or (is_short and LOOKS - self._looks <= _UNTIMED):
            return False
        return time.thread_time_ns() > self._works_until or time.monotonic_ns() > self._ends_ns

    def step(self) -> None:
        """Count a page that was read from the store, even if it was empty."""
        self._looks -= 1

    def matches(self, entry: Entry) -> bool:
        """Whether a message matches. One whose body is needed but cannot be read does not."""
        self._looks -= 1
        self._has_checked = True
        if self._up_to is not None and entry.seq > self._up_to:
            return False
        store = self._context.store

        def history() -> list[dict[str, Any]]:
            return store.facts.history(entry)

        def envelope() -> bytes:
            self._bytes -= entry.size
            return store.bodies.message(entry)

        try:
            return self._wanted.matches(entry, self._moment, history, envelope)
        except (BodyLost, BodyUnread):
            return False


def select(
    context: Context,
    queue: str,
    states: Sequence[State],
    wanted: Filter,
    after: str,
    limit: int,
    up_to: int | None = None,
) -> Page:
    """A page of a queue's messages in ``states``, one state after the other, each in the order of the store's ``scan``.

    Raises ``CommandError`` for an invalid ``after``.
    """
    what = [queue, *states]
    at, cursor = _read_cursor(after, what)
    search, selected = Search(context, wanted, up_to), list[Entry]()
    while at < len(states):
        count = limit if wanted else limit - len(selected)
        page, following = context.store.pages.scan(queue, states[at], cursor, count)
        search.step()
        seen = 0
        for entry in page:
            if search.is_over or len(selected) >= limit:
                break
            seen += 1
            if search.matches(entry):
                selected.append(entry)
        cursor = following if seen == len(page) else _skip(context.store, queue, states[at], cursor, seen)
        if not cursor and seen == len(page):
            at += 1
        if search.is_over or len(selected) >= limit:
            break
    return Page(selected, _cursor_text(at, cursor, what) if at < len(states) else "")


def select_leases(context: Context, queue: str, after: str, limit: int) -> Page:
    """A page of the leased messages and dead letters of a queue, or of all queues (''), by the end of the lease.

    Raises ``CommandError`` for an invalid ``after``.
    """
    what = [queue, "leases"]
    _, cursor = _read_cursor(after, what)
    leased, following = context.store.pages.leases(queue, cursor, limit)
    return Page(leased, _cursor_text(0, following, what) if following else "")


def select_dead(
    context: Context, queues: Iterable[str], wanted: Filter, after: str, limit: int, bounded: bool = False
) -> Page:
    """A page of the dead letters of queues, oldest death first. Raises ``CommandError`` for an invalid ``after``.

    ``bounded``: only those that were dead at the time of the first page, with their age at that time. So the pages end
    even if reprocessed dead letters die again. ``next`` contains that time.
    """
    last, moment = _read_dead_cursor(after)
    if bounded and moment is None:
        moment = context.now.engine
    search, selected = Search(context, wanted, moment=moment), list[Entry]()
    for entry in dead_letters(context.store, queues, last):
        if moment is not None and entry.dead_at > moment:
            break
        if search.is_over or len(selected) >= limit:
            return Page(selected, dead_cursor(*last, moment))
        last = (entry.dead_at, entry.seq)
        if search.matches(entry):
            selected.append(entry)
    return Page(selected, "")


def dead_letters(store: Store, queues: Iterable[str], after: tuple[int, int] = (-1, -1)) -> Iterator[Entry]:
    """All dead letters of queues after ``after``, oldest death first, read on demand."""
    return heapq.merge(*(_dead_of(store, queue, after) for queue in queues), key=lambda one: (one.dead_at, one.seq))


def _dead_of(store: Store, queue: str, after: tuple[int, int]) -> Iterator[Entry]:
    while True:
        page = store.pages.dead(queue, after, _DEAD_PAGE)
        yield from page
        if len(page) < _DEAD_PAGE:
            return
        after = (page[-1].dead_at, page[-1].seq)


def dead_cursor(dead_at: int, seq: int, moment: int | None = None) -> str:
    """The cursor of the page after a dead letter."""
    return f"{dead_at}.{seq}" if moment is None else f"{dead_at}.{seq}.{moment}"


def _read_dead_cursor(text: str) -> tuple[tuple[int, int], int | None]:
    """Parse a cursor of ``dead_cursor``. Raises ``CommandError``."""
    if not text:
        return (-1, -1), None
    numbers = text.split(".")
    if len(numbers) not in (2, 3) or len(text) > _DEAD_CURSOR_LENGTH or not all(map(_is_number, numbers)):
        raise _invalid_cursor()
    dead_at, seq, *moment = (min(int(number), 2**63 - 1) for number in numbers)
    return (dead_at, seq), moment[0] if moment else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _skip(store: Store, queue: str, state: State, after: Cursor, count: int) -> Cursor:
    """The cursor after the first ``count`` messages after ``after``."""
    while count:
        page, after = store.pages.scan(queue, state, after, count)
        count -= len(page)
        if not after:
            break
    return after


def _cursor_text(at: int, cursor: Cursor, what: list[str]) -> str:
    data = orjson.dumps([at, *cursor])
    return base64.urlsafe_b64encode(_seal(data, what) + data).decode().rstrip("=")


def _read_cursor(text: str, what: list[str]) -> tuple[int, Cursor]:
    if not text:
        return 0, ()
    try:
        sealed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise _invalid_cursor() from None
    data = sealed[_SEAL_BYTES:]
    if sealed[:_SEAL_BYTES] != _seal(data, what):
        raise _invalid_cursor()
    at, *cursor = orjson.loads(data)
    return at, tuple(cursor)


def _seal(data: bytes, what: list[str]) -> bytes:
    """A checksum over cursor and query, so that a store gets only cursors that it made for the same query."""
    return blake2b(data + orjson.dumps(what), digest_size=_SEAL_BYTES).digest()


def _invalid_cursor() -> CommandError:
    return CommandError(ErrorCode.INVALID_REQUEST, "after must be the next of an earlier page")
