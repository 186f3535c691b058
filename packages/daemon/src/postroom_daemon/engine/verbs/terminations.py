"""How messages end: what becomes of one that dies, is dropped, or is done."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any, Final

from postroom_common.events import EventType
from postroom_common.protocol import ReasonCode, State

from ...model.records import Entry
from ..context import Context, Draft

#: The phase of a dead letter that is set apart: nothing but its own key brings it back.
QUARANTINED: Final = "quarantined"
#: Letters that give way to one, where the policy was made stricter: the chore of retention sees to the rest.
_GIVE_WAY: Final = 100
#: Pages of letters that are looked at for some that may give way.
_GIVE_WAY_PAGES: Final = 20


def about(type_: EventType, entry: Entry) -> Draft:
    """An event about a message; its lease is named where it has one."""
    draft = {"type": type_, "queue": entry.queue, "key": entry.key}
    if entry.lease_id:
        draft["lease"] = entry.lease_id
    return draft


def gone(type_: EventType, entry: Entry) -> Draft:
    """An event after which the message is there no longer: its claim ends with it."""
    draft = about(type_, entry)
    if entry.claim:
        draft["claim"] = entry.claim
    return draft


def failure(entry: Entry, code: ReasonCode, reason: str) -> dict[str, Any]:
    """Why a message, or an attempt at it, has failed."""
    return {
        "reasonCode": code,
        "reasonMessage": reason,
        "attempt": entry.attempt,
        "consumerId": entry.consumer_id,
    }


def dropped(entry: Entry, code: ReasonCode, reason: str) -> list[Draft]:
    """The message is removed without having been worked on, which is counted."""
    return [gone(EventType.DROPPED, entry) | {"failure": failure(entry, code, reason)}]


def died(context: Context, entry: Entry, why: dict[str, Any], phase: str = "") -> list[Draft]:
    """The message is dead, or dropped where its queue keeps no dead letters. ``why`` is its ``failure``; the last event
    is its own. Where there are as many letters as the queue keeps, the oldest give way before it."""
    policy = context.policies.effective(entry.queue, context.store.queue(entry.queue))
    if not policy.dlq_enabled:
        return [gone(EventType.DROPPED, entry) | {"failure": why}]
    end = about(EventType.DIED, entry) | {"failure": why}
    if phase:
        end["phase"] = phase
    drafts = [*_give_way(context, entry.queue, policy.dlq_max_messages), end]
    context.pending.dying.setdefault(entry.queue, deque()).append(
        replace(entry, state=State.DEAD, lease_id="", consumer_id="")
    )
    return drafts


def _give_way(context: Context, queue: str, most: int) -> list[Draft]:
    """Drop the oldest dead letters of a queue, so that one more is not too many. Those that are leased or quarantined
    do not give way."""
    record = context.store.queue(queue)
    if not most or record is None:
        return []
    pending = context.pending
    dying = pending.dying.setdefault(queue, deque())
    left = min(_GIVE_WAY, record.counts[State.DEAD] - pending.evicted.get(queue, 0) + len(dying) + 1 - most)
    drafts: list[Draft] = []
    text = f"its queue keeps {most} dead letters"
    for _ in range(_GIVE_WAY_PAGES if left > 0 else 0):
        page = context.store.pages.dead(queue, pending.evicted_up_to.get(queue, (-1, -1)), _GIVE_WAY)
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
    while left > 0 and dying:  # of the same request
        entry = dying.popleft()
        drafts += dropped(entry, ReasonCode.QUEUE_FULL, text)
        pending.settled.add(entry.key)
        left -= 1
    return drafts
