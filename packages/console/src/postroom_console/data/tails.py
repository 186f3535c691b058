"""Reading on in the files of the journal and of the traffic log: what is new, bounded, and what was left out."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

#: Bytes of old lines that are shown at the start.
BACKLOG_BYTES: Final = 65_536
#: Bytes that one look reads.
READ_BYTES: Final = 1_048_576
#: Bytes that a reader may be behind, and so that a line or a group may have; beyond them it goes on at the end.
BEHIND_BYTES: Final = 8 * READ_BYTES
_NAME: Final = re.compile(r"\d{20}\.jsonl")
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_GROUP: Final = re.compile(rb'\{"id":(\d+),"epoch":\d+,"req":\d+,"grp":(\d+),')


def whole_lines(data: bytes) -> int:
    """The length of the lines in ``data`` that have ended."""
    return data.rfind(b"\n") + 1


def whole_groups(data: bytes) -> int:
    """The length of the journal's lines in ``data`` up to the end of the last group that has ended.

    A group that was written in part may be cut back, and its numbers used for other events: so it is not believed.
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
    """The lines that are added to the numbered files of a directory, as far as ``whole`` says that they are complete.

    ``skipped_bytes`` counts what was passed over because too much came; ``problem`` says why nothing can be read, or
    is empty. The directory and its files may be missing, may come and go, and the newest file may be cut back or
    written anew under its name.
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
        self._at = 0  # where that begins which was not given out
        self._pending = 0  # bytes behind it that were read, but are not complete
        self._drops_line = False  # the bytes up to the next line's end are part of a line that was passed over

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._name = -1, ""

    def read(self) -> list[bytes]:
        """The lines that have become complete since the last call, those of about ``READ_BYTES`` at most."""
        self.problem = ""
        try:
            return self._read()
        except OSError as error:  # the place is kept: what is the matter may pass
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
        elif not lines and names and not later and self._name not in names:  # all files are others than before
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
                    self.problem = f"{self.root}: {entry.name} is no file"
        return sorted(names)

    def _begin(self, names: list[str]) -> None:
        """Start where the backlog begins: the newest file may just have been begun."""
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
        """Another file under the same name has the same complete lines in front, and goes on otherwise."""
        opened = os.fstat(self._fd)
        try:
            is_other = not os.path.samestat(os.stat(self.root / self._name, follow_symlinks=False), opened)
        except FileNotFoundError:
            is_other = False  # its time was over; what is left in it is still to be read
        if is_other:
            at = self._at
            self._open(self._name)
            size = os.fstat(self._fd).st_size
            self._go(at if at <= size else max(0, size - self._backlog))
        elif opened.st_size < self._at:  # cut back
            self._go(opened.st_size)

    def _go(self, at: int) -> None:
        self._at, self._pending = at, 0
        self._drops_line = at > 0 and os.pread(self._fd, 1, at - 1) != b"\n"

    def _skip_if_behind(self, later: list[str]) -> None:
        """Go on near the end of the newest file if too much has come since the last look."""
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
        except FileNotFoundError:  # RACE: its time was over just now
            return 0

    def _more(self) -> list[bytes]:
        left = os.fstat(self._fd).st_size - self._at  # room for more than there is would be taken and given back
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
        """What stands at the end of a file behind which another one was begun: nothing completes it any more."""
        data = os.pread(self._fd, self._pending, self._at)
        return [line for line in data.split(b"\n") if line]
