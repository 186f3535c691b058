"""The lock that makes one process the only one on a directory of messages."""

from __future__ import annotations

import fcntl
from pathlib import Path

from ..platform.files import Files
from .base import StoreBusy


def be_alone(files: Files, fd: int, place: Path) -> None:
    """Lock the directory ``place``, of which ``fd`` is a descriptor: until it is closed, or its process ends.

    Two roots may have been given the same directory, and each would take the other's files for damage. Raises
    ``StoreBusy`` when another has it, ``OSError``.
    """
    try:
        files.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreBusy(
            f"{place}: a postroomd works on it for another root; each root needs a store of its own"
        ) from None
