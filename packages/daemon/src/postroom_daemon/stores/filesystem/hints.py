"""Hints of the filesystem store: which messages come by a time, such as that of their death or the end of a lease.

A hint may no longer fit its message: whoever looks at it passes it over, and drops it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from postroom_common.protocol import State

from ...model.records import Entry
from ..base import Cursor
from .lanes import Look
from .sorted_keys import Sorted

Hint = tuple[int, int, str]  # time, seq, key
LAST: Final = "\U0010ffff"
"""Sorts behind every key."""
#: Hints that a page looks at, for each message that it may have.
LOOKS: Final = 4


def page_of(
    hints: Sorted[Hint],
    queue: str,
    states: Sequence[State],
    after: Any,
    limit: int,
    look: Look,
    time_of: Callable[[Entry], int],
) -> tuple[list[Entry], Cursor]:
    """A page of the messages of a queue ('': of all) in some states, and where the next begins; see ``Store.scan``.
    ``time_of`` is what the hints were made of."""
    found: list[Entry] = []
    stale: list[Hint] = []
    end: Cursor = ()
    for looked, hint in enumerate(hints.behind((*after, LAST) if after else ()), 1):
        entry = look(hint[2])
        if entry is None or time_of(entry) != hint[0]:
            stale.append(hint)
        elif entry.state in states and queue in ("", entry.queue):
            found.append(entry)
        if len(found) == limit or looked == limit * LOOKS:
            end = hint[:2]
            break
    for hint in stale:
        hints.discard(hint)
    return found, end


def those_over(hints: Sorted[Hint], now: int, limit: int, look: Look, time_of: Callable[[Entry], int]) -> list[Entry]:
    """At most ``limit`` messages whose time has come."""
    found: list[Entry] = []
    stale: list[Hint] = []
    for hint in hints:
        if hint[0] > now or len(found) == limit:
            break
        entry = look(hint[2])
        if entry and time_of(entry) == hint[0]:
            found.append(entry)
        else:
            stale.append(hint)
    for hint in stale:
        hints.discard(hint)
    return found
