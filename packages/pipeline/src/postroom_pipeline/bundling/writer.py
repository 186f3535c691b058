"""Writes a bundle so that nobody ever sees half of one."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final

from postroom_common.snapshot import PART_SUFFIX, SUFFIX, Kind
from postroom_common.snapshot_reader import check
from postroom_common.snapshot_writer import LineEncoder, sync_folder

from ..errors import EnvironmentProblem, Occupied, PipelineError
from .members import BLOCK_BYTES, MEMBER

#: How the names of bundles begin.
PREFIX: Final = "bundle-"
#: Of the one bundle that is being written; what a killed run has left is written over.
_PART: Final = f".bundle{PART_SUFFIX}"
_LOCK: Final = ".bundle.lock"
_LEVEL: Final = 6
#: Enough for the last line of a bundle of 64 MB.
_TAIL_BYTES: Final = 4 << 20


class FileChanged(PipelineError):
    """A file is not what it was when it was read before."""


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """The time in which this process alone makes bundles in a folder, which is made.

    :raises Occupied: another one does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Occupied(f"{folder}: another run makes bundles there; try again later") from None
        yield


class BundleWriter:
    """One bundle; ``finish`` gives it its name. Who has not called that leaves nothing that anybody reads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._part = folder / _PART
        with self._told():
            fd = os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)  # bodies may be in it
        self._file = os.fdopen(fd, "w+b")
        #: Ids of the snapshots that it holds, in order.
        self.members: list[str] = []

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._file.tell()

    def copy(self, source: BinaryIO, begin: int, end: int, crc: int) -> None:
        """Take packed bytes as they are.

        :raises FileChanged: they have not the checksum that they had; nothing is taken then.
        """
        place, left, seen = self._file.tell(), end - begin, 0
        source.seek(begin)
        while left and (block := source.read(min(left, BLOCK_BYTES))):
            seen = zlib.crc32(block, seen)
            with self._told():
                self._file.write(block)
            left -= len(block)
        if left or seen != crc:
            self.back_to(place)
            raise FileChanged("it was changed while it was read")

    def pack(self, packer: gzip.GzipFile | None, line: bytes) -> gzip.GzipFile:
        """Take a line of text into a member of its own: the packer's, or that of a new one, which is returned."""
        with self._told():
            packer = packer or gzip.GzipFile("", "wb", _LEVEL, self._file, mtime=0)
            packer.write(line)
        return packer

    def end(self, packer: gzip.GzipFile) -> None:
        """End the member of a packer."""
        with self._told():
            packer.close()

    def back_to(self, place: int) -> None:
        """Take back all that stands behind a place."""
        with self._told():
            self._file.seek(place)
            self._file.truncate()

    def finish(self) -> Path:
        """End it with the line that names its snapshots, durably; its path. The same snapshots have the same name."""
        self.end(self.pack(None, LineEncoder("", "").encode(Kind.BUNDLE, {"members": self.members}) + b"\n"))
        path = self._folder / f"{PREFIX}{sha256(''.join(self.members).encode()).hexdigest()[:16]}{SUFFIX}"
        with self._told():
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            sync_folder(self._folder)
            self._part.rename(path)
            sync_folder(self._folder)
        return path

    def abandon(self) -> None:
        """Leave nothing."""
        with suppress(OSError):  # what is in its buffer may not fit on the disk: it is not wanted
            self._file.close()
        self._part.unlink(missing_ok=True)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What fails here is the bundle's, not that of the file that is read."""
        try:
            yield
        except OSError as error:
            raise EnvironmentProblem(f"{self._part}: {error.strerror or error}") from error


def members_of(bundle: Path) -> list[str]:
    """Ids of the snapshots that a bundle names; of one that names none, of those that it holds."""
    with bundle.open("rb") as file:
        file.seek(max(0, bundle.stat().st_size - _TAIL_BYTES))
        tail = file.read()
        try:
            line = json.loads(zlib.decompress(tail[max(0, tail.rfind(MEMBER)) :], wbits=31))
            if line["kind"] == Kind.BUNDLE:
                return [str(member) for member in line["members"]]
        except (ValueError, KeyError, TypeError, zlib.error):  # what it ends with is something else
            pass
        file.seek(0)
        return [member.snapshot for member in check(file) if not member.reason]
