"""The bytes of LMQ's answers over HTTP: what a push returns, and a pulled message with its headers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from .msgpack_old import ARRAY, MAP, pack_bin, pack_header, pack_str
from .parameters import CompoundFormat

DEFAULT_TYPE: Final = "application/octet-stream"
MSGPACK_TYPE: Final = "application/x-msgpack"
#: What ``publish`` says of gathering, in LMQ's words.
ACCUM: Final[Mapping[str | None, bytes]] = {None: b"no", "new": b"new", "appended": b"yes"}
#: What would end a header field. The queue's other publishers may send it; LMQ's cannot.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Part(NamedTuple):
    """One pushed body, with the header fields that were stored with it, in order; the content type is empty if there
    was none."""

    body: bytes
    content_type: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    def fields(self) -> Iterable[tuple[bytes, bytes]]:
        """The header fields that show the part, the content type first."""
        yield b"content-type", _CONTROL.sub(" ", self.content_type or DEFAULT_TYPE).encode()
        for name, value in self.headers:
            yield name.encode(), _CONTROL.sub(" ", value).encode()


class Pulled(NamedTuple):
    """A message that a pull has leased. ``retry_remaining`` is how often it is delivered after this, at most."""

    queue: str
    message_id: str
    retry_remaining: int
    parts: tuple[Part, ...]
    is_compound: bool = False


def encode_push(gathering: str | None) -> bytes:
    """The body that answers a push: ``{"accum":"no"}``. ``gathering`` is that of the answer of ``publish``."""
    return b'{"accum":"%b"}' % ACCUM[gathering]


def encode_push_all(published: Mapping[str, str | None]) -> bytes:
    """The body that answers a push to several queues, from the ``gathering`` of each queue."""
    return b"{%b}" % b",".join(
        b"%b:%b" % (json.dumps(queue, ensure_ascii=False).encode(), encode_push(gathering))
        for queue, gathering in published.items()
    )


def encode_pulled(message: Pulled, form: CompoundFormat) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """The header fields, in LMQ's order, and the body that return a message. ``form`` matters for compound messages
    only."""
    fields: list[tuple[bytes, bytes]]
    if not message.is_compound:
        fields, body = list(message.parts[0].fields()), message.parts[0].body
    elif form is CompoundFormat.MULTIPART:
        boundary = message.message_id.encode()
        fields, body = [(b"content-type", b"multipart/mixed; boundary=" + boundary)], multipart(boundary, message.parts)
    else:
        fields, body = [(b"content-type", MSGPACK_TYPE.encode())], msgpack_parts(message.parts)
    fields += (
        (b"x-lmq-queue-name", message.queue.encode()),
        (b"x-lmq-message-id", message.message_id.encode()),
        (b"x-lmq-message-type", b"compound" if message.is_compound else b"normal"),
        (b"x-lmq-retry-remaining", b"%d" % message.retry_remaining),
    )
    return fields, body


def multipart(boundary: bytes, parts: Iterable[Part]) -> bytes:
    """Parts as ``multipart/mixed``. There is an empty line before the first boundary, too."""
    pieces: list[bytes] = []
    for part in parts:
        pieces.append(b"\r\n--%b\r\n" % boundary)
        pieces += (b"%b: %b\r\n" % field for field in part.fields())
        pieces += (b"content-transfer-encoding: binary\r\n\r\n", part.body)
    pieces.append(b"\r\n--%b--\r\n" % boundary)
    return b"".join(pieces)


def msgpack_parts(parts: tuple[Part, ...]) -> bytes:
    """Parts as a msgpack array of ``[header fields, body]``: fields are str, bodies are bin."""
    pieces = [pack_header(ARRAY, len(parts))]
    for part in parts:
        fields = list(part.fields())
        pieces += (b"\x92", pack_header(MAP, len(fields)))
        pieces += (pack_str(text) for field in fields for text in field)
        pieces.append(pack_bin(part.body))
    return b"".join(pieces)
