"""Bodies and attributes of messages as the blocks of a log's records, and back: the attributes, and what the body is,
are headers of the record."""

from __future__ import annotations

from typing import Any, Final

import orjson

from postroom_common.body import Form, Part

from ..stores.log.records import block_of, read_block

#: Headers of a record that say what its body is. Those who append by other ways need not give them.
_FORM: Final = b"postroom-encoding"
_TYPE: Final = b"content-type"
_RESERVED: Final = (_FORM.decode(), _TYPE.decode())


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
