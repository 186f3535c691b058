"""Response directories: one for each client, and the answers in it."""

from __future__ import annotations

import errno
import logging
import os
import resource
import stat
import sys
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from postroom_common.protocol import TEMP_SUFFIX

from ...model.principal import Principal
from ...platform.files import DIRECTORY_FLAGS, FULL_ERRNOS, Files
from ...platform.usable import response_dir_advice

log = logging.getLogger(__name__)

#: Response directories that stay open. The least recently used one is closed.
OPEN_DIRS = 64
#: Descriptors for the rest of the daemon.
RESERVED_DESCRIPTORS = 24
#: Clients whose failed response directories are listed at a time.
_CHECKED: Final = 250
#: Response directories that are remembered as writable.
_REMEMBERED: Final = 4096
#: A file that is written to see whether there is space; no response can have its name.
_PROBE: Final = ".probe.json" + TEMP_SUFFIX
_PROBE_BYTES: Final = 4096
_USE: Final = os.R_OK | os.W_OK | os.X_OK
#: Errors of a response directory, or of the disk that it is on, which others than the daemon can end.
_LASTING: Final = FULL_ERRNOS | {errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO}


_IS_UTF_8: Final = sys.getfilesystemencoding() == "utf-8"


def file_name(id_: str) -> str:
    """The file name of an id: its UTF-8, whatever the locale of this process."""
    return id_ if _IS_UTF_8 or id_.isascii() else os.fsdecode(id_.encode())


class ResponseDir(NamedTuple):
    """A client's response directory: the uid that owns it, and why the daemon cannot write into it ("": it can).
    ``client`` is the principal that a request of the owner comes from."""

    owner: int
    problem: str
    client: Principal


class NoResponseDir(OSError):
    """There is no response directory for an answer."""


class ResponseDirs:
    """The directory ``responses/`` and those in it. Raises ``OSError``."""

    def __init__(self, path: Path, files: Files) -> None:
        self.fd = files.open_directory(path)
        self._path = path
        self._files = files
        self._uid = os.geteuid()
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._limit = max(1, min(OPEN_DIRS, (descriptors - RESERVED_DESCRIPTORS) // 2))
        self._open: OrderedDict[str, tuple[int, int, int]] = OrderedDict()  # client: fd, inode, owner
        # client: its directory, and what that was when it could be written
        self._writable: dict[str, tuple[tuple[int, ...], ResponseDir]] = {}
        self._failures: dict[str, OSError] = {}  # client: why an answer could not be written

    def look(self, client_id: str) -> ResponseDir | None:
        """A client's response directory; None if there is none.

        Raises ``NoResponseDir`` if something else has its name.
        """
        try:
            status = self._files.stat(file_name(client_id), dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        cached = self._open.get(client_id)
        if cached and cached[1] != status.st_ino:
            self._close(client_id)
        seen = status[:6]  # mode, inode, device, links, uid, gid
        writable = self._writable.get(client_id)
        if writable and writable[0] == seen:
            return writable[1]  # it is not tried again until it has changed
        if not stat.S_ISDIR(status.st_mode):
            raise NoResponseDir(f"responses/{client_id} is not a directory")
        problem = self._problem(client_id, status)
        response_dir = ResponseDir(status.st_uid, problem, Principal(client_id, status.st_uid))
        if not problem:
            if len(self._writable) >= _REMEMBERED:
                self._writable.clear()
            self._writable[client_id] = (seen, response_dir)
        return response_dir

    def _problem(self, client_id: str, status: os.stat_result) -> str:
        """Why the daemon cannot write into a directory; "" if it can."""
        failure = self._failures.get(client_id)
        if failure:
            return f"an answer could not be written into responses/{client_id}: {failure.strerror}"
        if not self._files.access(file_name(client_id), _USE, dir_fd=self.fd, effective_ids=True):
            if self._files.statvfs(self.fd).f_flag & os.ST_RDONLY:
                return f"responses/{client_id} is on a file system that is mounted read-only"
            return (
                f"responses/{client_id} belongs to uid {status.st_uid} and gid {status.st_gid} with the mode"
                f" {stat.S_IMODE(status.st_mode):04o}: the daemon cannot write answers into it"
            )
        return ""

    def note_failure(self, client_id: str, error: OSError) -> bool:
        """An answer could not be written. Returns whether this is a lasting error of the directory or its disk: then it
        counts as not writable until ``check_again`` has written into it."""
        if error.errno not in _LASTING:
            return False
        self._failures[client_id] = error
        self._writable.pop(client_id, None)
        return True

    def has_failed(self, client_id: str) -> bool:
        """Whether an answer could not be written, and nothing since."""
        return client_id in self._failures

    def failed(self) -> list[str]:
        """Clients for whom ``has_failed``, some at a time."""
        return [*islice(self._failures, _CHECKED)]

    def check_again(self, client_id: str) -> str:
        """Why the daemon still cannot write into a directory; "" if it can, or if the directory has gone."""
        failure = self._failures.pop(client_id, None)
        self._writable.pop(client_id, None)
        try:
            found = self.look(client_id)
            if found and not found.problem and failure:
                fd = self._dir(client_id, found.owner)
                self._files.put(fd, _PROBE, bytes(_PROBE_BYTES))
                self._files.unlink(_PROBE, dir_fd=fd)
        except NoResponseDir:
            return ""
        except OSError as error:
            self._failures[client_id] = error
            return f"an answer could not be written into responses/{client_id}: {error.strerror}"
        return found.problem if found else ""

    def advice(self, client_id: str, root: Path) -> str:
        """What an operator of ``root`` does so that the daemon can write into a directory; "" if that is unknown."""
        try:
            status = self._files.stat(file_name(client_id), dir_fd=self.fd, follow_symlinks=False)
            if self._files.statvfs(self.fd).f_flag & os.ST_RDONLY:
                return "mount it read-write"
            if self._files.access(file_name(client_id), _USE, dir_fd=self.fd, effective_ids=True):
                failure = self._failures.get(client_id)
                return "free space there" if failure and failure.errno in FULL_ERRNOS else "check that disk"
        except OSError:
            return ""
        return response_dir_advice(client_id, status.st_uid, self._path / client_id, root)

    def make(self, client_id: str) -> None:
        """Make a response directory that only this uid can use."""
        self._files.mkdir(file_name(client_id), 0o700, dir_fd=self.fd)

    def put(self, client_id: str, uid: int, request_id: str, response: bytes) -> None:
        """Write a response file for a client. Its directory must still belong to ``uid``: it may have been removed
        since the request was read, and made by another user. Raises ``OSError``, ``NoResponseDir``."""
        put, name = self._files.put_chunks, (request_id if _IS_UTF_8 else file_name(request_id)) + ".json"
        opened = self._open.get(client_id)
        try:
            if opened and opened[2] == uid:
                self._open.move_to_end(client_id)
                put(opened[0], name, (response,), 0o644)
            else:
                put(self._dir(client_id, uid), name, (response,), 0o644)
        except OSError as error:
            if error.errno == errno.ENOENT:  # the directory was removed, and perhaps made again, since it was opened
                self._close(client_id)
            elif error.errno in (errno.EMFILE, errno.ENFILE):
                self.release()
            else:
                raise
            put(self._dir(client_id, uid), name, (response,), 0o644)

    def _dir(self, client_id: str, uid: int) -> int:
        """The descriptor of a client's directory, opened anew."""
        self._close(client_id)
        fd = self._files.open(file_name(client_id), DIRECTORY_FLAGS, dir_fd=self.fd)
        try:
            status = self._files.fstat(fd)
        except OSError:
            self._files.close(fd)
            raise
        if status.st_uid != uid:
            self._files.close(fd)
            raise NoResponseDir(f"responses/{client_id} now belongs to another user")
        self._open[client_id] = (fd, status.st_ino, status.st_uid)
        if len(self._open) > self._limit:
            self._close(next(iter(self._open)))
        return int(fd)

    def _close(self, client_id: str) -> None:
        opened = self._open.pop(client_id, None)
        if opened:
            self._files.close(opened[0])

    def release(self) -> None:
        """Close all response directories; they are opened again when needed."""
        for client_id in list(self._open):
            self._close(client_id)

    def sweep(self, wall_ms: int, max_age_ms: int, empty_age_ms: int) -> Iterator[None]:
        """Remove responses that nobody has read for ``max_age_ms``, and this uid's directories that have been empty for
        ``empty_age_ms``; one at each step. Links are not followed; other files stay."""
        for client_id in self._files.listdir(self.fd):
            try:
                fd = self._files.open(client_id, DIRECTORY_FLAGS, dir_fd=self.fd)
            except OSError:
                continue  # not a directory, or not ours to open
            try:
                yield  # a sweep may be ended at each of its steps
                yield from self._sweep_dir(client_id, fd, wall_ms, max_age_ms, empty_age_ms)
            except OSError as error:
                log.warning("responses/%s: %s", client_id, error)
            finally:
                self._files.close(fd)

    def _sweep_dir(self, client_id: str, fd: int, wall_ms: int, max_age_ms: int, empty_age_ms: int) -> Iterator[None]:
        is_empty = True
        with self._files.scandir(fd) as entries:  # so that a directory with very many files is not listed at once
            for entry in entries:
                is_empty = False
                yield
                if entry.name.endswith((".json", TEMP_SUFFIX)):
                    self._remove_old(entry.name, fd, wall_ms - max_age_ms)
        directory = self._files.fstat(fd)
        if is_empty and directory.st_uid == self._uid and wall_ms - directory.st_mtime_ns // 1_000_000 > empty_age_ms:
            try:
                self._files.rmdir(client_id, dir_fd=self.fd)
            except OSError:
                pass  # RACE: a response, or its client's file, came in this moment

    def _remove_old(self, name: str, fd: int, before_ms: int) -> None:
        try:
            status = self._files.stat(name, dir_fd=fd, follow_symlinks=False)
            if status.st_ctime_ns // 1_000_000 < before_ms and stat.S_ISREG(status.st_mode):
                self._files.unlink(name, dir_fd=fd)
        except FileNotFoundError:
            pass  # RACE: its client has read it

    def close(self) -> None:
        """Close all descriptors."""
        self.release()
        self._files.close(self.fd)
