"""The logs in memory: what the parts of ``LogFiles`` share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from postroom_common.errors import DamagedRecord

from ...platform.quarantine import Quarantine
from .contract import SEGMENT_BYTES
from .segments import NO_LIMIT, Index, Key, Segment, SegmentFiles
from .state import LogsState, LogState
from .sums import Sums

#: Holds the name of a log, for people.
NAME: Final = "name"
#: Ends the names of directories whose logs are deleted.
DELETED: Final = ".deleted"
DIRECTORY: Final = re.compile(r"[0-9]{20}")
#: The names of the files of a log.
OF_LOG: Final = re.compile(r"[0-9]{20}\.(log|idx|log\.tmp)|name(\.tmp)?")

#: Segments whose checksums are in memory: up to half a megabyte for one of the usual size.
_SUMS_LIMIT: Final = 32


class OpenLog(LogState):
    """A log, and what the open transaction appends to it: ``pending`` records, which end at the offset ``end`` of the
    last segment, or of a new one named ``new_segment``."""

    __slots__ = (
        "end",
        "index",
        "is_new",
        "marks",
        "new_segment",
        "next_mark",
        "pending",
        "pending_last",
        "segment_bytes",
        "trims",
        "wall_ms",
    )

    def __init__(self, name: str, state: LogState | None = None) -> None:
        super().__init__(name)
        if state:
            self.before, self.last, self.segments = state.before, state.last, state.segments
        self.segment_bytes = SEGMENT_BYTES
        self.index = Index()  # of the last segment
        self.is_new = state is None
        self.undo()

    def undo(self) -> None:
        """Forget what the open transaction has done."""
        self.pending: list[bytes] = []
        self.pending_last = self.last
        self.new_segment = 0
        self.marks: list[tuple[int, int, int]] = []
        self.trims: list[tuple[int, int, int]] = []
        self.end = self.wall_ms = 0
        self.next_mark = 0

    def limit(self, segment: Segment) -> int:
        """The position below which all records of a segment are."""
        at = self.segments.index(segment) + 1
        return self.segments[at].first if at < len(self.segments) else NO_LIMIT

    def begin_append(self, position: int) -> None:
        """Choose the segment of the records of a transaction, the first of which has a position."""
        segment = self.segments[-1] if self.segments else None
        if segment is None or segment.size >= self.segment_bytes:
            self.new_segment, self.end, self.next_mark = position, 0, 0
        else:
            self.end, self.next_mark = segment.size, self.index.next_offset


class OpenLogs:
    """All logs by their numbers, and what the next checkpoint makes durable: segments with their indexes, and
    directories. The files of those in ``deleted`` are to go. If ``is_reading``, nothing is ever written. Raises
    ``OSError``."""

    def __init__(self, segments: SegmentFiles, quarantine: Quarantine, is_reading: bool) -> None:
        self.segments = segments
        self.files = segments.files
        self.root: Path = segments.root
        self.quarantine = quarantine
        self.is_reading = is_reading
        self.logs: dict[int, OpenLog] = {}
        self.unsynced: dict[Key, tuple[Segment, Index]] = {}
        self.new_directories: dict[int, None] = {}
        self.sums: dict[Key, Sums] = {}  # least recently used first
        self.deleted: list[int] = []  # since the last checkpoint

    def sums_of(self, number: int, segment: Segment) -> Sums:
        """The checksums of a segment."""
        key = number, segment.first
        sums = self.sums.pop(key, None) or Sums()
        if len(self.sums) >= _SUMS_LIMIT:
            del self.sums[next(iter(self.sums))]
        self.sums[key] = sums
        return sums

    def make_directory(self, number: int, one: OpenLog) -> None:
        """Make the directory of a log, with its name."""
        directory = self.files.open_directory(self.segments.directory(number), 0o700)
        try:
            self.files.put(directory, NAME, one.name.encode() + b"\n")
        finally:
            self.files.close(directory)
        one.is_new = False
        self.new_directories[number] = None

    def checkpoint(self, applied: int) -> None:
        """Make everything that was written survive a power cut: the fold of all events up to ``applied``."""
        for (number, first), (segment, index) in list(self.unsynced.items()):
            self.segments.save_index(number, segment, index)
            self.files.fdatasync(self.segments.fd(number, first, writing=True))
            del self.unsynced[number, first]
        for number in list(self.new_directories):
            directory = self.segments.directory(number)
            if directory.is_dir():
                self.files.sync_directory(directory)
            del self.new_directories[number]
        self.write_state(applied)

    def write_state(self, applied: int) -> None:
        """Write the state as of now."""
        LogsState(applied, {**self.logs}, self.deleted).write(self.root, self.files)

    def note_damage(self) -> None:
        """Note on disk which segments are suspect, for the next start."""
        if self.is_reading:
            return
        try:
            state = LogsState.read(self.root)
        except DamagedRecord:
            state = None
        if state is None:  # the next start looks at everything anyway
            return
        for number, stored in state.logs.items():
            open_ = self.logs.get(number)
            suspects = {segment.first for segment in open_.segments if segment.suspect} if open_ else set()
            for segment in stored.segments:
                segment.suspect = segment.suspect or segment.first in suspects
        state.write(self.root, self.files)
