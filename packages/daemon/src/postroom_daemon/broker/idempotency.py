"""Which requests were answered, so that a repeat gets the first answer and changes nothing."""

from __future__ import annotations

import hashlib
from collections import deque
from typing import Final

from postroom_common.events import Event

from ..model.principal import Account
from ..model.request import Answer

#: Requests with events that are remembered; after a restart, those among the last so many events.
REMEMBERED: Final = 100_000
REMEMBERED_AFTER_RESTART: Final = 20_000
#: Segments that ended within this time (engine ms) stay, whatever their size, so that repeats of their requests are
#: recognised.
REPEATS_MS: Final = 600_000
#: Answers without events that are remembered.
ANSWERS: Final = 5_000


def request_key(account: Account, data: bytes) -> bytes:
    """The idempotency key of a request that a door recognises by its account and its bytes, which contain clientId and
    requestId."""
    if type(account) is int:
        salt = account.to_bytes(16, "little")
    else:
        salt = hashlib.blake2b(str(account).encode(), digest_size=16).digest()
    return hashlib.blake2b(data, digest_size=16, salt=salt).digest()


def key_of_event(event: Event) -> bytes | None:
    """The idempotency key of the request whose last event this is; None if there is none."""
    by = event.get("by")
    return bytes.fromhex(by["digest"]) if by and "digest" in by else None


class Idempotency:
    """The answered requests by key: where a request's first event is in the journal; or, for a request without
    events, its answer."""

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}
        self._place_order: deque[bytes] = deque()
        self._answers: dict[bytes, Answer] = {}
        self._answer_order: deque[bytes] = deque()

    def remember(self, key: bytes, place: int) -> None:
        """Remember where a request's first event is."""
        if key not in self._places:
            self._place_order.append(key)
            if len(self._place_order) > REMEMBERED:
                self._places.pop(self._place_order.popleft(), None)
        self._places[key] = place

    def remember_answer(self, key: bytes, answer: Answer) -> None:
        """Remember the answer to a request without events: an error, or data that must be the same each time."""
        if key not in self._answers:
            self._answer_order.append(key)
            if len(self._answer_order) > ANSWERS:
                self._answers.pop(self._answer_order.popleft(), None)
        self._answers[key] = answer

    def recall(self, key: bytes) -> int | Answer | None:
        """Where the first event of a request stands, or its answer if it had no events; None: it is not remembered."""
        place = self._places.get(key)
        return self._answers.get(key) if place is None else place
