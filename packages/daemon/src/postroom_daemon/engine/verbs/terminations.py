"""Terminations: the events of messages that die, are dropped or are acknowledged."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any, Final

import orjson

from postroom_common.body import headers_of
from postroom_common.events import EventType
from postroom_common.protocol import ReasonCode, State

from ...model.records import Entry
from ...stores.errors import BodyLost, BodyUnread
from ..context import Context, Draft

#: The phase of a quarantined dead letter, which only a request with its key can reprocess.
QUARANTINED: Final = "quarantined"
#: Maximum number of dead letters that are evicted for a new one. If the policy became stricter, retention removes the
#: rest.
_EVICTIONS: Final = 100
#: Maximum number of pages that are searched for dead letters to evict.
_EVICTION_PAGES: Final = 20


def about(type_: EventType, entry: Entry) -> Draft:
    """An event about a message, with its lease if there is one."""
    draft = {"type": type_, "queue": entry.queue, "key": entry.key}
    if entry.lease_id:
        draft["lease"] = entry.lease_id
    return draft


def gone(type_: EventType, entry: Entry) -> Draft:
    """An event that removes a message, and its claim and its name with it."""
    draft = about(type_, entry)
    if entry.claim:
        draft["claim"] = entry.claim
    if entry.name:
        draft["name"] = entry.name
    return draft


def failure(entry: Entry, code: ReasonCode, reason: str) -> dict[str, Any]:
    """Why a message, or one attempt, has failed."""
    return {
        "reasonCode": code,
        "reasonMessage": reason,
        "attempt": entry.attempt,
        "consumerId": entry.consumer_id,
    }


def dropped(entry: Entry, code: ReasonCode, reason: str) -> list[Draft]:
    """The counted event that removes a message without processing."""
    return [gone(EventType.DROPPED, entry) | _former_state(entry) | {"failure": failure(entry, code, reason)}]


def died(context: Context, entry: Entry, why: dict[str, Any], phase: str = "") -> list[Draft]:
    """The events of a death, with ``why`` as ``failure``; the last event is the message's own. It is dropped if its
    queue stores no dead letters. If the queue has its maximum of them, the oldest are evicted first."""
    policy = context.policies.effective(entry.queue, context.store.queue(entry.queue))
    if not policy.dlq_enabled:
        return [gone(EventType.DROPPED, entry) | _former_state(entry) | {"failure": why}]
    end = about(EventType.DIED, entry) | {"failure": why}
    if entry.state in (State.DONE, State.DEAD, State.HELD):
        end["state"] = entry.state
    if phase:
        end["phase"] = phase
    if entry.state is State.DEAD:  # it has its place among them
        return [end]
    drafts = [*_evict(context, entry.queue, policy.dlq_max_messages), end]
    context.pending.dying.setdefault(entry.queue, deque()).append(
        replace(entry, state=State.DEAD, lease_id="", consumer_id="")
    )
    return drafts


def _former_state(entry: Entry) -> Draft:
    """The state of a message that has ended before it dies or is dropped, as a field of that event: its readers need
    not know what it was."""
    return {"state": entry.state} if entry.state is State.DONE else {}


def abandoned(context: Context, entry: Entry, reason: str) -> list[Draft]:
    """The events that give up a message in whatever state: it becomes a dead letter, of which the policy says how much
    is kept."""
    policy = context.policies.effective(entry.queue, context.store.queue(entry.queue))
    if policy.abandon_keep == "none":
        return dropped(entry, ReasonCode.ABANDONED, reason)
    drafts = died(context, entry, failure(entry, ReasonCode.ABANDONED, reason))
    if drafts[-1]["type"] is EventType.DIED:
        drafts[-1] |= kept(context, entry, policy.abandon_keep)
    return drafts


def kept(context: Context, entry: Entry, keep: str) -> Draft:
    """What the event of an outcome says of what is kept of a message: ``message`` or ``headers``. A message whose body
    cannot be read stays as it is."""
    if keep == "headers":
        try:
            envelope = headers_of(context.store.bodies.envelope(entry.key))
        except (BodyLost, BodyUnread):
            return {"keep": "message"}
        return {"keep": keep, "bytes": len(envelope), "message": orjson.Fragment(envelope)}
    return {"keep": keep}


def _evict(context: Context, queue: str, most: int) -> list[Draft]:
    """Drop the oldest dead letters of a queue to make space for one more. Leased and quarantined ones stay."""
    record = context.store.queue(queue)
    if not most or record is None:
        return []
    pending = context.pending
    dying = pending.dying.setdefault(queue, deque())
    left = min(_EVICTIONS, record.counts[State.DEAD] - pending.evicted.get(queue, 0) + len(dying) + 1 - most)
    drafts: list[Draft] = []
    text = f"its queue keeps {most} dead letters"
    for _ in range(_EVICTION_PAGES if left > 0 else 0):
        page = context.store.pages.dead(queue, pending.evicted_up_to.get(queue, (-1, -1)), _EVICTIONS)
        for entry in page:
            pending.evicted_up_to[queue] = (entry.dead_at, entry.seq)
            if entry.lease_id or entry.phase == QUARANTINED or entry.key in pending.settled:
                continue
            drafts += dropped(entry, ReasonCode.QUEUE_FULL, text)
            pending.settled.add(entry.key)
            pending.evicted[queue] = pending.evicted.get(queue, 0) + 1
            left -= 1
            if left == 0:
                break
        if left <= 0 or not page:
            break
    while left > 0 and dying:  # those of the same request
        entry = dying.popleft()
        drafts += dropped(entry, ReasonCode.QUEUE_FULL, text)
        pending.settled.add(entry.key)
        left -= 1
    return drafts
