"""The events of an import from another system, as segments of a journal in a directory of their own.

The directory is beside the journal's segments. Renaming what is in it, or itself, commits the import.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from postroom_common.events import EventType, encode_event

from ..engine.context import Draft
from ..journal.segments import list_segments, segment_name
from ..platform.clock import Clock
from ..platform.files import CREATE_FLAGS, Files

#: The directory of the events while they are being written.
STAGING: Final = "taking-over"
#: Messages whose events make one group, and bytes of records of logs.
_GROUP_MESSAGES: Final = 200
_GROUP_BYTES: Final = 2**22


@contextmanager
def staged_journal(
    journal: Path,
    requests: Iterable[list[Draft]],
    reason: str,
    root_id: str,
    clock: Clock,
    files: Files,
    segment_bytes: int = 0,
    behind: int = 0,
) -> Iterator[Path]:
    """Write requests as a journal of their own, durably: the directory that has it. ``reason`` is that of the epoch;
    segments have ``segment_bytes`` bytes, or there is only one (0). The ids of the requests' events are higher than
    ``behind``. The directory is removed if anything fails before the import is committed. Raises ``OSError``."""
    staging = journal / STAGING
    if staging.is_dir():
        _discard(staging, files)
    try:
        writer = _SegmentWriter(staging, files, clock, root_id, segment_bytes)
        try:
            epoch: Draft = {"type": EventType.EPOCH_STARTED, "root": root_id, "reason": reason}
            writer.write_all([[epoch], [clock.mark(clock.now(), root_id)]])
            writer.skip_to(behind)
            writer.write_all(requests)
            writer.write_all([[clock.mark(clock.now(), root_id)]])
        finally:
            writer.close()
        yield staging
    except BaseException:
        if staging.is_dir():
            _discard(staging, files)
        raise


def _discard(staging: Path, files: Files) -> None:
    """Remove events that were never committed."""
    for _, segment in list_segments(staging):
        files.unlink(segment)
    files.rmdir(staging)


class _SegmentWriter:
    """Writes segments to a directory, each durable when it is full."""

    def __init__(self, directory: Path, files: Files, clock: Clock, root_id: str, segment_bytes: int) -> None:
        self._root_id = root_id
        self._files = files
        self._clock = clock
        self._segment_bytes = segment_bytes
        journal = files.open_directory(directory.parent)
        try:
            self._mode = files.shared_mode(journal)
        finally:
            files.close(journal)
        self._directory = files.open_directory(directory)
        self._fd = -1
        self._size = 0
        self._last_id = 0

    def write_all(self, requests: Iterable[list[Draft]]) -> None:
        """Write requests. A reader sees all events of a request, or none. Raises ``OSError``."""
        group: list[list[Draft]] = []
        size = 0
        for request in requests:
            group.append(request)
            size += sum(len(draft.get("record", "")) for draft in request)
            if len(group) == _GROUP_MESSAGES or size >= _GROUP_BYTES:
                self._write(group)
                group, size = [], 0
        if group:
            self._write(group)

    def skip_to(self, last: int) -> None:
        """Leave the ids up to ``last`` unused, and say so. Raises ``OSError``."""
        after = self._last_id
        if last > after:
            self._last_id = last
            self.write_all([[{"type": EventType.GAP, "after": after, "next": last + 1, "unused": True}]])

    def _write(self, group: list[list[Draft]]) -> None:
        if self._fd < 0 or (self._segment_bytes and self._size >= self._segment_bytes):
            self._begin_segment()
            if self._last_id:
                group = [[self._clock.mark(self._clock.now(), self._root_id)], *group]
        now = self._clock.now()
        first = self._last_id + 1
        last_of_group = self._last_id + sum(len(request) for request in group)
        lines = []
        for request in group:
            last = self._last_id + len(request)
            for draft in request:
                self._last_id += 1
                event = {"id": self._last_id, "epoch": 1, "req": last, "grp": last_of_group}
                event |= {"engineMs": now.engine, "wallMs": now.wall, **draft}
                if self._last_id == last and len(request) > 1:
                    event["n"] = len(request)
                if self._last_id == last_of_group > first:
                    event["gn"] = last_of_group - first + 1
                lines.append(encode_event(event))
        data = b"".join(lines)
        self._files.write_all(self._fd, data)
        self._size += len(data)

    def _begin_segment(self) -> None:
        self._end_segment()
        self._fd = self._files.open(segment_name(self._last_id + 1), CREATE_FLAGS, self._mode, dir_fd=self._directory)
        self._size = 0

    def _end_segment(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            try:
                self._files.fsync(fd)
            finally:
                self._files.close(fd)

    def close(self) -> None:
        """Make all of it durable. Raises ``OSError``."""
        try:
            self._end_segment()
            self._files.fsync(self._directory)
        finally:
            self._files.close(self._directory)
