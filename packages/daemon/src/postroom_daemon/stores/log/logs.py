"""Logs in files: ``logs/<number>/<first position>.log``, with an index of each beside it. See ``contract``.

A commit writes the records of each log at the end of its last segment, in one write. Nothing is synced before a
checkpoint: the journal has what a power cut takes. What is trimmed or deleted is erased after the next checkpoint, so
that the files never lack what the journal would fold again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Final

from ...platform.files import Files
from ...platform.quarantine import Quarantine
from ..errors import StoreErrors
from . import mending
from .contract import LogDamaged, LogFacts, Logs, LostRange, Page, Records, Trimmable
from .open_logs import OpenLog, OpenLogs
from .opening import cut_behind, open_logs
from .reading import Reader
from .records import checksum_at, record_of, records_of
from .removal import Removal, trimmable
from .segments import MARK_BYTES, Index, Segment, SegmentFiles

log = logging.getLogger(__name__)

_BLOCK_BYTES: Final = 4096
#: What a replay reads at once.
_PAGE: Final = 1000
_PAGE_BYTES: Final = 256 * 1024
#: After so many bytes of a segment the kernel begins to write them, so that a checkpoint does not wait for all at once.
_START_BYTES: Final = 8 * 1024 * 1024


class LogFiles(Logs):
    """The logs below the directory ``root``. With ``reading`` nothing is ever written."""

    keeps: ClassVar[bool] = True

    def __init__(self, root: Path, files: Files, quarantine: Quarantine, reading: bool = False) -> None:
        self.root = root
        self._files = files
        self._segments = SegmentFiles(root, files)
        self._quarantine = quarantine
        self._reading = reading
        self._errors = StoreErrors(root)
        self._reset()

    def _reset(self) -> None:
        self.is_new = True
        self.had_state = False
        self.applied = 0
        self._opened = OpenLogs(self._segments, self._quarantine, self._reading)
        self._logs = self._opened.logs
        self._reader = Reader(self._opened)
        self._removal = Removal(self._opened, self._reader, [])
        self._touched: dict[int, OpenLog] = {}
        self._deleting: dict[int, OpenLog] = {}
        #: For each log that a replay compares with the journal the last page that it has read, and the last position.
        self._compared: dict[int, tuple[int, Records]] = {}

    def open(self) -> None:
        self._reset()
        with self._errors:
            self.applied, self.had_state, self.is_new, doomed = open_logs(self._opened)
        self._removal = Removal(self._opened, self._reader, doomed)
        self._removal.checkpointed()

    def close(self) -> None:
        self._segments.close()
        self._reset()

    # --- changes --------------------------------------------------------------------------------------------------

    def create(self, log: int, name: str) -> None:
        one = self._logs.get(log)
        if one is None:
            self._logs[log] = self._touched[log] = OpenLog(name)
        elif one.name != name:  # its state was lost
            one.name = name

    def delete(self, log: int) -> None:
        one = self._logs.pop(log, None)
        if one:
            self._deleting[log] = one
            self._touched[log] = one

    def append(self, log: int, position: int, wall_ms: int, block: bytes) -> None:
        one = self._logs.get(log)
        if one is None:  # the event that created it was lost to damage
            self.create(log, str(log))
            one = self._logs[log]
        if position <= one.pending_last and not self._lacks(log, one, position, (wall_ms, block)):
            return
        if not one.pending:
            one.begin_append(position)
            self._touched[log] = one
        offset = one.end
        record = record_of(wall_ms, position, block, offset)
        if offset >= one.next_mark:
            one.marks.append((position, offset, wall_ms))
            one.next_mark = offset + MARK_BYTES
        one.pending.append(record)
        one.end = offset + len(record)
        one.pending_last = position
        if wall_ms > one.wall_ms:
            one.wall_ms = wall_ms

    def _lacks(self, number: int, one: OpenLog, position: int, record: tuple[int, bytes]) -> bool:
        """Whether the files lack a record of the journal, or have another in its place: a power cut can take the first
        of two segments. What they have there and behind it is set aside then."""
        if position < one.before or one.pending or self._reading:
            return False
        try:
            last, seen = self._compared.get(number) or (position - 1, {})
            while last < position and (page := self.read(number, last, _PAGE, _PAGE_BYTES)).records:
                last, seen = page.last, {at: (wall, block) for wall, at, block in records_of(page.raw)}
            self._compared[number] = last, seen
            if seen.get(position) == record:
                return False
            log.error("log %d: the record at %d is not that of the journal: it is appended again", number, position)
            with self._errors:
                cut_behind(self._opened, number, one, position)
        except LogDamaged:  # the next start puts it back
            return False
        self._reader.forget_places()
        return True

    def trim(self, log: int, before: int, records: int, size: int) -> None:
        one = self._logs.get(log)
        if one and before > one.before:
            one.trims.append((before, records, size))
            self._touched[log] = one

    def use_segment_bytes(self, log: int, size: int) -> None:
        one = self._logs.get(log)
        if one:
            one.segment_bytes = size

    def commit(self) -> None:
        if self._compared:
            self._compared.clear()
        if not self._touched:
            return
        with self._errors:
            for number, one in self._touched.items():
                if number in self._deleting:
                    if not one.is_new:
                        self._removal.delete(number, one)
                    continue
                if one.is_new:
                    self._opened.make_directory(number, one)
                    self.is_new = False
                if one.pending:
                    self._write(number, one)
                for trim in one.trims:
                    self._removal.trim(number, one, *trim)
                one.undo()
        self._touched.clear()
        self._deleting.clear()

    def rollback(self) -> None:
        for number, one in self._touched.items():
            one.undo()
            if number in self._deleting:
                self._logs[number] = one
            if one.is_new:
                self._logs.pop(number, None)
        self._touched.clear()
        self._deleting.clear()

    def _write(self, number: int, one: OpenLog) -> None:
        is_new = bool(one.new_segment)
        first = one.new_segment or one.segments[-1].first
        fd = self._segments.fd(number, first, writing=True, new=is_new)
        segment = Segment(first, mark=checksum_at(one.pending[0], 0)) if is_new else one.segments[-1]
        data = one.pending[0] if len(one.pending) == 1 else b"".join(one.pending)
        self._files.pwrite_all(fd, data, segment.size)
        self._opened.sums_of(number, segment).written(segment.size, data, one.pending)
        if is_new:
            one.segments.append(segment)
            one.index = Index()
            self._opened.new_directories[number] = None
        segment.size = one.end
        if one.end - segment.started >= _START_BYTES:
            segment.started = one.end
            self._files.start_writing(fd)
        segment.records += len(one.pending)
        segment.last = one.last = one.pending_last
        if one.wall_ms > segment.last_wall:
            segment.last_wall = one.wall_ms
        for mark in one.marks:
            one.index.add(*mark)
        self._opened.unsynced[number, first] = (segment, one.index)

    # --- reading --------------------------------------------------------------------------------------------------

    def read(self, log: int, after: int, limit: int, limit_bytes: int) -> Page:
        return self._reader.read(log, after, limit, limit_bytes)

    def has(self, log: int, position: int) -> bool:
        return position > 0 and self._reader.read(log, position - 1, 1, 0).last == position

    def before_time(self, log: int, wall_ms: int) -> int:
        return self._reader.before_time(log, wall_ms)

    def trimmable(
        self, log: int, older_than_ms: int = 0, keep_bytes: int = 0, below: int | None = None
    ) -> Trimmable | None:
        one = self._logs.get(log)
        return trimmable(one, older_than_ms, keep_bytes, below) if one else None

    # --- disk -----------------------------------------------------------------------------------------------------

    def probe(self) -> None:
        if not self.is_new:
            with self._errors:
                self._files.listdir(self.root)

    def space_needed(self) -> int:
        if not self._touched:
            return 0
        appended = sum(len(record) for one in self._touched.values() for record in one.pending)
        return appended + 4 * _BLOCK_BYTES * len(self._touched)

    def checkpoint(self, applied: int) -> None:
        if self.is_new:
            return
        with self._errors:
            self._opened.checkpoint(applied)
        self.applied = applied

    def checkpointed(self) -> None:
        self._removal.checkpointed()

    def tidy(self) -> None:
        self._removal.tidy()

    # --- starts and checks ----------------------------------------------------------------------------------------

    def facts(self) -> dict[int, LogFacts]:
        return {number: LogFacts(one.name, one.last, one.records, one.bytes) for number, one in self._logs.items()}

    def newest(self) -> int:
        return max([self.applied, *(one.last for one in self._logs.values())])

    def lost(self) -> Iterator[LostRange]:
        return mending.lost(self._opened)

    def heal(self, lost: LostRange, records: Records) -> None:
        with self._errors:
            mending.heal(self._opened, self._reader, lost, records)
            self._opened.write_state(self.applied)

    def damaged(self) -> Iterator[tuple[Path, str]]:
        """Read everything: the segments that are damaged, each with what is, in words; they are ``suspect`` from then
        on."""
        return mending.damaged(self._opened)

    def strangers(self) -> list[Path]:
        """Files and directories that are no part of the logs."""
        return mending.strangers(self.root)

    def note_damage(self) -> None:
        """Note on disk which segments are suspect, for the next start."""
        self._opened.note_damage()
