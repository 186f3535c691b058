"""Audit a journal without changing it, stopped or while the daemon writes.

It reads the segments once, in order, line by line, in constant memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from postroom_common.events import JOURNAL_FORMAT, Event, EventType

from .ranges import missing_before
from .segments import Line, list_segments, list_strangers, read_lines, segment_name

_TYPES = frozenset(EventType)


class JournalFindingKind(StrEnum):
    """What an audit can find. The last three are not faults: they are normal after a crash, or declared."""

    UNREADABLE = "unreadable"  # the operating system cannot read the file, or a part of it
    NOT_A_FILE = "not a file"  # a directory, link or pipe with a segment's name
    DAMAGED = "damaged"  # bytes that are no intact event
    INCOMPLETE_REQUEST = "incomplete request"  # it has lost an event, and has no effect
    MISSING = "missing events"  # ids are skipped, and no gap event declares it
    DISORDER = "disorder"  # an id that occurred before, or should have
    MISNAMED = "misnamed"  # the name is not the id of the first event
    FOREIGN = "foreign root"  # of another root, though the epoch is the same
    EPOCH = "epoch"  # falls, or rises without an event that begins one
    FORMAT = "format"  # newer than this version
    UNKNOWN_TYPE = "unknown type"  # about a queue, by a newer version
    GAP = "gap"  # ids are skipped, as a gap event declares
    TORN_GROUP = "torn group"  # cut by recovery; the rest is valid
    UNFINISHED = "unfinished"  # the end is being written, or was left by a crash


NO_FAULTS = frozenset({JournalFindingKind.GAP, JournalFindingKind.TORN_GROUP, JournalFindingKind.UNFINISHED})


class JournalFinding(NamedTuple):
    """One finding. ``first_id`` and ``last_id`` are the events concerned, 0 if none can be named;
    ``offset`` and ``length`` are bytes of the segment, ``length`` 0 for a place between two lines."""

    kind: JournalFindingKind
    segment: Path
    offset: int
    length: int
    first_id: int
    last_id: int
    text: str

    @property
    def is_fault(self) -> bool:
        """Whether it is a fault."""
        return self.kind not in NO_FAULTS


@dataclass(slots=True)
class JournalSummary:
    """Figures of a journal. ``first_id`` and ``last_id`` are those of intact events; 0: none."""

    segments: int = 0
    bytes: int = 0
    events: int = 0
    first_id: int = 0
    last_id: int = 0
    epoch: int = 0
    root: str = ""


class JournalAudit:
    """One pass over the journal in ``root``. ``summary`` is complete when ``findings`` has ended.

    It may run while the daemon appends: segments that are added later are not read, and those that retention removes
    meanwhile are skipped.
    """

    def __init__(self, root: Path) -> None:
        self.summary = JournalSummary()
        self._root = root
        self._pending: list[tuple[int, int, int]] = []  # offset, length and id of the events of the open request
        self._previous: Event | None = None  # ``id``, ``req`` and ``grp`` of the last intact event
        self._last = 0  # the highest id so far
        self._damage: JournalFinding | None = None
        self._path = root

    def findings(self) -> Iterator[JournalFinding]:
        """All findings, in the order of the segments. Raises ``OSError`` if the directory itself cannot be read."""
        yield from self._strangers()
        segments = list_segments(self._root)
        for index, (first_id, path) in enumerate(segments):
            yield from self._segment(first_id, path, is_last=index == len(segments) - 1)

    def _strangers(self) -> Iterator[JournalFinding]:
        for name in list_strangers(self._root):
            text = "a directory, link or special file, where events should be"
            yield JournalFinding(JournalFindingKind.NOT_A_FILE, self._root / name, 0, 0, 0, 0, text)

    def _segment(self, first_id: int, path: Path, is_last: bool) -> Iterator[JournalFinding]:
        self._path, begun = path, False
        end = 0
        try:
            for line in read_lines(path):
                end = line.offset + len(line.data)
                if line.event is None:
                    yield from self._drop_pending("damage has destroyed one of its events")
                    self._note_damage(line)
                    continue
                torn_before = self._damage is not None
                yield from self._flush_damage()
                if not begun:
                    yield from self._check_name(first_id, line, torn_before)
                    begun = True
                yield from self._event(line, line.event)
        except FileNotFoundError:
            self._last = 0  # retention has removed it and those before: no gap
            return
        except OSError as error:
            yield JournalFinding(JournalFindingKind.UNREADABLE, path, end, 0, 0, 0, str(error.strerror or error))
        self.summary.segments += 1
        self.summary.bytes += end
        yield from self._end(is_last)

    def _end(self, is_last: bool) -> Iterator[JournalFinding]:
        """Requests and groups end with their segment. The end of the last one may be in the course of being written."""
        if not is_last:
            yield from self._drop_pending("its segment ends before it")
            yield from self._flush_damage()
            return
        if self._damage:
            kept, self._damage = self._damage, None
            unfinished = kept._replace(kind=JournalFindingKind.UNFINISHED, text="the journal ends with damaged bytes")
            yield unfinished
        if self._pending:
            yield self._pending_finding(JournalFindingKind.UNFINISHED, "the journal ends inside this request")
            self._pending.clear()
        elif self._previous and self._previous["id"] != self._previous["grp"]:
            yield self._between(JournalFindingKind.UNFINISHED, self._previous, "the journal ends inside a group")

    # --- damage and requests ----------------------------------------------------------------------------------

    def _note_damage(self, line: Line) -> None:
        """Make adjacent damaged lines one finding."""
        known = self._damage
        if known:
            self._damage = known._replace(length=line.offset + len(line.data) - known.offset)
        else:
            text = "no intact event"
            self._damage = JournalFinding(
                JournalFindingKind.DAMAGED, self._path, line.offset, len(line.data), 0, 0, text
            )

    def _flush_damage(self) -> Iterator[JournalFinding]:
        if self._damage:
            yield self._damage
        self._damage = None

    def _drop_pending(self, why: str) -> Iterator[JournalFinding]:
        if self._pending:
            yield self._pending_finding(JournalFindingKind.INCOMPLETE_REQUEST, why)
        self._pending.clear()

    def _pending_finding(self, kind: JournalFindingKind, text: str) -> JournalFinding:
        first, last = self._pending[0], self._pending[-1]
        return JournalFinding(kind, self._path, first[0], last[0] + last[1] - first[0], first[2], last[2], text)

    def _event(self, line: Line, event: Event) -> Iterator[JournalFinding]:
        yield from self._check_order(line, event)
        yield from self._check_origin(line, event)
        previous = self._previous
        if self._pending and (previous is None or event["req"] != previous["req"] or event["id"] != previous["id"] + 1):
            yield from self._drop_pending("its end is missing")
        self._pending.append((line.offset, len(line.data), event["id"]))
        if event["id"] == event["req"]:
            if len(self._pending) != event.get("n", 1):
                yield self._pending_finding(JournalFindingKind.INCOMPLETE_REQUEST, "its beginning is missing")
            self._pending.clear()
        self.summary.events += 1
        self.summary.first_id = min(self.summary.first_id or event["id"], event["id"])
        self.summary.last_id = max(self.summary.last_id, event["id"])
        self._previous = {name: event[name] for name in ("id", "req", "grp")}

    # --- order and origin -------------------------------------------------------------------------------------

    def _check_name(self, first_id: int, line: Line, torn_before: bool) -> Iterator[JournalFinding]:
        event_id = line.id
        if event_id < first_id or (event_id > first_id and not torn_before):
            text = f"its first event is {event_id}: its name should be {segment_name(event_id)}"
            yield JournalFinding(JournalFindingKind.MISNAMED, self._path, 0, 0, event_id, event_id, text)

    def _check_order(self, line: Line, event: Event) -> Iterator[JournalFinding]:
        before, this = self._last, event["id"]
        self._last = max(before, this)
        if not before:
            return
        if this <= before:
            text = f"event {this} comes behind event {before}"
            yield JournalFinding(JournalFindingKind.DISORDER, self._path, line.offset, len(line.data), this, this, text)
            return
        previous = self._previous
        missing = missing_before(event, before + 1)
        if missing:
            kind = JournalFindingKind.GAP if missing.declared else JournalFindingKind.MISSING
            text = f"events {missing.first} to {missing.last} " + (
                "were lost, as a gap event says" if missing.declared else "are missing"
            )
            yield JournalFinding(kind, self._path, line.offset, 0, missing.first, missing.last, text)
        elif previous and previous["id"] != previous["grp"] != event["grp"]:
            yield self._between(JournalFindingKind.TORN_GROUP, previous, "a crash has cut the rest of this group")

    def _between(self, kind: JournalFindingKind, event: Event, text: str) -> JournalFinding:
        return JournalFinding(kind, self._path, 0, 0, event["id"], event["grp"], text)

    def _check_origin(self, line: Line, event: Event) -> Iterator[JournalFinding]:
        def finding(kind: JournalFindingKind, text: str) -> JournalFinding:
            return JournalFinding(kind, self._path, line.offset, len(line.data), event["id"], event["id"], text)

        summary, type_, root = self.summary, event["type"], event.get("root")
        epoch: Any = event.get("epoch")
        if summary.epoch and epoch < summary.epoch:
            yield finding(JournalFindingKind.EPOCH, f"epoch {epoch} behind epoch {summary.epoch}")
        elif summary.epoch and epoch > summary.epoch and type_ not in (EventType.EPOCH_STARTED, EventType.GAP):
            yield finding(
                JournalFindingKind.EPOCH, f"epoch {epoch} behind epoch {summary.epoch}, and no event begins it"
            )
        elif root and summary.root and root != summary.root and type_ != EventType.EPOCH_STARTED:
            yield finding(JournalFindingKind.FOREIGN, f"of root {root}, what is before it of root {summary.root}")
        if root and (not summary.root or type_ == EventType.EPOCH_STARTED):
            summary.root = root
        summary.epoch = max(summary.epoch, epoch)
        if event.get("format", JOURNAL_FORMAT) > JOURNAL_FORMAT:
            yield finding(JournalFindingKind.FORMAT, f"format {event['format']}; this version knows {JOURNAL_FORMAT}")
        if type_ not in _TYPES and "queue" in event:
            yield finding(JournalFindingKind.UNKNOWN_TYPE, f"type {type_!r}: from a newer version")
