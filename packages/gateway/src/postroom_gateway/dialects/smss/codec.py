"""The bytes of smss: requests that are read, responses that are written, blocks of messages. All integers are
little-endian.

A block is ``u32 contentSize | u32 headerCount | headerCount x (u32 keyLen, key, u32 valueLen, value) | body``, where
``contentSize`` counts headers and body. It is also what a log of the daemon stores: nothing is converted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

#: command, length of the topic's name, first field (only some commands have it), length of the trace id
_HEADER: Final = struct.Struct("<BHI12xB")
_I64: Final = struct.Struct("<q")
_U32: Final = struct.Struct("<I")
_U16: Final = struct.Struct("<H")
_TIME_AND_ID: Final = struct.Struct("<qq")
_BLOCK: Final = struct.Struct("<II")
_PUSH: Final = struct.Struct("<HBxI2x")
_TEXT: Final = struct.Struct("<HH6x")
_JSON: Final = struct.Struct("<HI4x")

HEADER_BYTES: Final = _HEADER.size
#: In front of each block that is pushed: time, event id, and the position behind it, which clients do not interpret.
_PUSHED_BYTES: Final = 32
#: A block's own sizes.
_SIZES_BYTES: Final = _BLOCK.size
#: Most blocks in a payload, and most headers in all of them: what it takes to check them is bounded.
BLOCKS_LIMIT: Final = 1000
_HEADERS_LIMIT: Final = 10_000
#: Longest name of a subscriber, in bytes.
WHO_BYTES_LIMIT: Final = 1024
#: Longest text of an error, in bytes.
_TEXT_BYTES_LIMIT: Final = 4096

OK: Final = b"\xc8" + 9 * b"\0"
ALIVE: Final = b"\xc9" + 9 * b"\0"
SUB_END: Final = b"\xff" + 9 * b"\0"
ACK_BYTES: Final = 2


class Op(IntEnum):
    """Commands of clients."""

    SUB = 0
    PUB = 1
    CREATE = 2
    DELETE = 3
    DELAY = 16
    ALIVE = 17
    REPLICA = 64
    INFO = 65
    VALID_LIST = 99
    LIST = 100


#: Used for every request, and slow to look up in their class.
_SUB: Final = int(Op.SUB)
_WITH_PAYLOAD: Final = (int(Op.PUB), int(Op.DELAY))
#: The bytes of numbers behind topic and trace id, before a payload.
_NUMBERS_BYTES: Final = {Op.SUB: 12, Op.CREATE: 8, Op.DELAY: 8, Op.REPLICA: 8, Op.VALID_LIST: 8}


class Request(NamedTuple):
    """A complete request. ``number`` is the event id, the time of expiry or the delay, as the command has it;
    ``payload`` the messages, or who subscribes. ``ack_timeout_ns`` 0: none was given. A request whose payload was too
    large to read has its ``fault`` and no payload."""

    op: int
    topic: bytes
    number: int = 0
    payload: bytes = b""
    batch: int = 1
    ack_timeout_ns: int = 0
    fault: str = ""
    size: int = HEADER_BYTES


class RequestReader:
    """Cuts what arrives into requests. Sizes are checked when they are announced: it keeps no more than one request of
    at most ``payload_limit`` bytes beside its names, and drops the bytes of a larger one as they come."""

    def __init__(self, payload_limit: int) -> None:
        self._payload_limit = payload_limit
        self._buffer: bytes | bytearray = b""
        self._refused: Request | None = None
        self._dropped_bytes = 0  # how many are still to be dropped of a request that is too large

    @property
    def buffered_bytes(self) -> int:
        """Bytes that have arrived and were not returned."""
        return len(self._buffer)

    @property
    def is_dropping(self) -> bool:
        """Whether the bytes of a request that is too large are coming."""
        return self._refused is not None

    def feed(self, data: bytes) -> None:
        """Add what has arrived."""
        if not self._buffer:
            self._buffer = data  # most probably one request
        elif isinstance(self._buffer, bytearray):
            self._buffer += data
        else:
            self._buffer = bytearray(self._buffer) + data

    def take_all(self) -> bytes:
        """Everything that has arrived and was not returned; nothing is left."""
        data, self._buffer = bytes(self._buffer), b""
        return data

    def next(self) -> Request | None:
        """The next request; None if it is incomplete."""
        buffer = self._buffer
        if self._refused:
            return self._drop()
        if len(buffer) < HEADER_BYTES:
            return None
        op, topic_bytes, field, trace_bytes = _HEADER.unpack_from(buffer)
        start = HEADER_BYTES + topic_bytes + trace_bytes
        numbers_bytes = _NUMBERS_BYTES.get(op, 0)
        has_timeout = op == _SUB and buffer[4] == 1
        if has_timeout:
            numbers_bytes += 8
        payload_bytes = field if op in _WITH_PAYLOAD else 0
        limit = self._payload_limit
        payload_start = start + numbers_bytes
        if op == _SUB:
            if len(buffer) < payload_start:
                return None
            payload_bytes = _U32.unpack_from(buffer, payload_start - 4)[0]
            limit = WHO_BYTES_LIMIT
        end = payload_start + payload_bytes
        if payload_bytes > limit:
            what = "the name of the subscriber" if op == _SUB else "the payload"
            self._refused = Request(op, b"", fault=f"{what} has {payload_bytes:,} bytes; the limit is {limit:,}")
            self._dropped_bytes = end
            return self._drop()
        if len(buffer) < end:
            return None
        topic = bytes(buffer[HEADER_BYTES : HEADER_BYTES + topic_bytes])
        payload = bytes(memoryview(buffer)[payload_start:end])
        number = _I64.unpack_from(buffer, start)[0] if numbers_bytes else 0
        ack_timeout_ns = _I64.unpack_from(buffer, start + 8)[0] if has_timeout else 0
        batch = buffer[3] or 1 if op == _SUB else 1
        self._drop_first(end)
        return Request(op, topic, number, payload, batch, ack_timeout_ns, "", end)

    def _drop_first(self, count: int) -> None:
        if count == len(self._buffer):
            self._buffer = b""
        elif isinstance(self._buffer, bytearray):
            del self._buffer[:count]
        else:
            self._buffer = self._buffer[count:]

    def _drop(self) -> Request | None:
        dropped = min(self._dropped_bytes, len(self._buffer))
        self._drop_first(dropped)
        self._dropped_bytes -= dropped
        if self._dropped_bytes:
            return None
        request, self._refused = self._refused, None
        return request


# --- responses --------------------------------------------------------------------------------------------------------


def encode_error(text: str) -> bytes:
    """The response to a request that was refused. Clients show the text, and the connection goes on."""
    encoded = text.encode()
    if len(encoded) > _TEXT_BYTES_LIMIT:
        encoded = encoded[:_TEXT_BYTES_LIMIT].decode(errors="ignore").encode()
    return _TEXT.pack(400, len(encoded)) + encoded


def encode_json(document: bytes) -> bytes:
    """The response with a JSON document; an empty one stands for no topics."""
    return _JSON.pack(200, len(document)) + document


def encode_push(count: int, records: bytes) -> bytes:
    """A push of records as a log has them."""
    return _PUSH.pack(200, count, len(records)) + records


def read_ack(data: bytes) -> int:
    """The number in an ack: 0, or 1 to end the subscription. Clients send nothing else."""
    return int(_U16.unpack(data)[0])


# --- blocks -----------------------------------------------------------------------------------------------------------


def count_blocks(payload: bytes) -> int:
    """How many blocks a payload has, which must be one at least, each with content and with headers that fit into it.
    Raises ``ValueError``."""
    place, size, blocks, headers = 0, len(payload), 0, 0
    while place < size:
        if size - place < _SIZES_BYTES:
            raise ValueError("a block is cut off")
        content_bytes, header_count = _BLOCK.unpack_from(payload, place)
        place += _SIZES_BYTES
        end = place + content_bytes
        if not content_bytes or end > size:
            raise ValueError("the size of a block is wrong")
        blocks += 1
        headers += header_count
        if blocks > BLOCKS_LIMIT or headers > _HEADERS_LIMIT:
            raise ValueError("there are too many blocks or headers")
        for _ in range(2 * header_count):
            if end - place < 4:
                raise ValueError("the headers are longer than their block")
            place += 4 + _U32.unpack_from(payload, place)[0]
        if place > end:
            raise ValueError("the headers are longer than their block")
        place = end
    if not blocks:
        raise ValueError("there is no block")
    return blocks


def cut_records(raw: bytes, count: int, most: int) -> Iterator[tuple[int, bytes]]:
    """Records as they are pushed: how many, and their bytes. ``raw`` has ``count`` of them, and each piece ``most`` at
    most. If that is all, nothing is read."""
    if count <= most:
        if count:
            yield count, raw
        return
    start = place = 0
    while count:
        taken = min(most, count)
        for _ in range(taken):
            content_bytes = _U32.unpack_from(raw, place + _PUSHED_BYTES)[0]
            place += _PUSHED_BYTES + _SIZES_BYTES + content_bytes
        yield taken, raw[start:place]
        start = place
        count -= taken


def split_records(raw: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The records of a page: time (ms), event id and block of each."""
    place, size = 0, len(raw)
    while place < size:
        wall_ms, event_id = _TIME_AND_ID.unpack_from(raw, place)
        start = place + _PUSHED_BYTES
        place = start + _SIZES_BYTES + _U32.unpack_from(raw, start)[0]
        yield wall_ms, event_id, raw[start:place]
