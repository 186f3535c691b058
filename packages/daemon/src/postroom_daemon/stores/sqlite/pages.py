"""Who comes next in the SQLite store: messages in order, what is due at a time, and the turns of messages that share an
ordering key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from heapq import nsmallest
from typing import Final

import orjson

from postroom_common.protocol import State

from ...model.records import Entry, QueueRecord
from ..base import EXPIRING, LEASED, TIMED, Cursor, Due, Pages
from ..errors import StoreDamaged, StoreError
from .database import Database
from .records import QUEUE_KEY, SqliteBook
from .rows import Row, publisher_of, turn_of

#: Rows of all queues that a page of one queue looks at, for each message that it may have.
_LOOKS: Final = 4
#: Priorities and targets that are looked at for the oldest of each.
_CLASSES_LIMIT: Final = 256
#: Bits of a time that SQLite can store.
_TIME_BITS: Final = 63
_NEVER: Final = 2**_TIME_BITS


def checked(entry: Entry, state: State, db: Database) -> Entry:
    """An entry that an index lists in a state. Raises ``StoreDamaged`` if it is in another one: the index would return
    it for ever."""
    if entry.state is not state:
        raise StoreDamaged(f"{db.path}: an index has {entry.key} as {state}, its row as {entry.state}")
    return entry


class Turns:
    """Which of the messages of a queue that share an ordering key may be delivered: those in flight, and else the first
    published one once it is ready. All others are ``blocked`` in their rows."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def update(self, queue: str, order_key: str) -> None:
        """A message with an ordering key has changed: see whose turn it is."""
        db, sql = self._db, self._db.sql
        free = {key: State(state) for key, state in db.rows(sql.free_of_order_key, (queue, order_key))}
        wanted = {key for key, state in free.items() if state is State.INFLIGHT}
        if not wanted:
            firsts = db.rows(sql.first_of_order_key, (queue, order_key))
            wanted = {key for key, state in firsts if state == State.READY}
        for blocked, keys in ((1, free.keys() - wanted), (0, wanted - free.keys())):
            for key in keys:
                db.execute(sql.block, (blocked, key))

    def update_all(self) -> None:
        """See whose turn it is for every ordering key."""
        for queue, order_key in self._db.rows(self._db.sql.order_keys):
            self.update(queue, order_key)


class SqliteDue(Due):
    """``update`` is the store's, by which messages become ready. A hint, a time before which nothing is due, spares
    most questions; a rollback makes it unknown."""

    def __init__(self, db: Database, entry_of: Callable[[Row], Entry], update: Callable[[Entry, State], None]) -> None:
        self._db = db
        self._entry_of = entry_of
        self._update = update
        self._hint: int | None = 0  # None: nothing is due at all
        self._is_over = True  # the hint may be too early: the database must be asked

    def note(self, entry: Entry) -> None:
        """A message with a time has changed, or is new. Raises ``StoreError`` for a time that SQLite cannot store."""
        state = entry.state
        if (entry.lease_until | entry.due | entry.expires | entry.fallback) >> _TIME_BITS:
            raise StoreError(f"{entry.key}: a time is out of range")
        due = entry.lease_until or _NEVER
        if state in TIMED:
            due = min(due, entry.due)
        if state in EXPIRING:
            due = min(due, entry.next_expiry or _NEVER)
        if due < (_NEVER if self._hint is None else self._hint):
            self._hint = due

    def refresh(self) -> None:
        """Ask the database when something is due."""
        sql = self._db.sql
        firsts = [self._db.row(one) for one in (*sql.first_due, sql.first_lease, sql.first_lapse)]
        self._hint = min((row[0] for row in firsts if row), default=None)
        self._is_over = False

    def _is_due(self, now: int) -> bool:
        hint = self.next_time()
        if hint is None or now < hint:
            return False
        self._is_over = True
        return True

    def promote(self, now: int, limit: int) -> list[str]:
        if not self._is_due(now):
            return []
        due = [self._entry_of(row) for sql in self._db.sql.due for row in self._db.rows(sql, (now, limit))]
        due = sorted(due, key=lambda entry: (entry.due, entry.seq))[:limit]
        for entry in due:
            ready = entry.copy()
            ready.state = State.READY
            self._update(ready, entry.state)
        return [entry.queue for entry in due]

    def ended_leases(self, now: int, limit: int) -> list[Entry]:
        return self._over(self._db.sql.ended_leases, now, limit, LEASED)

    def expiring(self, now: int, limit: int) -> list[Entry]:
        return self._over(self._db.sql.expiring, now, limit, EXPIRING)

    def _over(self, sql: str, now: int, limit: int, states: Sequence[State]) -> list[Entry]:
        if not self._is_due(now):
            return []
        entries = [self._entry_of(row) for row in self._db.rows(sql, (now, limit))]
        return [entry if entry.state in states else checked(entry, states[0], self._db) for entry in entries]

    def next_time(self) -> int | None:
        if self._is_over and self._hint is not None:
            self.refresh()
        return self._hint

    def commit(self) -> None:
        """See ``Participant``."""

    def rollback(self) -> None:
        """See ``Participant``."""
        self._hint = 0
        self._is_over = True


class SqlitePages(Pages):
    """Every page is a search of an index."""

    def __init__(self, db: Database, entry_of: Callable[[Row], Entry], book: SqliteBook) -> None:
        self._db = db
        self._sql = db.sql
        self._book = book
        self._entry_of = entry_of

    def _page(self, rows: tuple[list[Row], Cursor]) -> tuple[list[Entry], Cursor]:
        return [self._entry_of(row) for row in rows[0]], rows[1]

    def scan(self, queue: str, state: State, after: Cursor, limit: int) -> tuple[list[Entry], Cursor]:
        sql, rows = self._sql, self._db.rows
        match state:
            case State.READY:
                ready = self._ready(queue, after, limit + 1)
                found = [row for _, row in ready]
                return self._page(_cut(found, limit, lambda row: (ready[limit - 1][0], row[7], row[3], turn_of(row))))
            case State.HELD | State.DRAFTING:
                held = sql.held if state is State.HELD else sql.drafts
                found = rows(held, (queue, *(after or (-1,)), limit + 1))
                return self._page(_cut(found, limit, lambda row: (row[4],)))
            case State.DEAD | State.DONE:
                found = rows(sql.dead if state is State.DEAD else sql.done, (queue, *(after or (-1, -1)), limit + 1))
                return self._page(_cut(found, limit, lambda row: (row[14], row[4])))
            case State.INFLIGHT:
                return self._page(self._timed(sql.leased, 12, queue, (state,), after, limit))
        return self._page(self._timed(sql.timed[TIMED.index(state)], 9, queue, (state,), after, limit))

    def leases(self, queue: str, after: Cursor, limit: int) -> tuple[list[Entry], Cursor]:
        return self._page(self._timed(self._sql.leased, 12, queue, LEASED, after, limit))

    def dead(self, queue: str, after: tuple[int, int], limit: int) -> list[Entry]:
        return [self._entry_of(row) for row in self._db.rows(self._sql.dead, (queue, *after, limit))]

    def entries(self, after: str, limit: int) -> list[Entry]:
        return [self._entry_of(row) for row in self._db.rows(self._sql.page, (after, limit))]

    def oldest_ready(self, queue: str, consumer: str | None = None) -> Entry | None:
        if consumer is None:
            heads = [head for blocked in (0, 1) for head in self._heads(queue, blocked, "", everybody=True)]
        else:
            heads = [head for target in {"", consumer} for head in self._heads(queue, 0, target, everybody=False)]
        return min(heads, key=lambda e: e.position, default=None)

    def oldest(self, queue: str, limit: int) -> list[Entry]:
        oldest: list[Entry] = []
        for blocked in (0, 1):
            for head in self._heads(queue, blocked, "", everybody=True):
                same = (queue, blocked, head.target, head.priority, -1, limit)
                page = [self._entry_of(row) for row in self._db.rows(self._sql.ready_behind[0], same)]
                oldest = nsmallest(limit, oldest + page, key=lambda e: e.position)
        return oldest

    def queue_names(self, after: str, limit: int) -> list[str]:
        rows = self._db.rows(self._sql.queue_keys, (QUEUE_KEY + after, limit))
        return [row[0].removeprefix(QUEUE_KEY) for row in rows]

    def queues(self, after: str, limit: int) -> list[QueueRecord]:
        rows, records = self._db.rows(self._sql.queue_values, (QUEUE_KEY + after, limit)), self._book.values
        found = ((key.removeprefix(QUEUE_KEY), self._db.checked_value(key, *row)) for key, *row in rows)
        return [records.get(name) or QueueRecord.from_json(orjson.loads(value)) for name, value in found]

    def stored_bytes(self, after: str, until: int, limit: int) -> tuple[Counter[str], str]:
        rows = self._db.rows(self._sql.sizes, (after, limit))
        by_extra = Counter[str]()  # messages in a row mostly have the same
        for _, seq, size, extra in rows:
            if seq <= until and size:
                by_extra[extra] += size
        stored = Counter[str]()
        try:
            for extra, size in by_extra.items():
                stored[publisher_of(extra)] += size
        except (TypeError, ValueError):
            raise StoreDamaged(f"{self._db.path}: the row of a message has changed on the disk") from None
        del stored[""]
        return stored, rows[-1][0] if len(rows) == limit else ""

    def _heads(self, queue: str, blocked: int, target: str, everybody: bool) -> Iterator[Entry]:
        """The oldest ready message of each priority of a target, or of all targets from that one on. The index is
        grouped by target and priority: one or two probes visit a group. The last groups of very many are left out."""
        below = 2**63 - 1
        for _ in range(_CLASSES_LIMIT):
            head = self._db.row(self._sql.next_priority, (queue, blocked, target, below))
            if head is None and everybody:
                head = self._db.row(self._sql.next_target, (queue, blocked, target))
            if head is None:
                return
            yield self._entry_of(head)
            target, below = head[7], head[3]

    def _timed(
        self, statement: str, at: int, queue: str, states: Sequence[State], after: Cursor, limit: int
    ) -> tuple[list[Row], Cursor]:
        """A page of one queue's rows, of an index by time (column ``at``) that has all queues."""
        looks = limit * _LOOKS
        looked = self._db.rows(statement, (*(after or (-1, -1)), looks + 1))
        fitting = [row for row in looked[:looks] if row[2] in states and queue in ("", row[1])][:limit]
        last = fitting[-1] if len(fitting) == limit else looked[min(looks, len(looked)) - 1] if looked else None
        more = last is not None and last is not looked[-1]
        return fitting, (last[at], last[4]) if last is not None and more else ()

    def _ready(self, queue: str, after: Cursor, limit: int) -> list[tuple[int, Row]]:
        """Ready rows behind ``after``, each with whether it is blocked."""
        rows, sql = self._db.rows, self._sql
        found: list[tuple[int, Row]] = []
        blocked = 0
        if after:
            blocked, target, priority, seq = (*after,)  # type: ignore[assignment]
            same, lower, others = sql.ready_behind
            for statement, values in (
                (same, (target, priority, seq)),
                (lower, (target, priority)),
                (others, (target,)),
            ):
                if len(found) < limit:
                    page = rows(statement, (queue, blocked, *values, limit - len(found)))
                    found += ((blocked, row) for row in page)
            blocked += 1
        for is_blocked in range(blocked, 2):
            if len(found) < limit:
                found += ((is_blocked, row) for row in rows(sql.ready, (queue, is_blocked, limit - len(found))))
        return found


def _cut(rows: list[Row], limit: int, place: Callable[[Row], Cursor]) -> tuple[list[Row], Cursor]:
    return rows[:limit], place(rows[limit - 1]) if len(rows) > limit else ()
