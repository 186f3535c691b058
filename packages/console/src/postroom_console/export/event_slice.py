"""The events of a snapshot: their lines, which events are missing, and how they changed the size of each queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from postroom_common.events import Event, EventType
from postroom_common.snapshot import Kind

from .events import EventLines
from .journal import Journal, JournalPosition
from .redaction import Redactor
from .request import Since
from .spool import Drafts

#: Gaps that are listed; further ones lengthen the last.
HOLES_LIMIT: Final = 1000
#: How an event changes the number of messages of its queue, and the events that move one to another queue.
_CHANGES: Final = {EventType.PUBLISHED.value: 1, EventType.ACKED.value: -1, EventType.DROPPED.value: -1}
_MOVES: Final = (EventType.MOVED.value, EventType.REPROCESSED.value)
#: Events between two checks whether the export was stopped.
_CHECK_EVENTS: Final = 500


class _GroupEnd(NamedTuple):
    """What there was at the end of a group."""

    lines: int
    last: Event
    holes: int


class EventSlice:
    """Reads events of the journal and drafts their lines.

    ``available_from`` is the first event that the journal had before. ``is_cut`` says that the slice ends early, at its
    size limit. ``net`` counts by how many messages each queue grew or shrank, over all events, also behind the cut.
    """

    def __init__(self, drafts: Drafts, redactor: Redactor, root: str) -> None:
        self.drafts = drafts
        self.first: Event | None = None
        self.last: Event | None = None
        self.count = 0
        self.is_cut = False
        self.available_from = 0
        self.holes: list[list[int]] = []
        self.net: Counter[str] = Counter()
        self._encode = EventLines(drafts.encoder, root, redactor).encode
        self._expected: int | None = None
        self._group_end: _GroupEnd | None = None

    def read(
        self,
        journal: Journal,
        behind: JournalPosition,
        as_of: int,
        since: Since,
        limit: int | None,
        counts_all: bool,
        check_stopped: Callable[[], None],
    ) -> None:
        """Read the events behind a position up to ``as_of``.

        The lines take at most ``limit`` bytes of the spool: the slice ends with the last group that fits, but has at
        least one. With ``counts_all`` the events behind its end are read as well, for ``net``. Raises as
        ``Journal.events``, and what ``check_stopped`` raises.
        """
        self.available_from = journal.available_from()
        self._expected = behind.event + 1 if since.is_last and behind.event else None
        put_line = self.drafts.of(Kind.EVENT)
        for event in _from_time(_checked(journal.events(behind, as_of), check_stopped), since.wall_ms):
            if counts_all:
                self._count(event)
            if not self.is_cut:
                self._put(event, put_line, limit)
            elif not counts_all:
                break
        if since.is_last and self._expected is not None and not self.is_cut:
            self._note_hole(as_of + 1)
        if self.first is not None:  # retention may have removed files while the first event was looked for
            self.available_from = max(self.available_from, min(journal.available_from(), self.first["id"]))

    def _put(self, event: Event, put_line: Callable[[bytes], None], limit: int | None) -> None:
        number = event["id"]
        if number != self._expected and "unused" not in event:
            self._note_hole(number)
        self._expected = number + 1
        if self.first is None:
            self.first = event
        put_line(self._encode(event))
        self.count, self.last = self.count + 1, event
        if limit is None or number != event["grp"]:
            return
        if self._group_end is None or self.drafts.spool.fits(limit):
            self._group_end = _GroupEnd(self.count, event, len(self.holes))
        else:
            self.is_cut = True
            self.count, self.last, holes = self._group_end
            del self.holes[holes:]

    def _note_hole(self, event: int) -> None:
        if self._expected is not None and event > self._expected:
            if len(self.holes) < HOLES_LIMIT:
                self.holes.append([self._expected, event - 1])
            else:
                self.holes[-1][1] = event - 1

    def _count(self, event: Event) -> None:
        kind = event["type"]
        change = _CHANGES.get(kind)
        if change:
            self.net[event["queue"]] += change
        elif kind in _MOVES and "to" in event:
            self.net[event["queue"]] -= 1
            self.net[event["to"]] += 1


def _checked(events: Iterable[Event], check_stopped: Callable[[], None]) -> Iterator[Event]:
    """The events, with a check now and then whether to continue."""
    for number, event in enumerate(events):
        if number % _CHECK_EVENTS == 0:
            check_stopped()
        yield event


def _from_time(events: Iterator[Event], wall_ms: int | None) -> Iterator[Event]:
    """The events from the first one on that is not older than a time; all without a time."""
    if wall_ms is not None:
        for event in events:
            if event["wallMs"] >= wall_ms:
                yield event
                break
    yield from events
