"""Frames of the lane: a header, which is a JSON object, and a body. See ``docs/lane.md``."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from .errors import PostroomError

_LENGTHS: Final = struct.Struct("<II")
#: Bytes in front of a frame's header.
PREFIX_BYTES: Final = _LENGTHS.size


class FrameTooLarge(PostroomError):
    """A frame is announced that is larger than the limit; what follows it cannot be read."""


class Frame(NamedTuple):
    """The bytes of one frame."""

    header: bytes
    body: bytes

    @property
    def size(self) -> int:
        """Bytes of header and body."""
        return len(self.header) + len(self.body)

    @property
    def size_on_wire(self) -> int:
        """Bytes of the frame."""
        return PREFIX_BYTES + self.size


def encode_frame(header: bytes, body: bytes = b"") -> bytes:
    """The bytes of a frame."""
    return b"%b%b%b" % (_LENGTHS.pack(len(header), len(body)), header, body)


class FrameReader:
    """Cuts what arrives into frames. Keeps no more than has arrived."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._buffer: bytes | bytearray = b""
        self._start = 0

    @property
    def held_bytes(self) -> int:
        """Bytes that have arrived and were not returned by ``next``."""
        return len(self._buffer) - self._start

    def feed(self, data: bytes) -> None:
        """Add what has arrived."""
        buffer, start = self._buffer, self._start
        self._start = 0
        if start == len(buffer):
            self._buffer = data
            return
        if type(buffer) is not bytearray:
            buffer = self._buffer = bytearray(buffer)
        if start:
            del buffer[:start]
        buffer += data

    def missing_bytes(self) -> int:
        """How many bytes the next frame lacks at least; 0 if it is complete. Raises ``FrameTooLarge``."""
        held = self.held_bytes
        if held < PREFIX_BYTES:
            return PREFIX_BYTES - held
        header, body = _LENGTHS.unpack_from(self._buffer, self._start)
        if header + body > self.limit_bytes:
            raise FrameTooLarge(f"a frame of {header + body} bytes is announced; the limit is {self.limit_bytes}")
        return max(0, int(PREFIX_BYTES + header + body - held))

    def peek(self) -> bytes | None:
        """The header of the next frame; None if the frame is incomplete. Raises ``FrameTooLarge``."""
        if self.missing_bytes():
            return None
        start = self._start + PREFIX_BYTES
        header_bytes, _ = _LENGTHS.unpack_from(self._buffer, self._start)
        return bytes(self._buffer[start : start + header_bytes])

    def next(self) -> Frame | None:
        """The next frame; None if it is incomplete. Raises ``FrameTooLarge``."""
        buffer, start = self._buffer, self._start + PREFIX_BYTES
        if len(buffer) < start:
            return None
        header_bytes, body_bytes = _LENGTHS.unpack_from(buffer, self._start)
        middle = start + header_bytes
        end = middle + body_bytes
        if end - start > self.limit_bytes or end > len(buffer):
            self.missing_bytes()
            return None
        self._start = end
        frame = Frame(bytes(buffer[start:middle]), bytes(buffer[middle:end]))
        if end == len(buffer):
            self._buffer = b""
            self._start = 0
        return frame
