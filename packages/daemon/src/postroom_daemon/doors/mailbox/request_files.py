"""Request files, one at a time: opened without trust, read once, taken away.

A name is that of a file in ``requests/``, or, with slashes, of one in ``held/``.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import time
from pathlib import Path
from typing import Final, NamedTuple

from postroom_common.protocol import SETTLE_MS

from ...platform.files import READ_FLAGS, Files
from .rejected import DeadBox
from .spill import UNFIT, Held, is_held, note_of

log = logging.getLogger(__name__)

#: Names that are remembered to have been left long enough; they are looked at soon after.
_WAITED_LIMIT: Final = 10_000
#: Files that are left, of which each is looked at again at each look.
_LEFT_CHECKED: Final = 100


class MailboxTaken(OSError):
    """Another daemon serves the mailbox."""


class Taken(NamedTuple):
    """A request file that was read. ``uid`` owns it, ``ctime_ns`` is when it got its name in ``requests/``. ``over``:
    its user has more waiting than it may."""

    name: str
    inode: int
    uid: int
    ctime_ns: int
    data: bytes
    over: bool = False

    @property
    def ctime_ms(self) -> int:
        """``ctime_ns`` in milliseconds."""
        return self.ctime_ns // 1_000_000


class RequestFiles:
    """The directories ``requests/`` and ``held/``, open."""

    def __init__(self, path: Path, held: Held, files: Files, dead: DeadBox, request_bytes: int) -> None:
        self.held = held
        self.files = files
        self._path = path
        self._dead = dead
        self._request_bytes = request_bytes
        self._left: dict[str, tuple[int, int]] = {}  # by name: inode, until when
        self._waited: dict[str, int] = {}  # by name: the inode that was left long enough
        self._bad = 0
        self.fd = self._open()

    def _open(self) -> int:
        """The directory, locked: two daemons on one mailbox would execute everything twice. Clients cannot open it."""
        fd = self.files.open_directory(self._path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.files.close(fd)
            taken = f"{self._path}: another daemon serves it; stop it, or name another ipc.root"
            raise MailboxTaken(taken) from None
        return int(fd)

    def replaced(self) -> bool:
        """Whether the path now shows another directory than the one that is open; it is opened then."""
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
        """Whether others than its owner may put files into ``requests/``."""
        return bool(self.files.fstat(self.fd).st_mode & 0o022)

    def at(self, name: str) -> int:
        """The fd of the directory that a name belongs to."""
        return self.held.fd if is_held(name) else self.fd

    def open(self, name: str, inode: int | None) -> int | None:
        """An fd of the file that was read, or None when its name shows another one now."""
        try:
            fd: int = self.files.open(name, READ_FLAGS, dir_fd=self.at(name))
        except OSError:
            return None
        if self.files.fstat(fd).st_ino == inode:
            return fd
        self.files.close(fd)
        return None

    def inode(self, name: str) -> int | None:
        """The inode that a name shows; None without one."""
        try:
            return int(self.files.stat(name, dir_fd=self.at(name), follow_symlinks=False).st_ino)
        except OSError:
            return None

    def is_directory(self, name: str) -> bool:
        """Whether a name shows a directory."""
        try:
            return stat.S_ISDIR(self.files.stat(name, dir_fd=self.at(name), follow_symlinks=False).st_mode)
        except OSError:
            return False

    def remove(self, name: str, inode: int) -> None:
        """Remove a file, if it is still the one that was read: a held one is. Raises ``OSError``."""
        if is_held(name) or self.inode(name) == inode:
            try:
                self.files.unlink(name, dir_fd=self.at(name))
            except FileNotFoundError:
                pass  # RACE: its client took it back in this moment
        self.gone(name)

    def set_aside(self, name: str, reason: str) -> None:
        """Move a file that cannot be used to ``dead/``."""
        note = note_of(name) if is_held(name) else None
        self._dead.take(self.at(name), name, reason, note.name if note else name)
        self.gone(name)

    def gone(self, name: str) -> None:
        """A file that was taken is not there any more."""
        if is_held(name):
            self.held.gone(name)

    # --- files that are left for a while ----------------------------------------------------------------------

    def leave(self, name: str, inode: int) -> None:
        """Let a file be where it is for ``SETTLE_MS``."""
        self._left.pop(name, None)  # the first is the one that was left first
        self._left[name] = (inode, time.monotonic_ns() + SETTLE_MS * 1_000_000)

    def are_left(self, names: list[str]) -> list[str]:
        """Those of some files that are to be left alone still. Where they are few, one that has another's name now is
        seen at once."""
        left = [name for name in names if name in self._left] if self._left else []
        if len(left) > _LEFT_CHECKED:
            return left
        return [name for name in left if self._left[name][0] == self.inode(name)]

    def left_long_enough(self) -> list[str]:
        """The held files that are to be looked at again. What was left long enough is left no longer."""
        due, now = [], time.monotonic_ns()
        while self._left:
            name, (_, until) = next(iter(self._left.items()))
            if until > now:
                break
            self._waited[name] = self._left.pop(name)[0]
            if len(self._waited) > _WAITED_LIMIT:
                self._waited.clear()
            if is_held(name):
                due.append(name)
        return due

    def put_away(self, names: list[str]) -> None:
        """Move files that are left into ``held/``: too many of them would be in the way of the others."""
        for name in names:
            try:
                found = self.files.stat(name, dir_fd=self.fd, follow_symlinks=False)
                self.held.shelf(UNFIT).add(self.fd, name, found.st_ctime_ns, found.st_size)
            except OSError as error:
                log.debug("request %r is left: %s", name[:100], error)
                continue
            self._left.pop(name, None)

    def is_young(self, ctime_ns: int) -> bool:
        """Whether a file got its name so lately that its writer may be at work on it."""
        # A ctime in the future is from before a step of the wall clock: not young.
        return 0 <= time.time_ns() - ctime_ns < SETTLE_MS * 1_000_000

    # --- reading ----------------------------------------------------------------------------------------------

    def read(self, name: str) -> Taken | None:
        """A request, read; None for what is none: it is gone, set aside, or left for a while. Raises ``OSError`` for
        an error that is no fault of the file."""
        directory = self.at(name)
        try:
            fd = self.files.open(name, READ_FLAGS, dir_fd=directory)
        except OSError as error:
            self._unopened(name, error)
            return None
        try:
            found = self.files.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_size > self._request_bytes:
                self._refuse(name, found)
                return None
            # One byte more than it had: a file that has grown since shows it. A buffer of the limit would cost more.
            data = self.files.read(fd, found.st_size + 1)
            if len(data) > found.st_size:
                data += self.files.read(fd, self._request_bytes + 1)
            if len(data) > self._request_bytes:
                self.set_aside(name, f"larger than {self._request_bytes} bytes (limits.requestBytes)")
                return None
        finally:
            self.files.close(fd)
        note = note_of(name) if is_held(name) else None
        return Taken(name, found.st_ino, found.st_uid, note.ctime_ns if note else found.st_ctime_ns, data)

    def _unopened(self, name: str, error: OSError) -> None:
        if error.errno == errno.ENOENT:
            self.gone(name)
            return  # RACE: taken back since the scan
        reasons = {errno.ELOOP: "a symbolic link", errno.ENXIO: "a socket", errno.EACCES: "not readable by the daemon"}
        if error.errno not in reasons:
            raise error  # no fault of the file
        self.set_aside(name, reasons[error.errno])

    def _refuse(self, name: str, found: os.stat_result) -> None:
        waited = self._waited.pop(name, 0)  # whoever has another name of it can make it look young for ever
        if stat.S_ISDIR(found.st_mode):
            self.step_over(name)
        elif not stat.S_ISREG(found.st_mode):
            self.set_aside(name, "not a regular file")
        elif found.st_size > self._request_bytes:
            self.set_aside(name, f"larger than {self._request_bytes} bytes (limits.requestBytes)")
        elif self.is_young(found.st_ctime_ns) and waited != found.st_ino:
            # link(2) followed by unlink(2) of the other name: a way to write atomically
            self.leave(name, found.st_ino)
        elif found.st_nlink:
            self.set_aside(name, "it has two hard links")
        else:
            self.gone(name)  # RACE: taken back since it was opened

    def step_over(self, name: str) -> None:
        """A directory cannot be moved out of a sticky directory by everyone: it gets a name that is not looked at.
        Raises ``OSError``."""
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
