"""The traffic log: one line per request, who asked for what and how it ended. Bounded, sampled, never synced."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from .files import CREATE_FLAGS, Files

_NAME = re.compile(r"\d{20}\.jsonl")


class TrafficLog:
    """Files ``traffic/<number, 20 digits>.jsonl``, of which the last ``keep_files`` stay.

    ``sample_every`` n writes every n-th request; errors are always written. A disk that takes no line loses lines, no
    more: ``lost`` counts them.
    """

    def __init__(
        self, root: Path, files: Files, file_bytes: int, keep_files: int, sample_every: int, mode: int = 0o600
    ) -> None:
        self.lost = 0
        self._root = root
        self._files = files
        self._file_bytes = file_bytes
        self._keep_files = keep_files
        self._sample_every = sample_every
        self._mode = mode
        self._fd = -1
        self._size = 0
        self._seen = 0
        self._lines: list[bytes] = []

    def add(self, line: dict[str, Any], failed: bool) -> None:
        """Take a request's line; it is written by the next ``flush``."""
        self._seen += 1
        if failed or self._seen % self._sample_every == 0:
            self._lines.append(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))

    def flush(self) -> None:
        """Write what was taken, in one write."""
        if not self._lines:
            return
        lines, self._lines = self._lines, []
        data = b"".join(lines)
        try:
            if self._fd < 0 or self._size >= self._file_bytes:
                self._begin_file()
            self._files.write_all(self._fd, data)
            self._size += len(data)
        except OSError:
            self.lost += len(lines)
            with suppress(OSError):  # half a line would spoil the next one
                self._files.ftruncate(self._fd, self._size)

    def close(self) -> None:
        """Write what is left and let go of the file."""
        self.flush()
        if self._fd >= 0:
            self._files.close(self._fd)
            self._fd = -1

    def _begin_file(self) -> None:
        directory = self._files.open_directory(self._root)
        try:
            numbers = sorted(int(name[:20]) for name in os.listdir(directory) if _NAME.fullmatch(name))
            for number in numbers[: max(0, len(numbers) - self._keep_files + 1)]:
                self._files.unlink(_name(number), dir_fd=directory)
            name = _name(numbers[-1] + 1 if numbers else 1)
            fd = self._files.open(name, CREATE_FLAGS | os.O_APPEND, self._mode, dir_fd=directory)
        finally:
            self._files.close(directory)
        if self._fd >= 0:
            self._files.close(self._fd)
        self._fd, self._size = fd, 0


def _name(number: int) -> str:
    return f"{number:020d}.jsonl"
