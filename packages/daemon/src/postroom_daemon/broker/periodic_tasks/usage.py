"""After the start: of how many bytes each user's messages are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...engine.context import Context, Draft

#: Messages that one turn counts: three milliseconds.
_MESSAGES_A_TURN: Final = 500


def stored_before(context: Context) -> Iterator[list[Draft]]:
    """Counts the next messages that were stored before the start. Nothing follows from it."""
    stored = context.store.stored
    if stored and not stored.is_complete:
        page = context.store.pages.entries(stored.counted, _MESSAGES_A_TURN)
        stored.count(page, is_last=len(page) < _MESSAGES_A_TURN)
    yield from ()
