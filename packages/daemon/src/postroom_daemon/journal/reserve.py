"""The reserve: a file that sets space aside, so that everything but publishing works when the disk is full.

It is released in steps, each when something does not fit, and reserved again when there is space. Released space is
anybody's: another program that takes every free byte takes it too. The file reserves bytes, not inodes, and less than
its size, or nothing, on a file system that does not guarantee space to a file (compression, copy on write).
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from time import monotonic_ns
from typing import Final

from ..platform.files import FULL_ERRNOS, Files

log = logging.getLogger(__name__)

RESERVE_NAME: Final = "reserve"
#: Bytes released at once. Small steps last longer beside another program that takes all free space.
STEP_BYTES: Final = 256 * 1024
#: Free bytes below which a client may be unable to write its request.
CLIENTS_BYTES: Final = 64 * 1024

#: Bytes that are plenty, and for how long (ns) they are if twice as many are free: no disk writes them in that time.
PLENTY_BYTES: Final = 64 * 1024 * 1024
PLENTY_NS: Final = 10_000_000

_OPEN_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class Reserve:
    """The file ``reserve`` in ``directory``, of ``size`` bytes when it is complete; 0: none.

    ``others`` are further directories in which a group needs space: those on other file systems get nothing from the
    reserve, and are only checked. No method raises: without its file, the daemon works as if all of it was released.
    """

    def __init__(self, directory: Path, files: Files, size: int, others: Iterable[Path] = ()) -> None:
        self.bytes = 0
        self._directory = directory
        self._others = tuple(others)
        self._path = directory / RESERVE_NAME
        self._files = files
        self._size = size
        self._fd = -1
        self._plenty_until_ns = 0
        self._refused = False  # the file system refused space: this is logged once

    def open(self) -> None:
        """Read the present size; the directory must exist."""
        try:
            self._fd = self._files.open(self._path, _OPEN_FLAGS, 0o600)
            status = self._files.fstat(self._fd)
            self.bytes = min(status.st_size, status.st_blocks * 512)
            if self.bytes > self._size:
                self._cut(self._size)
        except OSError as error:
            log.error("reserve: %s", error)

    def close(self) -> None:
        """Close the file; it keeps its space."""
        if self._fd >= 0:
            self._files.close(self._fd)
        self._fd = -1

    @property
    def is_complete(self) -> bool:
        """Whether none of it is released."""
        return self.bytes >= self._size

    def release(self) -> bool:
        """Release a step of space. False if that cannot help: nothing is left, or inodes are lacking."""
        if not self.bytes or self._lacks_inodes():
            return False
        try:
            self._cut(max(0, self.bytes - STEP_BYTES))
        except OSError as error:
            log.error("reserve: %s", error)
            return False
        log.warning("the disk is full: %d bytes of the reserve are left", self.bytes)
        return True

    def _cut(self, size: int) -> None:
        self._files.ftruncate(self._fd, size)
        self.bytes = size
        self._files.fsync(self._fd)  # some file systems free blocks only at a sync

    def has_plenty(self, needed: int) -> bool:
        """Whether so much space is free for ``needed`` bytes that it need not be looked at closely; it may have been a
        moment ago."""
        if needed > PLENTY_BYTES:
            return False
        now_ns = monotonic_ns()
        if now_ns >= self._plenty_until_ns:
            if any(self._free(one) < 2 * PLENTY_BYTES for one in (self._directory, *self._others)):
                return False
            self._plenty_until_ns = now_ns + PLENTY_NS
        return True

    def free_space(self, needed: int, release: bool) -> bool:
        """Whether ``needed`` bytes are free on every file system that may need them; with ``release``, after releasing
        as much as that takes. Nothing is released if it would not be enough."""
        if any(self._free(other) < needed for other in self._others):
            return False
        free = self._free(self._directory)
        if free < needed and not (release and free + self.bytes >= needed):
            return False
        while free < needed:
            if not self.release():
                return False
            free = self._free(self._directory)
        return True

    def tick(self) -> None:
        """Reserve space again if there is enough. On a full disk, release a step, so that clients can write requests.
        Call it about every second."""
        if not self._size:
            return
        free, missing = self._free(self._directory), self._size - self.bytes
        if missing and free >= 2 * missing:
            self._take()
        elif free < CLIENTS_BYTES:
            self.spare()

    def spare(self) -> bool:
        """As ``release``, but only of the first half; the other is for requests that must be answered."""
        return self.bytes > self._size // 2 and self.release()

    def _take(self) -> None:
        if self._fd < 0:
            self.open()
        before = self.bytes
        try:
            self._files.allocate(self._fd, 0, self._size)
            self._files.fsync(self._fd)
            self.bytes = self._size
            if before:
                log.info("the reserve of %d bytes is complete again", self._size)
        except OSError as error:
            if error.errno not in FULL_ERRNOS and not self._refused:
                self._refused = True
                log.warning("reserve: %s; the daemon works without it", error)
            with suppress(OSError):
                self._files.ftruncate(self._fd, before)

    def _free(self, directory: Path) -> int:
        """Free bytes; unlimited if the file system does not say, so that the write shows it."""
        try:
            figures = self._files.statvfs(directory)
        except OSError:
            return sys.maxsize
        return int(figures.f_bavail * figures.f_frsize)

    def _lacks_inodes(self) -> bool:
        try:
            figures = self._files.statvfs(self._directory)
        except OSError:
            return False
        return bool(figures.f_files and not figures.f_favail)  # btrfs counts none
