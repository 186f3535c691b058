"""Writes the events of an import as segments of a journal, in a directory of their own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from postroom_common.events import encode_event

from ...engine.context import Draft
from ...journal.segments import segment_name
from ...platform.clock import Clock
from ...platform.files import CREATE_FLAGS, Files

#: Messages whose events make one group.
_GROUP_MESSAGES: Final = 200


class SegmentWriter:
    """Writes segments to a directory of their own, each durable when it is full."""

    def __init__(self, directory: Path, files: Files, clock: Clock, root_id: str, segment_bytes: int) -> None:
        self.root_id = root_id
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
        for request in requests:
            group.append(request)
            if len(group) == _GROUP_MESSAGES:
                self._write(group)
                group = []
        if group:
            self._write(group)

    def _write(self, group: list[list[Draft]]) -> None:
        if self._fd < 0 or self._size >= self._segment_bytes:
            self._begin_segment()
            if self._last_id:
                group = [[self._clock.mark(self._clock.now(), self.root_id)], *group]
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
