"""Where bytes go that cannot be used: kept, reported, never deleted by the daemon."""

from __future__ import annotations

import hashlib
import logging
import time
from pathlib import Path

from .files import Files

log = logging.getLogger(__name__)


class Quarantine:
    """The directory ``quarantine/`` of a root; made when it is first needed."""

    def __init__(self, root: Path, files: Files) -> None:
        self.root = root
        self._files = files

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

    def keep_file(self, path: Path, reason: str) -> None:
        """Move a whole file here, under its name and the time, if there is one. Raises ``OSError``."""
        directory = self._files.open_directory(self.root)
        try:
            self._files.rename(path, f"{path.name}.{time.time_ns()}", dst_dir_fd=directory)
            self._files.fsync(directory)
        except FileNotFoundError:
            return
        finally:
            self._files.close(directory)
        log.warning("quarantine: %s: %s", path, reason)
