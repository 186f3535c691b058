"""The locks that make one process the only one on a root."""

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
from ..stores.alone import be_alone
from .swap import check_no_swap

LOCK_NAME = "postroomd.lock"
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class RootBusy(PostroomError):
    """Another process works on the root."""


class WrongOwner(PostroomError):
    """The root is another user's, whose daemon could not use what this process would write."""


@contextmanager
def lock_root(config: Config, files: Files, unfinished: bool = False, writing: bool = True) -> Iterator[None]:
    """Be alone on a root. Its directories are made if they are missing. ``unfinished``: also on one whose restore was
    interrupted, to finish it. Not ``writing``: also on one of another user, only to look.

    The journal is the truth: whoever holds it is alone, wherever its directory lies. A lock ends with its process; what
    the file holds does not matter. A store that is open locks its own files; see ``lock_store``.
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
    """Be alone on directories with files of messages, to move them or what is in them while no store has them open.
    What is no directory is no store's. Raises ``StoreBusy``, ``OSError``."""
    with ExitStack() as locks:
        for place in places:
            if place.is_dir() and not place.is_symlink():
                fd = os.open(place, DIRECTORY_FLAGS)
                locks.callback(os.close, fd)
                be_alone(files, fd, place)
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
        # A directory or link, which nobody can have locked: it makes room.
        files.rename(path, path.with_name(f"{LOCK_NAME}.{time.time_ns()}"))
        fd = os.open(path, _LOCK_FLAGS, 0o600)
    try:
        if is_new and not writing and os.geteuid() == 0:
            found = os.stat(directory)
            os.fchown(fd, found.st_uid, found.st_gid)  # whoever only looks does not become the one who works here
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise RootBusy(f"{directory}: another postroomd works on this root; stop it first") from None
    return fd


def _check_owner(fd: int, directory: Path) -> None:
    """Whoever has made the lock works here. What root wrote beside him he could neither read nor change."""
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
