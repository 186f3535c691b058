"""What LMQ reads in paths and query strings, read as the real server does: names, ids, and the parameters ``t``, ``cf``
and ``reply``."""

from __future__ import annotations

import re
from enum import StrEnum
from math import isfinite
from typing import Final
from urllib.parse import unquote_to_bytes

#: A decimal fraction; what follows it is ignored (``0.2abc`` is 0.2).
_DECIMAL: Final = re.compile(r"[+-]?[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?")
#: A whole number, after which nothing may follow (``1e0`` and ``10abc`` are refused).
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,400}\Z")
_HEX: Final = "[0-9a-fA-F]"
_ID: Final = re.compile(rf"({_HEX}{{8}})-?({_HEX}{{4}})-?({_HEX}{{4}})-?({_HEX}{{4}})-?({_HEX}{{12}})\Z")
_ID_LENGTHS: Final = (32, 36)


class InvalidParameter(ValueError):
    """A parameter that LMQ answers with 400. The text names it and says what is allowed."""


class CompoundFormat(StrEnum):
    """The form in which a pull returns a compound message."""

    MULTIPART = "multipart"
    MSGPACK = "msgpack"


class Reply(StrEnum):
    """What a client says about a message that it has pulled."""

    ACK = "ack"
    NACK = "nack"
    EXT = "ext"


def parse_wait_ms(text: str | None) -> int | None:
    """The milliseconds that the parameter ``t`` (seconds) allows a pull to wait; None: until there is a message.

    Negative values act as 0. Raises ``InvalidParameter``.
    """
    if text is None:
        return None
    match = _DECIMAL.match(text) or _WHOLE.match(text)
    if match is None:
        raise InvalidParameter(f"t must be a number of seconds, such as 10 or 0.5, but is {text!r}")
    return wait_ms(float(match[0]))


def wait_ms(seconds: float) -> int | None:
    """Seconds of a wait as milliseconds, 0 if negative; None, for ever, if the number has no milliseconds."""
    milliseconds = seconds * 1000
    if isfinite(milliseconds):
        return max(0, round(milliseconds))
    return 0 if milliseconds < 0 else None


def parse_compound_format(text: str | None) -> CompoundFormat:
    """The parameter ``cf``; multipart if absent. Raises ``InvalidParameter``."""
    if text is None:
        return CompoundFormat.MULTIPART
    try:
        return CompoundFormat(text)
    except ValueError:
        raise InvalidParameter(f"cf must be multipart or msgpack, but is {text!r}") from None


def parse_reply(text: str | None) -> Reply:
    """The parameter ``reply``. Raises ``InvalidParameter``."""
    try:
        return Reply(text or "")
    except ValueError:
        raise InvalidParameter(f"reply must be ack, nack or ext, but is {text!r}") from None


def parse_message_id(text: str) -> str | None:
    """A message id as a lease id of the daemon: lower case, with dashes. Upper case and 32 digits without dashes are
    read, too. None if it is no id, and therefore that of no message."""
    match = _ID.match(text) if len(text) in _ID_LENGTHS else None
    return "-".join(match.groups()).lower() if match else None


def decode_name(segment: str | bytes) -> str:
    """The queue name of a path's segment: percent-decoded, ``+`` is a space. Raises ``InvalidParameter`` if the bytes
    are not UTF-8."""
    raw = segment.encode() if isinstance(segment, str) else segment
    return name_from_bytes(unquote_to_bytes(raw.replace(b"+", b" ")))


def name_from_bytes(raw: bytes) -> str:
    """A queue name from its bytes. Raises ``InvalidParameter`` if they are not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise InvalidParameter(f"the name of a queue must be UTF-8, but is {raw!r}") from None
