"""The frames of SimpleMQ's two protocols over TCP. All integers are big-endian.

The older one: ``u8 type (1: bytes) | u16 length | topic in UTF-8 | i32 length | body``, answered by one byte, 1 or 0.
The newer one: ``4 characters type | i32 length | body`` in both directions.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

_BINARY: Final = 1
_U16: Final = struct.Struct(">H")
_I32: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">4si")
#: Types of the newer protocol: the handshake, and messages with their answers.
HANDSHAKE: Final = b"HATM"
BUSINESS: Final = b"BATM"
#: Answers of the older protocol.
DONE: Final = b"\1"
FAILED: Final = b"\0"


class Frame(NamedTuple):
    """A complete frame: its type (of the newer protocol), or its topic (of the older one), and its body."""

    kind: bytes
    topic: str
    body: bytes
    size: int


class FrameReader:
    """Cuts what arrives into frames, of the protocol that the first byte shows. Bodies have at most ``most`` bytes:
    what announces more is refused, and nothing is reserved for it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._data = bytearray()
        #: Whether the older protocol is spoken; None: nothing has come yet.
        self.is_old: bool | None = None

    @property
    def buffered_bytes(self) -> int:
        """Bytes that have arrived and are no frame yet."""
        return len(self._data)

    def feed(self, data: bytes) -> None:
        """Take what has arrived."""
        self._data += data
        if self.is_old is None and self._data:
            self.is_old = self._data[0] == _BINARY

    def next(self) -> Frame | None:
        """The next frame; None if it is not complete. Raises ``ValueError`` if it is none."""
        return self._next_old() if self.is_old else self._next_new()

    def _next_old(self) -> Frame | None:
        data = self._data
        if data and data[0] != _BINARY:
            raise ValueError(f"frames of type {data[0]} are not spoken")
        if len(data) < 1 + _U16.size:
            return None
        start = 1 + _U16.size + _U16.unpack_from(data, 1)[0]
        if len(data) < start + _I32.size:
            return None
        topic = decode_utf(bytes(data[1 + _U16.size : start]))
        return self._cut(b"", topic, start + _I32.size, _I32.unpack_from(data, start)[0])

    def _next_new(self) -> Frame | None:
        data = self._data
        if len(data) < _HEAD.size:
            if not HANDSHAKE.startswith(data[:4]) and not BUSINESS.startswith(data[:4]):
                raise ValueError("it does not begin with HATM or BATM")
            return None
        kind, size = _HEAD.unpack_from(data)
        if kind not in (HANDSHAKE, BUSINESS):
            raise ValueError("it does not begin with HATM or BATM")
        return self._cut(kind, "", _HEAD.size, size)

    def _cut(self, kind: bytes, topic: str, start: int, size: int) -> Frame | None:
        if not 0 <= size <= self._most:
            raise ValueError(f"a body of {size} bytes is announced; the limit is {self._most}")
        end = start + size
        if len(self._data) < end:
            return None
        frame = Frame(kind, topic, bytes(self._data[start:end]), end)
        del self._data[:end]
        return frame


def encode_business(body: bytes) -> bytes:
    """A message, or an answer, of the newer protocol."""
    return _HEAD.pack(BUSINESS, len(body)) + body


def decode_utf(data: bytes) -> str:
    """A text as Java's ``writeUTF`` writes it: NUL has two bytes, and characters beyond U+FFFF are two surrogates of
    three bytes each. Raises ``ValueError``."""
    text = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
