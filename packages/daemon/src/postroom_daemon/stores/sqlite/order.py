"""Who comes next in the SQLite store: the turns of messages that share an ordering key, and pages of messages in the
order in which they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from postroom_common.protocol import State

from ..base import Cursor
from .rows import Row
from .statements import Statements

Rows = Callable[[str, Sequence[Any]], list[Any]]

#: Rows of all queues that a page of one queue looks at, for each message that it may have.
_LOOKS: Final = 4
#: Priorities and targets that ``heads`` looks at before it ends.
_CLASSES_LIMIT: Final = 256


def turns(rows: Rows, sql: Statements, queue: str, order_key: str) -> list[tuple[int, str]]:
    """What is to change in ``blocked`` of the messages with an ordering key, each with its key: free are those in
    flight, and else the first published one once it is ready."""
    free = {key: State(state) for key, state in rows(sql.line_first, (queue, order_key))}
    leased = {key for key, state in free.items() if state is State.INFLIGHT}
    wanted = leased
    if not leased:
        wanted = {key for key, state in rows(sql.line_head, (queue, order_key)) if state == State.READY}
    return [(1, key) for key in free.keys() - wanted] + [(0, key) for key in wanted - free.keys()]


def page(rows: Rows, sql: Statements, queue: str, state: State, after: Cursor, limit: int) -> tuple[list[Row], Cursor]:
    """A page of rows, and where the next begins: see ``Store.scan``."""
    match state:
        case State.READY:
            found = _ready(rows, sql, queue, after, limit + 1)
            return _cut([row for _, row in found], limit, lambda row: (found[limit - 1][0], row[7], row[3], row[4]))
        case State.HELD:
            found_rows = rows(sql.held, (queue, *(after or (-1,)), limit + 1))
            return _cut(found_rows, limit, lambda row: (row[4],))
        case State.DEAD:
            found_rows = rows(sql.dead, (queue, *(after or (-1, -1)), limit + 1))
            return _cut(found_rows, limit, lambda row: (row[14], row[4]))
    if state is State.INFLIGHT:
        return leases(rows, sql, queue, (state,), after, limit)
    return _timed(rows, sql.delayed, 9, queue, (state,), after, limit)


def leases(
    rows: Rows, sql: Statements, queue: str, states: Sequence[State], after: Cursor, limit: int
) -> tuple[list[Row], Cursor]:
    """A page of what is leased and in one of ``states``; see ``Store.leases``."""
    return _timed(rows, sql.leased, 12, queue, states, after, limit)


def heads(
    row: Callable[[str, Sequence[Any]], Row | None],
    sql: Statements,
    queue: str,
    blocked: int,
    target: str,
    everybody: bool,
) -> Iterator[Row]:
    """The oldest ready row of each priority of a target, or of all targets from that one on. The pick index is grouped
    by target and priority: one or two probes visit a group. The last groups of very many are left out."""
    below = 2**63 - 1
    for _ in range(_CLASSES_LIMIT):
        head = row(sql.next_priority, (queue, blocked, target, below))
        if head is None and everybody:
            head = row(sql.next_target, (queue, blocked, target))
        if head is None:
            return
        yield head
        target, below = head[7], head[3]


def _timed(
    rows: Rows, statement: str, at: int, queue: str, states: Sequence[State], after: Cursor, limit: int
) -> tuple[list[Row], Cursor]:
    """A page of one queue's rows, of an index by time (column ``at``) that has all queues."""
    looks = limit * _LOOKS
    looked = rows(statement, (*(after or (-1, -1)), looks + 1))
    fitting = [row for row in looked[:looks] if row[2] in states and queue in ("", row[1])][:limit]
    last = fitting[-1] if len(fitting) == limit else looked[min(looks, len(looked)) - 1] if looked else None
    more = last is not None and last is not looked[-1]
    return fitting, (last[at], last[4]) if last is not None and more else ()


def _ready(rows: Rows, sql: Statements, queue: str, after: Cursor, limit: int) -> list[tuple[int, Row]]:
    """Ready rows behind ``after``, each with whether it waits for another of its ordering key."""
    found: list[tuple[int, Row]] = []
    blocked = 0
    if after:
        blocked, target, priority, seq = (*after,)  # type: ignore[assignment]
        same, lower, others = sql.ready_behind
        for statement, values in ((same, (target, priority, seq)), (lower, (target, priority)), (others, (target,))):
            if len(found) < limit:
                found += ((blocked, row) for row in rows(statement, (queue, blocked, *values, limit - len(found))))
        blocked += 1
    for turn in range(blocked, 2):
        if len(found) < limit:
            found += ((turn, row) for row in rows(sql.ready, (queue, turn, limit - len(found))))
    return found


def _cut(rows: list[Row], limit: int, place: Callable[[Row], Cursor]) -> tuple[list[Row], Cursor]:
    return rows[:limit], place(rows[limit - 1]) if len(rows) > limit else ()
