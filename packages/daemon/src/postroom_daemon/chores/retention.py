"""Dead letters that their queue keeps no longer: for their age, or their number."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from postroom_common.protocol import ReasonCode, State

from ..context import Context, Draft
from ..records import Entry
from ..selection import dead_letters
from ..verbs.endings import QUARANTINED, dropped

#: Queues that one turn looks at, and letters of each that it removes; a round over all of them takes as many turns as
#: it needs.
_QUEUES_A_TURN: Final = 100
_LETTERS_A_QUEUE: Final = 100
#: Letters of a queue that are looked at for these: those that stay stand before the others.
_LOOKS_A_QUEUE: Final = 2000
_ROUND: Final = "retention of dead letters"
_DAY_MS: Final = 24 * 3600 * 1000


def old_dead_letters(context: Context) -> Iterator[list[Draft]]:
    """Drops, oldest first, dead letters that are older than their queue keeps them, and those that are too many since
    its policy was made stricter. Those that are leased or quarantined stay."""
    store = context.store
    names = store.queue_names(context.rounds.get(_ROUND, ""), _QUEUES_A_TURN)
    context.rounds[_ROUND] = names[-1] if len(names) == _QUEUES_A_TURN else ""
    for name in names:
        record = store.queue(name)
        if not record or not record.counts[State.DEAD]:
            continue
        policy = context.policies.effective(name, record)
        before = context.now.engine - round(policy.retention_days * _DAY_MS)
        surplus = record.counts[State.DEAD] - policy.dlq_max_messages if policy.dlq_max_messages else 0
        removed = 0
        for entry in islice(dead_letters(store, [name]), _LOOKS_A_QUEUE):
            if removed >= _LETTERS_A_QUEUE or (entry.dead_at > before and surplus <= 0):
                break
            if entry.lease_id or entry.phase == QUARANTINED:
                continue
            yield _dropped(entry, entry.dead_at <= before)
            surplus -= 1
            removed += 1


def _dropped(entry: Entry, old: bool) -> list[Draft]:
    if old:
        return dropped(entry, ReasonCode.PURGED, "older than its queue keeps dead letters")
    return dropped(entry, ReasonCode.QUEUE_FULL, "more dead letters than its queue keeps")
