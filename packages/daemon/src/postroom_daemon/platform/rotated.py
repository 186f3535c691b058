"""Rotated files of lines: appended, bounded in size and number, never synced."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from .files import CREATE_FLAGS, Files

_SUFFIX: Final = ".jsonl"
#: Seconds between two looks whether the file still has a name.
_LOOK_EVERY_S: Final = 1.0
_APPEND_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class RotatedFiles:
    """The last ``keep_files`` files ``<prefix><number, 20 digits>.jsonl`` in ``root``.

    Each run starts a new file. With ``appends`` it continues the last one, unless that has reached ``file_bytes`` or
    ends in an incomplete line. Users who may list ``root`` may read the files. Files with other names are not touched.
    """

    def __init__(
        self,
        root: Path,
        files: Files,
        file_bytes: int,
        keep_files: int,
        prefix: str = "",
        appends: bool = False,
    ) -> None:
        self._root = root
        self._files = files
        self._file_bytes = file_bytes
        self._keep_files = keep_files
        self._prefix = prefix
        self._name = re.compile(rf"{re.escape(prefix)}\d{{20}}{re.escape(_SUFFIX)}")
        self._appends = appends
        self._fd = -1
        self._size = 0
        self._next_look_s = 0.0

    def write(self, data: bytes) -> None:
        """Write complete lines. Raises ``OSError``; none of them is in the file then."""
        try:
            if self._fd >= 0 and self._was_removed():
                self.close()
            if self._fd < 0 or self._size >= self._file_bytes:
                self._start_file()
            self._files.write_all(self._fd, data)
            self._size += len(data)
        except OSError:
            with suppress(OSError):  # an incomplete line would spoil the next one
                self._files.ftruncate(self._fd, self._size)
            raise

    def _was_removed(self) -> bool:
        """Whether another process has removed the file. It is looked at once a second at most."""
        now_s = time.monotonic()
        if now_s < self._next_look_s:
            return False
        self._next_look_s = now_s + _LOOK_EVERY_S
        return not self._files.fstat(self._fd).st_nlink

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            self._files.close(self._fd)
            self._fd = -1

    def _start_file(self) -> None:
        directory = self._files.open_directory(self._root)
        try:
            numbers = sorted(
                int(name[-20 - len(_SUFFIX) : -len(_SUFFIX)])
                for name in os.listdir(directory)
                if self._name.fullmatch(name)
            )
            if self._appends and self._fd < 0 and numbers and self._continue(directory, self._name_of(numbers[-1])):
                return
            for number in numbers[: max(0, len(numbers) - self._keep_files + 1)]:
                self._files.unlink(self._name_of(number), dir_fd=directory)
            name = self._name_of(numbers[-1] + 1 if numbers else 1)
            mode = self._files.shared_mode(directory)
            fd = self._files.open(name, CREATE_FLAGS | os.O_APPEND, mode, dir_fd=directory)
            os.fchmod(fd, mode)  # the log is opened before the daemon sets its umask
        finally:
            self._files.close(directory)
        self.close()
        self._fd, self._size = fd, 0

    def _continue(self, directory: int, name: str) -> bool:
        try:
            fd = self._files.open(name, _APPEND_FLAGS, dir_fd=directory)
        except OSError:
            return False
        size = self._files.fstat(fd).st_size
        if size >= self._file_bytes or (size and os.pread(fd, 1, size - 1) != b"\n"):
            self._files.close(fd)
            return False
        self._fd, self._size = fd, size
        return True

    def _name_of(self, number: int) -> str:
        return f"{self._prefix}{number:020d}{_SUFFIX}"
