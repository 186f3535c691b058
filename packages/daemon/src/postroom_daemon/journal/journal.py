"""The journal: the append-only log of events, in segments that roll by size. Every store is folded from it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from time import monotonic_ns
from typing import Final

from postroom_common.errors import PostroomError
from postroom_common.events import Event

from ..platform.files import FULL_ERRNOS, Files
from ..platform.histogram import Doublings
from ..platform.quarantine import Quarantine
from .end_mark import EndMarkFile
from .order import MOVED_SUFFIX, Owner, bring_into_order
from .recent import GROUP_BYTES, RECENT_NAME, RecentFile, complete_segment
from .segments import (
    UNREADABLE_ERRNOS,
    OnDamage,
    PlacedRequest,
    Start,
    begun_at,
    find_request,
    find_start,
    list_segments,
    places_of,
    read_bytes,
    read_lines,
    read_requests,
    segment_name,
)
from .tail import Tail, examine_tail

#: The shortest event (bytes), from which the number of ids in unreadable bytes is estimated.
_SHORTEST_EVENT: Final = 100
#: A last segment without an intact event, up to this size (bytes), is a first group torn by a crash.
_TORN_BYTES: Final = 4096
_APPEND_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class JournalRefused(PostroomError):
    """An append failed and was undone, durably: nothing of the group is in the journal. ``full``: space is lacking."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"journal: {error}")
        self.full = error.errno in FULL_ERRNOS


class JournalUnknown(PostroomError):
    """A sync or an undo failed, so the disk's content is unknown. Nobody may be answered before a recovery."""


class Journal:
    """Writes the journal. Not thread-safe; the caller ensures that only one process has it open.

    Users who can list ``root`` can read new segments. After ``open``, ``last_id`` is the id of the last event, and
    ``last_given`` the highest that may ever have been assigned, which is higher if the last segment is unreadable.
    """

    def __init__(self, root: Path, files: Files, quarantine: Quarantine, segment_bytes: int) -> None:
        self.root = root
        self.last_id = self.last_given = 0
        self.unsynced = False
        self.sync_ns = Doublings(16, 33)
        """Times of syncs: 66 microseconds to 8.6 seconds."""
        self._files = files
        self._quarantine = quarantine
        self.segment_bytes = segment_bytes
        self._mode = 0o600
        self._fd = -1
        self._directory = -1
        self._size = 0
        self.segment: Path | None = None
        self.end_mark = EndMarkFile(root, files, quarantine)
        self._recent = RecentFile(root, files)
        self._group: bytes | None = None  # the only group that is not synced, if it is small
        self._behind = False  # the segment is not synced; the recent file has what it may lack

    def open(self, owner: Owner | None = None) -> None:
        """Bring the files into order, find the end, and cut off what a crash left unfinished, which goes to quarantine.
        ``owner`` is the root whose events the store has folded. Raises ``OSError``, ``Foreign``."""
        self.last_id = self.last_given = self._size = 0
        self.segment, self.unsynced = None, False
        self._directory = self._files.open_directory(self.root)
        self._mode = self._files.shared_mode(self._directory)
        bring_into_order(self.root, self._directory, owner, self._files, self._quarantine)
        complete_segment(self.root, self._files, self._quarantine)
        for first_id, path in reversed(list_segments(self.root)):
            tail = self._examine(path)
            if not tail.last_id and tail.size > _TORN_BYTES:
                self.last_given = max(self.last_given, first_id - 1 + tail.size // _SHORTEST_EVENT)
            if tail.keep_bytes < tail.size:
                self._cut_tail(path, tail.keep_bytes)
            self.last_id = max(tail.last_id, first_id - 1)
            if tail.last_id:
                self._continue(path, tail.keep_bytes)
                return
            # It was created, but has no event: the next segment gets the same name.
            if path.exists():
                self._files.unlink(path.name, dir_fd=self._directory)

    def _examine(self, path: Path) -> Tail:
        """The end of what may be the last segment. One that cannot be read twice is set aside."""
        try:
            return examine_tail(path)
        except OSError as error:
            if error.errno not in UNREADABLE_ERRNOS:
                raise
        try:
            return examine_tail(path)
        except OSError as error:
            if error.errno not in UNREADABLE_ERRNOS:
                raise
            size = path.stat().st_size
            self._quarantine.move_in(path, f"the end of the journal, which cannot be read: {error.strerror}")
            return Tail(0, size, size)

    def _cut_tail(self, path: Path, keep_bytes: int) -> None:
        try:
            data = read_bytes(path, keep_bytes)
        except OSError as error:
            if error.errno not in UNREADABLE_ERRNOS:
                raise
            self._rewrite_without_end(path, keep_bytes)
            return
        self._quarantine.add(f"{path.name}.{keep_bytes}", data, "unfinished at the end of the journal")
        fd = self._files.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            self._files.ftruncate(fd, keep_bytes)
            self._files.fsync(fd)
        finally:
            self._files.close(fd)

    def _rewrite_without_end(self, path: Path, keep_bytes: int) -> None:
        """Rewrite a segment without its unreadable end, and set the old file aside, since its end cannot be copied."""
        data = read_bytes(path, length=keep_bytes)
        moved = path.name + MOVED_SUFFIX
        self._files.put(self._directory, moved, data, self._mode, durable=True)
        self._quarantine.move_in(path, "the end of the journal, of which a part cannot be read")
        self._files.rename(moved, path.name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        self._files.fsync(self._directory)

    def _continue(self, path: Path, size: int) -> None:
        self._fd = self._files.open(path, _APPEND_FLAGS, self._mode)
        self._size = size
        self.segment = path
        self.unsynced = True  # a killed daemon's writes may be in memory only
        self._recent.stop()

    @property
    def end(self) -> Start | None:
        """The place of the next event, unless a new segment is begun for it."""
        return Start(self.segment, self._size) if self.segment else None

    def close(self) -> None:
        """Close the files; nothing is synced."""
        for fd in (self._fd, self._directory):
            if fd >= 0:
                self._files.close(fd)
        self._fd = self._directory = -1
        self.end_mark.close()
        self._recent.close()

    def wants_roll(self) -> bool:
        """Whether the next group should begin a new segment."""
        return self._fd < 0 or self._size >= self.segment_bytes

    def roll(self) -> None:
        """Begin a new segment at the next id. Its name is durable when this returns.

        Raises ``JournalRefused``, ``JournalUnknown``.
        """
        self.sync_segment()
        try:
            self._begin_segment()
        except OSError as error:
            raise JournalRefused(error) from error

    def _begin_segment(self) -> None:
        path = self.root / segment_name(self.last_id + 1)
        fd = self._files.open(path, _APPEND_FLAGS, self._mode)
        try:
            self._files.fsync(self._directory)
        except BaseException:
            self._files.close(fd)
            raise
        if self._fd >= 0:
            self._files.close(self._fd)
        self._fd = fd
        self._size = 0
        self.segment = path
        self._recent.stop()  # until the new file itself is on the disk, and not only its name

    def append(self, lines: list[bytes], last_id: int) -> list[int]:
        """Write a group's lines, of which the last has ``last_id``. Not durable before ``sync``. Returns the
        places of the lines, for ``find``.

        Raises ``JournalRefused`` if nothing was written, ``JournalUnknown`` if that is unknown.
        """
        data = b"".join(lines)
        try:
            self._files.write_all(self._fd, data)
        except OSError as error:
            try:
                self._files.ftruncate(self._fd, self._size)
                self._files.fsync(self._fd)
            except OSError as second:
                raise JournalUnknown(f"journal: {error}; then, when undoing it: {second}") from error
            raise JournalRefused(error) from error
        places = places_of(last_id - len(lines) + 1, accumulate(map(len, lines[:-1]), initial=self._size))
        self._group = data if not self.unsynced and len(data) <= GROUP_BYTES else None
        self._size += len(data)
        self.last_id = last_id
        self.unsynced = True
        return places

    def sync(self) -> None:
        """Make all that was appended durable, in its segment or in the recent file. Raises ``JournalUnknown``."""
        began_ns = monotonic_ns()
        group = self._group
        try:
            if group is not None and self._recent.write(self._size - len(group), group):
                self._behind = True
            else:
                self._sync_segment()
        except OSError as error:
            raise JournalUnknown(f"journal: {error}") from error
        self.sync_ns.add(monotonic_ns() - began_ns)
        self.unsynced = False
        self.end_mark.write(self.last_id)

    def _sync_segment(self) -> None:
        assert self.segment is not None
        self._files.fdatasync(self._fd)
        self._behind = False
        if self.end_mark.root:
            self._recent.begin(self.end_mark.root, self.segment.name)

    def sync_segment(self) -> None:
        """Make all that was appended durable in its segment. Raises ``JournalUnknown``."""
        if self.unsynced or self._behind:
            self._group = None
            self.sync()

    def rewrite_last(self) -> None:
        """Rewrite the last segment under its name, durably.

        After a failed sync, its content may be in memory only, and a second sync of the same file may succeed without
        it (the kernel reports a lost write once). Raises ``OSError``.
        """
        segments = list_segments(self.root)
        if not segments:
            return
        complete_segment(self.root, self._files, self._quarantine)
        path = segments[-1][1]
        directory = self._files.open_directory(self.root)
        try:
            mode = self._files.shared_mode(directory)
            self._files.put(directory, path.name, path.read_bytes(), mode, durable=True)
            if (self.root / RECENT_NAME).is_file():  # its sync may be what has failed
                self._files.unlink(RECENT_NAME, dir_fd=directory)
        finally:
            self._files.close(directory)

    def first_id(self) -> int:
        """The id of the oldest event that is there; 0 if there is none."""
        return next((first for first, _ in list_segments(self.root)), 0) if self.last_id else 0

    def event(self, event_id: int) -> Event | None:
        """An event; None if it is not there, or damaged. Raises ``OSError``."""
        for request in self.requests_from(event_id, lambda damage: None):
            return next((event for event in request.events if event["id"] == event_id), None)
        return None

    def last_group(self) -> tuple[int, list[bytes]]:
        """The offset in the last segment of the last group, and its lines; none if the journal is empty. Raises
        ``OSError``."""
        if self.segment is None:
            return 0, []
        ending = read_lines(self.segment, find_start(self.segment, self.last_id))
        last = next(line.event for line in ending if line.event and line.id == self.last_id)
        first_id = self.last_id - last.get("gn", 1) + 1 if last["id"] == last["grp"] else 0
        lines = read_lines(self.segment, find_start(self.segment, first_id))
        group = [line for line in lines if line.event and line.event["grp"] == last["grp"]]
        return group[0].offset, [line.data for line in group]

    def cut(self, offset: int, last_id: int) -> None:
        """After ``open``: cut off the last segment from ``offset`` on, durably; ``last_id`` is the event before it. The
        journal is closed. May be repeated after a crash. Raises ``OSError``."""
        files, fd = self._files, self._fd
        files.fsync(fd)  # the recent file may have what the disk lacks
        if (self.root / RECENT_NAME).is_file():  # it would put the group back
            files.unlink(RECENT_NAME, dir_fd=self._directory)
        self.end_mark.lower(last_id)
        files.fsync(self._directory)
        files.ftruncate(fd, offset)
        files.fsync(fd)
        self.close()

    def probe(self) -> None:
        """Check that the segment being written is still the file of that name, and that the disk takes a sync.

        Raises ``OSError``; ``JournalUnknown`` if there was something to sync.
        """
        if self.segment is not None:
            named, opened = self._files.stat(self.segment), self._files.fstat(self._fd)
            if (named.st_dev, named.st_ino) != (opened.st_dev, opened.st_ino):
                raise OSError(f"{self.segment} was replaced")
            if self.unsynced:  # a failure is reported once, and must not be reported to a probe only
                self.sync()
            elif self._behind:
                self._recent.probe()
            else:
                self._files.fdatasync(self._fd)

    def requests_from(self, event_id: int, on_damage: OnDamage) -> Iterator[PlacedRequest]:
        """See ``segments.read_requests``."""
        return read_requests(self.root, event_id, on_damage)

    def find(self, place: int) -> list[Event] | None:
        """See ``segments.find_request``."""
        return find_request(self.root, place)

    def drop_segments(self, folded_id: int, older_than: int, max_bytes: int, recent: int) -> list[str]:
        """Remove segments that are durably folded up to ``folded_id``, that ended before ``recent`` (engine ms), and
        that ended before ``older_than`` or make the journal larger than ``max_bytes``. The last one always stays.
        Returns the names of the removed ones.

        Raises ``OSError``.
        """
        segments = list_segments(self.root)
        sizes = [path.stat().st_size for _, path in segments]
        total = sum(sizes)
        removed = []
        for (_, path), (next_first, following), size in zip(segments, segments[1:], sizes, strict=False):
            begun = begun_at(following)
            recently = begun is not None and begun >= recent
            old = begun is not None and begun < older_than
            if next_first - 1 > folded_id or recently or not (old or total > max_bytes):
                break
            self._files.unlink(path.name, dir_fd=self._directory)
            total -= size
            removed.append(path.name)
        return removed
