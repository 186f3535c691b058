"""Create a new file or folder that appears under its name only when it is complete.

Until then it has a name that ends in ``UNFINISHED`` in the same directory, and its creator holds a lock on it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Final

from postroom_common.errors import PostroomError

from .files import CREATE_FLAGS, READ_FLAGS, Files, remove_all

UNFINISHED: Final = ".unfinished"


class PathTaken(PostroomError):
    """The path exists, or another process is creating it, or it is in a directory of the daemon."""


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file for writing, with mode 0600. When the block ends, the file exists, complete and durable; if the
    block fails, it does not.

    Raises ``PathTaken``, ``OSError``.
    """
    with _new(path, is_folder=False) as fd, open(fd, "wb", closefd=False) as file:
        yield file
        file.flush()
        os.fsync(fd)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Create a new folder like ``new_file``, with mode 0700. The caller fills the path that the block gets, and syncs
    what is in it."""
    with _new(path, is_folder=True):
        yield _unfinished(path)


def _unfinished(path: Path) -> Path:
    return path.with_name(path.name + UNFINISHED)


@contextmanager
def _new(path: Path, is_folder: bool) -> Iterator[int]:
    """The descriptor of the unfinished file or folder."""
    if os.path.lexists(path):
        raise PathTaken(f"{path} already exists: choose another name")
    unfinished = _unfinished(path)
    with ExitStack() as lock:
        fd = _create_locked(unfinished, is_folder, lock)
        try:
            yield fd
            if os.path.lexists(path):
                raise PathTaken(f"another process has created {path} meanwhile")
            unfinished.rename(path)
        except BaseException:
            remove_all(unfinished)
            raise
        Files().sync_directory(path.parent)


def _create_locked(path: Path, is_folder: bool, lock: ExitStack) -> int:
    """Create the file or folder and lock it until ``lock`` ends. Removes what a killed process has left behind."""
    if os.path.lexists(path):
        with ExitStack() as other:
            _lock(path, other)
            remove_all(path)
    if is_folder:
        path.mkdir(mode=0o700)
        return _lock(path, lock)
    fd = os.open(path, CREATE_FLAGS, 0o600)
    lock.callback(os.close, fd)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def _lock(path: Path, lock: ExitStack) -> int:
    fd = os.open(path, READ_FLAGS)
    lock.callback(os.close, fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PathTaken(f"another process is writing to {path}") from None
    return fd
