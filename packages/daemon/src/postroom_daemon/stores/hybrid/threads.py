"""Threads that wait for the disk: many files synced at once, and files read before they are needed."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

from ...platform.files import READ_FLAGS, Files

#: Twice as fast as one on a file system with a journal; more gain nothing.
SYNC_THREADS: Final = 8
#: A body and its directory are committed together anyway: below so many, threads cost more than they gain.
_FEW: Final = 3
#: Files of a queue that are asked for before their turn; when half of them have had it, the next are.
AHEAD: Final = 64
#: Of a larger file only its beginning is fetched: it is soon that far, and memory is spared.
_FETCHED_BYTES: Final = 256 * 1024
_READ_THREADS: Final = 4
#: Queues whose files are tracked; beyond that, all are forgotten.
_QUEUES_LIMIT: Final = 64


class ParallelSync:
    """Many files synced at once: what is on its way to the disk together, a file system commits together. The threads
    only wait in ``fsync``, and start when they are first needed."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._pool: ThreadPoolExecutor | None = None

    def sync(self, fds: Sequence[int]) -> None:
        """``fsync`` of every file. None is in use by another thread when this returns or raises ``OSError``."""
        if len(fds) < _FEW:
            self._sync(fds)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(SYNC_THREADS, "fsync")
        begun: list[Future[None]] = []
        try:
            for first in range(min(SYNC_THREADS, len(fds))):
                begun.append(self._pool.submit(self._begin_and_sync, fds[first::SYNC_THREADS]))
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


class _Window:
    """The files of one queue that were asked for and not read yet."""

    def __init__(self) -> None:
        self.coming: set[str] = set()
        self.begun: list[Future[bool]] = []

    def was_cold(self) -> bool:
        """Whether what was asked for last had to come from the disk, or is still on its way."""
        return any(not one.done() or (one.exception() is None and one.result()) for one in self.begun)


class ReadAhead:
    """Files that are about to be read, brought into memory. Not thread-safe.

    Who consumes a backlog that is no longer in memory waits for the disk once per body. Here many are requested at
    once, before their turn. What is in memory is not read: as long as every body is, no thread runs. A file that cannot
    be fetched is skipped: its reader will find out why.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._pool: ThreadPoolExecutor | None = None
        self._windows: dict[str, _Window] = {}

    def met(self, queue: str, path: str, cached: bool) -> bool:
        """A file was read, which was in memory or not. Whether to ``fetch`` now what comes next in its queue."""
        window = self._windows.get(queue)
        if window is None or path not in window.coming:
            return not cached
        window.coming.discard(path)
        return len(window.coming) <= AHEAD // 2 and window.was_cold()

    def fetch(self, root: int, queue: str, paths: Sequence[str]) -> None:
        """Ask for the files that come next. ``root`` is the directory that their paths are relative to, and stays open
        until ``close``."""
        if queue not in self._windows and len(self._windows) >= _QUEUES_LIMIT:
            self._windows.clear()
        window = self._windows.setdefault(queue, _Window())
        new = [path for path in paths if path not in window.coming]
        window.coming = set(paths)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_READ_THREADS, "read-ahead")
        try:
            shares = [new[first::_READ_THREADS] for first in range(min(_READ_THREADS, len(new)))]
            window.begun = [self._pool.submit(self._fetch, root, share) for share in shares]
        except RuntimeError:  # no thread can be started: it is only slower
            window.begun = []

    def _fetch(self, root: int, paths: Sequence[str]) -> bool:
        """Whether one of the files was not in memory."""
        cold = False
        for path in paths:
            try:
                fd = self._files.open(path, READ_FLAGS, dir_fd=root)
            except OSError:
                continue
            try:
                if not self._files.is_cached(fd):
                    cold = True
                    self._files.will_need(fd, _FETCHED_BYTES)
            finally:
                self._files.close(fd)
        return cold

    def close(self) -> None:
        """Forget everything; no file is in use by a thread when this returns."""
        if self._pool:
            self._pool.shutdown(cancel_futures=True)
        self._pool = None
        self._windows.clear()
