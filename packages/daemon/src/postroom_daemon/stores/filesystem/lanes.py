"""Ready messages of the filesystem store in the order of delivery: a lane for each queue and target.

Hints, in little memory: one that no longer fits its message is passed over, and dropped where it is in the way.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import islice
from typing import Final

from postroom_common.protocol import State

from ...model.records import Entry
from .places import Places, Short, key_of
from .sorted_keys import Sorted

Look = Callable[[str], Entry | None]
_LAST: Final = "\U0010ffff"  # sorts behind every key
#: Messages of a line that have gone from its middle before it is looked through for them.
_GONE_LIMIT: Final = 1000


class _Line:
    """The ready messages of one priority: in the line those that came in the order of publishing, which is nearly all;
    beside it those that came back, and those whose turn it is among others of their ordering key."""

    def __init__(self) -> None:
        self.line: deque[Short] = deque()
        self.last = -1  # the seq of the line's end
        self.gone = 0  # about how many of the line are no longer there
        self.back: Sorted[tuple[int, str]] = Sorted()
        self.runs: list[tuple[array[int], list[Short]]] = []  # what the start has found, until it is sorted


class Lane:
    """The ready messages of one queue for one target. ``fits`` tells whether a message may be delivered from it."""

    def __init__(self, queue: str, target: str, places: Places, fits: Callable[[Entry, Look], bool]) -> None:
        self._queue = queue
        self._target = target
        self._prefix = f"msg:{queue}"
        self._places = places
        self._fits = fits
        self._priorities: list[int] = []
        self._lines: dict[int, _Line] = {}

    def add(self, priority: int, seq: int, key: str) -> None:
        """Add a message that has become ready; a hint too many does no harm."""
        line = self._line(priority)
        prefix, _, id_ = key.rpartition(":")
        if seq > line.last and prefix == self._prefix:
            line.line.append(self._places.short(id_))
            line.last = seq
        else:
            line.back.add((seq, key))

    def call(self, priority: int, seq: int, key: str) -> None:
        """Add a message whose turn has come among others of its ordering key."""
        self._line(priority).back.add((seq, key))

    def add_unsorted(self, priority: int, seq: int, key: str) -> None:
        """As ``add``, before ``sort``."""
        self._line(priority).back.add_unsorted((seq, key))

    def add_run(self, priority: int, seqs: array[int], shorts: list[Short]) -> None:
        """Add what the start has found in one folder, in the order of publishing; ``sort`` must follow."""
        self._line(priority).runs.append((seqs, shorts))

    def sort(self) -> None:
        """Put in order what was found at the start: runs one behind the other, and what overlaps beside them."""
        for line in self._lines.values():
            line.runs.sort(key=lambda run: run[0][0], reverse=True)
            while line.runs:  # each is let go before the next: the line grows where it was
                seqs, shorts = line.runs.pop()
                at = bisect_right(seqs, line.last)
                for seq, short in zip(seqs[:at], shorts, strict=False):
                    line.back.add_unsorted((seq, key_of(self._prefix, short)))
                line.line.extend(islice(shorts, at, None))
                line.last = max(line.last, seqs[-1])
            line.back.sort()

    def _line(self, priority: int) -> _Line:
        line = self._lines.get(priority)
        if line is None:
            line = self._lines[priority] = _Line()
            insort(self._priorities, priority)
        return line

    def take(self, priority: int, seq: int, key: str) -> None:
        """Drop a message that is no longer ready, if it is the next one: what lies deeper is passed over later."""
        line = self._lines.get(priority)
        if line is None:
            return
        if line.line and key_of(self._prefix, line.line[0]) == key:
            line.line.popleft()
        else:
            line.gone += 1
        line.back.discard((seq, key))

    def head(self, look: Look) -> Entry | None:
        """The message to deliver next."""
        while self._priorities:
            found = self._first(self._priorities[-1], look)
            if found:
                return found
            del self._lines[self._priorities.pop()]
        return None

    def oldest(self, look: Look) -> Entry | None:
        """The message that was published first."""
        heads = (self._first(priority, look) for priority in self._priorities)
        return min((head for head in heads if head), key=lambda e: e.seq, default=None)

    def _first(self, priority: int, look: Look) -> Entry | None:
        line = self._lines[priority]
        first = None
        while line.line and not first:
            first = self._fitting(key_of(self._prefix, line.line[0]), look)
            if not first:
                line.line.popleft()
        while (hint := line.back.first()) and not (first and first.seq < hint[0]):
            entry = self._fitting(hint[1], look)
            if entry:
                return entry
            line.back.discard(hint)
        return first

    def _fitting(self, key: str, look: Look) -> Entry | None:
        entry = look(key)
        return entry if entry and self.has(entry) and self._fits(entry, look) else None

    def has(self, entry: Entry) -> bool:
        """Whether a message belongs here."""
        return entry.state is State.READY and (entry.queue, entry.target) == (self._queue, self._target)

    def behind(self, order: int, seq: int, look: Look) -> Iterator[tuple[int, Entry]]:
        """What is hinted at behind a place, in the order of delivery, each with its order (the priority, negative):
        those that still fit, and others."""
        for priority in reversed(self._priorities[: bisect_right(self._priorities, -order)]):
            for entry in self.line(priority, seq if -priority == order else -1, look):
                yield -priority, entry

    def priorities(self) -> list[int]:
        """The priorities of which there may be messages."""
        return self._priorities

    def line(self, priority: int, seq: int, look: Look) -> Iterator[Entry]:
        """What is hinted at of one priority, behind a place, in publish order and once each."""
        line = self._lines[priority]
        self._clean(line, look)
        at = self._behind(line, seq, look)
        in_line = (entry for short in islice(line.line, at, None) if (entry := look(key_of(self._prefix, short))))
        back = (entry for _, key in line.back.behind((seq, _LAST)) if (entry := look(key)))
        last = seq
        for entry in merge(in_line, back, key=lambda entry: entry.seq):
            if entry.seq > last:
                last = entry.seq
                yield entry

    def _behind(self, line: _Line, seq: int, look: Look) -> int:
        """Where in a line the messages begin that were published after ``seq``."""
        low, high = 0, len(line.line) if seq >= 0 else 0
        while low < high:
            middle = at = (low + high) // 2
            entry = None
            while at < high and not (entry := look(key_of(self._prefix, line.line[at]))):
                at += 1
            if entry and entry.seq <= seq:
                low = at + 1
            else:
                high = middle
        return low

    def _clean(self, line: _Line, look: Look) -> None:
        """Drop from a line those that are gone, once they are many."""
        if line.gone > max(_GONE_LIMIT, len(line.line) // 2):
            keys = ((short, key_of(self._prefix, short)) for short in line.line)
            line.line = deque(short for short, key in keys if key in self._places or look(key))
            line.gone = 0
