"""Locks that let only one process work on a root."""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from postroom_common.errors import PostroomError

from ..config.config import Config
from ..platform.files import DIRECTORY_FLAGS, Files
from ..stores.directory_lock import lock_directory
from .swap import check_no_swap

LOCK_NAME = "postroomd.lock"
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class RootBusy(PostroomError):
    """Another process works on the root."""


class WrongOwner(PostroomError):
    """The root belongs to another user, whose daemon could not use files that this process writes."""


@contextmanager
def lock_root(config: Config, files: Files, unfinished: bool = False, writing: bool = True) -> Iterator[None]:
    """Lock a root, creating its directories if they are missing. ``unfinished``: even if its restore was interrupted,
    to finish that. Without ``writing``: even if another user owns it, only to read.

    The journal is the source of truth, so its directory is locked as well, wherever it is. A lock ends with its
    process; the content of the file does not matter. An open store locks its own files; see ``lock_store``.
    Raises ``RootBusy``, ``WrongOwner``, ``SwapInterrupted``, ``OSError``.
    """
    with ExitStack() as locks:
        for directory in dict.fromkeys((config.root, config.settings.journal_root)):
            fd = _lock(directory, files, writing)
            locks.callback(os.close, fd)
            if writing:
                _check_owner(fd, directory)
        if not unfinished:
            check_no_swap(config.root)
        yield


@contextmanager
def lock_store(files: Files, *places: Path) -> Iterator[None]:
    """Lock directories with files of messages, to move them or their content while no store has them open. Paths that
    are not directories are ignored. Raises ``StoreBusy``, ``OSError``."""
    with ExitStack() as locks:
        for place in places:
            if place.is_dir() and not place.is_symlink():
                fd = os.open(place, DIRECTORY_FLAGS)
                locks.callback(os.close, fd)
                lock_directory(files, fd, place)
        yield


def _lock(directory: Path, files: Files, writing: bool) -> int:
    files.close(files.open_directory(directory))
    path = directory / LOCK_NAME
    is_new = not os.path.lexists(path)
    try:
        fd = os.open(path, _LOCK_FLAGS, 0o600)
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.ELOOP):
            raise
        # A directory or link, which nobody can have locked: move it away.
        files.rename(path, path.with_name(f"{LOCK_NAME}.{time.time_ns()}"))
        fd = os.open(path, _LOCK_FLAGS, 0o600)
    try:
        if is_new and not writing and os.geteuid() == 0:
            found = os.stat(directory)
            os.fchown(fd, found.st_uid, found.st_gid)  # a reader must not become the owner of the root
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise RootBusy(f"{directory}: another postroomd works on this root; stop it first") from None
    return fd


def _check_owner(fd: int, directory: Path) -> None:
    """The owner of the lock file owns the root, and could neither read nor change what another user writes here."""
    owner = os.fstat(fd).st_uid
    if owner == os.geteuid():
        return
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = f"#{owner}"
    raise WrongOwner(
        f"{directory} belongs to the user {name}, who could not use what is written here: do this as that user, "
        f"for instance with `runuser -u {name} --`"
    )
