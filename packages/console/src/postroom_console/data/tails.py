"""Follows the files of the journal and of the traffic log, bounded, and reports what it skipped."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from .records import Record, from_event, from_request
from .updates import Lines

#: Bytes of old lines that are shown at the start.
BACKLOG_BYTES: Final = 65_536
#: Bytes that one read takes.
READ_BYTES: Final = 1_048_576
#: Bytes that a reader may be behind, and the maximum of a line or group. Beyond it the reader skips to the end.
BEHIND_BYTES: Final = 8 * READ_BYTES
_NAME: Final = re.compile(r"\d{20}\.jsonl")
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_GROUP: Final = re.compile(rb'\{"id":(\d+),"epoch":\d+,"req":\d+,"grp":(\d+),')


def whole_lines(data: bytes) -> int:
    """The length of the complete lines in ``data``."""
    return data.rfind(b"\n") + 1


def whole_groups(data: bytes) -> int:
    """The length of the journal's lines in ``data`` up to the end of the last complete group.

    An incomplete group may be truncated by recovery, and its ids used for other events, so it is not shown.
    """
    end = whole_lines(data)
    while end:
        begin = data.rfind(b"\n", 0, end - 1) + 1
        numbers = _GROUP.match(data, begin, end)
        if numbers and numbers[1] == numbers[2]:
            return end
        end = begin
    return 0


class Tail:
    """Follows the numbered files of a directory. ``whole`` returns how much of the data is complete.

    ``skipped_bytes`` counts what was skipped because too much came. ``problem`` says why nothing can be read; it is
    empty otherwise. The directory and its files may be missing, appear and disappear, and the newest file may be
    truncated or replaced.
    """

    def __init__(
        self, root: Path, whole: Callable[[bytes], int] = whole_lines, backlog_bytes: int = BACKLOG_BYTES
    ) -> None:
        self.root = root
        self.skipped_bytes = 0
        self.problem = ""
        self._whole = whole
        self._backlog = backlog_bytes
        self._fd = -1
        self._name = ""
        self._at = 0  # the beginning of what was not returned yet
        self._pending = 0  # bytes after it that were read, but are incomplete
        self._drops_line = False  # the bytes up to the end of the line belong to a skipped line

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._name = -1, ""

    def read(self) -> list[bytes]:
        """The lines that have become complete since the last call, about ``READ_BYTES`` at most."""
        self.problem = ""
        try:
            return self._read()
        except OSError as error:  # the position stays: the problem may pass
            self.problem = f"{self.root}: {error.strerror}"
            return []

    def _read(self) -> list[bytes]:
        names = self._names()
        if self._fd < 0 and names:
            self._begin(names)
        if self._fd < 0:
            return []
        self._follow_name()
        self._skip_if_behind([name for name in names if name > self._name])
        lines = self._more()
        later = [name for name in names if name > self._name]
        if not lines and later and self._is_read():
            lines = self._leftover()
            self._open(later[0])
            lines += self._more()
        elif not lines and names and not later and self._name not in names:  # all files were replaced
            self.close()
        return lines

    def _names(self) -> list[str]:
        names = []
        with os.scandir(self.root) as entries:
            for entry in entries:
                if not _NAME.fullmatch(entry.name):
                    continue
                if entry.is_file(follow_symlinks=False):
                    names.append(entry.name)
                else:
                    self.problem = f"{self.root}: {entry.name} is not a regular file"
        return sorted(names)

    def _begin(self, names: list[str]) -> None:
        """Start where the backlog starts, which may be in a file before the newest one."""
        left = self._backlog
        for name in reversed(names):
            self._open(name)
            size = os.fstat(self._fd).st_size
            if size >= left:
                self._go(size - left)
                return
            left -= size

    def _open(self, name: str) -> None:
        fd = os.open(self.root / name, _FLAGS)
        self.close()
        self._fd, self._name, self._at, self._pending, self._drops_line = fd, name, 0, 0, False

    def _follow_name(self) -> None:
        """Follow a file that was replaced under its name: its complete lines are the same, what follows differs."""
        opened = os.fstat(self._fd)
        try:
            is_other = not os.path.samestat(os.stat(self.root / self._name, follow_symlinks=False), opened)
        except FileNotFoundError:
            is_other = False  # removed by retention, but its rest can still be read
        if is_other:
            at = self._at
            self._open(self._name)
            size = os.fstat(self._fd).st_size
            self._go(at if at <= size else max(0, size - self._backlog))
        elif opened.st_size < self._at:  # truncated
            self._go(opened.st_size)

    def _go(self, at: int) -> None:
        self._at, self._pending = at, 0
        self._drops_line = at > 0 and os.pread(self._fd, 1, at - 1) != b"\n"

    def _skip_if_behind(self, later: list[str]) -> None:
        """Skip to the end of the newest file if too much has come since the last call."""
        left = os.fstat(self._fd).st_size - self._at
        sizes = [self._size(name) for name in later]
        if left + sum(sizes) <= BEHIND_BYTES:
            return
        before = self._at
        if later:
            self._open(later[-1])
            before, left = 0, sum(sizes[:-1]) + left
        else:
            left = 0
        self._go(max(os.fstat(self._fd).st_size - READ_BYTES, before))
        self.skipped_bytes += left + self._at - before

    def _size(self, name: str) -> int:
        try:
            return os.stat(self.root / name, follow_symlinks=False).st_size
        except FileNotFoundError:  # RACE: retention has just removed it
            return 0

    def _more(self) -> list[bytes]:
        left = os.fstat(self._fd).st_size - self._at  # a larger buffer would be allocated and returned
        if left <= 0:
            return []
        data = os.pread(self._fd, min(left, self._pending + READ_BYTES), self._at)
        if self._drops_line:
            begin = data.find(b"\n") + 1
            self._at += begin or len(data)
            self._drops_line = not begin
            data = data[begin:] if begin else b""
        end = self._whole(data)
        self._at += end
        self._pending = len(data) - end
        return data[:end].split(b"\n")[:-1]

    def _is_read(self) -> bool:
        return os.fstat(self._fd).st_size <= self._at + self._pending

    def _leftover(self) -> list[bytes]:
        """The end of a file that has a successor: nothing will complete it."""
        data = os.pread(self._fd, self._pending, self._at)
        return [line for line in data.split(b"\n") if line]


class _Source(NamedTuple):
    tail: Tail
    record: Callable[[bytes], Record | None]


class Reader:
    """Follows the journal and the traffic log, if given, as one stream of records. For one thread."""

    def __init__(self, journal: Path | None, traffic: Path | None, backlog_bytes: int = BACKLOG_BYTES) -> None:
        self._sources = []
        if journal:
            self._sources.append(_Source(Tail(journal, whole_groups, backlog_bytes), from_event))
        if traffic:
            self._sources.append(_Source(Tail(traffic, whole_lines, backlog_bytes), from_request))
        self._last_event = 0

    @property
    def is_blind(self) -> bool:
        """Whether the last call could read nothing at all."""
        return all(source.tail.problem for source in self._sources)

    @property
    def is_missing(self) -> bool:
        """Whether none of the directories exists."""
        return not any(source.tail.root.exists() for source in self._sources)

    def read(self) -> Lines:
        """The records since the last call, by engine time."""
        records: list[Record] = []
        skipped = bad = missing = 0
        for tail, record in self._sources:
            lines = tail.read()
            found = [one for one in map(record, lines) if one]
            bad += len(lines) - len(found)
            missing += max(0, self._missing(found) - (len(lines) - len(found)))
            skipped += tail.skipped_bytes
            tail.skipped_bytes = 0
            records += found
        records.sort(key=lambda one: one.engine_ms)
        problem = "; ".join(source.tail.problem for source in self._sources if source.tail.problem)
        return Lines(tuple(records), skipped, bad, problem, missing)

    def _missing(self, records: list[Record]) -> int:
        """The number of events missing between records: event ids have no gaps."""
        missing = 0
        for record in records:
            if record.is_event:
                if 0 < self._last_event < record.number:
                    missing += record.number - self._last_event - 1
                self._last_event = record.number
        return missing

    def close(self) -> None:
        """Close the files."""
        for source in self._sources:
            source.tail.close()
