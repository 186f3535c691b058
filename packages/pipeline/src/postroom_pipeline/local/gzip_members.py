"""Splits a gzip file into its members: which bytes contain which snapshots."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from postroom_common.snapshot_reader import Member, check

BLOCK_BYTES: Final = 65_536
_GZIP: Final = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class CheckedSnapshot:
    """A snapshot after it was read. ``reason`` is empty if it is complete and intact."""

    device: str
    snapshot: str
    digest: str
    reason: str
    detail: str

    @classmethod
    def of(cls, member: Member) -> CheckedSnapshot:
        """What of a member is needed while its file is read."""
        reason = member.reason.value if member.reason else ""
        return cls(member.device, member.snapshot, str(member.trailer.get("digest", "")), reason, member.detail)


@dataclass(frozen=True)
class GzipMember:
    """One member of a gzip file: the bytes from ``begin`` to ``end``, and the snapshots in them."""

    begin: int
    #: None if the member is damaged: then the start of the next one is unknown.
    end: int | None
    #: CRC-32 of the packed bytes.
    crc: int
    snapshots: tuple[CheckedSnapshot, ...]

    @property
    def is_clean(self) -> bool:
        """Whether it contains only complete snapshots."""
        return self.end is not None and not any(one.reason for one in self.snapshots)


def gzip_members(file: BinaryIO) -> Iterator[GzipMember]:
    """The members of a gzip file in order, each checked separately; at least one.

    Memory use does not grow with the file. The caller may move the file's position between two members.

    :raises OSError: the file cannot be read.
    """
    begin, any_member = 0, False
    while (begin := _behind_zeros(file, begin)) >= 0:
        member = _MemberReader(file, begin)
        lines = io.BufferedReader(member, BLOCK_BYTES)
        snapshots = tuple(CheckedSnapshot.of(checked) for checked in _checked(lines))
        if member.end is None or member.has_text:
            any_member = True
            yield GzipMember(begin, member.end, member.crc, snapshots)
        if member.end is None:
            return
        begin = member.end
    if not any_member:
        yield GzipMember(0, None, 0, tuple(CheckedSnapshot.of(checked) for checked in _checked(io.BytesIO())))


def _checked(lines: BinaryIO | io.BufferedReader) -> Iterable[Member]:
    return check(lines, compressed=False)


def _behind_zeros(file: BinaryIO, begin: int) -> int:
    """Where the next member begins; -1 at the end of the file. Tapes and some file systems pad with zeros."""
    file.seek(begin)
    while block := file.read(BLOCK_BYTES):
        if rest := block.lstrip(b"\0"):
            return begin + len(block) - len(rest)
        begin += len(block)
    return -1


class _MemberReader(io.RawIOBase):
    """The text of checked member. Raises the errors of ``gzip``."""

    def __init__(self, file: BinaryIO, begin: int) -> None:
        self._file = file
        self._inflate = zlib.decompressobj(wbits=31)
        self._packed = b""
        self._at = begin
        #: Where it ends; None until it was read to the end.
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
                raise EOFError("the file ends within a member")
            if not self._inflate.unconsumed_tail and self.crc == 0 and not packed.startswith(_GZIP):
                raise gzip.BadGzipFile(f"not a gzip member at byte {self._at}")
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
