"""The lock by which only one process works on a directory of messages."""

from __future__ import annotations

import fcntl
from pathlib import Path

from ..platform.files import Files
from .errors import StoreBusy


def lock_directory(files: Files, fd: int, place: Path) -> None:
    """Lock the directory ``place``, of which ``fd`` is a descriptor, until that is closed or the process ends.

    Two roots may be configured with the same directory, and each would take the other's files for damage. Raises
    ``StoreBusy`` if another process has locked it, ``OSError``.
    """
    try:
        files.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreBusy(
            f"{place}: a postroomd works on it for another root; each root needs a store of its own"
        ) from None
