"""The terminal: it is asked nothing, its end is noticed, and whether it keeps up is known."""

from __future__ import annotations

import os
import select
import threading
from typing import Final

from textual.drivers.linux_driver import LinuxDriver

_LOOK_EVERY_S: Final = 0.5


class PlainDriver(LinuxDriver):
    """Asks the terminal nothing, and ends the process when the terminal is gone.

    Without a hang-up signal a terminal that is gone gives an end of file for ever, on which the input thread would
    spin.
    """

    def start_application_mode(self) -> None:
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self._gone = threading.Event()
        threading.Thread(target=self._watch, name="terminal", daemon=True).start()

    def stop_application_mode(self) -> None:
        self._gone.set()
        super().stop_application_mode()

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self.fileno, 0)  # hang-ups and errors are always told
        while not self._gone.wait(_LOOK_EVERY_S):
            if any(told & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, told in poll.poll(0)):
                os._exit(1)  # nobody can see a farewell, and no thread may hold up the end

    def _query_in_band_window_resize(self) -> None:
        pass

    def _request_terminal_sync_mode_support(self) -> None:
        pass

    @property
    def frames_behind(self) -> int:
        """Frames that wait for a slow line."""
        writer = self._writer_thread
        return writer._queue.qsize() if writer else 0
