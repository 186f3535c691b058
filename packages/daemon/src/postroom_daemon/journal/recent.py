"""The recent file: the last groups of the journal, a second time, in a file that already has its size.

A sync of a file that grows has to write the file system's own records too, which takes about twice as long and writes
three times as much. A small group is therefore appended to its segment, which is not synced, and written into this
file, which is. Once the file is full, the segment is synced, and the file is used again from its beginning.

After a power cut the segment may lack what it had since then, or have NULs or garbage in its place:
``complete_segment`` writes it again. Readers of segments need nothing of this.

Before each group there is a line that says which bytes of which segment these are. It names the run as well: all that
was written since the file was last used from its beginning, under a random name. What an earlier run has left behind
the last group has another one.
"""

from __future__ import annotations

import logging
import os
import re
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

import orjson

from postroom_common.errors import DamagedRecord
from postroom_common.events import Event, decode_event, decode_line

from ..platform.files import Files
from ..platform.quarantine import Quarantine
from .segments import UNREADABLE_ERRNOS, list_segments, read_bytes, read_lines

log = logging.getLogger(__name__)

RECENT_NAME: Final = "recent"
RECENT_BYTES: Final = 256 * 1024
#: A larger group gains nothing: it would be written twice for the sync of its own pages only.
GROUP_BYTES: Final = 16 * 1024
#: Free bytes without which the file is not created: syncs are slower then.
_FREE_BYTES: Final = 8 * 1024 * 1024
_RUN_BYTES: Final = 8
_OPEN_FLAGS: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_HEAD: Final = re.compile(rb'\{"run":"[^\n]*\}\n')


class RecentFile:
    """Writes the file in ``directory``. It works only between ``begin`` and ``stop``; ``begin`` may be called when all
    that was appended to the segment is synced."""

    def __init__(self, directory: Path, files: Files) -> None:
        self._directory = directory
        self._files = files
        self._fd = -1
        self._at = RECENT_BYTES
        self._before = b""  # the part of the line that is the same in a run
        self._may_create = True

    def begin(self, root: str, segment: str) -> None:
        """Begin a run, of groups of ``segment`` in the journal of a root. Without the file, nothing is written."""
        if self._fd < 0 and self._may_create:
            self._may_create = False
            try:
                self._fd = self._open()
            except OSError as error:
                log.warning("%s: %s: syncs of the journal take longer", self._directory / RECENT_NAME, error)
        self._at = 0 if self._fd >= 0 else RECENT_BYTES
        run = os.urandom(_RUN_BYTES).hex()
        self._before = orjson.dumps({"run": run, "root": root, "segment": segment})[:-1]

    def _open(self) -> int:
        """Open the file, or another one in its place if it is missing or does not have all its blocks; -1 if there is
        little space."""
        files, path = self._files, self._directory / RECENT_NAME
        try:
            status = files.stat(path, follow_symlinks=False)
        except FileNotFoundError:
            status = None
        if status is None or status.st_size != RECENT_BYTES or status.st_blocks * 512 < RECENT_BYTES:
            figures = files.statvfs(self._directory)
            if figures.f_bavail * figures.f_frsize < _FREE_BYTES:
                return -1
            directory = files.open_directory(self._directory)
            try:
                mode = files.shared_mode(directory)
                files.put(directory, RECENT_NAME, bytes(RECENT_BYTES), mode, durable=True)
            finally:
                files.close(directory)
        return int(files.open(path, _OPEN_FLAGS))

    def stop(self) -> None:
        """Write nothing until ``begin``, which opens the file again if that had failed."""
        self._at = RECENT_BYTES
        self._may_create = True

    def write(self, offset: int, lines: bytes) -> bool:
        """Write a group that is at ``offset`` of the segment, durably. False: there is no room, or no file: nothing
        was synced. Raises ``OSError`` if the sync fails."""
        head = b'%b,"offset":%d,"bytes":%d' % (self._before, offset, len(lines))
        data = b'%b,"crc":"%08x"}\n%b' % (head, crc32(head), lines)
        if self._at + len(data) > RECENT_BYTES:
            return False
        try:
            self._files.pwrite_all(self._fd, data, self._at)
        except OSError as error:
            log.warning("%s: %s: syncs of the journal take longer", self._directory / RECENT_NAME, error)
            self.close()
            return False
        self._files.fdatasync(self._fd)
        self._at += len(data)
        return True

    def probe(self) -> None:
        """Check that the disk takes a sync of the file, which has nothing to be synced. Raises ``OSError``."""
        self._files.fdatasync(self._fd)

    def close(self) -> None:
        """Close the file; it stays as it is."""
        if self._fd >= 0:
            self._files.close(self._fd)
        self._fd = -1
        self._at = RECENT_BYTES


class RecentGroup(NamedTuple):
    """A group in the recent file: its root and segment, its offset there, its lines and its events."""

    root: str
    segment: str
    offset: int
    lines: list[bytes]
    events: list[Event]

    @property
    def data(self) -> bytes:
        """The bytes of its lines."""
        return b"".join(self.lines)

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + sum(map(len, self.lines))


class LackingGroups(NamedTuple):
    """What a segment of a journal lacks, and its recent file has. ``out_of_date``: it is not the segment that these
    groups continue, or the journal was continued without the recent file, by an older version or from a copy."""

    segment: Path
    groups: list[RecentGroup]
    out_of_date: bool

    @property
    def first_id(self) -> int:
        """The first event that the segment lacks."""
        return int(self.groups[0].events[0]["id"])

    @property
    def last_id(self) -> int:
        """The last event that the segment lacks."""
        return int(self.groups[-1].events[-1]["id"])


def read_recent(root: Path) -> list[RecentGroup]:
    """The intact groups of the last run in the recent file of a journal, in order; none if it cannot be read. Raises
    ``OSError`` for faults of the machine."""
    try:
        data = read_bytes(root / RECENT_NAME, length=RECENT_BYTES) if (root / RECENT_NAME).is_file() else b""
    except OSError as error:
        if error.errno not in UNREADABLE_ERRNOS:
            raise
        log.error("%s: %s", root / RECENT_NAME, error)
        return []
    groups: list[RecentGroup] = []
    run: str | None = None
    at = 0
    for match in _HEAD.finditer(data):
        if match.start() < at:
            continue
        try:
            head = decode_line(match[0])
            end = match.end() + head["bytes"]
            lines = data[match.end() : end].splitlines(keepends=True)
            group = RecentGroup(
                head["root"], head["segment"], head["offset"], lines, [decode_event(line) for line in lines]
            )
        except (DamagedRecord, KeyError, TypeError):
            continue
        run = run or head.get("run")
        if head.get("run") == run and end <= len(data) and _is_whole(group.events):
            groups.append(group)
            at = end
    return groups


def _is_whole(events: list[Event]) -> bool:
    follows = all(after["id"] == before["id"] + 1 for before, after in pairwise(events))
    return bool(events) and follows and bool(events[-1]["id"] == events[-1]["grp"])


def find_lacking(root: Path) -> LackingGroups | None:
    """What the journal in a directory lacks; None if it lacks nothing that its recent file has. Raises ``OSError``."""
    groups = read_recent(root)
    paths = [path for _, path in list_segments(root)] if groups else []
    path = next((path for path in paths if path.name == groups[0].segment), None)
    if path is None:
        return None
    begin = groups[0].offset
    there = _bytes_at(path, begin, groups[-1].end)
    lacking = [group for group in groups if there[group.offset - begin : group.end - begin] != group.data]
    return LackingGroups(path, lacking, path != paths[-1] or not _may_continue(path, groups)) if lacking else None


def _bytes_at(path: Path, begin: int, end: int) -> bytes:
    """Bytes of a segment; none if they cannot be read."""
    try:
        return read_bytes(path, begin, end - begin)
    except OSError as error:
        if error.errno not in UNREADABLE_ERRNOS:
            raise
        return b""


def _may_continue(path: Path, groups: list[RecentGroup]) -> bool:
    """As ``_continues``; False for a segment that cannot be read."""
    try:
        return _continues(path, groups)
    except OSError as error:
        if error.errno not in UNREADABLE_ERRNOS:
            raise
        return False


def _continues(path: Path, groups: list[RecentGroup]) -> bool:
    """Whether these groups are what the segment had in their place: it has older events before it, no other ones with
    their ids, and newer ones behind it. In between there may be groups that are damaged in the recent file."""
    first, last = groups[0].events[0], groups[-1].events[-1]
    ids = {event["id"] for group in groups for event in group.events}
    own: dict[int, bytes] = {}
    for group in groups:
        own |= zip(accumulate(map(len, group.lines), initial=group.offset), group.lines, strict=False)
    begun = False
    for line in read_lines(path):
        event = line.event
        if event is None:
            continue
        if line.offset < groups[0].offset:
            begun = True
            of_root = event.get("root", groups[0].root) == groups[0].root
            fits = of_root and event["id"] < first["id"] and event["epoch"] <= first["epoch"]
        elif line.offset < groups[-1].end:
            elsewhere = event["id"] < last["id"] and event["id"] not in ids
            fits = own[line.offset] == line.data if line.offset in own else elsewhere
        else:
            fits = event["id"] > last["id"]
        if not fits:
            return False
    return begun


def complete_segment(root: Path, files: Files, quarantine: Quarantine) -> None:
    """Write into the last segment of a journal what it lacks and its recent file has, durably. What was in its place
    goes to quarantine, and so does a file that is out of date. May be repeated after a crash. Raises ``OSError``."""
    found = find_lacking(root)
    if found is None:
        return
    if found.out_of_date:
        quarantine.move_in(root / RECENT_NAME, f"it does not continue {found.segment.name}")
        return
    begin = found.groups[0].offset
    old = b"".join(line.data for line in read_lines(found.segment, begin))
    if old.strip(b"\0"):
        quarantine.add(f"{found.segment.name}.{begin}", old, f"damaged; {RECENT_NAME} has what it lacks")
    fd = files.open(found.segment, _OPEN_FLAGS)
    try:
        for group in found.groups:
            if group.offset and _bytes_at(found.segment, group.offset - 1, group.offset) != b"\n":
                files.pwrite_all(fd, b"\n", group.offset - 1)  # what is missing there must not run into the first line
            files.pwrite_all(fd, group.data, group.offset)
        files.fsync(fd)
    finally:
        files.close(fd)
    log.warning("%s: events %d to %d were restored from %s", found.segment, found.first_id, found.last_id, RECENT_NAME)
