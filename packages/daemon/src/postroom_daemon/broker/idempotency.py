"""Which requests have been answered, so that a repeat gets the first answer and changes nothing."""

from __future__ import annotations

import hashlib
from collections import deque
from typing import Final

from postroom_common.events import Event

from ..model.principal import Account
from ..model.request import Answer

#: Requests with events that are remembered while running; after a restart, those of this many last events.
REMEMBERED: Final = 100_000
REMEMBERED_AFTER_RESTART: Final = 20_000
#: Segments that ended within this time (engine ms) stay, whatever their size: repeats are recognised in them.
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
    """The key of the request whose last event this is."""
    by = event.get("by")
    return bytes.fromhex(by["digest"]) if by else None


class Repeats:
    """Request keys, each with the place of the request's first event in the journal, or with the answer to one that
    made no event: the error that refused it, or data that must be the same each time."""

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}
        self._place_order: deque[bytes] = deque()
        self._answers: dict[bytes, Answer] = {}
        self._answer_order: deque[bytes] = deque()

    def remember(self, key: bytes, place: int) -> None:
        """Keep where a request's answer stands."""
        if key not in self._places:
            self._place_order.append(key)
            if len(self._place_order) > REMEMBERED:
                self._places.pop(self._place_order.popleft(), None)
        self._places[key] = place

    def remember_answer(self, key: bytes, answer: Answer) -> None:
        """Keep the answer to a request that made no event."""
        if key not in self._answers:
            self._answer_order.append(key)
            if len(self._answer_order) > ANSWERS:
                self._answers.pop(self._answer_order.popleft(), None)
        self._answers[key] = answer

    def place(self, key: bytes) -> int | None:
        """Where the first event of the request with this key stands."""
        return self._places.get(key)

    def answer(self, key: bytes) -> Answer | None:
        """The answer to the request with this key, if it made no event."""
        return self._answers.get(key)
