"""Reading on in the files of the journal and of the traffic log: what is new, bounded, and what was left out."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

#: Bytes of old lines that are shown at the start.
BACKLOG_BYTES: Final = 65_536
#: Bytes that one look reads.
READ_BYTES: Final = 1_048_576
#: Bytes that a reader may be behind; beyond them it goes on at the end.
BEHIND_BYTES: Final = 8 * READ_BYTES
_NAME: Final = re.compile(r"\d{20}\.jsonl")
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Tail:
    """The lines that are added to the numbered files of a directory.

    ``skipped_bytes`` counts what was passed over because too much came; ``problem`` says why nothing can be read, or
    is empty. The directory and its files may be missing, and may come and go.
    """

    def __init__(self, root: Path, backlog_bytes: int = BACKLOG_BYTES) -> None:
        self.root = root
        self.skipped_bytes = 0
        self.problem = ""
        self._backlog = backlog_bytes
        self._fd = -1
        self._name = ""
        self._at = 0
        self._rest = b""
        self._drops_line = False  # the bytes up to the next line's end are part of a line that was passed over

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._name = -1, ""

    def read(self) -> list[bytes]:
        """The whole lines that have come since the last call, at most ``READ_BYTES`` of them."""
        try:
            lines = self._read()
        except OSError as error:
            self.problem = f"{self.root}: {error.strerror}"
            self.close()
            return []
        self.problem = ""
        return lines

    def _read(self) -> list[bytes]:
        names = sorted(name for name in os.listdir(self.root) if _NAME.fullmatch(name))
        if not names:
            return []
        if self._fd < 0:
            self._open(names[-1])
            self._skip_to(self._backlog)
        elif os.fstat(self._fd).st_size - self._at > BEHIND_BYTES:
            self.skipped_bytes += self._skip_to(READ_BYTES)
        data = os.pread(self._fd, READ_BYTES, self._at)
        if not data and names[-1] > self._name:
            self._open(next(name for name in names if name > self._name))
            data = os.pread(self._fd, READ_BYTES, 0)
        self._at += len(data)
        return self._lines(data)

    def _open(self, name: str) -> None:
        fd = os.open(self.root / name, _FLAGS)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._name, self._at, self._rest, self._drops_line = fd, name, 0, b"", False

    def _skip_to(self, from_end: int) -> int:
        """Go on so many bytes before the end; how many were passed over."""
        begin = max(os.fstat(self._fd).st_size - from_end, self._at)
        passed, self._at = begin - self._at, begin
        if passed:
            self._rest, self._drops_line = b"", True
        return passed

    def _lines(self, data: bytes) -> list[bytes]:
        if self._drops_line:
            _, end, data = data.partition(b"\n")
            if not end:
                return []
            self._drops_line = False
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        return [line for line in lines if line]
