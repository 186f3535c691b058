"""Logs in files: ``logs/<number>/<first position>.log``, with an index of each beside it. See ``contract``.

A commit writes the records of each log at the end of its last segment, in one write. Nothing is synced before a
checkpoint: the journal has what a power cut takes. What is trimmed or deleted is erased after the next checkpoint, so
that the files never lack what the journal would fold again.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import ClassVar, Final

from postroom_common.errors import DamagedRecord

from ...platform.files import LOST_ERRNOS, Files, remove_all
from ...platform.quarantine import Quarantine
from ..errors import store_errors
from .contract import NO_PAGE, SEGMENT_BYTES, LogDamaged, LogFacts, Logs, LostRange, Page, Records, Trimmable
from .records import LEAST_BYTES, not_intact, record_of, records_of, size_at, walk
from .segments import MARK_BYTES, Index, Intact, Segment, SegmentFiles
from .state import STATE_NAME, LogsState, LogState

log = logging.getLogger(__name__)

#: Holds the name of a log, for people.
NAME: Final = "name"
#: Ends the names of directories whose logs are deleted.
DELETED: Final = ".deleted"
DIRECTORY: Final = re.compile(r"[0-9]{20}")
SEGMENT: Final = re.compile(r"([0-9]{20})\.log")
_OF_LOG: Final = re.compile(r"[0-9]{20}\.(log|idx|log\.tmp)|name(\.tmp)?")
#: Places of the last reads, where the next ones continue; indexes in memory besides those of the last segments.
_PLACES_LIMIT: Final = 4096
_INDEXES_LIMIT: Final = 32
#: Files that one step of ``tidy`` removes.
_TIDY_FILES: Final = 16
_BLOCK_BYTES: Final = 4096
#: After so many bytes of a segment the kernel begins to write them, so that a checkpoint does not wait for all at once.
_START_BYTES: Final = 8 * 1024 * 1024


class _Log(LogState):
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

    def begin_append(self, position: int) -> None:
        """Choose the segment of the records of a transaction, the first of which has a position."""
        segment = self.segments[-1] if self.segments else None
        if segment is None or segment.size >= self.segment_bytes:
            self.new_segment, self.end, self.next_mark = position, 0, 0
        else:
            self.end, self.next_mark = segment.size, self.index.next_offset


class LogFiles(Logs):
    """The logs below the directory ``root``. With ``reading`` nothing is ever written."""

    keeps: ClassVar[bool] = True

    def __init__(self, root: Path, files: Files, quarantine: Quarantine, reading: bool = False) -> None:
        self.root = root
        self.applied = 0
        self._files = files
        self._segments = SegmentFiles(root, files)
        self._quarantine = quarantine
        self._reading = reading
        self._reset()

    def _reset(self) -> None:
        self.is_new = True
        self.had_state = False
        self.applied = 0
        self._logs: dict[int, _Log] = {}
        self._touched: dict[int, _Log] = {}
        self._deleting: dict[int, _Log] = {}
        self._places: dict[tuple[int, int], tuple[Segment, int]] = {}
        self._indexes: dict[tuple[int, int], Index] = {}
        self._unsynced: dict[tuple[int, int], tuple[Segment, Index]] = {}
        self._new_directories: dict[int, None] = {}
        self._deleted: list[int] = []  # since the last checkpoint
        self._removed: list[Path] = []  # likewise, segments that are trimmed
        self._doomed: list[Path] = []  # files and directories that may be erased

    def _errors(self) -> AbstractContextManager[None]:
        return store_errors(self.root)

    # --- life -----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        self._reset()
        with self._errors():
            try:
                state = LogsState.read(self.root)
                self.had_state = state is not None
            except DamagedRecord as error:
                log.error("%s: %s; the journal is folded into the logs from its beginning", self.root, error)
                state = LogsState()
            names = sorted(self._files.listdir(self.root)) if self.root.is_dir() else []
            self.is_new = state is None and not any(map(DIRECTORY.fullmatch, names))
            state = state or LogsState()
            self.applied = state.applied
            self._deleted = [number for number in state.deleted if f"{number:020d}" in names]
            self._doomed += [self.root / name for name in names if name.endswith(DELETED)]
            known = {f"{number:020d}": one for number, one in state.logs.items()}
            for name in dict.fromkeys([*known, *filter(DIRECTORY.fullmatch, names)]):
                if int(name) not in self._deleted:
                    self._logs[int(name)] = self._open_log(int(name), known.get(name))
        self.checkpointed()

    def _open_log(self, number: int, state: LogState | None) -> _Log:
        directory = self._segments.directory(number)
        one = _Log(state.name if state else self._name_of(directory), state or LogState(""))
        names = self._files.listdir(directory) if directory.is_dir() else []
        found = sorted(int(match[1]) for match in map(SEGMENT.fullmatch, names) if match)
        known = {segment.first: segment for segment in one.segments}
        one.segments = [known.get(first) or Segment(first) for first in sorted({*known, *found})]
        lowest = min(known, default=one.before)
        self._doomed += [self._segments.path(number, first) for first in found if first < lowest]  # they were trimmed
        one.segments = [segment for segment in one.segments if segment.first >= lowest]
        for segment in list(one.segments):
            if not self._open_segment(number, one, segment, is_known=segment.first in known):
                self._drop_behind(number, one, segment.first)
                break
        if one.segments and not one.segments[-1].suspect:
            unsynced = self._unsynced.get((number, one.segments[-1].first))
            one.index = unsynced[1] if unsynced else self._segments.read_index(number, one.segments[-1])
        one.undo()
        return one

    def _drop_behind(self, number: int, one: _Log, first: int) -> None:
        """A segment is cut off behind the last checkpoint: those that follow it are appended again, too."""
        for segment in [segment for segment in one.segments if segment.first > first]:
            one.segments.remove(segment)
            path = self._segments.path(number, segment.first)
            if not self._reading:
                name = f"{path.parent.name}~{path.name}"
                self._quarantine.move_in(path, "a segment behind one whose end is not intact", name)

    def _name_of(self, directory: Path) -> str:
        try:
            return (directory / NAME).read_text("utf-8").rstrip("\n")
        except (OSError, UnicodeDecodeError):
            return directory.name.lstrip("0")

    def _open_segment(self, number: int, one: _Log, segment: Segment, is_known: bool) -> bool:
        """Learn what a segment has behind the last checkpoint; cut off what is not intact. Returns whether there was
        nothing to cut off."""
        path = self._segments.path(number, segment.first)
        try:
            size = path.stat().st_size if path.is_file() and not path.is_symlink() else -1
        except OSError:
            size = -1
        if is_known and (segment.suspect or size < segment.size):
            segment.suspect = True
            log.error("%s: %d of %d bytes are there", path, max(size, 0), segment.size)
            one.last = max(one.last, segment.last)
            return True
        is_whole, last = True, segment.last or segment.first - 1
        if size > segment.size or not is_known:
            start, segment.size = segment.size, max(size, 0)
            index = Index() if not start else self._segments.read_index(number, _part(segment, start))
            scan = self._segments.scan(number, segment, start, last, index)
            segment.records += scan.records
            segment.last, segment.last_wall = scan.last, max(segment.last_wall, scan.wall_ms)
            is_whole = 0 < scan.end == segment.size
            if not is_whole:
                self._cut(number, segment, scan.end)
            self._unsynced[number, segment.first] = (segment, index)
        if not segment.records:
            one.segments.remove(segment)
            self._unsynced.pop((number, segment.first), None)
        else:
            one.last = max(one.last, segment.last)
        return is_whole

    def _cut(self, number: int, segment: Segment, end: int) -> None:
        """Cut off what is not intact at the end of a segment, behind the last checkpoint: the journal has it."""
        path = self._segments.path(number, segment.first)
        log.warning("%s: cut off at byte %d of %d: the rest is not intact", path, end, segment.size)
        if not self._reading:
            rest = self._segments.read(number, segment, end, segment.size - end)
            if rest.strip(b"\0"):
                self._quarantine.add(
                    f"{path.parent.name}~{path.name}.{end}", rest, "the end of a log that is not intact"
                )
            self._files.ftruncate(self._segments.fd(number, segment.first, writing=True), end)
        segment.size = end

    def close(self) -> None:
        self._segments.close()
        self._reset()

    # --- changes --------------------------------------------------------------------------------------------------

    def create(self, log: int, name: str) -> None:
        one = self._logs.get(log)
        if one is None:
            self._logs[log] = self._touched[log] = _Log(name)
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
        if position <= one.pending_last:
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

    def trim(self, log: int, before: int, records: int, size: int) -> None:
        one = self._logs.get(log)
        if one and before > one.before:
            one.trims.append((before, records, size))
            self._touched[log] = one

    def commit(self) -> None:
        if not self._touched:
            return
        with self._errors():
            for number, one in self._touched.items():
                if number in self._deleting and one.is_new:
                    continue
                if number in self._deleting:
                    self._deleted.append(number)
                    for segment in one.segments:
                        self._forget(number, segment)
                    continue
                if one.is_new:
                    self._make_directory(number, one)
                if one.pending:
                    self._write(number, one)
                for trim in one.trims:
                    self._trim(number, one, *trim)
                one.undo()
        if self._deleting:
            self._places.clear()
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

    def _make_directory(self, number: int, one: _Log) -> None:
        directory = self._files.open_directory(self._segments.directory(number), 0o700)
        try:
            self._files.put(directory, NAME, one.name.encode() + b"\n")
        finally:
            self._files.close(directory)
        one.is_new = self.is_new = False
        self._new_directories[number] = None

    def _write(self, number: int, one: _Log) -> None:
        is_new = bool(one.new_segment)
        first = one.new_segment or one.segments[-1].first
        fd = self._segments.fd(number, first, writing=True, new=is_new)
        segment = Segment(first) if is_new else one.segments[-1]
        self._files.pwrite_all(fd, one.pending[0] if len(one.pending) == 1 else b"".join(one.pending), segment.size)
        if is_new:
            one.segments.append(segment)
            one.index = Index()
            self._new_directories[number] = None
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
        self._unsynced[number, first] = (segment, one.index)

    def _trim(self, number: int, one: _Log, before: int, records: int, size: int) -> None:
        one.before = before
        self._places.clear()
        while one.segments and one.segments[0].last < before:
            segment = one.segments.pop(0)
            records -= segment.records - segment.trimmed_records
            size -= segment.size - segment.trimmed_bytes
            self._removed.append(self._segments.path(number, segment.first))
            self._forget(number, segment)
        if one.segments and records > 0:
            one.segments[0].trimmed_records += records
            one.segments[0].trimmed_bytes += size

    def _forget(self, number: int, segment: Segment) -> None:
        self._segments.forget(number, segment.first)
        self._unsynced.pop((number, segment.first), None)
        self._indexes.pop((number, segment.first), None)

    def use_segment_bytes(self, log: int, size: int) -> None:
        one = self._logs.get(log)
        if one:
            one.segment_bytes = size

    # --- reading --------------------------------------------------------------------------------------------------

    def read(self, log: int, after: int, limit: int, limit_bytes: int) -> Page:
        one = self._logs.get(log)
        if one is None or after >= one.last or limit < 1:
            return NO_PAGE
        after = max(after, one.before - 1)
        with self._errors():
            place = self._places.pop((log, after), None) or self._find(log, one, after)
            while place and place[1] >= place[0].size:
                place = self._next_segment(one, place[0])
            return self._read_at(log, *place, after, limit, limit_bytes) if place else NO_PAGE

    def _next_segment(self, one: _Log, segment: Segment) -> tuple[Segment, int] | None:
        at = bisect_right(one.segments, segment.first, key=lambda other: other.first)
        return (one.segments[at], 0) if at < len(one.segments) else None

    def _find(self, number: int, one: _Log, after: int) -> tuple[Segment, int] | None:
        """Where the next record behind a position begins."""
        at = bisect_right(one.segments, after, key=lambda segment: segment.last)
        if at == len(one.segments):
            return None
        segment = one.segments[at]
        if after < segment.first:
            return segment, 0
        with self._noting_damage(number, segment):
            index = self._index(number, one, segment)
            offset = index.offset_before(after)
            return segment, self._segments.seek(number, segment, lambda _, position: position > after, offset)

    def _index(self, number: int, one: _Log, segment: Segment) -> Index:
        if segment is one.segments[-1]:
            return one.index
        key = (number, segment.first)
        unsynced = self._unsynced.get(key)
        if unsynced:
            return unsynced[1]
        index = self._indexes.pop(key, None) or self._segments.read_index(number, segment)
        if len(self._indexes) >= _INDEXES_LIMIT:
            del self._indexes[next(iter(self._indexes))]
        self._indexes[key] = index
        return index

    def _read_at(self, number: int, segment: Segment, offset: int, after: int, limit: int, limit_bytes: int) -> Page:
        usual = (limit + 4) * (segment.size // max(1, segment.records)) + _BLOCK_BYTES
        with self._noting_damage(number, segment):
            data = self._segments.read(number, segment, offset, max(min(usual, limit_bytes), LEAST_BYTES))
            walked = walk(data, offset, 0, after, limit, limit_bytes)
            if not walked.records and not walked.broken and len(data) >= LEAST_BYTES:
                data = self._segments.read(number, segment, offset, size_at(data, 0))
                walked = walk(data, offset, 0, after, 1, limit_bytes)
            if not walked.records:
                raise not_intact(self._segments.path(number, segment.first), offset)
        if len(self._places) >= _PLACES_LIMIT:
            del self._places[next(iter(self._places))]
        self._places[number, walked.last] = (segment, offset + walked.end)
        return Page(data[: walked.end] if walked.end < len(data) else data, walked.records, walked.last)

    @contextmanager
    def _noting_damage(self, number: int, segment: Segment) -> Iterator[None]:
        """Note that a segment cannot be read, if so in the block, which raises ``LogDamaged`` then."""
        try:
            yield
        except LogDamaged:
            segment.suspect = True
            self.note_damage()
            raise
        except OSError as error:
            if error.errno not in LOST_ERRNOS:
                raise
            segment.suspect = True
            self.note_damage()
            raise LogDamaged(f"{self._segments.path(number, segment.first)}: {error}") from error

    def has(self, log: int, position: int) -> bool:
        return position > 0 and self.read(log, position - 1, 1, 0).last == position

    def before_time(self, log: int, wall_ms: int) -> int:
        one = self._logs.get(log)
        if one is None or not one.segments:
            return one.last if one else 0
        before = 0
        with self._errors():
            for segment in one.segments:
                if segment.last_wall >= wall_ms:
                    with self._noting_damage(log, segment):
                        last = self._last_before(log, one, segment, wall_ms) or before
                    return last if last >= one.before else 0
                before = segment.last
        return one.last

    def _last_before(self, number: int, one: _Log, segment: Segment, wall_ms: int) -> int:
        """The position of the last record of a segment before the first at a wall time or later; 0: none."""
        index, last = self._index(number, one, segment), 0

        def is_late(wall: int, position: int) -> bool:
            nonlocal last
            if wall < wall_ms:
                last = position
            return wall >= wall_ms

        at = next((at for at, wall in enumerate(index.walls) if wall >= wall_ms), len(index.walls))
        self._segments.seek(number, segment, is_late, index.offsets[at - 1] if at else 0)
        return last

    def trimmable(
        self, log: int, older_than_ms: int = 0, keep_bytes: int = 0, below: int | None = None
    ) -> Trimmable | None:
        one = self._logs.get(log)
        if one is None or not one.segments:
            return None
        last = records = size = 0
        stored = one.bytes
        for segment in one.segments:
            is_old = segment.last_wall < older_than_ms
            is_much = keep_bytes > 0 and stored - size > keep_bytes and segment is not one.segments[-1]
            if not (is_old or is_much) or (below is not None and segment.last > below):
                break
            last = segment.last
            records += segment.records - segment.trimmed_records
            size += segment.size - segment.trimmed_bytes
        return Trimmable(last + 1, last, records, size) if last else None

    # --- disk -----------------------------------------------------------------------------------------------------

    def probe(self) -> None:
        if not self.is_new:
            with self._errors():
                self._files.listdir(self.root)

    def space_needed(self) -> int:
        if not self._touched:
            return 0
        appended = sum(len(record) for one in self._touched.values() for record in one.pending)
        return appended + 4 * _BLOCK_BYTES * len(self._touched)

    def checkpoint(self, applied: int) -> None:
        if self.is_new:
            return
        with self._errors():
            for (number, first), (segment, index) in list(self._unsynced.items()):
                self._segments.save_index(number, segment, index)
                self._files.fdatasync(self._segments.fd(number, first, writing=True))
                del self._unsynced[number, first]
            for number in list(self._new_directories):
                directory = self._segments.directory(number)
                if directory.is_dir():
                    self._files.sync_directory(directory)
                del self._new_directories[number]
            self._write_state(applied)
            self.applied = applied

    def _write_state(self, applied: int) -> None:
        LogsState(applied, {**self._logs}, self._deleted).write(self.root, self._files)

    def note_damage(self) -> None:
        """Note on disk which segments are suspect, for the next start."""
        if self._reading:
            return
        try:
            state = LogsState.read(self.root)
        except DamagedRecord:
            state = None
        if state is None:  # the next start looks at everything anyway
            return
        for number, stored in state.logs.items():
            open_ = self._logs.get(number)
            suspects = {segment.first for segment in open_.segments if segment.suspect} if open_ else set()
            for segment in stored.segments:
                segment.suspect = segment.suspect or segment.first in suspects
        state.write(self.root, self._files)

    def checkpointed(self) -> None:
        if self._reading:
            return
        self._doomed += self._removed
        self._removed = []
        for number in self._deleted:
            directory = self._segments.directory(number)
            doomed = directory.with_name(directory.name + DELETED)
            try:
                self._files.rename(directory, doomed)
                self._doomed.append(doomed)
            except OSError as error:
                log.warning("%s: %s", directory, error)
        self._deleted = []

    def tidy(self) -> None:
        for _ in range(_TIDY_FILES):
            if not self._doomed:
                return
            path = self._doomed[-1]
            try:
                inside = self._files.listdir(path) if path.is_dir() else []
                if inside:
                    remove_all(path / inside[0])
                    continue
                if path.is_dir():
                    self._files.rmdir(path)
                else:
                    path.with_suffix(".idx").unlink(missing_ok=True)
                    path.unlink(missing_ok=True)
            except OSError as error:
                log.warning("%s: %s", path, error)
            self._doomed.pop()

    # --- starts and checks ----------------------------------------------------------------------------------------

    def facts(self) -> dict[int, LogFacts]:
        return {number: LogFacts(one.name, one.last, one.records, one.bytes) for number, one in self._logs.items()}

    def newest(self) -> int:
        return max([self.applied, *(one.last for one in self._logs.values())])

    def lost(self) -> Iterator[LostRange]:
        for number, one in self._logs.items():
            for segment in [segment for segment in one.segments if segment.suspect]:
                found = self._segments.intact(number, segment)
                yield LostRange(number, found.after, found.before)

    def damaged(self) -> Iterator[tuple[Path, str]]:
        """Read everything: the segments that are damaged, each with what is, in words; they are ``suspect`` from then
        on."""
        for number, one in self._logs.items():
            for segment in one.segments:
                found = self._segments.intact(number, segment)
                missing = segment.records - len(found.records)
                if not (found.damaged or missing or segment.suspect):
                    continue
                segment.suspect = True
                size = sum(end - at for at, end in found.damaged)
                text = f"{missing} records of {one.name} are missing between {found.after} and {found.before}"
                yield self._segments.path(number, segment.first), f"{text}, {size} bytes are damaged"

    def strangers(self) -> list[Path]:
        """Files and directories that are no part of the logs."""
        found: list[Path] = []
        for path in sorted(self.root.iterdir()) if self.root.is_dir() else []:
            name = path.name.removesuffix(DELETED)
            if not DIRECTORY.fullmatch(name):
                found += [path] if name not in (STATE_NAME, STATE_NAME + ".tmp") else []
            elif not path.is_dir():
                found.append(path)
            else:
                found += [one for one in sorted(path.iterdir()) if not _OF_LOG.fullmatch(one.name) or one.is_dir()]
        return found

    def heal(self, lost: LostRange, records: Records) -> None:
        one = self._logs[lost.log]
        with self._errors():
            for segment in [segment for segment in one.segments if segment.suspect]:
                found = self._segments.intact(lost.log, segment)
                if (found.after, found.before) == (lost.after, lost.before):
                    self._rewrite(lost.log, one, segment, found, records)
            if not one.is_new and one.segments:
                one.index = self._segments.read_index(lost.log, one.segments[-1])
            self._write_state(self.applied)
        self._places.clear()
        one.undo()

    def _rewrite(self, number: int, one: _Log, segment: Segment, found: Intact, records: Records) -> None:
        path = self._segments.path(number, segment.first)
        if found.is_unreadable:
            self._quarantine.move_in(path, "a segment of a log that cannot be read", f"{path.parent.name}~{path.name}")
        for at, end in () if found.is_unreadable else found.damaged:
            name = f"{path.parent.name}~{path.name}.{at}"
            self._quarantine.add(name, found.data[at:end], "damaged records of a log")
        merged = dict(sorted((_intact_records(found) | records).items()))
        self._forget(number, segment)
        if not path.parent.is_dir():
            self._make_directory(number, one)
        directory = self._files.open_directory(path.parent)
        try:
            chunks: list[bytes] = []
            offset = wall = 0
            for position, (wall_ms, block) in merged.items():
                chunks.append(record_of(wall_ms, position, block, offset))
                offset, wall = offset + len(chunks[-1]), max(wall, wall_ms)
            path.with_suffix(".idx").unlink(missing_ok=True)
            self._files.put(directory, path.name, b"".join(chunks), durable=True)
        finally:
            self._files.close(directory)
        trimmed = [len(record) for record, position in zip(chunks, merged, strict=True) if position < one.before]
        segment.size, segment.records, segment.last_wall = offset, len(merged), wall
        segment.trimmed_records, segment.trimmed_bytes, segment.suspect = len(trimmed), sum(trimmed), False
        if merged:
            segment.last = max(merged)
        else:
            one.segments.remove(segment)
            path.unlink(missing_ok=True)


def _part(segment: Segment, size: int) -> Segment:
    """The beginning of a segment."""
    return Segment(segment.first, size)


def _intact_records(found: Intact) -> Records:
    parts = b"".join(found.data[at:end] for at, end, _ in found.records)
    return {position: (wall_ms, block) for wall_ms, position, block in records_of(parts)}
