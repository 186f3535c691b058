"""The mailbox's own directories: whether they are those that were opened, and made again where somebody has taken them
away."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from ...config.settings import Settings
from ...platform.accounts import group_name
from ...platform.files import DIRECTORY_FLAGS, Files
from ...platform.usable import CHANGE, first_unusable
from ..base import DoorLost
from .liveness_lock import LOCK_NAME

log = logging.getLogger(__name__)


def mailbox_hindrance(settings: Settings) -> str:
    """What keeps this process from the mailbox, and what to do about it; "" when nothing does."""
    ipc = settings.ipc_root
    names = (settings.ipc_requests_dir, settings.ipc_responses_dir, settings.ipc_dead_dir, settings.ipc_held_dir)
    return first_unusable((path, CHANGE) for path in (ipc, *(ipc / name for name in (*names, LOCK_NAME))))


class MailboxLost(DoorLost):
    """A directory of the mailbox was removed, and this process may not make it again; the text says what to do."""


class Directories:
    """``root`` and the directories of some names in it, as they are now. ``moving`` is one that may be exchanged:
    whoever uses it sees to that. Raises ``OSError``."""

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
        """Those whose paths show another directory than at first; what is missing is made first, as it was.

        Raises ``MailboxLost``; ``OSError`` for what may pass.
        """
        found = []
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
                found.append(path)
        return found

    def close(self) -> None:
        """Let go of all descriptors."""
        for fd in self._open.values():
            self._files.close(fd)

    def _look(self, path: Path) -> os.stat_result | None:
        try:
            found: os.stat_result = self._files.stat(path, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return found

    def _make(self, path: Path, was: os.stat_result) -> os.stat_result:
        """By descriptors, so that nothing is made or changed behind a link. It is closed to all until it is as it
        was."""
        flags = DIRECTORY_FLAGS if path != self._root else DIRECTORY_FLAGS & ~os.O_NOFOLLOW
        try:
            parent = self._files.open(path.parent, flags)
        except FileNotFoundError:
            raise MailboxLost(f"{path} was removed, and {path.parent} with it: put them back") from None
        try:
            self._files.mkdir(path.name, 0o700, dir_fd=parent)
            made = self._files.open(path.name, DIRECTORY_FLAGS, dir_fd=parent)
            try:
                found = self._set_right(made, was)
            finally:
                self._files.close(made)
            if found is None:
                self._files.rmdir(path.name, dir_fd=parent)
        except PermissionError:
            found = None
        finally:
            self._files.close(parent)
        if found is None:
            group, mode = group_name(was.st_gid) or was.st_gid, stat.S_IMODE(was.st_mode)
            raise MailboxLost(
                f"{path} was removed, and only root can make it with the group {group} and the mode {mode:04o}: start"
                " the service again, or see postroomd check-permissions"
            )
        log.warning("%s was removed; it is made again", path)
        return found

    def _set_right(self, fd: int, was: os.stat_result) -> os.stat_result | None:
        """Give a directory the group and the mode of another; None where this process may not."""
        mode = stat.S_IMODE(was.st_mode)
        found: os.stat_result = self._files.fstat(fd)
        try:
            if found.st_gid != was.st_gid:
                os.fchown(fd, -1, was.st_gid)
            if stat.S_IMODE(found.st_mode) != mode:
                os.fchmod(fd, mode)
        except PermissionError:
            return None
        found = self._files.fstat(fd)
        # The kernel leaves out the bit of the group, without a word, for a group that the process is not in.
        return found if (found.st_gid, stat.S_IMODE(found.st_mode)) == (was.st_gid, mode) else None
