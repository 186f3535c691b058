"""Tokens of subscribers and producers: what each is for, signed, so that the gateway need not remember it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import time
from typing import Any, Final, NamedTuple

import orjson

_FORM: Final = "v1"
_SIGNATURE_BYTES: Final = 16
#: Longest token that is read, in characters.
_TOKEN_LIMIT: Final = 8192


class InvalidToken(ValueError):
    """A token that is none of ours, or is too old. The text is a sentence."""


class Session(NamedTuple):
    """What a token says. ``account`` is the principal who got it. A producer has no topic."""

    account: str
    client_id: str
    topic: str
    is_acking: bool = False
    capacity: int = 0
    priority: int = 0

    @property
    def is_producer(self) -> bool:
        """Whether it is that of a producer."""
        return not self.topic


class Tokens:
    """Makes and reads tokens that are valid for some hours (0: for ever). Without a ``key``, they are valid as long as
    this process runs."""

    def __init__(self, key: bytes, hours: float) -> None:
        self._key = key or os.urandom(32)
        self._lifetime_s = hours * 3600

    def make(self, session: Session) -> str:
        """The token of a session, which may stand in a URL."""
        data = orjson.dumps([_FORM, round(time.time()), *session])
        return f"{_encode(data)}.{_encode(self._signature(data))}"

    def read(self, token: str) -> Session:
        """The session of a token. Raises ``InvalidToken``."""
        said, _, signature = token.partition(".")
        try:
            data, shown = _decode(said), _decode(signature)
        except ValueError:
            raise InvalidToken("the token is none of this door") from None
        if len(token) > _TOKEN_LIMIT or not hmac.compare_digest(shown, self._signature(data)):
            raise InvalidToken("the token is none of this door, or of its process before a restart: subscribe again")
        parts: list[Any] = orjson.loads(data)
        if self._lifetime_s and time.time() > parts[1] + self._lifetime_s:
            raise InvalidToken("the token is too old: subscribe again")
        return Session(*parts[2:])

    def _signature(self, data: bytes) -> bytes:
        return hmac.digest(self._key, b"simplemq token " + data, hashlib.sha256)[:_SIGNATURE_BYTES]


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
