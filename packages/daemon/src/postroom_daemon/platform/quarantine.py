"""The directory for damaged bytes, which are logged and never deleted by the daemon."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from .files import READ_FLAGS, Files

log = logging.getLogger(__name__)

_COPY_BYTES: Final = 2**20
#: Maximum number of files that a health check counts, because it must not take long.
_COUNT_LIMIT: Final = 10_000


class Quarantine:
    """The directory ``quarantine/`` of a root, created when it is first needed."""

    def __init__(self, root: Path, files: Files) -> None:
        self.root = root
        self._files = files
        self._counted_ns = 0
        self._count = self._bytes = 0

    def total_bytes(self) -> int:
        """The size of all files, or of the first ``_COUNT_LIMIT``. Counts only if the directory has changed."""
        self._count_files()
        return self._bytes

    def file_count(self) -> int:
        """The number of files, at most ``_COUNT_LIMIT``."""
        self._count_files()
        return self._count

    def _count_files(self) -> None:
        try:
            changed_ns = self.root.stat().st_mtime_ns
            if changed_ns != self._counted_ns:
                sizes = list(islice(file_sizes(self.root), _COUNT_LIMIT))
                self._count, self._bytes = len(sizes), sum(sizes)
                self._counted_ns = changed_ns
        except OSError:
            self._count = self._bytes = self._counted_ns = 0

    def add(self, name: str, data: bytes, reason: str) -> None:
        """Store ``data`` durably under a name that says where it came from. Equal bytes are stored once.

        Raises ``OSError``; the caller must not destroy the bytes then.
        """
        digest = hashlib.blake2b(data, digest_size=6).hexdigest()
        directory = self._files.open_directory(self.root)
        try:
            if f"{name}.{digest}" in self._files.listdir(directory):
                return
            self._files.put(directory, f"{name}.{digest}", data, durable=True)
        finally:
            self._files.close(directory)
        log.warning("quarantine: %d bytes of %s: %s", len(data), name, reason)

    def move_in(self, path: Path, reason: str, name: str = "") -> None:
        """Move a file into the quarantine, if it exists, under ``name`` (by default its own) and the time. Raises
        ``OSError``; the file is still in its place then."""
        target = f"{name or path.name}.{time.time_ns()}"
        directory = self._files.open_directory(self.root)
        try:
            try:
                self._files.rename(path, target, dst_dir_fd=directory)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                self._copy(path, directory, target)
                self._files.unlink(path)
            else:
                self._files.fsync(directory)
        except FileNotFoundError:
            return
        finally:
            self._files.close(directory)
        log.warning("quarantine: %s: %s", path, reason)

    def _copy(self, path: Path, directory: int, name: str) -> None:
        """Copy a file from another file system into the quarantine, durably."""
        source = self._files.open(path, READ_FLAGS)
        try:
            chunks = iter(lambda: self._files.read(source, _COPY_BYTES), b"")
            self._files.put_chunks(directory, name, chunks, durable=True)
        finally:
            self._files.close(source)


def file_sizes(root: Path) -> Iterator[int]:
    """The sizes of all files in a quarantine; none if the directory does not exist. Raises ``OSError``."""
    for directory, _, names in os.walk(root):
        yield from (Path(directory, name).lstat().st_size for name in names)
