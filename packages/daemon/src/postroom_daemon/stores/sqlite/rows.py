"""Rows of the SQLite store: an entry as a row of ``msg_index``, and the checksums that close every row.

SQLite does not notice a flipped bit inside a value. So each row ends in a CRC-32 of all else in it, which is compared
whenever the row is read.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final
from zlib import crc32

import orjson

from postroom_common.protocol import State

from ...model.records import Entry
from ..base import EXPIRING

#: The columns of ``msg_index`` in the order in which they are read, written and summed; ``crc`` follows them.
COLUMNS: Final = (
    "message_key", "queue", "state", "priority", "seq", "created_at", "created_engine", "target_consumer_id",
    "attempt", "available_at", "lease_id", "consumer_id", "lease_until", "leased_at", "dlq_at", "failures", "phase",
    "as_of", "size", "order_key", "lapse_at", "extra", "place",
)  # fmt: skip
_AS_OF: Final = COLUMNS.index("as_of")
#: The place of the size. Rows of format 2, and their checksums, end before it.
SIZE: Final = COLUMNS.index("size")
#: The index of ``Entry.returned_seq``: null in most rows, whose checksums end before it, as those of format 3 do.
_PLACE: Final = COLUMNS.index("place")
_SEQ: Final = COLUMNS.index("seq")
#: Those that change after a message was stored, as long as it stays in its queue.
CHANGING: Final = (
    "state", "target_consumer_id", "attempt", "available_at", "lease_id", "consumer_id", "lease_until", "leased_at",
    "dlq_at", "failures", "phase", "as_of", "size", "lapse_at", "extra", "place", "crc",
)  # fmt: skip
#: The values in SQL of the columns that most new messages have in common, and the columns in which they differ. A value
#: may be that of another column.
NEW: Final = {
    "state": "'ready'", "priority": "0", "target_consumer_id": "''", "attempt": "0", "available_at": "0",
    "lease_id": "''", "consumer_id": "''", "lease_until": "NULL", "leased_at": "0", "dlq_at": "NULL", "failures": "0",
    "phase": "''", "as_of": "seq", "order_key": "''", "lapse_at": "0", "place": "NULL",
}  # fmt: skip
NEW_BOUND: Final = tuple(name for name in (*COLUMNS, "crc") if name not in NEW)
_new_bound: Final = itemgetter(*map((*COLUMNS, "crc").index, NEW_BOUND))
_common: Final = itemgetter(*(COLUMNS.index(name) for name in NEW if name != "as_of"))
_COMMON: Final = tuple(
    {"'ready'": "ready", "''": "", "0": 0, "NULL": None}[value] for name, value in NEW.items() if name != "as_of"
)
_CHANGING_AT: Final = [(*COLUMNS, "crc").index(name) for name in CHANGING]

_DEAD, _DONE = State.DEAD, State.DONE  # used for every row, and slow to look up
#: The states by their names, and the names as plain texts, for which SQLite needs no adapter.
_STATES: Final = {state.value: state for state in State}
_NAMES: Final = {state: state.value for state in State}

Row = tuple[Any, ...]


def row_of(e: Entry, as_of: int) -> Row:
    """An entry as a row, ``crc`` last. ``as_of`` is the last event that it shows."""
    state = e.state
    ended = e.dead_at if state is _DEAD or state is _DONE else None
    lapses = (e.expires or e.fallback) and state in EXPIRING
    values = (
        e.key, e.queue, _NAMES[state], e.priority, e.seq, e.created_wall, e.created, e.target, e.attempt, e.due,
        e.lease_id, e.consumer_id, e.lease_until or None, e.leased_at, ended,
        e.failures, e.phase, as_of, e.size, e.order_key, e.next_expiry if lapses else 0, _rare(e),
    )  # fmt: skip
    if e.returned_seq:
        return (*values, e.returned_seq, crc32(orjson.dumps((*values, e.returned_seq))))
    return (*values, None, crc32(orjson.dumps(values)))


def _rare(e: Entry) -> str:
    """What most entries do not have, and who has leased and published it, without trailing empty values; '' if there is
    nothing."""
    if not (
        e.holder_uid or e.reason or e.expires or e.fallback or e.due_wall or e.claim or e.publisher_uid or e.retry_limit
        or e.parts or e.unset or e.name
    ):  # fmt: skip
        return ""
    rare = [e.reason, e.expires, e.fallback, e.due_wall, e.claim]
    if e.name or e.unset:
        rare += e.holder_uid, e.publisher_uid, e.retry_limit, e.parts, e.unset, e.name
    elif e.parts:
        rare += e.holder_uid, e.publisher_uid, e.retry_limit, e.parts
    elif e.retry_limit:
        rare += e.holder_uid, e.publisher_uid, e.retry_limit
    elif e.publisher_uid:
        rare += e.holder_uid, e.publisher_uid
    elif e.holder_uid:
        rare.append(e.holder_uid)
    return orjson.dumps(rare).decode()


def new_of(row: Row) -> Row | None:
    """The values of ``NEW_BOUND`` in a row, if the others are those of ``NEW``; otherwise None."""
    return _new_bound(row) if _common(row) == _COMMON and row[_AS_OF] == row[_SEQ] else None


def publisher_of(extra: str) -> str:
    """The account that has published a message, from the column ``extra`` of its row; '' if nobody is known. Raises
    ``TypeError`` and ``ValueError``."""
    rare: list[Any] = orjson.loads(extra) if extra else []
    return str(rare[6]) if len(rare) > 6 else ""


def changes_of(row: Row) -> list[Any]:
    """The values of ``CHANGING`` in a row."""
    return [row[place] for place in _CHANGING_AT]


def turn_of(row: Row) -> int:
    """The ``position`` of the entry in a row."""
    return int(row[_SEQ] if row[_PLACE] is None else row[_PLACE])


def as_of(row: Row) -> int:
    """The last event that a row shows."""
    return int(row[_AS_OF])


def row_holds(row: Row) -> bool:
    """Whether a row is what was written. Rows of format 1 have no checksum, and are believed; others may be sums
    of fewer columns."""
    crc = row[-1]
    summed = row[:SIZE] if row[SIZE] is None else row[:_PLACE] if row[_PLACE] is None else row[:-1]
    return crc is None or crc == crc32(orjson.dumps(summed))


def entry_of(row: Row) -> Entry:
    """The entry that a row holds. Raises ``ValueError`` or ``TypeError`` for values that there are not."""
    entry = Entry(
        row[0], row[1], _STATES.get(row[2]) or State(row[2]), row[3], row[4], row[5], row[6], row[7], row[8], row[9],
        row[10], row[11], row[12] or 0, row[13], row[14] or 0, row[15], row[16], row[18] or 0, "", 0, 0, 0, row[19],
        "", "", "", 0, row[22] or 0,
    )  # fmt: skip
    if row[21]:
        rare: list[Any] = orjson.loads(row[21])
        entry.reason, entry.expires, entry.fallback, entry.due_wall, entry.claim = rare[:5]
        if len(rare) > 5:
            entry.holder_uid = rare[5]
            entry.publisher_uid = rare[6] if len(rare) > 6 else ""
            entry.retry_limit = rare[7] if len(rare) > 7 else 0
            entry.parts = rare[8] if len(rare) > 8 else 0
            if len(rare) > 9:
                entry.unset, entry.name = rare[9:11]
    return entry


def value_crc(key: str, value: bytes, kind: str) -> int:
    """The checksum of a row of ``kv``."""
    return crc32(value, crc32(f"{key}\0{kind}\0".encode()))


def value_holds(key: str, value: str, kind: str, crc: int | None) -> bool:
    """Whether a row of ``kv`` is what was written; see ``row_holds``."""
    return type(value) is str and (crc is None or crc == value_crc(key, value.encode(), kind))
