"""The folder into which a device's snapshots go: one exporter at a time, and what is remembered there.

A small file says up to where the snapshots of each root went. What a new snapshot will come to is noted there before
the snapshot has its name, and made good behind that: so who finds a note after a crash sees by the names in the folder
whether the snapshot counts.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import orjson

from postroom_common.snapshot import PART_SUFFIX, SUFFIX
from postroom_common.snapshot_writer import sync_folder

from ..plain import Refused
from .memory import Last, from_json, to_json

MEMORY_NAME: Final = ".postroom-export.json"
LOCK_NAME: Final = ".postroom-export.lock"
#: The first one had no checksums.
_FORMAT: Final = 2
_MEMORY_BYTES_LIMIT: Final = 16 * 1024 * 1024


class _Note(NamedTuple):
    """What will count once a snapshot has its name."""

    name: str
    root: str
    last: Last


class Folder:
    """A folder, locked while this is open as a context manager; it is made where it is missing. ``problem`` tells of a
    memory that cannot be read.

    Raises ``Refused`` where another exporter has it, and ``OSError``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        self._lock = -1
        self._roots: dict[str, Last] = {}
        self._may_be_noted = False

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True, exist_ok=True)
        lock = self._opened(LOCK_NAME, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._lock = lock
            self._settle()
        except BlockingIOError:
            os.close(lock)
            raise Refused(f"{self.path}: another export writes into this folder; wait for its end") from None
        except BaseException:
            os.close(lock)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._lock)

    def last(self, root: str) -> Last | None:
        """Up to where the snapshots of a root went; None before the first."""
        return self._roots.get(root)

    def note(self, root: str, last: Last, name: str) -> None:
        """Keep in mind what will count once a snapshot has its ``name``."""
        self._write(_Note(name, root, last))

    def forget(self) -> None:
        """The snapshot that was noted gets no name after all. Before its part is removed: else it would count."""
        if self._may_be_noted:
            self._write(None)

    def keep(self, root: str, last: Last) -> None:
        """The snapshot has its name."""
        self._roots[root] = last
        self._write(None)

    def _opened(self, name: str, flags: int) -> int:
        """A file of ours in the folder. Raises ``Refused`` for what anybody could have put there instead."""
        path = self.path / name
        try:
            fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise Refused(f"{path} is no file: remove it, or use another --out") from error
            raise
        told, folder = os.fstat(fd), self.path.stat()
        text = ""
        if not stat.S_ISREG(told.st_mode):
            text = "is no file"
        elif folder.st_mode & stat.S_IWOTH and told.st_uid not in (os.geteuid(), folder.st_uid):
            text = "is that of another user, in a folder into which everybody may write"
        if text:
            os.close(fd)
            raise Refused(f"{path} {text}: remove it, or use another --out")
        return fd

    def _settle(self) -> None:
        """Finish what another exporter has left behind when it was killed."""
        noted = self._read()
        if noted:
            part = self.path / f".{noted.name}{PART_SUFFIX}"
            if not part.exists():  # it got its name: whoever has taken it away since has it
                self._roots[noted.root] = noted.last
            self._write(None)
        for pattern in (f".postroom-*{SUFFIX}{PART_SUFFIX}", f"{MEMORY_NAME}.*.new"):
            for left in self.path.glob(pattern):
                with suppress(OSError):  # what somebody else has put there is not ours to remove, and in nobody's way
                    left.unlink()

    def _read(self) -> _Note | None:
        path = self.path / MEMORY_NAME
        try:
            with os.fdopen(self._opened(MEMORY_NAME, os.O_RDONLY), "rb") as file:
                told = orjson.loads(file.read(_MEMORY_BYTES_LIMIT))
            version = told["format"]
            if version not in (1, _FORMAT):
                raise Refused(f"{path} is of a newer version: upgrade postroom-console")
            self._roots = {root: from_json(last, version) for root, last in told["roots"].items()}
            noted: Any = told["noted"]
            return _Note(str(noted["name"]), str(noted["root"]), from_json(noted["last"], version)) if noted else None
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError):
            self._roots = {}
            self.problem = f"{path} cannot be read: it is as if no snapshot had been made"
            return None

    def _write(self, noted: _Note | None) -> None:
        path = self.path / MEMORY_NAME
        new = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
        roots = {root: to_json(last) for root, last in self._roots.items()}
        note = {"name": noted.name, "root": noted.root, "last": to_json(noted.last)} if noted else None
        data = orjson.dumps({"format": _FORMAT, "roots": roots, "noted": note})
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            try:
                if os.write(fd, data) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(new))
                os.fsync(fd)
            finally:
                os.close(fd)
            self._may_be_noted |= noted is not None
            new.rename(path)
        except OSError:
            with suppress(OSError):
                new.unlink()
            raise
        sync_folder(self.path)
        self._may_be_noted = noted is not None
