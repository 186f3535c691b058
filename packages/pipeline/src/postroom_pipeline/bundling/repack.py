"""Packs snapshots anew, where the bytes of one cannot be told from those of its neighbours."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from typing import BinaryIO

from postroom_common.snapshot import Kind

from .writer import BundleWriter


class Part(io.RawIOBase):
    """The bytes of a file from one place to another one, or to its end."""

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


class Copied(io.RawIOBase):
    """Lines that are packed while ``check`` reads them: when it has judged a snapshot, ``keep`` or ``drop`` it.

    Blank lines and those that tell of a bundle are left out.
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
        """What was read since the last judgement is a whole snapshot."""
        if self._packer is not None:
            self._target().end(self._packer)
            self._packer = None

    def drop(self) -> None:
        """What was read since is not wanted; that may have been seen only by the next one's header."""
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
            self._target().back_to(self._place)
            self._packer = None


def _kind(line: bytes, wanted: Kind) -> object:
    """The kind of a line that may be of the wanted one."""
    if b'"%s"' % wanted.encode() not in line:
        return None
    try:
        return json.loads(line).get("kind")
    except (ValueError, AttributeError, RecursionError):
        return None
