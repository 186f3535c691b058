"""What is removed from logs: forgotten at once, erased after the next checkpoint, a little at a time."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from ...platform.files import remove_all
from .contract import Trimmable
from .open_logs import DELETED, OpenLog, OpenLogs
from .reading import Reader

log = logging.getLogger(__name__)

#: Files that one step of ``tidy`` removes.
_TIDY_FILES: Final = 16


def trimmable(one: OpenLog, older_than_ms: int, keep_bytes: int, below: int | None) -> Trimmable | None:
    """As ``Logs.trimmable``."""
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


class Removal:
    """Trims and deletes logs; the files and directories in ``doomed`` may be erased."""

    def __init__(self, opened: OpenLogs, reader: Reader, doomed: list[Path]) -> None:
        self._opened = opened
        self._reader = reader
        self._removed: list[Path] = []  # since the last checkpoint, segments that are trimmed
        self._doomed = doomed

    def trim(self, number: int, one: OpenLog, before: int, records: int, size: int) -> None:
        """Forget the records before a position: so many, of ``size`` bytes together."""
        one.before = before
        self._reader.forget_places()
        while one.segments and one.segments[0].last < before:
            segment = one.segments.pop(0)
            records -= segment.records - segment.trimmed_records
            size -= segment.size - segment.trimmed_bytes
            self._removed.append(self._opened.segments.path(number, segment.first))
            self._reader.forget(number, segment)
        if one.segments and records > 0:
            one.segments[0].trimmed_records += records
            one.segments[0].trimmed_bytes += size

    def delete(self, number: int, one: OpenLog) -> None:
        """Forget a log."""
        self._opened.deleted.append(number)
        self._reader.forget_places()
        for segment in one.segments:
            self._reader.forget(number, segment)

    def checkpointed(self) -> None:
        """As ``Logs.checkpointed``."""
        if self._opened.is_reading:
            return
        self._doomed += self._removed
        self._removed = []
        for number in self._opened.deleted:
            directory = self._opened.segments.directory(number)
            doomed = directory.with_name(directory.name + DELETED)
            try:
                self._opened.files.rename(directory, doomed)
                self._doomed.append(doomed)
            except OSError as error:
                log.warning("%s: %s", directory, error)
        self._opened.deleted = []

    def tidy(self) -> None:
        """As ``Logs.tidy``."""
        for _ in range(_TIDY_FILES):
            if not self._doomed:
                return
            path = self._doomed[-1]
            try:
                inside = self._opened.files.listdir(path) if path.is_dir() else []
                if inside:
                    remove_all(path / inside[0])
                    continue
                if path.is_dir():
                    self._opened.files.rmdir(path)
                else:
                    path.with_suffix(".idx").unlink(missing_ok=True)
                    path.unlink(missing_ok=True)
            except OSError as error:
                log.warning("%s: %s", path, error)
            self._doomed.pop()
