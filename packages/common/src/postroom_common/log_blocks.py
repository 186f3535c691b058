"""The block of a log's record: its headers and its body, byte for byte; all numbers are little-endian.

    block = u32 bytes behind the next field | u32 headers | headers x (u32 bytes, key, u32 bytes, value) | body

The attributes of a message, and what its body is, are headers of the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct, error
from typing import Any, Final

import orjson

from .body import Form, Part

#: Bytes of a record before its block.
RECORD_HEADER_BYTES: Final = 32
_SIZES: Final = Struct("<II")
_SIZE: Final = Struct("<I")
#: Headers of a record that say what its body is. Those who append by other ways need not give them.
_FORM: Final = b"postroom-encoding"
_TYPE: Final = b"content-type"
_RESERVED: Final = (_FORM.decode(), _TYPE.decode())


def record_bytes(text: str) -> int:
    """The bytes on disk of a record whose block is ``text``, in base64."""
    return RECORD_HEADER_BYTES + len(text) // 4 * 3 - text[-2:].count("=")


def block_of(headers: Mapping[bytes, bytes], body: bytes) -> bytes:
    """The block of headers and a body."""
    packed = [_SIZE.pack(len(text)) + text for pair in headers.items() for text in pair]
    size = sum(map(len, packed)) + len(body)
    return b"".join((_SIZES.pack(size, len(headers)), *packed, body))


def read_block(block: bytes) -> tuple[dict[bytes, bytes], bytes]:
    """Headers and body of a block. Raises ``ValueError`` if it is not one."""
    try:
        size, count = _SIZES.unpack_from(block)
        if len(block) != 8 + size:
            raise ValueError(f"a block of {len(block) - 8} bytes says that it has {size}")
        at = 8
        texts: list[bytes] = []
        for _ in range(2 * count):
            (length,) = _SIZE.unpack_from(block, at)
            at += 4 + length
            if at > len(block):
                raise ValueError(f"its {count} headers are longer than the block")
            texts.append(block[at - length : at])
    except error as failure:
        raise ValueError(f"a block of {len(block)} bytes is too short for its headers") from failure
    return dict(zip(texts[::2], texts[1::2], strict=True)), block[at:]


def check_blocks(data: bytes) -> list[bytes]:
    """The blocks that follow each other in ``data``, each checked. Raises ``ValueError``."""
    blocks: list[bytes] = []
    at, length, unpack = 0, len(data), _SIZES.unpack_from
    while at < length:
        if at + 8 > length:
            raise ValueError(f"{length - at} bytes behind block {len(blocks)} are too few for another")
        size, count = unpack(data, at)
        if not size:
            raise ValueError(f"block {len(blocks) + 1} is empty")
        end = at + 8 + size
        if end > length:
            raise ValueError(f"block {len(blocks) + 1} is incomplete: {length - at} of {8 + size} bytes")
        block = data[at:end]
        if count:
            read_block(block)
        blocks.append(block)
        at = end
    return blocks


def block_of_part(part: Part, attributes: dict[str, Any]) -> bytes:
    """The block of a record with a body and attributes. Raises ``ValueError`` for one that is no string."""
    headers: dict[bytes, bytes] = {}
    for name, value in attributes.items():
        if type(value) is not str:
            raise ValueError(f"attribute {name!r} of a record must be a string")
        if name in _RESERVED:
            raise ValueError(f"no attribute of a record may be called {name!r}")
        headers[name.encode()] = value.encode()
    if part.content_type:
        headers[_TYPE] = part.content_type.encode()
    if part.form is not Form.BINARY:
        headers[_FORM] = part.form.value.encode()
    elif not headers and not part.data:
        headers[_FORM] = b"binary"  # no block is empty
    return block_of(headers, part.data)


def open_block(block: bytes) -> tuple[Part, dict[str, str]]:
    """Body and attributes of a record. What is not UTF-8 in a header is shown as escapes. A body that is not what its
    header says is binary. Raises ``ValueError``."""
    headers, body = read_block(block)
    form, content_type = Form.BINARY, ""
    attributes: dict[str, str] = {}
    for key, value in headers.items():
        if key == _FORM:
            form = _form(value, body)
        elif key == _TYPE:
            content_type = _text(value)
        else:
            attributes[_text(key)] = _text(value)
    return Part(body, form, content_type), attributes


def _form(name: bytes, body: bytes) -> Form:
    try:
        if name == b"text":
            body.decode()
            return Form.TEXT
        if name == b"json":
            orjson.loads(body)
            return Form.JSON
    except ValueError:
        pass
    return Form.BINARY


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")
