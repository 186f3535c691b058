"""A flag that a signal handler sets while the main thread waits for it."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Final, Self

_READ_SIZE: Final = 4096

Handler = Callable[[int, FrameType | None], object]


class StopFlag:
    """Like ``threading.Event``, but ``set`` may be called by a signal handler, and a signal always ends ``wait``.

    ``threading.Event`` has a lock that is not reentrant: a handler that interrupts ``wait`` while it holds the lock
    waits for that lock forever. And a signal just before the system call that waits does not interrupt it, so that its
    handler would run after the wait; the byte that Python's C handler writes to the pipe ends it at once.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._read_fd, self._write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._read_fd)
        os.close(self._write_fd)

    def is_set(self) -> bool:
        """Whether ``set`` was called."""
        return self._is_set

    def set(self) -> None:
        """Set the flag for good. In a thread, this does not end ``wait``."""
        self._is_set = True

    def wait(self, seconds: float) -> bool:
        """Wait for ``seconds``, or until a handler sets the flag. Return whether it is set."""
        until_s = time.monotonic() + seconds
        while not self._is_set and (left_s := until_s - time.monotonic()) > 0:
            if select.select([self._read_fd], [], [], left_s)[0]:
                os.read(self._read_fd, _READ_SIZE)
        return self._is_set

    @contextmanager
    def handlers(self, handlers: Mapping[int, Handler]) -> Iterator[None]:
        """Have ``handlers``, by the number of the signal, during the block. For the main thread."""
        wakeup_fd = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup_fd)
