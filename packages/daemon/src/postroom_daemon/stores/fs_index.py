"""What the filesystem store keeps in memory: where each message's file is, and which message comes next.

No message's body or facts: these are read from the file's name, and from the file, when they are asked for. The hints
of what comes next may no longer fit their message: such a one is passed over, and dropped.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import islice

from postroom_common.protocol import State

from ..records import Entry
from .fs_places import Listing, Places, Short, key_of

Look = Callable[[str], Entry | None]
_Hint = tuple[int, int, str]  # time, seq, key
_LAST = "\U0010ffff"  # sorts behind every key


class _Line:
    """The ready messages of one priority: in the line those that came in the order of publishing, which is nearly all;
    beside it a heap of those that came back."""

    def __init__(self) -> None:
        self.line: deque[Short] = deque()
        self.last = -1  # the seq of the line's end
        self.back: list[tuple[int, str]] = []
        self.runs: list[tuple[array[int], list[Short]]] = []  # what the start has found, until it is sorted


class Lane:
    """The ready messages of one queue for one target. ``prefix`` precedes the ids of most of them."""

    def __init__(self, prefix: str, places: Places) -> None:
        self._prefix = prefix
        self._places = places
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
            heappush(line.back, (seq, key))

    def add_unsorted(self, priority: int, seq: int, key: str) -> None:
        """As ``add``, before ``sort``."""
        self._line(priority).back.append((seq, key))

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
                line.back += [(seq, key_of(self._prefix, short)) for seq, short in zip(seqs[:at], shorts, strict=False)]
                line.line.extend(islice(shorts, at, None))
                line.last = max(line.last, seqs[-1])
            heapify(line.back)

    def _line(self, priority: int) -> _Line:
        line = self._lines.get(priority)
        if line is None:
            line = self._lines[priority] = _Line()
            insort(self._priorities, priority)
        return line

    def take(self, priority: int, key: str) -> None:
        """Drop a message that is no longer ready, if it is the next one: what lies deeper is passed over later."""
        line = self._lines.get(priority)
        if line is None:
            return
        if line.line and key_of(self._prefix, line.line[0]) == key:
            line.line.popleft()
        if line.back and line.back[0][1] == key:
            heappop(line.back)

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
            first = _ready(look(key_of(self._prefix, line.line[0])))
            if not first:
                line.line.popleft()
        while line.back and not (first and first.seq < line.back[0][0]):
            entry = _ready(look(line.back[0][1]))
            if entry:
                return entry
            heappop(line.back)
        return first


def _ready(entry: Entry | None) -> Entry | None:
    return entry if entry and entry.state is State.READY else None


class Index:
    """``places`` has each message's file: its path inside its queue's directory."""

    def __init__(self, ready_folder: str) -> None:
        self.places = Places(ready_folder)
        self.due: list[_Hint] = []
        self.leases: list[_Hint] = []
        self._lanes: dict[str, dict[str, Lane]] = {}
        self._dead: dict[str, list[_Hint]] = {}
        self._listing: Listing | None = None  # while pages of all keys are read

    def lane(self, queue: str, target: str) -> Lane:
        """The lane of a queue's messages for a target ('' for anyone's), made if it is missing."""
        lanes = self._lanes.setdefault(queue, {})
        lane = lanes.get(target)
        if lane is None:
            lane = lanes[target] = Lane(f"msg:{queue}", self.places)
        return lane

    def take(self, entry: Entry) -> None:
        """A message is no longer ready."""
        lane = self._lanes.get(entry.queue, {}).get(entry.target)
        if lane:
            lane.take(entry.priority, entry.key)

    def keys(self, after: str) -> Iterator[str]:
        """All keys behind ``after`` in order, as they stood when their first page was asked for."""
        if not after or self._listing is None:
            self._listing = self.places.listing()
        yield from self._listing.behind(after)
        self._listing = None

    def next_ready(self, queue: str, consumer: str, look: Look) -> Entry | None:
        """The message to deliver next to a consumer."""
        heads = [self._head(queue, target, look) for target in {"", consumer}]
        return min((head for head in heads if head), key=lambda e: (-e.priority, e.seq), default=None)

    def _head(self, queue: str, target: str, look: Look) -> Entry | None:
        lane = self._lanes.get(queue, {}).get(target)
        head = lane.head(look) if lane else None
        if lane and not head:
            del self._lanes[queue][target]  # there may be a target for each request that ever waited for an answer
        return head

    def oldest_ready(self, queue: str, look: Look) -> Entry | None:
        """The ready message that was published first."""
        heads = [lane.oldest(look) for lane in self._lanes.get(queue, {}).values()]
        return min((head for head in heads if head), key=lambda e: e.seq, default=None)

    def add(self, entry: Entry) -> None:
        """Note where a message belongs in its present state."""
        match entry.state:
            case State.READY:
                self.lane(entry.queue, entry.target).add(entry.priority, entry.seq, entry.key)
            case State.DELAYED:
                heappush(self.due, (entry.due, entry.seq, entry.key))
            case State.INFLIGHT:
                heappush(self.leases, (entry.lease_until, entry.seq, entry.key))
            case State.DEAD:
                letters = self._dead.setdefault(entry.queue, [])
                hint = (entry.dead_at, entry.seq, entry.key)
                at = bisect_left(letters, hint)
                if letters[at : at + 1] != [hint]:
                    letters.insert(at, hint)

    def add_dead_unsorted(self, queue: str, dead_at: int, seq: int, key: str) -> None:
        """Note a dead letter before ``sort``."""
        self._dead.setdefault(queue, []).append((dead_at, seq, key))

    def sort(self) -> None:
        """Put in order what was added unsorted."""
        heapify(self.due)
        heapify(self.leases)
        for letters in self._dead.values():
            letters.sort()
        for lanes in self._lanes.values():
            for lane in lanes.values():
                lane.sort()

    def expired(self, now: int, limit: int, look: Look) -> list[Entry]:
        """Messages whose lease is over. Looking changes nothing: the caller may not get to all of them."""
        found: dict[str, Entry] = {}  # a lease that was set twice to the same end has two hints
        while len(found) < limit and self.leases and self.leases[0][0] <= now:
            until, _, key = heappop(self.leases)
            entry = look(key)
            if entry and entry.state is State.INFLIGHT and entry.lease_until == until:
                found[key] = entry
        for entry in found.values():
            self.add(entry)
        return list(found.values())

    def pop_due(self, now: int, look: Look) -> Entry | None:
        """The next delayed message that is due, taken out."""
        while self.due and self.due[0][0] <= now:
            due, _, key = heappop(self.due)
            entry = look(key)
            if entry and entry.state is State.DELAYED and entry.due == due:
                return entry
        return None

    def next_due(self) -> int | None:
        """When there may be something due or over."""
        return min((heap[0][0] for heap in (self.due, self.leases) if heap), default=None)

    def dead(self, queue: str, after: tuple[int, int], limit: int, look: Look) -> list[Entry]:
        """A page of a queue's dead letters."""
        letters = self._dead.get(queue, [])
        at = bisect_right(letters, (*after, _LAST))
        found: list[Entry] = []
        while len(found) < limit and at < len(letters):
            dead_at, _, key = letters[at]
            entry = look(key)
            if entry and entry.state is State.DEAD and entry.dead_at == dead_at:
                found.append(entry)
                at += 1
            else:
                del letters[at]
        return found
