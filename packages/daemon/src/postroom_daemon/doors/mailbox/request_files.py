"""Request files, one at a time: opened without trust, read once, removed.

A name is that of a file in ``requests/``, or with slashes, of one that was spilled to ``held/``.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import time
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Final

from postroom_common.protocol import SETTLE_MS

from ...platform.files import READ_FLAGS, Files
from .rejected import RejectedRequests
from .spill import UNFIT, Spill, is_spilled, note_of

log = logging.getLogger(__name__)

#: Names that are remembered as ignored long enough; they are read soon after.
_WAITED_LIMIT: Final = 10_000
#: Ignored files up to which each one is checked at every scan.
_IGNORED_CHECKED: Final = 100


class MailboxBusy(OSError):
    """Another daemon serves the mailbox."""


@dataclass(slots=True, eq=False)
class RequestFile:
    """A request file that was read. ``uid`` owns it, ``ctime_ns`` is when it got its name in ``requests/``, ``size`` is
    that of its ``data``. ``over``: its user has more requests pending than its quota."""

    ctime_ns: int
    name: str
    inode: int
    uid: int
    data: bytes
    size: int
    over: bool = False


#: What request files are sorted by, so that they are in the order of their arrival.
ARRIVAL: Final = attrgetter("ctime_ns", "name")


class RequestFiles:
    """The directories ``requests/`` and ``held/``, open."""

    def __init__(self, path: Path, spill: Spill, files: Files, rejected: RejectedRequests, request_bytes: int) -> None:
        self.spill = spill
        self.files = files
        self._path = path
        self._rejected = rejected
        self._request_bytes = request_bytes
        self._ignored: dict[str, tuple[int, int]] = {}  # by name: inode, and until when it is ignored
        self._waited: dict[str, int] = {}  # by name: the inode that was ignored long enough
        self._bad = 0
        self.fd = self._open()

    def _open(self) -> int:
        """The directory, locked: two daemons on one mailbox would execute everything twice. Clients cannot open it."""
        fd = self.files.open_directory(self._path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.files.close(fd)
            if not isinstance(error, BlockingIOError):
                raise
            text = f"{self._path}: another daemon serves it; stop it, or name another ipc.root"
            raise MailboxBusy(text) from None
        return int(fd)

    def replaced(self) -> bool:
        """Whether the path now leads to another directory; that one is opened then."""
        try:
            shown, opened = self.files.stat(self._path, follow_symlinks=False), self.files.fstat(self.fd)
            if (shown.st_dev, shown.st_ino) == (opened.st_dev, opened.st_ino):
                return False
        except FileNotFoundError:
            pass
        fd = self._open()
        self.files.close(self.fd)
        self.fd = fd
        log.warning("%s was replaced; the new one is served", self._path)
        return True

    def is_shared(self) -> bool:
        """Whether users other than its owner may put files into ``requests/``."""
        return bool(self.files.fstat(self.fd).st_mode & 0o022)

    def at(self, name: str) -> int:
        """The fd of the directory that a name belongs to."""
        return self.spill.fd if is_spilled(name) else self.fd

    def open(self, name: str, inode: int | None) -> int | None:
        """An fd of the file that was read; None if its name now leads to another one. Raises ``OSError``."""
        try:
            fd: int = self.files.open(name, READ_FLAGS, dir_fd=self.at(name))
        except OSError:
            return None
        try:
            is_same = self.files.fstat(fd).st_ino == inode
        except OSError:
            self.files.close(fd)
            raise
        if is_same:
            return fd
        self.files.close(fd)
        return None

    def is_same(self, name: str, inode: int) -> bool:
        """Whether a name still leads to the file that was read. Raises ``OSError``."""
        try:
            status = self.files.stat(name, dir_fd=self.at(name), follow_symlinks=False)
        except FileNotFoundError:
            return False
        return bool(status.st_ino == inode)

    def inode(self, name: str) -> int | None:
        """The inode of a name; None if there is none."""
        try:
            return int(self.files.stat(name, dir_fd=self.at(name), follow_symlinks=False).st_ino)
        except OSError:
            return None

    def is_directory(self, name: str) -> bool:
        """Whether a name is that of a directory."""
        try:
            return stat.S_ISDIR(self.files.stat(name, dir_fd=self.at(name), follow_symlinks=False).st_mode)
        except OSError:
            return False

    def remove(self, name: str, inode: int) -> None:
        """Remove a file if it is still the one that was read; a spilled one always is. Raises ``OSError``."""
        files = self.files
        try:
            if "/" in name:
                files.unlink(name, dir_fd=self.spill.fd)
            elif files.stat(name, dir_fd=self.fd, follow_symlinks=False).st_ino == inode:
                files.unlink(name, dir_fd=self.fd)
        except FileNotFoundError:
            pass  # RACE: its client took it back
        if "/" in name:
            self.spill.gone(name)

    def reject(self, name: str, reason: str) -> None:
        """Move a file to ``dead/``."""
        note = note_of(name) if is_spilled(name) else None
        self._rejected.take(self.at(name), name, reason, note.name if note else name)
        self.gone(name)

    def gone(self, name: str) -> None:
        """A file that was taken is no longer there."""
        if is_spilled(name):
            self.spill.gone(name)

    # --- files that are ignored for a while ----------------------------------------------------------------------

    def ignore(self, name: str, inode: int) -> None:
        """Ignore a file for ``SETTLE_MS``."""
        self._ignored.pop(name, None)  # the first in the dict is the oldest
        self._ignored[name] = (inode, time.monotonic_ns() + SETTLE_MS * 1_000_000)

    @property
    def ignores_some(self) -> bool:
        """Whether any file is ignored."""
        return bool(self._ignored)

    def ignored(self, names: list[str]) -> list[str]:
        """Those of some files that are still to be ignored. If they are few, a file that has taken the name of one is
        noticed at once."""
        ignored = [name for name in names if name in self._ignored] if self._ignored else []
        if len(ignored) > _IGNORED_CHECKED:
            return ignored
        return [name for name in ignored if self._ignored[name][0] == self.inode(name)]

    def take_due(self) -> list[str]:
        """The spilled files that are due again. Files that were ignored long enough are ignored no longer."""
        due, now = [], time.monotonic_ns()
        while self._ignored:
            name, (_, until) = next(iter(self._ignored.items()))
            if until > now:
                break
            self._waited[name] = self._ignored.pop(name)[0]
            if len(self._waited) > _WAITED_LIMIT:
                self._waited.clear()
            if is_spilled(name):
                due.append(name)
        return due

    def spill_ignored(self, names: list[str]) -> None:
        """Spill files that are ignored: too many of them would slow down every scan."""
        for name in names:
            try:
                status = self.files.stat(name, dir_fd=self.fd, follow_symlinks=False)
                self.spill.directory(UNFIT).add(self.fd, name, status.st_ctime_ns, status.st_size)
            except OSError as error:
                log.debug("request %r is not spilled: %s", name[:100], error)
                continue
            self._ignored.pop(name, None)

    def is_young(self, ctime_ns: int) -> bool:
        """Whether a file got its name so recently that its writer may still be writing."""
        # A ctime in the future dates from before a step of the wall clock: not young.
        return 0 <= time.time_ns() - ctime_ns < SETTLE_MS * 1_000_000

    # --- reading ----------------------------------------------------------------------------------------------

    def read(self, name: str) -> RequestFile | None:
        """Read a request. None if it is gone, rejected, or to be read later. Raises ``OSError`` for an error that is
        not the file's fault."""
        spilled = "/" in name
        files, limit = self.files, self._request_bytes
        try:
            fd = files.open(name, READ_FLAGS, dir_fd=self.spill.fd if spilled else self.fd)
        except OSError as error:
            self._unopened(name, error)
            return None
        try:
            status = files.fstat(fd)
            length = status.st_size
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or length > limit:
                self._refuse(name, status)
                return None
            # One byte more than its size: a file that has grown shows it. A buffer of the limit would cost more.
            data = files.read(fd, length + 1)
            size = len(data)
            if size > length:
                data += files.read(fd, limit + 1)
                size = len(data)
            if size > limit:
                self.reject(name, f"larger than {limit} bytes (limits.requestBytes)")
                return None
        finally:
            files.close(fd)
        ctime_ns = status.st_ctime_ns
        if spilled:
            note = note_of(name)
            ctime_ns = note.ctime_ns if note else ctime_ns
        return RequestFile(ctime_ns, name, status.st_ino, status.st_uid, data, size)

    def _unopened(self, name: str, error: OSError) -> None:
        if error.errno == errno.ENOENT:
            self.gone(name)
            return  # RACE: taken back since the scan
        reasons = {errno.ELOOP: "a symbolic link", errno.ENXIO: "a socket", errno.EACCES: "not readable by the daemon"}
        if error.errno not in reasons:
            raise error  # not the file's fault
        self.reject(name, reasons[error.errno])

    def _refuse(self, name: str, status: os.stat_result) -> None:
        waited = self._waited.pop(name, 0)  # the owner of another link to it could make it look young for ever
        if stat.S_ISDIR(status.st_mode):
            self.step_over(name)
        elif not stat.S_ISREG(status.st_mode):
            self.reject(name, "not a regular file")
        elif status.st_size > self._request_bytes:
            self.reject(name, f"larger than {self._request_bytes} bytes (limits.requestBytes)")
        elif self.is_young(status.st_ctime_ns) and waited != status.st_ino:
            # link(2) followed by unlink(2) of the other name: a way to write atomically
            self.ignore(name, status.st_ino)
        elif status.st_nlink:
            self.reject(name, "it has two hard links")
        else:
            self.gone(name)  # RACE: taken back since it was opened

    def step_over(self, name: str) -> None:
        """Rename a directory so that scans ignore it: not everyone may move it out of a sticky directory. Raises
        ``OSError``."""
        directory = self.at(name)
        while True:
            self._bad += 1
            try:
                self.files.stat(f".bad-{self._bad}", dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                break
        self.files.rename(name, f".bad-{self._bad}", src_dir_fd=directory, dst_dir_fd=directory)
        self.gone(name)
        log.warning("requests/%r is a directory; renamed to .bad-%d", name, self._bad)
