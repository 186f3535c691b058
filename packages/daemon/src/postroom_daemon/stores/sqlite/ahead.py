"""Ready rows of the SQLite store that are read before they are asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from postroom_common.protocol import State

from ...model.records import Entry
from .known import Known
from .rows import Row
from .statements import Statements

#: Rows that are read ahead at most.
_LIMIT: Final = 64


class _Line:
    """The ready rows of a target that come next; ``ended``: there are no more behind them. ``count`` is how many are
    asked for the next time."""

    __slots__ = ("count", "ended", "rows")

    def __init__(self) -> None:
        self.rows: deque[Row] = deque()
        self.ended = False
        self.count = 1


class Ahead:
    """Who asks for the first ready message again in a group is likely to ask on: rows behind the first are then read
    ahead. They are right until anything but a lease changes: ``clear`` must then be called."""

    def __init__(self, sql: Statements, known: Known) -> None:
        self._sql = sql
        self._known = known
        self._lines: dict[tuple[str, str], _Line] = {}  # by queue and target

    def clear(self) -> None:
        """Something has changed, or the group has ended."""
        self._lines.clear()

    def first(self, rows: Callable[[str, Sequence[Any]], list[Any]], queue: str, target: str) -> Entry | None:
        """The first ready message of a target. ``rows`` asks the database. Raises what that does, and ``StoreDamaged``
        for a row that has changed on the disk."""
        line = self._lines.get((queue, target))
        if line is None:
            line = self._lines[queue, target] = _Line()
        while True:
            while line.rows:
                row = line.rows[0]
                entry = self._known.entry_of(row)
                if entry.state is not State.INFLIGHT or row[2] != State.READY:
                    return entry
                line.rows.popleft()  # it was leased since it was read
            if line.ended:
                return None
            line.rows.extend(rows(self._sql.pick, (queue, 0, target, line.count)))
            line.ended = len(line.rows) < line.count
            line.count = min(line.count * 4, _LIMIT)
