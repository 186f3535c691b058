"""Messages that have waited too long: for anyone to want them, or for their target to take them."""

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
LAPSES_LIMIT: Final = 500


def lapses(context: Context) -> Iterator[list[Draft]]:
    """What follows for messages whose time has come."""
    for entry in context.store.due.expiring(context.now.engine, LAPSES_LIMIT):
        yield lapsed(replace(context, pending=Pending()), entry)  # the one before has been applied


def lapsed(context: Context, entry: Entry) -> list[Draft]:
    """A message that waits is no longer wanted: it dies or is dropped by its queue's policy. Or its target has not come
    in time: anyone may have it from now on."""
    if not entry.expires or entry.expires > context.now.engine:
        return [about(EventType.RETARGETED, entry)]
    policy = context.policies.effective(entry.queue, context.store.queue(entry.queue))
    text = f"not consumed within {entry.expires - entry.created} ms of its publishing"
    if policy.ttl_action == "drop":
        return dropped(entry, ReasonCode.MESSAGE_EXPIRED, text)
    return died(context, entry, failure(entry, ReasonCode.MESSAGE_EXPIRED, text))
