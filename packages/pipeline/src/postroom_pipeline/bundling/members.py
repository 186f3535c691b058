"""Takes a gzip file apart: which bytes of it hold which snapshots."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from postroom_common.snapshot_reader import Member, check

BLOCK_BYTES: Final = 65_536
#: How each member begins that the product has written: gzip, no name, no time, level 6, no system.
MEMBER: Final = bytes.fromhex("1f8b08000000000000ff")
_GZIP: Final = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of a snapshot after it was read; ``reason`` is empty for a whole one."""

    device: str
    snapshot: str
    digest: str
    reason: str
    detail: str

    @classmethod
    def of(cls, member: Member) -> Told:
        """The little of it that is kept while a file is read."""
        reason = member.reason.value if member.reason else ""
        return cls(member.device, member.snapshot, str(member.trailer.get("digest", "")), reason, member.detail)


@dataclass(frozen=True)
class Stretch:
    """One member of a gzip file: the bytes from ``begin`` to ``end`` and what they hold."""

    begin: int
    #: None where it is damaged: nobody knows then where the next one begins.
    end: int | None
    #: Of the packed bytes.
    crc: int
    snapshots: tuple[Told, ...]

    @property
    def is_clean(self) -> bool:
        """Whether it holds whole snapshots and nothing of others."""
        return self.end is not None and not any(told.reason for told in self.snapshots)


def stretches(file: BinaryIO) -> Iterator[Stretch]:
    """The members of a gzip file in order, each judged by itself; at least one.

    Memory does not grow with the file. The file may be moved in between. Raises ``OSError``.
    """
    begin, found = 0, False
    while (begin := _behind_zeros(file, begin)) >= 0:
        member = _GzipMember(file, begin)
        lines = io.BufferedReader(member, BLOCK_BYTES)
        told = tuple(Told.of(one) for one in _judged(lines))
        if member.end is None or member.has_text:
            found = True
            yield Stretch(begin, member.end, member.crc, told)
        if member.end is None:
            return
        begin = member.end
    if not found:
        yield Stretch(0, None, 0, tuple(Told.of(one) for one in _judged(io.BytesIO())))


def _judged(lines: BinaryIO | io.BufferedReader) -> Iterable[Member]:
    return check(lines, compressed=False)


def _behind_zeros(file: BinaryIO, begin: int) -> int:
    """Where the next member begins: tapes and some file systems fill up with zeros. -1 at the end of the file."""
    file.seek(begin)
    while block := file.read(BLOCK_BYTES):
        if rest := block.lstrip(b"\0"):
            return begin + len(block) - len(rest)
        begin += len(block)
    return -1


class _GzipMember(io.RawIOBase):
    """The text of one member. Its faults are raised as those of ``gzip``."""

    def __init__(self, file: BinaryIO, begin: int) -> None:
        self._file = file
        self._inflate = zlib.decompressobj(wbits=31)
        self._packed = b""
        self._at = begin
        #: Where it ends, known when it was read to its end.
        self.end: int | None = None
        self.crc = 0
        self.has_text = False
        file.seek(begin)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # of the io module
        while self.end is None:
            packed = self._packed or self._file.read(BLOCK_BYTES)
            if not packed:
                raise EOFError("the file ends in the middle of it")
            if not self._inflate.unconsumed_tail and self.crc == 0 and not packed.startswith(_GZIP):
                raise gzip.BadGzipFile(f"no gzip at byte {self._at}")
            text = self._inflate.decompress(packed, len(buffer))
            self._packed = self._inflate.unconsumed_tail
            taken = len(packed) - len(self._packed) - len(self._inflate.unused_data)
            self.crc = zlib.crc32(packed[:taken], self.crc)
            self._at += taken
            if self._inflate.eof:
                self.end = self._at
            if text:
                self.has_text = True
                buffer[: len(text)] = text
                return len(text)
        return 0
