"""``dead/``: rejected requests, which could not be understood or answered, each with its reason. Bounded in number,
bytes and age."""

from __future__ import annotations

import errno
import logging
import os
import stat
import time
from collections import deque
from pathlib import Path
from typing import Final

import orjson

from postroom_common.protocol import REQUEST_BYTES_CEILING

from ...platform.files import READ_FLAGS, Files
from ...platform.logs import about

log = logging.getLogger(__name__)

_REASON_SUFFIX = ".reason"
#: Numbers that are tried in order for a name, before the time (Unix microseconds) is used.
_NUMBERS_TRIED: Final = 10
#: Bytes of all files in dead/; beyond that the oldest are removed.
BYTES_LIMIT = 64 * 1024 * 1024


class RejectedRequests:
    """The directory ``dead/``, open. Raises ``OSError``."""

    def __init__(self, path: Path, files: Files, max_files: int, max_age_hours: int) -> None:
        self.fd = files.open_directory(path)
        try:
            self.count = sum(name.endswith(_REASON_SUFFIX) for name in files.listdir(self.fd))
        except OSError:
            files.close(self.fd)
            raise
        self.taken = 0
        self._latest: deque[str] = deque()  # taken since the last sweep, oldest first
        self._files = files
        self.max_files = max_files
        self.max_age_hours = max_age_hours

    def take(self, directory: int, name: str, reason: str, called: str = "") -> None:
        """Move the file ``name`` here from the directory of an fd, under its name or the one it was ``called``, and
        write the reason beside it.

        A file that cannot be moved is removed: one bad file must not stop the mailbox.
        """
        self.taken += 1
        target = self._free_name(called or name)
        try:
            self._files.rename(name, target, src_dir_fd=directory, dst_dir_fd=self.fd)
        except FileNotFoundError:
            return  # RACE: its client took it back
        except OSError as error:
            if error.errno != errno.EXDEV or not self._copy(directory, name, target):
                log.error("dead/: cannot take %r (%s): removed", name, error)
            self._files.unlink(name, dir_fd=directory)
        log.warning("request %r was rejected: %s", name[:100], reason, extra=about(file=name))
        note = {"reason": reason, "movedAt": time.time_ns() // 1_000_000}
        try:
            self._files.put(self.fd, target + _REASON_SUFFIX, orjson.dumps(note), 0o644)
        except OSError as error:
            log.error("dead/: cannot write the reason of %r: %s", target, error)
        self.count += 1
        self._latest.append(target)
        if len(self._latest) > self.max_files:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Remove a file between two sweeps: a client that sends many bad requests must not make the next sweep long."""
        target = self._latest.popleft()
        for name in (target, target + _REASON_SUFFIX):
            try:
                self._files.unlink(name, dir_fd=self.fd)
            except OSError as error:
                log.error("dead/: cannot remove %r: %s", name, error)
        self.count -= 1

    def _copy(self, directory: int, name: str, target: str) -> bool:
        """Copy a regular file from another file system. Returns whether that worked."""
        try:
            fd = self._files.open(name, READ_FLAGS, dir_fd=directory)
            try:
                listed = self._files.fstat(fd)
                if not stat.S_ISREG(listed.st_mode) or listed.st_size > REQUEST_BYTES_CEILING:
                    return False
                self._files.put(self.fd, target, self._files.read(fd, REQUEST_BYTES_CEILING))
            finally:
                self._files.close(fd)
        except OSError as error:
            log.error("dead/: cannot copy %r: %s", name, error)
            return False
        return True

    def _free_name(self, name: str) -> str:
        """``name``, with a number before its suffix if it is taken; short enough for the name of the reason's file."""
        stem = os.fsdecode(os.fsencode(name.removesuffix(".json"))[:200])
        target, number = stem + ".json", 0
        while self._exists(target):
            # A client that repeats one name must not make this try all the numbers it has used.
            number += 1 if number != _NUMBERS_TRIED else time.time_ns() // 1000
            target = f"{stem}.{number}.json"
        return target

    def _exists(self, name: str) -> bool:
        try:
            self._files.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def sweep(self, wall_ms: int, by_age: bool) -> None:
        """Remove files that are too old (only if ``by_age``: after a clock step, ages mean nothing), and the oldest of
        those that are too many or too large."""
        listed = []
        self._latest.clear()
        for name in self._files.listdir(self.fd):
            try:
                one = self._files.stat(name, dir_fd=self.fd, follow_symlinks=False)
            except FileNotFoundError:
                continue
            listed.append((one.st_ctime_ns // 1_000_000, name, one.st_size))
        listed.sort(reverse=True)
        files = size = 0
        for ctime_ms, name, bytes_ in listed:
            files += not name.endswith(_REASON_SUFFIX)
            size += bytes_
            old = by_age and wall_ms - ctime_ms > self.max_age_hours * 3600 * 1000
            if old or files > self.max_files or size > BYTES_LIMIT:
                try:
                    self._files.unlink(name, dir_fd=self.fd)
                except OSError as error:
                    log.error("dead/: cannot remove %r: %s", name, error)
        self.count = sum(name.endswith(_REASON_SUFFIX) for name in self._files.listdir(self.fd))
