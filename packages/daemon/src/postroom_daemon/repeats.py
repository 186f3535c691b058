"""Which requests have been answered, so that a repeat gets the first answer and changes nothing."""

from __future__ import annotations

import hashlib
from collections import deque
from typing import Final

from postroom_common.errors import CommandError
from postroom_common.events import Event

#: Requests with events that are remembered while running; after a restart, those of this many last events.
REMEMBERED: Final = 100_000
REMEMBERED_AFTER_RESTART: Final = 20_000
#: Segments that ended within this time (engine ms) stay, whatever their size: repeats are recognised in them.
REPEATS_MS: Final = 600_000
#: Refused requests that are remembered.
REFUSALS: Final = 5_000


def request_key(uid: int, data: bytes) -> bytes:
    """What a repeat has in common with the first: the uid and the bytes, which hold clientId and requestId."""
    return hashlib.blake2b(data, digest_size=16, salt=uid.to_bytes(16, "little")).digest()


def key_of_event(event: Event) -> bytes | None:
    """The key of the request whose last event this is."""
    by = event.get("by")
    return bytes.fromhex(by["digest"]) if by else None


class Repeats:
    """Request keys, each with the place of the request's last event in the journal, or with the error that refused
    it."""

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}
        self._place_order: deque[bytes] = deque()
        self._refusals: dict[bytes, CommandError] = {}
        self._refusal_order: deque[bytes] = deque()

    def remember(self, key: bytes, place: int) -> None:
        """Keep where a request's answer stands."""
        if key not in self._places:
            self._place_order.append(key)
            if len(self._place_order) > REMEMBERED:
                self._places.pop(self._place_order.popleft(), None)
        self._places[key] = place

    def remember_refusal(self, key: bytes, error: CommandError) -> None:
        """Keep the error that a request was refused with."""
        if key not in self._refusals:
            self._refusal_order.append(key)
            if len(self._refusal_order) > REFUSALS:
                self._refusals.pop(self._refusal_order.popleft(), None)
        self._refusals[key] = error

    def place(self, key: bytes) -> int | None:
        """Where the last event of the request with this key stands."""
        return self._places.get(key)

    def refusal(self, key: bytes) -> CommandError | None:
        """The error that the request with this key was refused with."""
        return self._refusals.get(key)
