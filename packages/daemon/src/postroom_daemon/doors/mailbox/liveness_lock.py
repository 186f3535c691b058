"""The sign that a daemon serves a mailbox: what clients look at to tell a missing daemon from a slow one."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from ...platform.files import Files

#: It is locked while the daemon serves.
LOCK_NAME: Final = "daemon.lock"


class Sign:
    """The file ``daemon.lock`` in a mailbox, open. Raises ``OSError``."""

    def __init__(self, ipc_root: Path, files: Files) -> None:
        self._path = ipc_root / LOCK_NAME
        self._files = files
        self._fd = self._open()
        self._is_up = False

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)

    def put_up(self) -> None:
        """See that it is up, also where somebody has removed it. Raises ``OSError``."""
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
            pass  # a client is looking at it this moment, or a hostile one holds it: it is only a sign

    def close(self) -> None:
        """Take it down."""
        os.close(self._fd)
