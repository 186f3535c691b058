"""The signals that a running daemon heeds, as a readable descriptor for its loop."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Final

_STOP: Final = frozenset({signal.SIGTERM, signal.SIGINT})


class Signals:
    """SIGTERM and SIGINT stop the daemon. SIGHUP does where standard input is a terminal, which was then closed, and
    else asks for a reload."""

    def __init__(self) -> None:
        self.read_fd, self._write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.stopped = False
        self._reload = False
        self._stops = _STOP | {signal.SIGHUP} if os.isatty(0) else _STOP
        self._before = {number: signal.signal(number, self._note) for number in (*_STOP, signal.SIGHUP)}
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)

    def _note(self, number: int, frame: Any) -> None:
        if number in self._stops:
            self.stopped = True
        else:
            self._reload = True

    def take_reload(self) -> bool:
        """Whether a reload was asked for since the last call. Then the descriptor has nothing to read any more: look
        at ``stopped`` next."""
        wanted, self._reload = self._reload, False
        if wanted:
            os.read(self.read_fd, 4096)
        return wanted

    def wait(self, seconds: float) -> bool:
        """Wait so long or until the daemon is to stop. Whether it is."""
        until = time.monotonic() + seconds
        while not self.stopped and time.monotonic() < until:
            time.sleep(0.05)
        return self.stopped

    def close(self) -> None:
        """Put the old handlers back."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self.read_fd)
        os.close(self._write_fd)
