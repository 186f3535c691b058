"""Pages of the messages that a filter means: bounded work for each request, whatever the backlog.

A request looks at so many messages and reads so many bytes of bodies, and for so long, then ends: its page is short, or
empty, and has a ``next`` all the same. Whoever wants all of them goes on until there is none. How long a look takes
decides only where its page ends.
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

from ..model.records import Entry, history_fact
from ..stores.base import BodyLost, BodyUnread, Cursor, Store
from .context import Context
from .filters import Filter

#: Messages that one request looks at, and bytes of bodies that it reads to do so; one body may go beyond.
LOOKS: Final = 2000
READ_BYTES: Final = 8 * 1024 * 1024
#: Nanoseconds of work, and of time with what is waited for from the disk, after which a request looks at no further
#: message: others wait meanwhile.
LOOK_NS: Final = 15_000_000
WAIT_NS: Final = 50_000_000
#: Messages with short bodies that are looked at however long that takes: pages of a few are not cut when the machine
#: is busy with other things.
_FEW: Final = 16
_SHORT_BYTES: Final = 65_536
_DEAD_PAGE: Final = 100
_SEAL_BYTES: Final = 6
#: Three numbers of 64 bits, and what is between them.
_DEAD_CURSOR_LENGTH: Final = 62


@dataclass(slots=True)
class Page:
    """Messages that are meant, and the text with which the next page is asked for: '' when there is none."""

    entries: list[Entry]
    next: str


class Look:
    """What one request may still look at."""

    def __init__(self, context: Context, wanted: Filter, up_to: int | None = None, moment: int | None = None) -> None:
        """``up_to``: only messages published by events up to this one. ``moment``: the engine time (now if None) at
        which ages are taken."""
        self._context, self._wanted, self._up_to = context, wanted, up_to
        self._moment = context.now.engine if moment is None else moment
        self._looks, self._bytes = LOOKS, READ_BYTES
        self._works_until, self._ends_ns = time.thread_time_ns() + LOOK_NS, time.monotonic_ns() + WAIT_NS
        self._values = wanted.values
        self._has_looked = False  # each request comes further by one message at least

    @property
    def over(self) -> bool:
        """Whether the request must end."""
        if self._looks <= 0 or self._bytes <= 0 or self._wanted.values <= 0:
            return True
        is_short = READ_BYTES - self._bytes <= _SHORT_BYTES and self._wanted.values == self._values
        if not self._has_looked or (is_short and LOOKS - self._looks <= _FEW):
            return False
        return time.thread_time_ns() > self._works_until or time.monotonic_ns() > self._ends_ns

    def step(self) -> None:
        """A page was read, which may have been empty."""
        self._looks -= 1

    def at(self, entry: Entry) -> bool:
        """Whether a message is meant. One whose body is asked for and cannot be read is not."""
        self._looks -= 1
        self._has_looked = True
        if self._up_to is not None and entry.seq > self._up_to:
            return False
        store = self._context.store

        def history() -> list[dict[str, Any]]:
            return store.get_kv(history_fact(entry.key)) or [] if entry.failures else []

        def envelope() -> bytes:
            self._bytes -= entry.size
            return store.envelope(entry.key)

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
    """A page of a queue's messages in ``states``, one state after the other, each in the order of ``Store.scan``.

    Raises ``CommandError`` for an ``after`` that is none.
    """
    what = [queue, *states]
    at, cursor = _read_cursor(after, what)
    look, found = Look(context, wanted, up_to), list[Entry]()
    while at < len(states):
        page, behind = context.store.pages.scan(queue, states[at], cursor, limit - len(found) if not wanted else limit)
        look.step()
        seen = 0
        for entry in page:
            if look.over or len(found) >= limit:
                break
            seen += 1
            if look.at(entry):
                found.append(entry)
        cursor = behind if seen == len(page) else _behind(context.store, queue, states[at], cursor, seen)
        if not cursor and seen == len(page):
            at += 1
        if look.over or len(found) >= limit:
            break
    return Page(found, _cursor_text(at, cursor, what) if at < len(states) else "")


def select_leases(context: Context, queue: str, after: str, limit: int) -> Page:
    """A page of what is leased in a queue, or in all (''), dead letters with it; the lease that ends first comes first.

    Raises as ``select``.
    """
    what = [queue, "leases"]
    _, cursor = _read_cursor(after, what)
    found, behind = context.store.pages.leases(queue, cursor, limit)
    return Page(found, _cursor_text(0, behind, what) if behind else "")


def select_dead(
    context: Context, queues: Iterable[str], wanted: Filter, after: str, limit: int, bounded: bool = False
) -> Page:
    """A page of the dead letters of queues, oldest death first. Raises as ``select``.

    ``bounded``: of those only that had died when the first page was asked for, and by their age of then, so that the
    pages come to an end although letters that are brought back die again. ``next`` carries that time on.
    """
    last, moment = _read_dead_cursor(after)
    if bounded and moment is None:
        moment = context.now.engine
    look, found = Look(context, wanted, moment=moment), list[Entry]()
    for entry in dead_letters(context.store, queues, last):
        if moment is not None and entry.dead_at > moment:
            break
        if look.over or len(found) >= limit:
            return Page(found, dead_cursor(*last, moment))
        last = (entry.dead_at, entry.seq)
        if look.at(entry):
            found.append(entry)
    return Page(found, "")


def dead_letters(store: Store, queues: Iterable[str], after: tuple[int, int] = (-1, -1)) -> Iterator[Entry]:
    """All dead letters of queues, oldest death first, beginning behind ``after``; read as they are asked for."""
    return heapq.merge(*(_dead_of(store, queue, after) for queue in queues), key=lambda one: (one.dead_at, one.seq))


def _dead_of(store: Store, queue: str, after: tuple[int, int]) -> Iterator[Entry]:
    while True:
        page = store.pages.dead(queue, after, _DEAD_PAGE)
        yield from page
        if len(page) < _DEAD_PAGE:
            return
        after = (page[-1].dead_at, page[-1].seq)


def dead_cursor(dead_at: int, seq: int, moment: int | None = None) -> str:
    """The text with which the page behind a dead letter is asked for."""
    return f"{dead_at}.{seq}" if moment is None else f"{dead_at}.{seq}.{moment}"


def _read_dead_cursor(text: str) -> tuple[tuple[int, int], int | None]:
    """What ``dead_cursor`` made. Raises ``CommandError``."""
    if not text:
        return (-1, -1), None
    numbers = text.split(".")
    if len(numbers) not in (2, 3) or len(text) > _DEAD_CURSOR_LENGTH or not all(map(_is_number, numbers)):
        raise _no_cursor()
    dead_at, seq, *moment = (min(int(number), 2**63 - 1) for number in numbers)
    return (dead_at, seq), moment[0] if moment else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _behind(store: Store, queue: str, state: State, after: Cursor, count: int) -> Cursor:
    """The cursor behind the first ``count`` messages of what follows ``after``."""
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
        raise _no_cursor() from None
    data = sealed[_SEAL_BYTES:]
    if sealed[:_SEAL_BYTES] != _seal(data, what):
        raise _no_cursor()
    at, *cursor = orjson.loads(data)
    return at, tuple(cursor)


def _seal(data: bytes, what: list[str]) -> bytes:
    """Tells a cursor of the same question from anything else: a store can be given only what it has made."""
    return blake2b(data + orjson.dumps(what), digest_size=_SEAL_BYTES).digest()


def _no_cursor() -> CommandError:
    return CommandError(ErrorCode.INVALID_REQUEST, "after must be the next of an earlier page")
