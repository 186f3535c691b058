"""Ready messages of the filesystem store in the order of delivery: a lane for each queue and target.

Hints, in little memory: one that no longer fits its message is skipped, and dropped if it is in the way.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from heapq import merge
from typing import Final

from postroom_common.protocol import State

from ...model.records import Entry
from .keys import KeyQueue
from .places import Places
from .sorted_keys import Sorted
from .uuids import id_of_halves

Look = Callable[[str], Entry | None]
_LAST: Final = "\U0010ffff"  # sorts behind every key
#: Messages that have gone from the middle of a priority run before they are dropped.
_GONE_LIMIT: Final = 1000


class _Run:
    """The ready messages of one priority: in ``keys`` those that came in the order of publishing, which is nearly all;
    in ``back`` those that came back, by their ``position``, and those whose turn it is among others of their ordering
    key. Those that returned to the end are in ``back`` alone. ``first`` and ``last`` are the publish numbers between
    which those in ``keys`` are, ``gone`` is about how many of them no longer exist."""

    def __init__(self, prefix: str) -> None:
        self.keys = KeyQueue(prefix)
        self.first = 2**63
        self.last = -1
        self.gone = 0
        self.back: Sorted[tuple[int, str]] = Sorted()


class Lane:
    """The ready messages of one queue for one target. ``look`` returns the entry of a key, ``is_next``
    whether it is a message's turn."""

    def __init__(self, queue: str, target: str, places: Places, look: Look, is_next: Callable[[Entry], bool]) -> None:
        self._queue = queue
        self._target = target
        self._prefix = f"msg:{queue}"
        self._places = places
        self._look = look
        self._is_next = is_next
        self._priorities: list[int] = []
        self._runs: dict[int, _Run] = {}

    def add(self, priority: int, seq: int, key: str) -> None:
        """Add a message that has become ready; a hint too many does no harm."""
        run = self._run(priority)
        if seq > run.last:
            run.keys.append(key)
            run.last = seq
            if seq < run.first:
                run.first = seq
        else:
            run.back.add((seq, key))

    def call(self, priority: int, position: int, key: str) -> None:
        """Add a message whose turn has come among others of its ordering key, or that has returned to the end."""
        self._run(priority).back.add((position, key))

    def add_run(self, priority: int, seqs: array[int], halves: array[int]) -> None:
        """Add what the start has found in one folder, in the order of publishing, with the halves of the ids one behind
        the other. Folders one behind the other share nothing; what overlaps goes to ``back``."""
        run = self._run(priority)
        before = bisect_left(seqs, run.first) if run.last >= 0 else 0
        behind = bisect_right(seqs, run.last)
        for number in range(before, behind):
            key = f"{self._prefix}:{id_of_halves(halves[2 * number], halves[2 * number + 1])}"
            run.back.add((seqs[number], key))
        run.keys.prepend_packed(halves[: 2 * before])
        run.keys.extend_packed(halves[2 * behind :])
        run.first, run.last = min(run.first, seqs[0]), max(run.last, seqs[-1])

    def _run(self, priority: int) -> _Run:
        run = self._runs.get(priority)
        if run is None:
            run = self._runs[priority] = _Run(self._prefix)
            insort(self._priorities, priority)
        return run

    def take(self, priority: int, position: int, key: str) -> None:
        """Drop a message that is no longer ready, if it is the next one: what lies deeper is passed over later."""
        run = self._runs.get(priority)
        if run is None:
            return
        if run.keys.first() == key:
            run.keys.popleft()
        else:
            run.gone += 1
        run.back.discard((position, key))

    def head(self) -> Entry | None:
        """The message to deliver next."""
        while self._priorities:
            found = self._first(self._priorities[-1])
            if found:
                return found
            del self._runs[self._priorities.pop()]
        return None

    def oldest(self) -> Entry | None:
        """The message with the first ``position``."""
        heads = (self._first(priority) for priority in self._priorities)
        return min((head for head in heads if head), key=lambda e: e.position, default=None)

    def _first(self, priority: int) -> Entry | None:
        run = self._runs[priority]
        first = None
        while not first and (key := run.keys.first()):
            first = self._fitting(key)
            if not first or first.returned_seq:
                first = None
                run.keys.popleft()
        while (hint := run.back.first()) and not (first and first.seq < hint[0]):
            entry = self._fitting(hint[1])
            if entry and entry.position == hint[0]:
                return entry
            run.back.discard(hint)
        return first

    def _fitting(self, key: str) -> Entry | None:
        entry = self._look(key)
        return entry if entry and self.has(entry) and self._is_next(entry) else None

    def has(self, entry: Entry) -> bool:
        """Whether a message belongs here."""
        return entry.state is State.READY and (entry.queue, entry.target) == (self._queue, self._target)

    def behind(self, order: int, position: int) -> Iterator[tuple[int, Entry]]:
        """The messages behind an ``order``, the negative priority, and a position in it: in the order of delivery, each
        with its order. Some may no longer fit."""
        for priority in reversed(self._priorities[: bisect_right(self._priorities, -order)]):
            for entry in self.run(priority, position if -priority == order else -1):
                yield -priority, entry

    def priorities(self) -> list[int]:
        """The priorities of which there may be messages."""
        return self._priorities

    def run(self, priority: int, position: int) -> Iterator[Entry]:
        """The messages of one priority behind a position, in this order; some may no longer fit."""
        run = self._runs[priority]
        self._clean(run)
        at = self._behind(run, position)
        in_order = (entry for key in run.keys.behind(at) if (entry := self._look(key)) and not entry.returned_seq)
        hints = run.back.behind((position, _LAST))
        back = (entry for number, key in hints if (entry := self._look(key)) and entry.position == number)
        last = position
        for entry in merge(in_order, back, key=lambda entry: entry.position):
            if entry.position > last:
                last = entry.position
                yield entry

    def _behind(self, run: _Run, seq: int) -> int:
        """Where in a run the messages begin that were published after ``seq``."""
        low, high = 0, len(run.keys) if seq >= 0 else 0
        while low < high:
            middle = at = (low + high) // 2
            entry = None
            while at < high and not (entry := self._look(run.keys[at])):
                at += 1
            if entry and entry.seq <= seq:
                low = at + 1
            else:
                high = middle
        return low

    def _clean(self, run: _Run) -> None:
        """Drop messages that are gone, once they are many."""
        if run.gone > max(_GONE_LIMIT, len(run.keys) // 2):
            keys, run.keys = run.keys, KeyQueue(self._prefix)
            for key in keys.behind(0):
                if key in self._places or self._look(key):
                    run.keys.append(key)
            run.gone = 0
