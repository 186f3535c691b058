"""The signals that a running daemon handles, as a readable descriptor for its loop."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Final

_STOP: Final = frozenset({signal.SIGTERM, signal.SIGINT})


class Signals:
    """SIGTERM and SIGINT stop the daemon. SIGHUP requests a reload; if standard input is a terminal, it means that the
    terminal was closed, and stops the daemon as well.

    A program that runs until it is stopped obeys SIGINT even if its starter ignores it, as a shell does for background
    jobs of a script; but if its starter ignores SIGHUP, as ``nohup`` does, a closed terminal does not stop it.
    """

    def __init__(self) -> None:
        self.read_fd, self._write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.stopped = False
        self._reload = False
        ends_with_terminal = os.isatty(0) and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
        self._stops = _STOP | {signal.SIGHUP} if ends_with_terminal else _STOP
        self._before = {number: signal.signal(number, self._note) for number in (*_STOP, signal.SIGHUP)}
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)

    def _note(self, number: int, frame: Any) -> None:
        if number in self._stops:
            self.stopped = True
        else:
            self._reload = True

    def take_reload(self) -> bool:
        """Whether a reload was requested since the last call. If so, this empties the descriptor: check ``stopped``
        afterwards."""
        requested, self._reload = self._reload, False
        if requested:
            os.read(self.read_fd, 4096)
        return requested

    def wait(self, seconds: float) -> bool:
        """Wait for ``seconds``, or until the daemon must stop. Returns whether it must."""
        until = time.monotonic() + seconds
        while not self.stopped and time.monotonic() < until:
            time.sleep(0.05)
        return self.stopped

    def close(self) -> None:
        """Restore the previous handlers."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self.read_fd)
        os.close(self._write_fd)
