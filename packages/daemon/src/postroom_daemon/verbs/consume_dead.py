"""consume_next by the name of dead letters: they are leased, and stay dead."""

from __future__ import annotations

from typing import Final

from postroom_common.events import EventType

from ..context import Context, Decision, Draft
from ..fields import Fields
from ..records import Entry
from ..selection import dead_letters
from ..stores.base import BodyLost, BodyUnread
from .dead_names import queues_with_letters
from .endings import QUARANTINED
from .settle import lease_ms

#: Letters that are passed over, leased or quarantined ones or such without a body, before the answer is that there is
#: none.
_PASSED_OVER: Final = 2000


def consume_dead(context: Context, fields: Fields) -> Decision:
    """Lease the letter that died first, of all queues that share the name, or wait for one. Its attempts stay, and
    neither pauses nor limits in flight hold it back."""
    now = context.now.engine
    entry = _oldest(context, fields["queue"])
    if entry is None:
        if fields["waitMs"]:
            return Decision(wait_until=now + fields["waitMs"])
        return Decision(data={"message": None})
    draft: Draft = {
        "type": EventType.LEASED,
        "queue": entry.queue,
        "key": entry.key,
        "lease": context.ids.lease(),
        "consumer": fields["consumerId"] or context.who.client_id,
        "uid": context.who.uid,
        "untilEngineMs": now + lease_ms(context, entry.queue, fields),
        "attempt": entry.attempt,
    }
    if fields["payloadAs"] == "value":
        draft["as"] = "value"
    return Decision([draft])


def _oldest(context: Context, name: str) -> Entry | None:
    letters = dead_letters(context.store, queues_with_letters(context, name, by_address=True))
    for looked, entry in enumerate(letters):
        if looked == _PASSED_OVER:
            break
        if entry.lease_id or entry.phase == QUARANTINED:
            continue
        try:
            context.store.check_body(entry.key)
        except (BodyLost, BodyUnread):
            continue
        return entry
    return None
