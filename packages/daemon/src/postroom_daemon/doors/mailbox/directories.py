"""The mailbox's own directories: whether they are still those that were opened; recreated if somebody removed them."""

from __future__ import annotations

import fcntl
import logging
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ...config.settings import Settings
from ...platform.accounts import group_name
from ...platform.files import DIRECTORY_FLAGS, Files
from ...platform.usable import CHANGE, first_unusable
from ..base import DoorLost

log = logging.getLogger(__name__)

#: It is locked while the daemon serves.
LOCK_NAME: Final = "daemon.lock"


class LivenessLock:
    """The file ``daemon.lock``, by which clients tell a missing daemon from a slow one. Raises ``OSError``."""

    def __init__(self, ipc_root: Path, files: Files) -> None:
        self._path = ipc_root / LOCK_NAME
        self._files = files
        self._fd = self._open()
        self._is_up = False

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)

    def hold(self) -> None:
        """Lock the file, and create it again if somebody has removed it. Raises ``OSError``."""
        try:
            shown = self._files.stat(self._path, follow_symlinks=False).st_ino
        except FileNotFoundError:
            shown = 0
        if shown != self._files.fstat(self._fd).st_ino:
            fd = self._open()
            self.close()
            self._fd, self._is_up = fd, False
        if self._is_up:
            return
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._is_up = True
        except OSError:
            pass  # a client is testing it this moment, or a hostile one has locked it: it is only advice

    def close(self) -> None:
        """Release the lock."""
        os.close(self._fd)


def mailbox_problem(settings: Settings) -> str:
    """Why this process cannot use the mailbox, and what to do about it; "" if it can."""
    ipc = settings.ipc_root
    names = (settings.ipc_requests_dir, settings.ipc_responses_dir, settings.ipc_dead_dir, settings.ipc_held_dir)
    return first_unusable((path, CHANGE) for path in (ipc, *(ipc / name for name in (*names, LOCK_NAME))))


def unprocessed_requests(settings: Settings) -> list[Path]:
    """Requests that the C++ daemon had taken when it ended. They were not answered, and nobody executes them."""
    directory = settings.ipc_root / settings.ipc_processing_dir
    used = (settings.ipc_requests_dir, settings.ipc_responses_dir, settings.ipc_dead_dir, settings.ipc_held_dir)
    if settings.ipc_processing_dir in used or not directory.is_dir():
        return []
    return sorted(directory.glob("*.json"))


class MailboxLost(DoorLost):
    """A directory of the mailbox was removed, and this process may not make it again; the text says what to do."""


class Directories:
    """``root`` and its directories of these ``names``, as they are now. ``moving`` is one that may be replaced: whoever
    uses it opens the new one. Raises ``OSError``."""

    def __init__(self, root: Path, names: Iterable[str], files: Files, moving: str) -> None:
        self._files = files
        self._root = root
        self._moving = root / moving
        self._open: dict[Path, int] = {}
        try:
            for path in (root, self._moving, *(root / name for name in names)):
                self._open[path] = files.open(path, DIRECTORY_FLAGS)
        except OSError:
            self.close()
            raise

    def replaced(self) -> list[Path]:
        """The paths that now lead to another directory. A directory that is missing is first created again, as it was.

        Raises ``MailboxLost``, or ``OSError`` for an error that may pass.
        """
        replaced = []
        for path, fd in self._open.items():
            opened = self._files.fstat(fd)
            shown = self._look(path) or self._make(path, opened)
            if not stat.S_ISDIR(shown.st_mode):
                what = "a symbolic link" if stat.S_ISLNK(shown.st_mode) else "no directory"
                raise MailboxLost(f"{path} has become {what}: no request can come; put the directory back")
            if (shown.st_dev, shown.st_ino) == (opened.st_dev, opened.st_ino):
                continue
            if path == self._moving:
                self._open[path] = self._files.open(path, DIRECTORY_FLAGS)
                self._files.close(fd)
            else:
                replaced.append(path)
        return replaced

    def close(self) -> None:
        """Close all descriptors."""
        for fd in self._open.values():
            self._files.close(fd)

    def _look(self, path: Path) -> os.stat_result | None:
        try:
            status: os.stat_result = self._files.stat(path, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return status

    def _make(self, path: Path, was: os.stat_result) -> os.stat_result:
        """Create a directory by descriptor, so that nothing is created or changed behind a link. Nobody may enter it
        until it has its old owner and mode."""
        flags = DIRECTORY_FLAGS if path != self._root else DIRECTORY_FLAGS & ~os.O_NOFOLLOW
        try:
            parent = self._files.open(path.parent, flags)
        except FileNotFoundError:
            raise MailboxLost(f"{path} was removed, and {path.parent} with it: put them back") from None
        try:
            self._files.mkdir(path.name, 0o700, dir_fd=parent)
            made = self._files.open(path.name, DIRECTORY_FLAGS, dir_fd=parent)
            try:
                status = self._restore_mode(made, was)
            finally:
                self._files.close(made)
            if status is None:
                self._files.rmdir(path.name, dir_fd=parent)
        except PermissionError:
            status = None
        finally:
            self._files.close(parent)
        if status is None:
            group, mode = group_name(was.st_gid) or was.st_gid, stat.S_IMODE(was.st_mode)
            raise MailboxLost(
                f"{path} was removed, and only root can make it with the group {group} and the mode {mode:04o}: start"
                " the service again, or see postroomd check-permissions"
            )
        log.warning("%s was removed; it is made again", path)
        return status

    def _restore_mode(self, fd: int, was: os.stat_result) -> os.stat_result | None:
        """Give a directory the group and mode of another; None if this process may not."""
        mode = stat.S_IMODE(was.st_mode)
        status: os.stat_result = self._files.fstat(fd)
        try:
            if status.st_gid != was.st_gid:
                os.fchown(fd, -1, was.st_gid)
            if stat.S_IMODE(status.st_mode) != mode:
                os.fchmod(fd, mode)
        except PermissionError:
            return None
        status = self._files.fstat(fd)
        # For a group that the process is not in, the kernel silently drops the set-group-ID bit.
        return status if (status.st_gid, stat.S_IMODE(status.st_mode)) == (was.st_gid, mode) else None
