"""Where bytes go that cannot be used: kept, reported, never deleted by the daemon."""

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
#: Files whose size is looked at for a health check, which must not take long.
_COUNTED: Final = 10_000


class Quarantine:
    """The directory ``quarantine/`` of a root; made when it is first needed."""

    def __init__(self, root: Path, files: Files) -> None:
        self.root = root
        self._files = files
        self._counted_ns = 0
        self._count = self._bytes = 0

    def bytes_kept(self) -> int:
        """The size of all that is here, of the first ``_COUNTED`` files; counted anew when something came or went."""
        self._look()
        return self._bytes

    def files_kept(self) -> int:
        """How many files are here, at most ``_COUNTED``."""
        self._look()
        return self._count

    def _look(self) -> None:
        try:
            changed_ns = self.root.stat().st_mtime_ns
            if changed_ns != self._counted_ns:
                sizes = list(islice(sizes_kept(self.root), _COUNTED))
                self._count, self._bytes = len(sizes), sum(sizes)
                self._counted_ns = changed_ns
        except OSError:
            self._count = self._bytes = self._counted_ns = 0

    def keep(self, name: str, data: bytes, reason: str) -> None:
        """Keep ``data`` durably under a name that tells where it came from. The same bytes are kept once.

        Raises ``OSError``: the caller must then not destroy the bytes.
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

    def keep_file(self, path: Path, reason: str, name: str = "") -> None:
        """Move a whole file here, under ``name`` (by default its own) and the time, if there is one. Raises
        ``OSError``: the file is then still there."""
        kept = f"{name or path.name}.{time.time_ns()}"
        directory = self._files.open_directory(self.root)
        try:
            try:
                self._files.rename(path, kept, dst_dir_fd=directory)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                self._copy(path, directory, kept)
                self._files.unlink(path)
            else:
                self._files.fsync(directory)
        except FileNotFoundError:
            return
        finally:
            self._files.close(directory)
        log.warning("quarantine: %s: %s", path, reason)

    def _copy(self, path: Path, directory: int, name: str) -> None:
        """Copy a file of another file system here, durably."""
        source = self._files.open(path, READ_FLAGS)
        try:
            chunks = iter(lambda: self._files.read(source, _COPY_BYTES), b"")
            self._files.put_chunks(directory, name, chunks, durable=True)
        finally:
            self._files.close(source)


def sizes_kept(root: Path) -> Iterator[int]:
    """The sizes of all files in a quarantine; none where there is no such directory. Raises ``OSError``."""
    for directory, _, names in os.walk(root):
        yield from (Path(directory, name).lstat().st_size for name in names)
