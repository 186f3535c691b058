"""File calls that fail, or end the process, at the n-th call that they can fail at."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any, Final

from postroom_daemon.platform.files import Files

#: Calls that change what is on the disk: between two of them, it makes no difference when a process dies.
CHANGING: Final = (
    "write", "pwrite", "rename", "unlink", "mkdir", "rmdir", "fsync", "fdatasync", "ftruncate", "syncfs", "allocate",
)  # fmt: skip
_LOOKING: Final = ("open", "read", "fstat", "stat", "listdir", "scandir")

#: What can go wrong, and the calls at which it does.
CALLS: Final[dict[str, tuple[str, ...]]] = {
    "KILL": (*CHANGING, "open"),
    "POWER": (*CHANGING, "open"),
    "ENOSPC": ("open", "write", "pwrite", "mkdir", "rename", "fsync", "fdatasync", "allocate"),
    "EDQUOT": ("open", "write", "pwrite", "mkdir", "allocate"),
    "EIO": (*CHANGING, *_LOOKING),
    "EROFS": ("open", "write", "pwrite", "rename", "unlink", "mkdir", "rmdir", "ftruncate", "allocate"),
    "EMFILE": ("open",),
    "SHORT": ("write", "pwrite"),
}


#: The faults that end the process; with ``POWER``, the journal also loses what was not synced.
KILLING: Final = ("KILL", "POWER")
#: Where these are the fault, a file that is only read can still be opened.
_WHERE_CHANGED: Final = ("ENOSPC", "EDQUOT", "EROFS", "KILL", "POWER")


class Killed(BaseException):
    """The process is gone: nothing catches it."""


class FaultyFiles(Files):
    """Files as they are; after ``arm``, the n-th call of those in ``CALLS[kind]`` fails, counted from 1; with
    ``persistent`` all from there on. ``fired`` tells whether it came to that, ``count`` how many there were.

    ``SHORT`` writes a part, and nothing of the rest when it persists.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fired = False
        self._kind = ""
        self._number = self.count = 0
        self._persistent = False

    def arm(self, kind: str, number: int, persistent: bool = False) -> None:
        """From now on, count."""
        self.heal()
        self._kind, self._number, self._persistent = kind, number, persistent
        self.count, self.fired = 0, False
        for name in CALLS[kind]:
            setattr(self, name, self._faulty(name, getattr(self, name)))

    def heal(self) -> None:
        """From now on, all calls work."""
        vars(self).update((name, call) for name, call in vars(Files()).items())

    def _faulty(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(*arguments: Any, **options: Any) -> Any:
            if name == "open" and self._kind in _WHERE_CHANGED and not _writes(arguments[1]):
                return call(*arguments, **options)
            self.count += 1
            if self.count == self._number or (self._persistent and self.count > self._number):
                self.fired = True
                return self._fail(call, *arguments, **options)
            return call(*arguments, **options)

        return faulty

    def _fail(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if self._kind in KILLING:
            raise Killed
        if self._kind != "SHORT":
            code = getattr(errno, self._kind)
            raise OSError(code, os.strerror(code))
        if self.count > self._number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fd, data, *offset = arguments
        return call(fd, data[: max(1, len(data) // 2)], *offset, **options)


class FewerCalls(FaultyFiles):
    """The process dies when ``left`` calls that change something were made."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.arm("KILL", left + 1)

    @property
    def left(self) -> int:
        """Calls that it has left."""
        return self._number - 1 - self.count


def _writes(flags: int) -> bool:
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
