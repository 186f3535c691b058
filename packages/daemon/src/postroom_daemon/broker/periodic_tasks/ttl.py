"""Messages that have waited too long: past their time to live, or for a target that has not come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from postroom_common.events import EventType
from postroom_common.protocol import ReasonCode

from ...engine.context import Context, Draft, Pending
from ...engine.verbs.terminations import about, died, dropped, failure
from ...model.records import Entry

#: Messages that one group sees to; the rest follows in the next.
EXPIRIES_LIMIT: Final = 500


def expire_messages(context: Context) -> Iterator[list[Draft]]:
    """End the waiting of messages whose time is over."""
    for entry in context.store.due.expiring(context.now.engine, EXPIRIES_LIMIT):
        yield expired(replace(context, pending=Pending()), entry)  # the one before was folded


def expired(context: Context, entry: Entry) -> list[Draft]:
    """A message is past its time to live: it dies or is dropped, by its queue's policy. Or its target has not come in
    time: anyone may have it from now on."""
    if not entry.expires or entry.expires > context.now.engine:
        return [about(EventType.RETARGETED, entry)]
    policy = context.policies.effective(entry.queue, context.store.queue(entry.queue))
    text = f"not consumed within {entry.expires - entry.created} ms of its publishing"
    if policy.ttl_action == "drop":
        return dropped(entry, ReasonCode.MESSAGE_EXPIRED, text)
    return died(context, entry, failure(entry, ReasonCode.MESSAGE_EXPIRED, text))
