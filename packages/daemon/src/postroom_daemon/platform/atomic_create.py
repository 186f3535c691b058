"""A new file or folder that gets its name when it is whole: until then it lies beside its place under a name that ends
in ``UNFINISHED``, locked by whoever makes it."""

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


class PlaceTaken(PostroomError):
    """There is something of that name, or somebody else makes it now, or it is the daemon's own place."""


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to be written, mode 0600. When the block ends it is there, whole and durable; when it fails, it is not.

    Raises ``PlaceTaken``, ``OSError``.
    """
    with _new(path, is_folder=False) as fd, open(fd, "wb", closefd=False) as file:
        yield file
        file.flush()
        os.fsync(fd)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """As ``new_file``, a folder to be filled at the path given, mode 0700: the caller syncs what is in it."""
    with _new(path, is_folder=True):
        yield _beside(path)


def _beside(path: Path) -> Path:
    return path.with_name(path.name + UNFINISHED)


@contextmanager
def _new(path: Path, is_folder: bool) -> Iterator[int]:
    """Its descriptor, while it is filled."""
    if os.path.lexists(path):
        raise PlaceTaken(f"{path} exists already: name a new place")
    beside = _beside(path)
    with ExitStack() as held:
        fd = _make_alone(beside, is_folder, held)
        try:
            yield fd
            if os.path.lexists(path):
                raise PlaceTaken(f"{path} was made by somebody else meanwhile")
            beside.rename(path)
        except BaseException:
            remove_all(beside)
            raise
        Files().sync_directory(path.parent)


def _make_alone(path: Path, is_folder: bool, held: ExitStack) -> int:
    """Make it, and hold its lock; what somebody who was killed has left is removed before."""
    if os.path.lexists(path):
        with ExitStack() as other:
            _lock(path, other)
            remove_all(path)
    if is_folder:
        path.mkdir(mode=0o700)
        return _lock(path, held)
    fd = os.open(path, CREATE_FLAGS, 0o600)
    held.callback(os.close, fd)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def _lock(path: Path, held: ExitStack) -> int:
    fd = os.open(path, READ_FLAGS)
    held.callback(os.close, fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PlaceTaken(f"{path}: somebody else is writing there") from None
    return fd
