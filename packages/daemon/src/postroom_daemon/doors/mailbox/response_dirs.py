"""Responses: each client's box, and what is put into it."""

from __future__ import annotations

import errno
import logging
import os
import resource
import stat
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from postroom_common.protocol import TEMP_SUFFIX

from ...platform.files import DIRECTORY_FLAGS, Files

log = logging.getLogger(__name__)

#: Boxes that are kept open. The least recently used is closed.
OPEN_BOXES = 64
#: Descriptors that the rest of the daemon needs.
RESERVED_DESCRIPTORS = 24


class NoBox(OSError):
    """There is no box that a response could be put into."""


class Boxes:
    """The directory ``responses/`` and the boxes in it."""

    def __init__(self, path: Path, files: Files) -> None:
        self.fd = files.open_directory(path)
        self._files = files
        self._uid = os.geteuid()
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._limit = max(1, min(OPEN_BOXES, (descriptors - RESERVED_DESCRIPTORS) // 2))
        self._open: OrderedDict[str, tuple[int, int, int]] = OrderedDict()  # client: fd, inode, owner

    def owner(self, client_id: str) -> int | None:
        """The uid that owns a client's box; None when there is none.

        Raises ``NoBox`` when something else has its name.
        """
        try:
            found = self._files.stat(client_id, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if not stat.S_ISDIR(found.st_mode):
            raise NoBox(f"responses/{client_id} is not a directory")
        cached = self._open.get(client_id)
        if cached and cached[1] != found.st_ino:
            self._close(client_id)
        return int(found.st_uid)

    def make(self, client_id: str) -> None:
        """Make a box that only this uid can use."""
        self._files.mkdir(client_id, 0o700, dir_fd=self.fd)

    def put(self, client_id: str, uid: int, request_id: str, response: bytes) -> None:
        """Put a response into the box of a client, which must be its user's still: it may have been removed since the
        request was taken, and made by another one. Raises ``OSError``, ``NoBox``."""
        try:
            self._files.put(self._box(client_id, uid), request_id + ".json", response, 0o644)
        except OSError as error:
            if error.errno == errno.ENOENT:  # the box was removed, and perhaps made again, since it was opened
                self._close(client_id)
            elif error.errno in (errno.EMFILE, errno.ENFILE):
                self.release()
            else:
                raise
            self._files.put(self._box(client_id, uid), request_id + ".json", response, 0o644)

    def _box(self, client_id: str, uid: int) -> int:
        cached = self._open.get(client_id)
        if cached and cached[2] == uid:
            self._open.move_to_end(client_id)
            return cached[0]
        self._close(client_id)
        fd = self._files.open(client_id, DIRECTORY_FLAGS, dir_fd=self.fd)
        try:
            found = self._files.fstat(fd)
        except OSError:
            self._files.close(fd)
            raise
        if found.st_uid != uid:
            self._files.close(fd)
            raise NoBox(f"responses/{client_id} has become another user's")
        self._open[client_id] = (fd, found.st_ino, found.st_uid)
        if len(self._open) > self._limit:
            self._close(next(iter(self._open)))
        return int(fd)

    def _close(self, client_id: str) -> None:
        opened = self._open.pop(client_id, None)
        if opened:
            self._files.close(opened[0])

    def release(self) -> None:
        """Close all boxes; they are opened again when they are needed."""
        for client_id in list(self._open):
            self._close(client_id)

    def sweep(self, wall_ms: int, max_age_ms: int, empty_age_ms: int) -> Iterator[None]:
        """Remove responses that nobody has read for ``max_age_ms``, and this uid's boxes that have been empty for
        ``empty_age_ms``; a file or box at each step. Nothing is followed; other files are left."""
        for client_id in self._files.listdir(self.fd):
            try:
                fd = self._files.open(client_id, DIRECTORY_FLAGS, dir_fd=self.fd)
            except OSError:
                continue  # no directory, or not ours to open
            yield
            try:
                yield from self._sweep_box(client_id, fd, wall_ms, max_age_ms, empty_age_ms)
            except OSError as error:
                log.warning("responses/%s: %s", client_id, error)
            finally:
                self._files.close(fd)

    def _sweep_box(self, client_id: str, fd: int, wall_ms: int, max_age_ms: int, empty_age_ms: int) -> Iterator[None]:
        is_empty = True
        with self._files.scandir(fd) as entries:  # a box of very many files is not listed at once
            for entry in entries:
                is_empty = False
                yield
                if entry.name.endswith((".json", TEMP_SUFFIX)):
                    self._remove_old(entry.name, fd, wall_ms - max_age_ms)
        box = self._files.fstat(fd)
        if is_empty and box.st_uid == self._uid and wall_ms - box.st_mtime_ns // 1_000_000 > empty_age_ms:
            try:
                self._files.rmdir(client_id, dir_fd=self.fd)
            except OSError:
                pass  # RACE: a response, or its client's file, came in this moment

    def _remove_old(self, name: str, fd: int, before_ms: int) -> None:
        try:
            found = self._files.stat(name, dir_fd=fd, follow_symlinks=False)
            if found.st_ctime_ns // 1_000_000 < before_ms and stat.S_ISREG(found.st_mode):
                self._files.unlink(name, dir_fd=fd)
        except FileNotFoundError:
            pass  # RACE: its client has read it

    def close(self) -> None:
        """Let go of all descriptors."""
        self.release()
        self._files.close(self.fd)
