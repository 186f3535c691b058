"""MessagePack as LMQ speaks it: answers in the old specification (raw instead of str and bin), requests in both.

A *frame* is one encoded object. Frames are cut out of a stream without building objects, and bodies stay encoded: a
request costs little more memory than its bytes.
"""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from msgpack import OutOfData, Packer, Unpacker, unpackb
from msgpack.exceptions import BufferFull, UnpackException

#: How much is fed at a time, at most.
CHUNK_BYTES: Final = 1 << 16
#: Largest argument that becomes objects; bodies never do.
ARGUMENT_BYTES: Final = 1 << 18
#: Arguments of a request that are read; no method has so many.
_ARGUMENTS: Final = 8
#: Larger objects are converted beside the event loop, one at a time: this takes up to 2 µs for each of their elements.
_AT_ONCE_BYTES: Final = 1 << 14

#: First bytes of what the old specification does not have: bin, ext, str 8.
_NEW: Final = re.compile(rb"[\xc4-\xc9\xd4-\xd9]")
#: Objects that are encoded alike in both specifications, as many as follow one another. It never backtracks.
_ALIKE: Final = re.compile(
    rb"(?:[\x00-\x9f\xc0\xc2\xc3\xe0-\xff]|[\xcc\xd0].|[\xcd\xd1\xdc\xde]..|[\xca\xce\xd2\xdd\xdf].{4}|[\xcb\xcf\xd3].{8}|"
    + b"|".join(b"\\x%02x.{%d}" % (0xA0 + size, size) for size in range(32))
    + b")++",
    re.DOTALL,
)
#: By first byte: how many bytes have the length of a bin, str or raw.
_LENGTHS: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_RAW: Final = b"\xa0\xda\xdb"
ARRAY: Final = b"\x90\xdc\xdd"
MAP: Final = b"\x80\xde\xdf"
NIL: Final = b"\xc0"


class NotMsgpack(ValueError):
    """The bytes are not what LMQ reads: no MessagePack, an extension type, or no request."""


class FrameTooLarge(ValueError):
    """A frame is larger than the limit; what follows it cannot be read."""


class Frames:
    """Cuts what arrives into frames. Keeps no more than has arrived."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._renew()

    def _renew(self) -> None:
        self._scanner = Unpacker(read_size=CHUNK_BYTES, max_buffer_size=self._limit_bytes + CHUNK_BYTES)
        self._buffer = bytearray()
        self._start = 0  # of the next frame in the buffer
        self._origin = 0  # of the buffer in what the scanner was fed

    @property
    def pending_bytes(self) -> int:
        """Bytes that have arrived and were not returned by ``next``."""
        return len(self._buffer) - self._start

    def feed(self, data: bytes) -> None:
        """Add what has arrived: ``CHUNK_BYTES`` at most, and only when ``next`` has returned None.

        Raises ``FrameTooLarge``.
        """
        if self._start:
            del self._buffer[: self._start]
            self._origin += self._start
            self._start = 0
        self._buffer += data
        try:
            self._scanner.feed(data)
        except BufferFull:
            raise self._too_large() from None

    def next(self) -> bytes | None:
        """The next frame; None if it is incomplete. Raises ``NotMsgpack`` and ``FrameTooLarge``."""
        try:
            self._scanner.skip()
        except OutOfData:
            if self.pending_bytes > self._limit_bytes:
                raise self._too_large() from None
            return None
        except (UnpackException, ValueError) as error:
            raise NotMsgpack(f"not MessagePack: {type(error).__name__}") from None
        end = self._scanner.tell() - self._origin
        frame = bytes(self._buffer[self._start : end])
        self._start = end
        if len(frame) > CHUNK_BYTES and not self.pending_bytes:
            self._renew()  # the scanner's buffer never shrinks
        return frame

    def _too_large(self) -> FrameTooLarge:
        return FrameTooLarge(f"a request has more than {self._limit_bytes} bytes")


class Request(NamedTuple):
    """A request or, without a number, a notification. Arguments are frames."""

    number: int | None
    method: bytes
    arguments: tuple[bytes, ...]


def read_request(frame: bytes) -> Request:
    """The request of a frame; of its arguments ``_ARGUMENTS`` at most. Raises ``NotMsgpack`` if it is none: then the
    peer does not speak MessagePack-RPC."""
    scanner = Unpacker(max_buffer_size=max(1, len(frame)))
    scanner.feed(frame)
    try:
        size = scanner.read_array_header()
        kind = _next_integer(scanner, frame) if size in (3, 4) else None
        if (kind, size) not in ((0, 4), (2, 3)):
            raise NotMsgpack("neither a request nor a notification")
        number = _next_integer(scanner, frame) if kind == 0 else None
        method = read_bytes(_next(scanner, frame))
        if method is None:
            raise NotMsgpack("the name of a method must be a string")
        count = min(scanner.read_array_header(), _ARGUMENTS)
        return Request(number, method, tuple(_next(scanner, frame) for _ in range(count)))
    except NotMsgpack:
        raise
    except (UnpackException, ValueError):
        raise NotMsgpack("no request") from None


def _next(scanner: Unpacker, frame: bytes) -> bytes:
    """The next object of a frame, encoded as it is."""
    start = scanner.tell()
    scanner.skip()
    return frame[start : scanner.tell()]


def _next_integer(scanner: Unpacker, frame: bytes) -> int:
    """The next object of a frame, an integer. Raises ``NotMsgpack`` if it is none."""
    first = frame[scanner.tell()]
    if 0x80 <= first < 0xCC or 0xD3 < first < 0xE0:
        raise NotMsgpack("a request has no number")
    return int(scanner.unpack())


def is_one_object(data: bytes) -> bool:
    """Whether the bytes are exactly one object, and that no deeper than MessagePack libraries read."""
    scanner = Unpacker(max_buffer_size=max(1, len(data)))
    scanner.feed(data)
    try:
        scanner.skip()
    except (UnpackException, ValueError):
        return False
    return int(scanner.tell()) == len(data)


def to_old(frame: bytes) -> bytes:
    """An object in the old specification: str and bin become raw, all else stays byte for byte.

    Raises ``NotMsgpack`` for an extension type.
    """
    if not _NEW.search(frame):
        return frame
    old = bytearray()
    position = 0
    while position < len(frame):
        first = frame[position]
        if (first == 0xD9 or first == 0xC4) and frame[position + 1] < 32:  # many of these are the slowest of objects
            start = position + 2
            position = start + frame[position + 1]
            old.append(0xA0 + position - start)
            old += frame[start:position]
        elif width := _LENGTHS.get(first):
            start = position + 1 + width
            size = int.from_bytes(frame[position + 1 : start], "big")
            position = start + size
            old += pack_header(_RAW, size)
            old += frame[start:position]
        elif alike := _ALIKE.match(frame, position):
            old += alike[0]
            position = alike.end()
        else:
            raise NotMsgpack("an extension type")
    return bytes(old)


async def to_old_beside(frame: bytes) -> bytes:
    """As ``to_old``, but other requests go on while a large object is converted."""
    if len(frame) <= _AT_ONCE_BYTES or not _NEW.search(frame):
        return to_old(frame)
    return await asyncio.get_running_loop().run_in_executor(_BESIDE, to_old, frame)


def read_bytes(frame: bytes) -> bytes | None:
    """The bytes of a raw, str or bin; None if it is anything else."""
    first = frame[0]
    if 0xA0 <= first < 0xC0:
        return frame[1:]
    width = _LENGTHS.get(first)
    return None if width is None else frame[1 + width :]


def unpack(frame: bytes) -> Any:
    """An argument as an object, in which raw, str and bin are str, or bytes if they are not UTF-8.

    Raises ``NotMsgpack`` for an extension type, for keys of maps that are no strings (numbers can be chosen so that a
    map of them takes seconds), and beyond ``ARGUMENT_BYTES``.
    """
    if len(frame) > ARGUMENT_BYTES:
        raise NotMsgpack(f"an argument has more than {ARGUMENT_BYTES} bytes")
    try:
        return _with_text(unpackb(frame, raw=True, ext_hook=_refuse_extension))
    except (UnpackException, ValueError, TypeError, RecursionError) as error:
        raise NotMsgpack(f"an argument cannot be read: {error}") from None


def _refuse_extension(code: int, data: bytes) -> Any:
    raise NotMsgpack("an extension type")


def _with_text(value: Any) -> Any:
    if type(value) is bytes:
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if type(value) is list:
        return [_with_text(item) for item in value]
    if type(value) is dict:
        return {_with_text(key): _with_text(item) for key, item in value.items()}
    return value


def pack(value: Any) -> bytes:
    """An object in the old specification; bytes and str become raw."""
    return bytes(_PACKER.pack(value))


def pack_header(firsts: bytes, size: int) -> bytes:
    """The first bytes of a raw, an array or a map of a size. ``firsts`` has the first byte of its shortest, 16 bit and
    32 bit form."""
    if size < (32 if firsts is _RAW else 16):
        return b"%c" % (firsts[0] + size)
    if size < 1 << 16:
        return b"%c%b" % (firsts[1], size.to_bytes(2, "big"))
    return b"%c%b" % (firsts[2], size.to_bytes(4, "big"))


def pack_raw(data: bytes) -> bytes:
    """Bytes in the old specification."""
    return pack_header(_RAW, len(data)) + data


def pack_str(text: bytes) -> bytes:
    """A str of the new specification."""
    if 32 <= len(text) < 1 << 8:
        return b"\xd9%c%b" % (len(text), text)
    return pack_raw(text)


def pack_bin(data: bytes) -> bytes:
    """A bin of the new specification as LMQ packs it: bin 8 only up to 31 bytes, though it could have 255."""
    size = len(data)
    if size < 32:
        return b"\xc4%c%b" % (size, data)
    if size < 1 << 16:
        return b"\xc5%b%b" % (size.to_bytes(2, "big"), data)
    return b"\xc6%b%b" % (size.to_bytes(4, "big"), data)


_BESIDE: Final = ThreadPoolExecutor(1, "msgpack")
#: Encodes without str 8 and bin.
_PACKER: Final = Packer(use_bin_type=False)
