"""Requests as files: found, ordered, opened without trust, read once."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import time
from collections import deque
from pathlib import Path
from typing import Final, NamedTuple

from postroom_common.protocol import REQUEST_SUFFIX, SETTLE_MS

from ..files import READ_FLAGS, Files
from .dead import DeadBox

log = logging.getLogger(__name__)

#: Errors of open() that concern the daemon, not the file.
_OUR_FAULT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EINTR})


class MailboxTaken(OSError):
    """Another daemon serves the mailbox."""


class Taken(NamedTuple):
    """A request file that was read. ``uid`` owns it, ``ctime_ns`` is when it got its name."""

    name: str
    inode: int
    uid: int
    ctime_ns: int
    data: bytes

    @property
    def ctime_ms(self) -> int:
        """``ctime_ns`` in milliseconds."""
        return self.ctime_ns // 1_000_000


class Intake:
    """The directory ``requests/``."""

    def __init__(self, path: Path, files: Files, dead: DeadBox, request_bytes: int) -> None:
        self._path = path
        self._files = files
        self._dead = dead
        self._request_bytes = request_bytes
        self._backlog: deque[str] = deque()
        self._settling: dict[str, tuple[int, int]] = {}
        self._bad = 0
        self.held: dict[str, int] = {}
        """Names, with their inodes, of requests that were taken and are not answered yet: scans pass over them."""
        self.fd = self._open()

    def _open(self) -> int:
        """The directory, locked: two daemons on one mailbox would execute everything twice. Clients cannot open it."""
        fd = self._files.open_directory(self._path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._files.close(fd)
            taken = f"{self._path}: another daemon serves it; stop it, or name another ipc.root"
            raise MailboxTaken(taken) from None
        return int(fd)

    @property
    def waiting(self) -> int:
        """Files that were seen and not taken yet."""
        return len(self._backlog)

    def replaced(self) -> bool:
        """Whether the path now shows another directory than the one that is open; it is opened then."""
        try:
            shown, held = self._files.stat(self._path, follow_symlinks=False), self._files.fstat(self.fd)
            if (shown.st_dev, shown.st_ino) == (held.st_dev, held.st_ino):
                return False
        except FileNotFoundError:
            pass
        fd = self._open()
        self._files.close(self.fd)
        self.fd = fd
        self._backlog.clear()
        log.warning("%s was replaced; the new one is served", self._path)
        return True

    def take(self, max_requests: int, max_bytes: int) -> list[Taken]:
        """The next requests in the order of (ctime, name), at most so many and about so many bytes.

        Raises ``OSError``.
        """
        names = [] if self._backlog else self._scan()
        if len(names) > max_requests:
            names = self._by_age(names)
        self._backlog.extend(names)
        taken = self._read_next(max_requests, max_bytes)
        if self._backlog and 1 < len(names) <= max_requests:
            # The bytes of a group were used up before all of a short scan was read, in no order: now in that of age.
            self._backlog = deque(self._by_age(names))
            taken = self._read_next(max_requests, max_bytes)
        taken.sort(key=lambda t: (t.ctime_ns, t.name))
        return taken

    def _read_next(self, max_requests: int, max_bytes: int) -> list[Taken]:
        taken: list[Taken] = []
        size = 0
        while self._backlog and len(taken) < max_requests and size < max_bytes:
            name = self._backlog[0]
            try:
                one = self._read(name)
            except OSError as error:
                if error.errno in _OUR_FAULT:
                    raise
                log.error("request %r is put off: %s", name[:100], error)
                self._leave(name, self._inode(name) or 0)
                one = None
            self._backlog.popleft()
            if one:
                taken.append(one)
                size += len(one.data)
        return taken

    def hold(self, taken: Taken) -> None:
        """The request is being worked on: scans pass over it until it is finished, set aside or postponed."""
        self.held[taken.name] = taken.inode

    def gone(self) -> list[str]:
        """Held names whose file has vanished or was replaced; they are no longer held."""
        lost = [name for name, inode in self.held.items() if self._inode(name) != inode]
        for name in lost:
            del self.held[name]
        return lost

    def open_held(self, name: str) -> int | None:
        """An fd of a held request, or None when its file is no longer the one that was read."""
        try:
            fd: int = self._files.open(name, READ_FLAGS, dir_fd=self.fd)
        except OSError:
            return None
        if self._files.fstat(fd).st_ino == self.held.get(name):
            return fd
        self._files.close(fd)
        return None

    def finish(self, name: str) -> None:
        """The request is answered: remove its file, if it is still the one that was read."""
        inode = self.held.pop(name, None)
        if inode is not None and self._inode(name) == inode:
            try:
                self._files.unlink(name, dir_fd=self.fd)
            except FileNotFoundError:
                pass  # RACE: its client took it back in this moment

    def set_aside(self, name: str, reason: str) -> None:
        """Move a request that cannot be used to ``dead/``."""
        self.held.pop(name, None)
        self._dead.take(self.fd, name, reason)

    def settles(self, taken: Taken) -> bool:
        """Whether a file that does not parse may still be under its writer's hands: it is then left for a while."""
        if not self._is_young(taken.ctime_ns):
            return False
        self.postpone(taken)
        return True

    def put_off(self, name: str) -> None:
        """As ``postpone``, for a held request."""
        self._leave(name, self.held.pop(name, 0))

    def postpone(self, taken: Taken) -> None:
        """Leave a request where it is and look at it again in ``SETTLE_MS``."""
        self.held.pop(taken.name, None)
        self._leave(taken.name, taken.inode)

    def _scan(self) -> list[str]:
        held, settling = self.held, self._settling
        names = [n for n in self._files.listdir(self.fd) if n.endswith(REQUEST_SUFFIX) and n not in held]
        if settling:
            now = time.monotonic_ns()
            for name in [name for name, (_, until) in settling.items() if until <= now]:
                del settling[name]
            names = [n for n in names if n not in settling or self._inode(n) != settling[n][0]]
        return names

    def _by_age(self, names: list[str]) -> list[str]:
        ages = []
        for name in names:
            try:
                ages.append((self._files.stat(name, dir_fd=self.fd, follow_symlinks=False).st_ctime_ns, name))
            except OSError:
                continue  # RACE: taken back since the scan
        return [name for _, name in sorted(ages)]

    def _read(self, name: str) -> Taken | None:
        try:
            fd = self._files.open(name, READ_FLAGS, dir_fd=self.fd)
        except OSError as error:
            self._unopened(name, error)
            return None
        try:
            found = self._files.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_size > self._request_bytes:
                self._refuse(name, found)
                return None
            # One byte more than it had: a file that has grown since shows it. A buffer of the limit would cost more.
            data = self._files.read(fd, found.st_size + 1)
            if len(data) > found.st_size:
                data += self._files.read(fd, self._request_bytes + 1)
            if len(data) > self._request_bytes:
                self.set_aside(name, f"larger than {self._request_bytes} bytes (limits.requestBytes)")
                return None
        finally:
            self._files.close(fd)
        return Taken(name, found.st_ino, found.st_uid, found.st_ctime_ns, data)

    def _unopened(self, name: str, error: OSError) -> None:
        if error.errno == errno.ENOENT:
            return  # RACE: taken back since the scan
        reasons = {errno.ELOOP: "a symbolic link", errno.ENXIO: "a socket", errno.EACCES: "not readable by the daemon"}
        if error.errno not in reasons:
            raise error  # no fault of the file
        self.set_aside(name, reasons[error.errno])

    def _refuse(self, name: str, found: os.stat_result) -> None:
        if stat.S_ISDIR(found.st_mode):
            self._step_over(name)
        elif not stat.S_ISREG(found.st_mode):
            self.set_aside(name, "not a regular file")
        elif found.st_size > self._request_bytes:
            self.set_aside(name, f"larger than {self._request_bytes} bytes (limits.requestBytes)")
        elif self._is_young(found.st_ctime_ns):
            self._leave(
                name, found.st_ino
            )  # link(2) followed by unlink(2) of the other name: a way to write atomically
        elif found.st_nlink:
            self.set_aside(name, "it has two hard links")

    def _step_over(self, name: str) -> None:
        """A directory cannot be moved out of a sticky directory by everyone: it gets a name that is not looked at."""
        while True:
            self._bad += 1
            try:
                self._files.stat(f".bad-{self._bad}", dir_fd=self.fd, follow_symlinks=False)
            except FileNotFoundError:
                break
        self._files.rename(name, f".bad-{self._bad}", src_dir_fd=self.fd, dst_dir_fd=self.fd)
        log.warning("requests/%r is a directory; renamed to .bad-%d", name, self._bad)

    def _is_young(self, ctime_ns: int) -> bool:
        # A ctime in the future is from before a step of the wall clock: not young.
        return 0 <= time.time_ns() - ctime_ns < SETTLE_MS * 1_000_000

    def _leave(self, name: str, inode: int) -> None:
        self._settling[name] = (inode, time.monotonic_ns() + SETTLE_MS * 1_000_000)

    def _inode(self, name: str) -> int | None:
        try:
            return int(self._files.stat(name, dir_fd=self.fd, follow_symlinks=False).st_ino)
        except OSError:
            return None
