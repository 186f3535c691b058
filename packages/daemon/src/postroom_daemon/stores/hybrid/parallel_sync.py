"""Many files synced at once: what is on its way to the disk together, a file system commits together."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

from ...platform.files import Files

#: Twice as fast as one on a file system with a journal; more gain nothing.
THREADS: Final = 8
#: A body and its directory are committed together anyway: below so many, threads cost more than they gain.
_FEW: Final = 3


class ParallelSync:
    """A few threads, which only wait in ``fsync``; they start when they are first needed."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._pool: ThreadPoolExecutor | None = None

    def sync(self, fds: Sequence[int]) -> None:
        """``fsync`` of every file. None is in use by another thread when this returns or raises ``OSError``."""
        if len(fds) < _FEW:
            self._sync(fds)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, "fsync")
        begun: list[Future[None]] = []
        try:
            for first in range(min(THREADS, len(fds))):
                begun.append(self._pool.submit(self._begin_and_sync, fds[first::THREADS]))
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, str(error)) from error
        finally:
            wait(begun)
        for one in begun:
            one.result()

    def _begin_and_sync(self, fds: Sequence[int]) -> None:
        # All are on their way before the first is waited for. The threads share the cost of saying so.
        for fd in fds:
            self._files.start_writing(fd)
        self._sync(fds)

    def _sync(self, fds: Sequence[int]) -> None:
        for fd in fds:
            self._files.fsync(fd)

    def close(self) -> None:
        """End the threads."""
        if self._pool:
            self._pool.shutdown()
        self._pool = None
