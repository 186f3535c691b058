"""The locks that make one process the only one on a root."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from postroom_common.errors import PostroomError

from .changeover import check_whole
from .config import Config
from .files import Files

LOCK_NAME = "postroomd.lock"
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class RootBusy(PostroomError):
    """Another process works on the root."""


@contextmanager
def lock_root(config: Config, files: Files, unfinished: bool = False) -> Iterator[None]:
    """Be alone on a root. Its directories are made if they are missing. ``unfinished``: also on one whose restore was
    interrupted, to finish it.

    The journal is the truth: whoever holds it is alone, wherever its directory lies. A lock ends with its process; what
    the file holds does not matter. Raises ``RootBusy``, ``ChangeoverInterrupted``, ``OSError``.
    """
    with ExitStack() as locks:
        for directory in dict.fromkeys((config.root, config.settings.journal_root)):
            locks.callback(os.close, _lock(directory, files))
        if not unfinished:
            check_whole(config.root)
        yield


def _lock(directory: Path, files: Files) -> int:
    files.close(files.open_directory(directory))
    path = directory / LOCK_NAME
    try:
        fd = os.open(path, _LOCK_FLAGS, 0o600)
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.ELOOP):
            raise
        # A directory or link, which nobody can have locked: it makes room.
        files.rename(path, path.with_name(f"{LOCK_NAME}.{time.time_ns()}"))
        fd = os.open(path, _LOCK_FLAGS, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise RootBusy(f"{directory}: another postroomd works on this root; stop it first") from None
    return fd
