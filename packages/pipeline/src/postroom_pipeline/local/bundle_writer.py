"""Writes a bundle so that no reader ever sees an incomplete one."""

from __future__ import annotations

import fcntl
import gzip
import io
import json
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final

from postroom_common.snapshot import PART_SUFFIX, SUFFIX, Kind
from postroom_common.snapshot_reader import check
from postroom_common.snapshot_writer import LineEncoder, sync_folder

from ..errors import EnvironmentProblem, Occupied, PipelineError
from ..files import GZIP_MEMBER
from .gzip_members import BLOCK_BYTES

#: How the names of bundles begin.
PREFIX: Final = "bundle-"
#: The bundle that is being written; one left by a killed run is overwritten.
_PART: Final = f".bundle{PART_SUFFIX}"
_LOCK: Final = ".bundle.lock"
_LEVEL: Final = 6
#: Enough for the last line of a bundle of 64 MB.
_TAIL_BYTES: Final = 4 << 20


class FileChanged(PipelineError):
    """A file was changed between two reads."""


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Let only this process make bundles in a folder during the block. The folder is made if it does not exist.

    :raises Occupied: another process makes bundles there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Occupied(f"{folder}: another run makes bundles there; try again later") from None
        yield


class BundleWriter:
    """One bundle. Only ``finish`` gives it its name; before that no reader looks at it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._part = folder / _PART
        with self._own_errors():
            fd = os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)  # it may contain bodies
        self._file = os.fdopen(fd, "w+b")
        #: Ids of the snapshots in it, in order.
        self.members: list[str] = []

    @property
    def size(self) -> int:
        """Its length so far, in bytes."""
        return self._file.tell()

    def copy(self, source: BinaryIO, begin: int, end: int, crc: int) -> None:
        """Append packed bytes of another file as they are.

        :param crc: their CRC-32.
        :raises FileChanged: the checksum differs; nothing is appended then.
        """
        place, left, seen = self._file.tell(), end - begin, 0
        source.seek(begin)
        while left and (block := source.read(min(left, BLOCK_BYTES))):
            seen = zlib.crc32(block, seen)
            with self._own_errors():
                self._file.write(block)
            left -= len(block)
        if left or seen != crc:
            self.truncate_to(place)
            raise FileChanged("it was changed while it was read")

    def pack(self, packer: gzip.GzipFile | None, line: bytes) -> gzip.GzipFile:
        """Append a line of text to the member of a packer, or to a new member; returns the packer."""
        with self._own_errors():
            packer = packer or gzip.GzipFile("", "wb", _LEVEL, self._file, mtime=0)
            packer.write(line)
        return packer

    def end(self, packer: gzip.GzipFile) -> None:
        """End the member of a packer."""
        with self._own_errors():
            packer.close()

    def truncate_to(self, place: int) -> None:
        """Remove everything behind a position."""
        with self._own_errors():
            self._file.seek(place)
            self._file.truncate()

    def finish(self) -> Path:
        """Append the line that lists the snapshots, and make the bundle durable; its path.

        Equal lists of snapshots give equal names.
        """
        self.end(self.pack(None, LineEncoder("", "").encode(Kind.BUNDLE, {"members": self.members}) + b"\n"))
        path = self._folder / f"{PREFIX}{sha256(''.join(self.members).encode()).hexdigest()[:16]}{SUFFIX}"
        with self._own_errors():
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            sync_folder(self._folder)
            self._part.rename(path)
            sync_folder(self._folder)
        return path

    def abandon(self) -> None:
        """Delete what was written."""
        with suppress(OSError):  # the disk may be full; the buffer is not needed
            self._file.close()
        self._part.unlink(missing_ok=True)

    @contextmanager
    def _own_errors(self) -> Iterator[None]:
        """Raise errors of the bundle as such, so that they are not taken for errors of the file that is read."""
        try:
            yield
        except OSError as error:
            raise EnvironmentProblem(f"{self._part}: {error.strerror or error}") from error


def members_of(bundle: Path) -> list[str]:
    """The ids of the snapshots that a bundle lists; if it has no list, of those that it contains."""
    with bundle.open("rb") as file:
        file.seek(max(0, bundle.stat().st_size - _TAIL_BYTES))
        tail = file.read()
        try:
            line = json.loads(zlib.decompress(tail[max(0, tail.rfind(GZIP_MEMBER)) :], wbits=31))
            if line["kind"] == Kind.BUNDLE:
                return [str(member) for member in line["members"]]
        except (ValueError, KeyError, TypeError, zlib.error):  # it does not end with a list
            pass
        file.seek(0)
        return [member.snapshot for member in check(file) if not member.reason]


class FileSlice(io.RawIOBase):
    """The bytes of a file from one position to another, or to the end."""

    def __init__(self, file: BinaryIO, begin: int, end: int | None) -> None:
        self._file = file
        self._left = end - begin if end is not None else None
        file.seek(begin)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # of the io module
        wanted = len(buffer) if self._left is None else min(len(buffer), self._left)
        data = self._file.read(wanted)
        buffer[: len(data)] = data
        if self._left is not None:
            self._left -= len(data)
        return len(data)


class Recompressor(io.RawIOBase):
    """Lines that are packed into a bundle while ``check`` reads them. After each result call ``keep`` or ``drop``.

    Blank lines, and lines that describe a bundle, are left out.
    """

    def __init__(self, lines: BinaryIO | gzip.GzipFile, target: Callable[[], BundleWriter]) -> None:
        self._lines = lines
        self._target = target
        self._packer: gzip.GzipFile | None = None
        self._place = 0
        self._last = b""

    def readline(self, limit: int | None = -1, /) -> bytes:
        self._last = self._lines.readline(-1 if limit is None else limit)
        if self._last.rstrip(b"\n") and _kind(self._last, Kind.BUNDLE) != Kind.BUNDLE:
            self._put(self._last)
        return self._last

    def keep(self) -> None:
        """The lines since the last result are a complete snapshot."""
        if self._packer is not None:
            self._target().end(self._packer)
            self._packer = None

    def drop(self) -> None:
        """The lines since the last result are not wanted. If the last is the header of the next snapshot, it stays."""
        self._forget()
        if _kind(self._last, Kind.HEADER) == Kind.HEADER:
            self._put(self._last)

    def close(self) -> None:
        if not self.closed:
            self._forget()
        super().close()

    def _put(self, line: bytes) -> None:
        if self._packer is None:
            self._place = self._target().size
        self._packer = self._target().pack(self._packer, line)

    def _forget(self) -> None:
        if self._packer is not None:
            self._target().end(self._packer)
            self._target().truncate_to(self._place)
            self._packer = None


def _kind(line: bytes, wanted: Kind) -> object:
    """The kind of a line, if it may be the wanted one."""
    if b'"%s"' % wanted.encode() not in line:
        return None
    try:
        return json.loads(line).get("kind")
    except (ValueError, AttributeError, RecursionError):
        return None
