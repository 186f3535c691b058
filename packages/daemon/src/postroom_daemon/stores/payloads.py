"""Payload files of the hybrid store: ``<queue>/<shard>/<seq>-<id>.json``, each one message's body.

A file is written once, synced with its directory before the journal refers to it, and never moved. Only the root's
descriptor stays open; all paths are relative to it.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from ..files import LOST_ERRNOS, READ_FLAGS, Files
from ..records import BodyReference
from .fs_names import id_of, queue_directory

log = logging.getLogger(__name__)

#: Publish numbers whose files share a directory.
SHARD_SPAN: Final = 10_000
_WRITE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def payload_path(seq: int, queue: str, key: str) -> str:
    """Where the body of a message lies, from what its event says."""
    return f"{queue_directory(queue, '')}/{seq // SHARD_SPAN:08d}/{seq:015d}-{id_of(key, queue)}.json"


class Payloads:
    """The files. Every call may raise ``OSError``."""

    def __init__(self, files: Files, root: Path) -> None:
        self.root = root
        self._files = files
        self._fd = -1
        self._known: set[str] = set()
        self._new: list[str] = []
        self._unsynced: dict[str, None] = {}  # directories with new names in them
        self._emptied: set[str] = set()

    def open(self) -> None:
        """Open the root, which is made if it is missing."""
        self._fd = self._files.open_directory(self.root)
        self._known.clear()
        self._new.clear()
        self._unsynced.clear()

    def close(self) -> None:
        if self._fd >= 0:
            self._files.close(self._fd)
        self._fd = -1

    def write(self, path: str, body: bytes) -> None:
        """Write a body. It is not durable before ``sync``."""
        directory = path.rpartition("/")[0]
        self._make(directory)
        self._new.append(path)
        self._unsynced[directory] = None
        fd = self._files.open(path, _WRITE_FLAGS, 0o600, dir_fd=self._fd)
        try:
            self._files.write_all(fd, body)
        finally:
            self._files.close(fd)

    def sync(self) -> None:
        """Make durable what was written since the last ``sync``: the files, then each directory once."""
        for path in self._new:
            self._sync(path, READ_FLAGS)
        for directory in self._unsynced:
            self._sync(directory or ".", _DIRECTORY_FLAGS)
        self._unsynced.clear()

    def keep(self) -> None:
        """What was written stays."""
        self._new.clear()
        self._unsynced.clear()

    def take_back(self) -> None:
        """Remove what was written since the last ``keep``. Nothing refers to it, so a file that cannot be removed is no
        harm."""
        for path in self._new:
            self.remove(path)
        self._new.clear()
        self._unsynced.clear()
        self._known.clear()  # their names may never have been synced

    def read(self, path: str, reference: BodyReference) -> bytes | None:
        """A body; None when it is missing, or is not what was written."""
        try:
            fd = self._files.open(path, READ_FLAGS, dir_fd=self._fd)
            try:
                body = self._read_all(fd, reference.length)
            finally:
                self._files.close(fd)
        except OSError as error:
            if error.errno not in LOST_ERRNOS:
                raise
            log.error("%s: %s", self.root / path, error.strerror)
            return None
        return body if BodyReference.of(body) == reference else None

    def _read_all(self, fd: int, expected: int) -> bytes:
        chunks: list[bytes] = []
        rest = expected + 1  # one byte more tells that the file is too long
        while rest > 0 and (chunk := self._files.read(fd, rest)):
            chunks.append(chunk)
            rest -= len(chunk)
        return b"".join(chunks)

    def remove(self, path: str) -> None:
        """Remove a file that no message refers to. One that stays is an orphan, which is no harm."""
        try:
            self._files.unlink(path, dir_fd=self._fd)
        except FileNotFoundError:
            return
        except OSError as error:
            log.error("%s: %s", self.root / path, error.strerror)
            return
        self._emptied.add(path.rpartition("/")[0])

    def tidy(self) -> None:
        """Remove the directories of shards that have become empty."""
        for directory in self._emptied:
            try:
                self._files.rmdir(directory, dir_fd=self._fd)
            except OSError:  # there are files in it
                continue
            self._known.discard(directory)
        self._emptied.clear()

    def _make(self, directory: str) -> None:
        if directory in self._known:
            return
        queue = directory.partition("/")[0]
        for path, parent in ((queue, ""), (directory, queue)):
            try:
                self._files.mkdir(path, 0o700, dir_fd=self._fd)
            except FileExistsError:
                pass
            # Also where it was there: a crash may have come before its name was synced.
            self._unsynced[parent] = None
        self._known.add(directory)

    def _sync(self, path: str, flags: int) -> None:
        fd = self._files.open(path, flags, dir_fd=self._fd)
        try:
            self._files.fsync(fd)
        finally:
            self._files.close(fd)
