"""consume_next by the name of dead letters: which of them is leased. It stays dead, and its attempts as they are."""

from __future__ import annotations

from typing import Final

from ...model.records import Entry
from ...policy.access_rules import Verb
from ...stores.base import BodyLost, BodyUnread
from ..context import Context
from ..selection import dead_letters
from .dead_names import queues_with_letters
from .terminations import QUARANTINED

#: Letters that are passed over, leased or quarantined ones or such without a body, before the answer is that there is
#: none.
_PASSED_OVER: Final = 2000


def oldest_letter(context: Context, name: str) -> Entry | None:
    """The letter that died first, of all queues that share the name and from which the user may consume. Neither pauses
    nor limits in flight hold it back. Raises ``CommandError`` (ERR_FORBIDDEN)."""
    letters = dead_letters(context.store, queues_with_letters(context, name, Verb.CONSUME, by_address=True))
    for looked, entry in enumerate(letters):
        if looked == _PASSED_OVER:
            break
        if entry.lease_id or entry.phase == QUARANTINED:
            continue
        try:
            context.store.envelope(entry.key)
        except (BodyLost, BodyUnread):
            continue
        return entry
    return None
