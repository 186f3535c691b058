"""The folder into which a device's snapshots go: one exporter at a time, and what is remembered there.

A small file says up to where the snapshots of each root went. What a new snapshot will come to is noted there before
the snapshot has its name, and made good behind that: so who finds a note after a crash sees by the names in the folder
whether the snapshot counts.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import orjson

from postroom_common.snapshot import PART_SUFFIX, SUFFIX
from postroom_common.snapshot_writer import sync_folder

from ..plain import Refused
from .traffic import Mark

MEMORY_NAME: Final = ".postroom-export.json"
LOCK_NAME: Final = ".postroom-export.lock"
_FORMAT: Final = 1


class Last(NamedTuple):
    """Up to where the snapshots of a root went: an event of an epoch, and a place in the traffic log."""

    epoch: int
    event: int
    snapshot: str
    traffic: Mark


class Folder:
    """A folder, locked while this is open as a context manager; it is made where it is missing. ``problem`` tells of a
    memory that cannot be read.

    Raises ``Refused`` where another exporter has it, and ``OSError``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        self._lock = -1
        self._roots: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
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
        told = self._roots.get(root)
        return Last(told["epoch"], told["event"], told["snapshot"], Mark(**told["traffic"])) if told else None

    def note(self, root: str, last: Last, name: str) -> None:
        """Keep in mind what will count once a snapshot has its ``name``."""
        self._write({"name": name, "root": root, "last": _to_json(last)})

    def forget(self) -> None:
        """The snapshot that was noted gets no name after all. Before its part is removed: else it would count."""
        self._write(None)

    def keep(self, root: str, last: Last) -> None:
        """The snapshot has its name."""
        self._roots[root] = _to_json(last)
        self._write(None)

    def _settle(self) -> None:
        """Finish what another exporter has left behind when it was killed."""
        noted = self._read()
        if noted:
            part = self.path / f".{noted['name']}{PART_SUFFIX}"
            if not part.exists():  # it got its name: whoever has taken it away since has it
                self._roots[noted["root"]] = noted["last"]
            self._write(None)
        for part in self.path.glob(f".postroom-*{SUFFIX}{PART_SUFFIX}"):
            part.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any] | None:
        path = self.path / MEMORY_NAME
        try:
            told = orjson.loads(path.read_bytes())
            if told["format"] != _FORMAT:
                raise Refused(f"{path} is of a newer version: upgrade postroom-console")
            self._roots = told["roots"]
            for root in self._roots:
                self.last(root)
            noted: dict[str, Any] | None = told["noted"]
            return noted
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            self._roots = {}
            self.problem = f"{path} cannot be read: it is as if no snapshot had been made"
            return None

    def _write(self, noted: dict[str, Any] | None) -> None:
        path = self.path / MEMORY_NAME
        new = path.with_name(path.name + ".new")
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            data = orjson.dumps({"format": _FORMAT, "roots": self._roots, "noted": noted})
            if os.write(fd, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(new))
            os.fsync(fd)
        finally:
            os.close(fd)
        new.rename(path)
        sync_folder(self.path)


def _to_json(last: Last) -> dict[str, Any]:
    return {"epoch": last.epoch, "event": last.event, "snapshot": last.snapshot, "traffic": last.traffic._asdict()}
