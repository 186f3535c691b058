"""The slice of the journal: its lines on the disk, which events are missing, and what it changed in each queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from postroom_common.events import Event, EventType
from postroom_common.snapshot import Kind

from .events import EventLines
from .journal import Journal, Place
from .redaction import Redactor
from .request import Since
from .spool import Drafts

#: Holes that are told apart; further ones lengthen the last.
HOLES_LIMIT: Final = 1000
#: By how many messages an event changes its queue; and what takes one from its queue to another.
_CHANGES: Final = {EventType.PUBLISHED.value: 1, EventType.ACKED.value: -1, EventType.DROPPED.value: -1}
_MOVES: Final = (EventType.MOVED.value, EventType.REPROCESSED.value)
#: Events between two looks at whether the export is to end.
_LOOK_EVENTS: Final = 500


class EventSlice:
    """Reads the events behind a place up to ``as_of`` and drafts their lines.

    ``limit`` are the bytes that the spool may take: the slice then ends with the last group that fits, but has one
    always. ``available_from`` is the first event that the journal had before. ``net``
    counts what each queue has won or lost, up to ``as_of`` also where the slice ends before.
    """

    def __init__(self, drafts: Drafts, redactor: Redactor, root: str) -> None:
        self.first: Event | None = None
        self.last: Event | None = None
        self.count = 0
        self.is_cut = False
        self.available_from = 0
        self.holes: list[list[int]] = []
        self.net: Counter[str] = Counter()
        self._drafts = drafts
        self._lines = EventLines(drafts.encoder, root, redactor)
        self._expected: int | None = None

    def read(
        self,
        journal: Journal,
        behind: Place,
        as_of: int,
        since: Since,
        limit: int | None,
        counts_all: bool,
        go_on: Callable[[], None],
    ) -> None:
        """Read it. ``counts_all``: ``net`` is wanted. Raises as ``Journal.events``, and what ``go_on`` raises."""
        self.available_from = journal.available_from()
        is_in = since.wall_ms is None
        group_ends: tuple[int, Event, int] | None = None  # lines, last event and number of holes up to a group's end
        put = 0
        last: Event | None = None
        self._expected = behind.event + 1 if since.is_last and behind.event else None
        put_line, encode = self._drafts.of(Kind.EVENT), self._lines.encode
        for count, event in enumerate(journal.events(behind, as_of)):
            if count % _LOOK_EVENTS == 0:
                go_on()
            if not is_in:
                if event["wallMs"] < (since.wall_ms or 0):
                    continue
                is_in = True
            if counts_all:
                self._count(event)
                if self.is_cut:
                    continue
            number = event["id"]
            if number != self._expected:
                self._note_hole(number)
            self._expected = number + 1
            if self.first is None:
                self.first = event
            put_line(encode(event))
            put, last = put + 1, event
            if limit is not None and number == event["grp"]:
                if group_ends and not self._drafts.spool.fits(limit):
                    self.is_cut = True
                    if not counts_all:
                        break
                else:
                    group_ends = (put, event, len(self.holes))
        if self.is_cut and group_ends:
            put, last = group_ends[:2]
            del self.holes[group_ends[2] :]
        elif since.is_last and self._expected is not None and not self.is_cut:
            self._note_hole(as_of + 1)
        if self.first is not None:  # files may have gone by age while the first of them was looked for
            self.available_from = max(self.available_from, min(journal.available_from(), self.first["id"]))
        self.count, self.last = put, last

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
