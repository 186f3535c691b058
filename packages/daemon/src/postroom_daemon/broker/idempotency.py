"""Which requests were answered, so that a repeat gets the first answer and changes nothing."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from postroom_common.codec import Request as WireRequest
from postroom_common.events import Event

from ..model.principal import Account
from ..model.request import Answer

#: Requests with events that are remembered; after a restart, those among the last so many events.
REMEMBERED = 100_000
REMEMBERED_AFTER_RESTART: Final = 20_000
#: Segments that ended within this time (engine ms) stay, whatever their size, so that repeats of their requests are
#: recognised.
REPEATS_MS: Final = 600_000
#: Answers without events that are remembered.
ANSWERS = 5_000


def repeated_bytes(wire: WireRequest, data: bytes) -> bytes:
    """What a repeat of a request has in common with it: its idempotency key if it has one, otherwise its bytes."""
    return b"\0" + wire.idempotency_key.encode() if wire.idempotency_key else data


def request_key(account: Account, data: bytes) -> bytes:
    """The idempotency key of a request that a door recognises by its account and by ``data`` (``repeated_bytes``)."""
    digest = _salted(account).copy()
    digest.update(data)
    return digest.digest()


@lru_cache(maxsize=1024)
def _salted(account: Account) -> hashlib.blake2b:
    """The beginning of the digests of an account."""
    if type(account) is int:
        salt = account.to_bytes(16, "little")
    else:
        salt = hashlib.blake2b(str(account).encode(), digest_size=16).digest()
    return hashlib.blake2b(digest_size=16, salt=salt)


def key_of_event(event: Event) -> bytes | None:
    """The idempotency key of the request whose last event this is; None if there is none."""
    by = event.get("by")
    return bytes.fromhex(by["digest"]) if by and "digest" in by else None


class Idempotency:
    """The answered requests by key: where a request's first event is in the journal; or, for a request without
    events, its answer."""

    def __init__(self) -> None:
        self._known: dict[bytes, int | Answer] = {}
        self._place_order: deque[bytes] = deque()
        self._answer_order: deque[bytes] = deque()
        self.recall: Callable[[bytes], int | Answer | None] = self._known.get
        """Where the first event of a request is in the journal, or its answer if it had no events; None: it is not
        remembered."""
        self._delivered_again: dict[bytes, None] = {}

    def remember(self, places: dict[bytes, int]) -> None:
        """Remember where the first event of each request is."""
        known, order = self._known, self._place_order
        order.extend([key for key in places if key not in known])
        known.update(places)
        while len(order) > REMEMBERED:
            known.pop(order.popleft(), None)

    def note_delivered_again(self, key: bytes) -> None:
        """A repeat got the messages that the request with this key had got."""
        self._delivered_again[key] = None
        if len(self._delivered_again) > ANSWERS:
            del self._delivered_again[next(iter(self._delivered_again))]

    def was_delivered_again(self, key: bytes | None) -> bool:
        """Whether a repeat got the same messages: one answer that was not delivered then says nothing of the other."""
        return key in self._delivered_again

    def remember_answer(self, key: bytes, answer: Answer) -> None:
        """Remember the answer to a request without events: an error, or data that must be the same each time."""
        known, order = self._known, self._answer_order
        if key not in known:
            order.append(key)
            if len(order) > ANSWERS:
                known.pop(order.popleft(), None)
        known[key] = answer
