"""The folder that a device's snapshots are written to: a lock for one exporter at a time, and how far the snapshots go.

A small file for each root records how far they go. A data directory can be put back to an earlier state by hand; its
journal then gives the same ids to other events, and only their checksums show it. So the checksums are remembered as
well.

What a new snapshot will amount to is announced in that file before the snapshot has its name, and committed afterwards.
After a crash, the names in the folder show whether an announced snapshot counts.
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

from ..data.link import Refused
from .journal import Journal, JournalPosition
from .traffic import TrafficPosition

MEMORY_NAME: Final = ".postroom-export.json"
LOCK_NAME: Final = ".postroom-export.lock"
#: Version 1 had no checksums.
_FORMAT: Final = 2
_MEMORY_BYTES_LIMIT: Final = 16 * 1024 * 1024


#: Ends of earlier snapshots that are remembered. Where the journal was put back, the newest that it still has counts.
POINTS_LIMIT: Final = 64


class ExportPoint(NamedTuple):
    """The end of the events of a snapshot: the last event with its checksum in the journal, and a position in the
    traffic log. The checksum is empty where it is unknown."""

    epoch: int
    event: int
    crc: str
    traffic: TrafficPosition

    @property
    def position(self) -> JournalPosition:
        """The position behind the event."""
        return JournalPosition(self.epoch, self.event)


#: Before all events.
START: Final = ExportPoint(0, 0, "", TrafficPosition())


class ExportProgress(NamedTuple):
    """How far the snapshots of a root go, the id of the last snapshot, and the ends of earlier ones, newest first."""

    point: ExportPoint
    snapshot: str
    earlier: tuple[ExportPoint, ...] = ()

    def trusted(self, journal: Journal) -> ExportPoint:
        """The newest point up to which the journal is what was exported; ``START`` if there is none.

        The end of the last snapshot counts unless the journal contradicts it: also where the journal does not reach
        back so far, and where no checksum is known. Raises as ``Journal.find``.
        """
        available = journal.available_from()
        if self.point.event < available:
            return self.point
        found = journal.find(self.point.epoch, self.point.event)
        if found and self.point.crc in ("", found["crc"]):
            return self.point._replace(crc=found["crc"])
        for point in self.earlier:
            found = journal.find(point.epoch, point.event) if point.crc and point.event >= available else None
            if found and found["crc"] == point.crc:
                return point
        return START

    def followed(self, point: ExportPoint, snapshot: str, trusted: ExportPoint) -> ExportProgress:
        """The progress once a snapshot has continued behind a trusted point."""
        points = (trusted, *(one for one in self.earlier if one[:2] < trusted[:2]))
        earlier = [one for one in points if one.crc and one[:2] != point[:2]]
        return ExportProgress(point, snapshot, tuple(earlier[:POINTS_LIMIT]))


def to_json(last: ExportProgress) -> dict[str, Any]:
    """The progress as it is stored."""
    points = [[*point[:3], list(point.traffic)] for point in (last.point, *last.earlier)]
    return {"snapshot": last.snapshot, "points": points}


def from_json(stored: Any, version: int) -> ExportProgress:
    """The progress that ``to_json`` stored, in version 1 or 2. Raises ``ValueError``, ``KeyError`` or ``TypeError`` for
    anything else."""
    if version == 1:
        traffic = stored["traffic"]
        traffic_position = [traffic["file"], traffic["offset"], traffic["wall_ms"]]
        return ExportProgress(
            _point([stored["epoch"], stored["event"], "", traffic_position]), _checked(stored["snapshot"], str)
        )
    point, *earlier = map(_point, stored["points"])
    return ExportProgress(point, _checked(stored["snapshot"], str), tuple(earlier))


def _point(stored: Any) -> ExportPoint:
    epoch, event, crc, traffic_position = stored
    file, offset, wall_ms = (_checked(one, int) for one in traffic_position)
    return ExportPoint(
        _checked(epoch, int), _checked(event, int), _checked(crc, str), TrafficPosition(file, offset, wall_ms)
    )


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError
    return value


class _Announcement(NamedTuple):
    """What a snapshot will amount to once it has its name."""

    name: str
    root: str
    last: ExportProgress


class ExportFolder:
    """A folder for snapshots, created if it is missing and locked while the context manager is open. ``problem`` says
    why the stored progress cannot be read; it is empty otherwise.

    Raises ``Refused`` while another exporter holds the lock, and ``OSError``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        self._lock = -1
        self._roots: dict[str, ExportProgress] = {}
        self._may_be_announced = False

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True, exist_ok=True)
        lock = self._opened(LOCK_NAME, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._lock = lock
            self._recover()
        except BlockingIOError:
            os.close(lock)
            raise Refused(f"{self.path}: another export is writing into this folder; wait until it ends") from None
        except BaseException:
            os.close(lock)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._lock)

    def last(self, root: str) -> ExportProgress | None:
        """How far the snapshots of a root go; None before the first."""
        return self._roots.get(root)

    def announce(self, root: str, last: ExportProgress, name: str) -> None:
        """Store what a snapshot will amount to once it has its ``name``."""
        self._write(_Announcement(name, root, last))

    def withdraw(self) -> None:
        """Remove the announcement of a snapshot that gets no name. Call it before the part is removed, which would make
        the snapshot count."""
        if self._may_be_announced:
            self._write(None)

    def commit(self, root: str, last: ExportProgress) -> None:
        """Store the progress of a snapshot that has its name."""
        self._roots[root] = last
        self._write(None)

    def _opened(self, name: str, flags: int) -> int:
        """Open one of the exporter's own files. Raises ``Refused`` for anything that another user may have put in its
        place."""
        path = self.path / name
        try:
            fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise Refused(f"{path} is not a regular file: remove it, or use another --out") from error
            raise
        info, folder = os.fstat(fd), self.path.stat()
        text = ""
        if not stat.S_ISREG(info.st_mode):
            text = "is not a regular file"
        elif folder.st_mode & stat.S_IWOTH and info.st_uid not in (os.geteuid(), folder.st_uid):
            text = "belongs to another user, in a folder that everyone can write to"
        if text:
            os.close(fd)
            raise Refused(f"{path} {text}: remove it, or use another --out")
        return fd

    def _recover(self) -> None:
        """Finish what an exporter that was killed has left behind."""
        announced = self._read()
        if announced:
            part = self.path / f".{announced.name}{PART_SUFFIX}"
            if not part.exists():  # it got its name, and may have been taken away since
                self._roots[announced.root] = announced.last
            self._write(None)
        for pattern in (f".postroom-*{SUFFIX}{PART_SUFFIX}", f"{MEMORY_NAME}.*.new"):
            for left in self.path.glob(pattern):
                with suppress(OSError):  # not ours to remove, and in nobody's way
                    left.unlink()

    def _read(self) -> _Announcement | None:
        path = self.path / MEMORY_NAME
        try:
            with os.fdopen(self._opened(MEMORY_NAME, os.O_RDONLY), "rb") as file:
                stored = orjson.loads(file.read(_MEMORY_BYTES_LIMIT))
            version = stored["format"]
            if version not in (1, _FORMAT):
                raise Refused(f"{path} is of a newer version: upgrade postroom-console")
            self._roots = {root: from_json(last, version) for root, last in stored["roots"].items()}
            announced: Any = stored["noted"]
            return (
                _Announcement(str(announced["name"]), str(announced["root"]), from_json(announced["last"], version))
                if announced
                else None
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError):
            self._roots = {}
            self.problem = f"{path} cannot be read: continuing as if no snapshot had been made"
            return None

    def _write(self, announced: _Announcement | None) -> None:
        path = self.path / MEMORY_NAME
        new = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
        roots = {root: to_json(last) for root, last in self._roots.items()}
        note = {"name": announced.name, "root": announced.root, "last": to_json(announced.last)} if announced else None
        data = orjson.dumps({"format": _FORMAT, "roots": roots, "noted": note})
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            try:
                if os.write(fd, data) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(new))
                os.fsync(fd)
            finally:
                os.close(fd)
            self._may_be_announced |= announced is not None
            new.rename(path)
        except OSError:
            with suppress(OSError):
                new.unlink()
            raise
        sync_folder(self.path)
        self._may_be_announced = announced is not None
