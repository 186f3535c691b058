"""Payload files of the hybrid store: ``<queue>/<shard>/<seq>-<id>.json``, each one message's body.

A file is written once, synced with its directory before the journal refers to it, and never moved or overwritten. Only
the root's descriptor stays open; all paths are relative to it.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from ...model.records import BodyReference
from ...platform.files import CREATE_FLAGS, DIRECTORY_FLAGS, DISK_ERRNOS, LOST_ERRNOS, READ_FLAGS, Files
from ...platform.quarantine import Quarantine
from ..directory_lock import lock_directory
from ..filesystem.names import ID_PATTERN, id_of, queue_directory
from .threads import ParallelSync, ReadAhead

log = logging.getLogger(__name__)

#: Publish numbers whose files share a directory.
SHARD_SPAN: Final = 10_000
_SHARD: Final = re.compile(r"[0-9]{8,15}")
_NAME: Final = re.compile(rf"([0-9]{{15,19}})-({ID_PATTERN})\.json")
#: Files of a group that stay open until they are synced; a larger group is synced in parts.
_OPEN_LIMIT: Final = 128
#: Directories that are remembered as existing and durable.
_KNOWN_LIMIT: Final = 10_000
#: Characters of a queue's directory in the name of a file in quarantine.
_QUEUE_CHARACTERS: Final = 120


class PayloadName(NamedTuple):
    """The path of a payload file, taken apart."""

    directory: str
    shard: str
    name: str

    @classmethod
    def read(cls, path: str) -> PayloadName:
        """Take a path apart, whether or not it is a payload file's."""
        directory, _, rest = path.partition("/")
        shard, _, name = rest.rpartition("/")
        return cls(directory, shard, name)

    @property
    def seq(self) -> int:
        """The publish number in the name; 0 if it is not a payload file's."""
        match = _NAME.fullmatch(self.name)
        return int(match[1]) if match else 0

    @property
    def id(self) -> str:
        """The message id in the name, as ``names.id_of`` writes it."""
        match = _NAME.fullmatch(self.name)
        return match[2] if match else ""

    def __str__(self) -> str:
        return f"{self.directory}/{self.shard}/{self.name}"


@lru_cache(maxsize=1024)
def directory_of(queue: str) -> str:
    """The directory below the root in which a queue's bodies lie."""
    return queue_directory(queue, "")


def shard_of(seq: int) -> str:
    """The directory below its queue's in which a message's file lies."""
    return f"{seq // SHARD_SPAN:08d}"


@lru_cache(maxsize=4096)
def payload_path(seq: int, queue: str, key: str) -> str:
    """Where the body of a message lies, from what its event says: ``queue`` is the one that it was born in."""
    return f"{directory_of(queue)}/{shard_of(seq)}/{seq:015d}-{id_of(key, queue)}.json"


def is_shard_name(name: str) -> bool:
    """Whether a directory below a queue's may be that of a shard."""
    return _SHARD.fullmatch(name) is not None


class UnreadFile(OSError):
    """The disk did not return a file, although it answers."""


class Payloads:
    """The files. Every call may raise ``OSError``."""

    def __init__(self, files: Files, root: Path, quarantine: Quarantine) -> None:
        self.root = root
        self._files = files
        self._quarantine = quarantine
        self._parallel = ParallelSync(files)
        self._ahead = ReadAhead(files)
        self._wanted = False
        self._fd = -1
        self._known: set[str] = set()
        self._new: list[str] = []
        self._written: list[int] = []  # descriptors of what is written and not synced
        self._unsynced: dict[str, None] = {}  # directories with new names in them
        self._late = False  # something was committed without a sync
        self._emptied: set[str] = set()

    # --- life -------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the root, for this process alone; it is made if it is missing. Raises ``StoreBusy``."""
        self._fd = self._files.open_directory(self.root)
        lock_directory(self._files, self._fd, self.root)
        self._known.clear()
        self._new.clear()
        self._unsynced.clear()

    def close(self) -> None:
        """Release everything; what was not synced is not durable."""
        self._close_written()
        self._parallel.close()
        self._ahead.close()
        if self._fd >= 0:
            self._files.close(self._fd)
        self._fd = -1

    def check(self) -> None:
        """See that the root is still the directory of its name, and that its disk takes a sync."""
        named, held = self._files.stat(self.root), self._files.fstat(self._fd)
        if (named.st_dev, named.st_ino) != (held.st_dev, held.st_ino):
            raise OSError(f"{self.root} was replaced while it was in use")
        if os.fstatvfs(self._fd).f_flag & os.ST_RDONLY:
            raise OSError(errno.EROFS, f"{self.root} is mounted read-only")
        self._files.fsync(self._fd)

    # --- writing ----------------------------------------------------------------------------------------------

    def write(self, path: str, body: bytes) -> None:
        """Write a body. It is not durable before ``sync``. Another file in its place goes to quarantine, unless it is
        what a crash has left of this one."""
        directory = path.rpartition("/")[0]
        self._make(directory)
        self._unsynced[directory] = None
        try:
            fd = self._files.open(path, CREATE_FLAGS, 0o600, dir_fd=self._fd)
        except FileExistsError:
            found = self._content(path, len(body))
            if found == body:
                self._late = True
                return
            if found is not None and body.startswith(found.rstrip(b"\0")):
                self._files.unlink(path, dir_fd=self._fd)
            else:
                self.set_aside(path, "in the place of a new message's body")
            fd = self._files.open(path, CREATE_FLAGS, 0o600, dir_fd=self._fd)
        self._new.append(path)
        self._written.append(fd)
        self._files.write_all(fd, body)  # and stay open until it is synced: an error must not be forgotten
        if len(self._written) >= _OPEN_LIMIT:
            self._sync_written()

    def sync(self) -> None:
        """Make durable what was written since the last ``sync`` or ``commit``: the files, and each directory once; and
        what was committed without a sync."""
        for directory in self._unsynced:
            self._written.append(self._files.open(directory or ".", DIRECTORY_FLAGS, dir_fd=self._fd))
        self._sync_written()
        self._unsynced.clear()
        if self._late:
            self._files.syncfs(self._fd)
            self._late = False

    def _sync_written(self) -> None:
        self._parallel.sync(self._written)
        self._close_written()

    def _close_written(self) -> None:
        for fd in self._written:
            self._files.close(fd)
        self._written.clear()

    def commit(self) -> None:
        """Keep what was written."""
        if self._written or self._unsynced:
            self._late = True
        self._close_written()
        self._new.clear()
        self._unsynced.clear()

    def rollback(self) -> None:
        """Remove what was written since the last ``commit``. Nothing refers to it, so that a file may stay."""
        self._close_written()
        for path in self._new:
            self.remove(path)
        self._new.clear()
        self._unsynced.clear()
        self._known.clear()  # their names may never have been synced

    def _make(self, directory: str) -> None:
        if directory in self._known:
            return
        if len(self._known) >= _KNOWN_LIMIT:
            self._known.clear()
        queue = directory.partition("/")[0]
        for path, parent in ((queue, ""), (directory, queue)):
            try:
                self._files.mkdir(path, 0o700, dir_fd=self._fd)
            except FileExistsError:
                pass
            # Even if it existed: a crash may have come before its name was synced.
            self._unsynced[parent] = None
        self._known.add(directory)

    # --- reading ----------------------------------------------------------------------------------------------

    @property
    def wants_ahead(self) -> bool:
        """Whether to call ``read_ahead`` now with the files that come next behind the one that was read last."""
        return self._wanted

    def read_ahead(self, paths: list[str]) -> None:
        """Have files brought into memory that are about to be read, all of one queue."""
        self._wanted = False
        if paths:
            self._ahead.fetch(self._fd, paths[0].partition("/")[0], paths)

    def read(self, path: str, reference: BodyReference) -> bytes | None:
        """A body; None when it is missing, or is not what was written. Raises ``UnreadFile``."""
        try:
            fd = self._files.open(path, READ_FLAGS, dir_fd=self._fd)
            try:
                self._wanted = self._ahead.met(path.partition("/")[0], path, self._files.is_cached(fd))
                body = self._read_all(fd, reference.length)
            finally:
                self._files.close(fd)
        except OSError as error:
            if error.errno not in LOST_ERRNOS:
                raise
            log.error("%s: %s", self.root / path, error.strerror)
            self._files.fsync(self._fd)  # if the whole disk is gone, no single file is lost
            if error.errno in DISK_ERRNOS:
                raise UnreadFile(error.errno, error.strerror) from error
            return None
        return body if reference.fits(body) else None

    def _content(self, path: str, expected: int) -> bytes | None:
        """What a file has, at most one byte more than expected; None if it cannot be read."""
        try:
            fd = self._files.open(path, READ_FLAGS, dir_fd=self._fd)
            try:
                return self._read_all(fd, expected)
            finally:
                self._files.close(fd)
        except OSError:
            return None

    def _read_all(self, fd: int, expected: int) -> bytes:
        chunks: list[bytes] = []
        rest = expected + 1  # one byte more shows that the file is too long
        while rest > 1 and (chunk := self._files.read(fd, rest)):
            chunks.append(chunk)
            rest -= len(chunk)
        return b"".join(chunks)

    def names(self, *below: str) -> list[str]:
        """The names in the root, in a queue's directory or in a shard, in order. Empty if it does not exist."""
        try:
            fd = self._files.open("/".join(below) or ".", DIRECTORY_FLAGS, dir_fd=self._fd)
        except (FileNotFoundError, NotADirectoryError):
            return []
        try:
            return sorted(self._files.listdir(fd))
        finally:
            self._files.close(fd)

    def status(self, path: str) -> os.stat_result:
        """The status of ``path`` itself: of a link, not of its target."""
        found: os.stat_result = self._files.stat(path, dir_fd=self._fd, follow_symlinks=False)
        return found

    def is_directory(self, path: str) -> bool:
        """Whether a directory lies at ``path``."""
        return stat.S_ISDIR(self.status(path).st_mode)

    def is_shard(self, path: str) -> bool:
        """Whether the directory of a shard lies at ``path``."""
        return is_shard_name(path.rpartition("/")[2]) and self.is_directory(path)

    def newer_than(self, seq: int) -> Iterator[PayloadName]:
        """The files whose publish number is above ``seq``."""
        for directory in self.names():
            for shard in self.names(directory):
                if is_shard_name(shard) and int(shard) >= seq // SHARD_SPAN:
                    found = (PayloadName(directory, shard, name) for name in self.names(directory, shard))
                    yield from (one for one in found if one.seq > seq)

    # --- removing ---------------------------------------------------------------------------------------------

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

    def move(self, path: str, to: str) -> None:
        """Move a file to where its message looks for it, durably."""
        directory, _, name = to.rpartition("/")
        fd = self._files.open_directory(self.root / directory)
        try:
            self._files.rename(path, name, src_dir_fd=self._fd, dst_dir_fd=fd)
            self._files.fsync(fd)
        finally:
            self._files.close(fd)

    def set_aside(self, path: str, reason: str) -> None:
        """Move ``path`` into quarantine, under a name that includes its queue."""
        directory, _, name = path.rpartition("/")
        queue = directory.partition("/")[0]
        self._quarantine.move_in(self.root / path, reason, f"{queue[:_QUEUE_CHARACTERS]}~{name}" if queue else name)
        if directory:
            self._emptied.add(directory)

    def tidy(self) -> None:
        """Remove the directories of shards, and then of queues, that have become empty."""
        for directory in self._emptied:
            if self._remove_empty(directory):
                self._known.discard(directory)
                self._remove_empty(directory.partition("/")[0])
        self._emptied.clear()

    def tidy_all(self) -> None:
        """Look at every directory, and remove those that are empty: a crash has forgotten which had become so."""
        for directory in self.names():
            self._emptied.update(f"{directory}/{shard}" for shard in self.names(directory) if is_shard_name(shard))
        self.tidy()

    def _remove_empty(self, directory: str) -> bool:
        try:
            self._files.rmdir(directory, dir_fd=self._fd)
        except OSError:  # there are files in it
            return False
        return True
