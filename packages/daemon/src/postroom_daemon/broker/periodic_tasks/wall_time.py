"""Messages that were ordered for a time of the wall.

The wall clock of a device jumps. All deadlines live in engine time; that of a message with ``deliverAt`` was worked out
from the wall clock of then, and is worked out anew when the two clocks have moved against each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from postroom_common.events import EventType
from postroom_common.protocol import State

from ...engine.context import Context, Draft
from ...engine.verbs.terminations import about

#: Clocks that move against each other by less (ms) have not been set: they drift, and are slewed.
STEP_MS: Final = 1000
#: Delayed messages that one turn looks at.
_LOOKS: Final = 2000
_KNOWN, _AFTER = "wall clock", "wall clock, looked at up to"


def follow_wall_clock(context: Context) -> Iterator[list[Draft]]:
    """After a start, and after each step of the wall clock, works out anew when messages with ``deliverAt`` are due."""
    rounds, now = context.cursors, context.now
    offset = now.wall - now.engine
    known = rounds.get(_KNOWN)
    if known is None or abs(offset - known) > STEP_MS:
        rounds[_KNOWN], rounds[_AFTER] = offset, ()
    if rounds[_AFTER] is None:
        return
    found, rounds[_AFTER] = context.store.pages.scan("", State.DELAYED, rounds[_AFTER], _LOOKS)
    rounds[_AFTER] = rounds[_AFTER] or None
    for entry in found:
        due = max(now.engine, entry.due_wall - offset)
        retried = entry.attempt > 0  # what it waits for now is the end of its backoff
        if entry.due_wall and not retried and abs(due - entry.due) > STEP_MS:
            yield [about(EventType.RESCHEDULED, entry) | {"dueEngineMs": due}]
