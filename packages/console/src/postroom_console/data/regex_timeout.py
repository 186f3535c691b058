"""A timeout for searches: some regular expressions would run for years."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final

#: Seconds that one call may take.
CALL_S: Final = 0.05
#: Seconds that all slow calls together may take.
TOTAL_S: Final = 0.5
#: A slow call takes longer than this.
_SLOW_S: Final = 0.002


class _Late(Exception):
    pass


class _Alarm:
    """The handler of SIGALRM: it is installed once, and raises only during a call."""

    def __init__(self) -> None:
        self.is_set = False
        self._is_installed = False

    def set(self, seconds: float) -> None:
        if not self._is_installed:
            signal.signal(signal.SIGALRM, self._ring)
            self._is_installed = True
        self.is_set = True
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def stop(self) -> None:
        self.is_set = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        if self.is_set:
            raise _Late


_ALARM: Final = _Alarm()


class RegexTimeout:
    """Runs calls that may take long, aborts a call after ``CALL_S``, and runs no more after ``TOTAL_S``.

    Only the main thread is protected; it is the one that draws.
    """

    def __init__(self) -> None:
        self.is_spent = False
        self._left_s = TOTAL_S

    def call(self, work: Callable[[], bool]) -> bool:
        """The result of ``work``; False if it was aborted or not run."""
        if self.is_spent:
            return False
        if threading.current_thread() is not threading.main_thread():
            return work()
        begun = time.monotonic()
        try:
            try:
                _ALARM.set(CALL_S)
                return work()
            finally:
                _ALARM.stop()
        except _Late:  # RACE: the timer may fire while it is being stopped
            return False
        finally:
            took = time.monotonic() - begun
            if took > _SLOW_S:
                self._left_s -= took
                self.is_spent = self._left_s <= 0
