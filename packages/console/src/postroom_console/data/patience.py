"""A limit on what a search may take: some regular expressions would run for years."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final, NoReturn

#: Seconds that one call may take.
CALL_S: Final = 0.05
#: Seconds that all slow calls may take together.
TOTAL_S: Final = 0.5
#: A call that takes longer is a slow one.
_SLOW_S: Final = 0.002


class _Late(Exception):
    pass


class Patience:
    """Calls what may take long, ends it by a signal after ``CALL_S``, and calls nothing more after ``TOTAL_S``.

    Only the main thread is protected; it is the one that draws.
    """

    def __init__(self) -> None:
        self.is_spent = False
        self._left_s = TOTAL_S

    def call(self, work: Callable[[], bool]) -> bool:
        """What ``work`` returns; False when it was ended, or not begun."""
        if self.is_spent:
            return False
        if threading.current_thread() is not threading.main_thread():
            return work()
        begun = time.monotonic()
        before = signal.signal(signal.SIGALRM, _give_up)
        try:
            signal.setitimer(signal.ITIMER_REAL, CALL_S)
            try:
                return work()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except _Late:
            return False
        finally:
            signal.signal(signal.SIGALRM, before)
            took = time.monotonic() - begun
            if took > _SLOW_S:
                self._left_s -= took
                self.is_spent = self._left_s <= 0


def _give_up(number: int, frame: FrameType | None) -> NoReturn:
    raise _Late
