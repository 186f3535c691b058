"""Records on standard error, whose reader may be slow, or gone."""

from __future__ import annotations

import logging
import os
import select
import sys
from typing import Final

#: Longest wait (s) for a reader; a record that is not taken by then is lost.
WAIT_S: Final = 0.2
#: A pipe that can be written takes so much at least without a wait (PIPE_BUF).
_PIECE: Final = 4096


def fill_standard_streams() -> None:
    """Open those that are closed, to nothing: else files of the daemon get their numbers, to which a traceback may be
    written. Raises ``OSError``."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)
    if sys.stderr is None:  # as it is where it was closed from the beginning
        sys.stderr = os.fdopen(2, "w", closefd=False)


class Stream:
    """Writes texts to standard error. ``lost`` counts those that were not taken."""

    def __init__(self) -> None:
        self.lost = 0
        self._wait_s = WAIT_S
        self._torn = False

    def put(self, text: str) -> None:
        """Write whole lines; of those that are not taken in time, the beginning may be written."""
        try:
            fd = sys.stderr.fileno()
        except (OSError, ValueError, AttributeError):  # replaced by what is no file, or closed
            _print(text)
            return
        data = ("\n" * self._torn + text).encode("utf-8", "backslashreplace")
        try:
            self._write(fd, data)
        except OSError:
            self.lost += 1

    def _write(self, fd: int, data: bytes) -> None:
        at = 0
        while at < len(data):
            if not self._can_write(fd):
                self.lost += 1
                self._wait_s = 0.0  # the daemon does not wait for it again until it reads
                return
            at += os.write(fd, data[at : at + _PIECE])
            self._torn = at < len(data)
        self._wait_s = WAIT_S

    def _can_write(self, fd: int) -> bool:
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        return bool(poll.poll(self._wait_s * 1000))


def _print(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass  # nobody reads it


class StreamHandler(logging.Handler):
    """Records on standard error, in the form of its formatter. ``lost`` counts those that its reader was too slow
    for."""

    def __init__(self) -> None:
        super().__init__()
        self._stream = Stream()

    @property
    def lost(self) -> int:
        """Records that were not taken."""
        return self._stream.lost

    def emit(self, record: logging.LogRecord) -> None:
        self._stream.put(self.format(record) + "\n")
