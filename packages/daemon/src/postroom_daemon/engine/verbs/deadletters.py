"""list_dlq, count_dlq, reprocess_dlq, drop_dlq, quarantine_dlq: dead letters, which are a state of their own queue."""

from __future__ import annotations

from typing import Any, Final

from postroom_common.body import NO_PART, Message, preview
from postroom_common.errors import CommandError
from postroom_common.events import EventType
from postroom_common.policy import dlq_name
from postroom_common.protocol import ErrorCode, ReasonCode, State, queue_name_problem

from ...model.facts import last_failure
from ...model.records import NO_DEATHS, Entry, message_id_of
from ...model.request import NO_ATTRIBUTES, MessageView
from ...policy.access_rules import Verb
from ..context import Context, Decision, Draft
from ..fields import Fields
from ..filters import Filter
from ..replies import shown_priority
from ..selection import Page, dead_cursor, dead_letters, select_dead
from .addresses import (
    address_exists,
    queue_created,
    queues_meant_by,
    queues_with_dead_letters,
    refuse_address,
    refuse_log,
)
from .lookup import message_at, message_of
from .settle import return_to
from .terminations import QUARANTINED, about, dropped

#: Maximum size of the bodies on one page; a page of large ones is shorter than requested.
PAGE_BYTES: Final = 16 * 1024 * 1024
#: Maximum number of queues that an answer names.
_NAMED: Final = 1000


def list_dlq(context: Context, fields: Fields) -> Decision:
    """A page of dead letters, oldest death first. Raises ``CommandError`` for an invalid cursor or filter, and
    ERR_FORBIDDEN."""
    name = fields["queue"]
    queues = queues_with_dead_letters(context, name, Verb.BROWSE)
    page = select_dead(context, queues, Filter(fields["filter"]), fields["after"], fields["limit"])
    shown: list[dict[str, Any]] = []
    size = 0
    for entry in page.entries:
        if size > PAGE_BYTES:
            break
        wire = _to_wire(context, entry, fields)
        size += wire["bytes"]
        shown.append(wire)
    cut = len(shown) < len(page.entries)
    last = page.entries[len(shown) - 1] if cut else None
    return Decision(
        data={
            "queue": name,
            "count": len(shown),
            "messages": shown,
            "next": dead_cursor(last.dead_at, last.seq) if last else page.next,
            "asOfEvent": context.store.applied,
        }
    )


def _to_wire(context: Context, entry: Entry, fields: Fields) -> dict[str, Any]:
    message = message_of(context, entry)
    failures = context.store.facts.history(entry)
    failure = last_failure(failures)
    wire = {
        "messageKey": entry.key,
        "queue": entry.queue,
        "reason": failure["reasonMessage"],
        "reasonCode": failure["reasonCode"],
        "dlqAt": failure["failedAtMs"],
        "attempt": failure["attempt"],
        "consumerId": failure["consumerId"],
        "preview": preview(message.body, fields["previewBytes"]) if message else "",
        "bytes": message.size if message else 0,
    }
    if entry.name:
        wire["name"] = entry.name
    if entry.lease_id:
        wire["leased"] = True
    if entry.phase == QUARANTINED:
        wire["quarantined"] = True
    if message is None:
        wire["bodyLost"] = True
    elif fields["fullBodies"]:
        wire |= _complete(context, entry, message, failure) | {"failures": failures}
    return wire


def _complete(context: Context, entry: Entry, message: Message, failure: dict[str, Any]) -> dict[str, Any]:
    """A dead letter as in the documents of the C++ system: the message, its failure and its queues."""
    original: dict[str, Any] = {
        "messageId": message_id_of(entry.key),
        "queue": entry.queue,
        "priority": shown_priority(entry),
        "createdAt": entry.created_wall,
        **message.carried,
    }
    if entry.name:
        original["name"] = entry.name
    if entry.target:
        original["targetConsumerId"] = entry.target
    policy = context.policies.effective(entry.queue, context.store.queue(entry.queue))
    return {
        "originalMessage": MessageView(
            original, True, None, message.parts or (NO_PART,), message.attributes or NO_ATTRIBUTES
        ),
        "failure": failure,
        "routing": {"sourceQueue": entry.queue, "dlqQueue": dlq_name(entry.queue, policy)},
    }


def count_dlq(context: Context, fields: Fields) -> Decision:
    """Numbers of dead letters: now, by reason, recently died and ever died, and the ages of the oldest one and of the
    last death."""
    name = fields["queue"]
    return Decision(
        data={
            "queue": name,
            **summary(context, queues_meant_by(context, name, Verb.BROWSE)),
            "asOfEvent": context.store.applied,
        }
    )


def summary(context: Context, queues: list[str]) -> dict[str, Any]:
    """The figures of ``count_dlq`` for queues."""
    now, store = context.now.engine, context.store
    records = [record for queue in queues if (record := store.queue(queue))]
    reasons: dict[str, int] = {}
    for record in records:
        for code, count in record.reasons.items():
            reasons[code] = reasons.get(code, 0) + count
    with_dead = [record.name for record in records if record.counts[State.DEAD]]
    oldest = next(dead_letters(store, with_dead), None)
    newest = max((record.deaths for record in records), default=NO_DEATHS)
    return {
        "queues": queues[:_NAMED],
        "count": sum(record.counts[State.DEAD] for record in records),
        "byReason": reasons,
        "diedTotal": sum(record.totals.get("died", 0) for record in records),
        "diedLastHour": sum(record.deaths.in_last_hour(now) for record in records),
        "diedLastDay": sum(record.deaths.in_last_day(now) for record in records),
        "oldestAgeMs": now - oldest.dead_at if oldest else None,
        "newestAgeMs": now - newest.last if newest.slots else None,
        "newestAt": newest.last_wall if newest.slots else None,
    }


def reprocess_dlq(context: Context, fields: Fields) -> Decision:
    """Make dead letters ready again, in their own queue or another one, with attempts reset; their history stays.

    Pauses and limits of the queue do not apply, because the messages were accepted once. Another queue requires the
    permission ``operate`` there as well. Raises ``CommandError`` (ERR_FORBIDDEN, ERR_DLQ_NOT_FOUND,
    ERR_QUEUE_NOT_FOUND, ERR_BAD_STATE for a draft that was abandoned, and ERR_INVALID_REQUEST)."""
    target = fields["to"]
    problem = queue_name_problem(target) if target else None
    if problem:
        raise CommandError(ErrorCode.INVALID_REQUEST, f"to {problem}")
    if target:
        context.require(Verb.OPERATE, target)
        refuse_address(context, target)
        refuse_log(context, target, "append adds records to it")
    page = _selected(context, fields)
    if fields["messageKey"] and page.entries[0].unset:
        raise CommandError(ErrorCode.BAD_STATE, f"{page.entries[0].key} was abandoned as a draft: parts have no value")
    page = Page([entry for entry in page.entries if not entry.unset], page.next)
    drafts: list[Draft] = []
    if target and page.entries and context.store.queue(target) is None:
        drafts.append(queue_created(context, target))
    drafts += [_reprocessed(context, entry, target) for entry in page.entries]
    if fields["messageKey"] and not fields["dryRun"]:
        data = {"messageKey": page.entries[0].key, "reprocessed": True}
        return Decision(drafts, reply={"as": "data", "data": data})
    return _paged(context, fields, drafts, page, "reprocessed")


def _reprocessed(context: Context, entry: Entry, target: str) -> Draft:
    draft = about(EventType.REPROCESSED, entry)
    if target and target != entry.queue:
        draft["to"] = target
    queue = target or entry.queue
    policy = context.policies.effective(queue, context.store.queue(queue))
    if policy.ttl_ms:
        draft["expiresEngineMs"] = context.now.engine + policy.ttl_ms
    return draft | return_to(entry, policy)


def drop_dlq(context: Context, fields: Fields) -> Decision:
    """Remove dead letters, with one counted event each. Raises what ``reprocess_dlq`` raises."""
    page = _selected(context, fields)
    text = f"removed by {context.who.client_id}"
    drafts = [draft for entry in page.entries for draft in dropped(entry, ReasonCode.PURGED, text)]
    return _paged(context, fields, drafts, page, "dropped")


def quarantine_dlq(context: Context, fields: Fields) -> Decision:
    """Quarantine a dead letter, or end that. Raises ``CommandError`` (ERR_DLQ_NOT_FOUND)."""
    entry = _dead(context, fields["messageKey"])
    wanted = fields["quarantined"]
    data = {"messageKey": entry.key, "quarantined": wanted}
    if (entry.phase == QUARANTINED) == wanted:
        return Decision(data=data, once=True)
    draft = about(EventType.QUARANTINED, entry) | {"phase": QUARANTINED if wanted else ""}
    if fields["reason"]:
        draft["reason"] = fields["reason"]
    return Decision([draft], reply={"as": "data", "data": data})


def _selected(context: Context, fields: Fields) -> Page:
    """The dead letter that a request names, or a page of those that it selects, without leased and quarantined ones."""
    key, name = fields["messageKey"], fields["queue"]
    if key:
        if fields["filter"] is not None:
            raise CommandError(ErrorCode.INVALID_REQUEST, "messageKey names one letter: no filter beside it")
        entry = _dead(context, key)
        if entry.lease_id:
            text = f"{key} is leased to {entry.consumer_id}: wait until it is settled, or its lease ends"
            raise CommandError(ErrorCode.INVALID_REQUEST, text)
        return Page([entry], "")
    if not name:
        raise CommandError(ErrorCode.INVALID_REQUEST, "give messageKey, or the queue in which they died")
    queues, wanted = queues_with_dead_letters(context, name, Verb.OPERATE), Filter(fields["filter"])
    if not fields["after"] and not address_exists(context, name):
        text = f"there is no queue {name!r}, nor dead letters of that name"
        raise CommandError(ErrorCode.QUEUE_NOT_FOUND, text)
    page = select_dead(context, queues, wanted, fields["after"], fields["limit"], bounded=True)
    return Page([one for one in page.entries if not one.lease_id and one.phase != QUARANTINED], page.next)


def _paged(context: Context, fields: Fields, drafts: list[Draft], page: Page, word: str) -> Decision:
    data: dict[str, Any] = {word: len(page.entries), "next": page.next}
    if drafts and not fields["dryRun"]:
        return Decision(drafts, reply={"as": "data", "data": data})
    if fields["dryRun"]:
        return Decision(data=data | {"dryRun": True})
    return Decision(data=data, once=True)


def _dead(context: Context, key: str) -> Entry:
    entry = message_at(context, key, Verb.OPERATE)
    if entry is None or entry.state is not State.DEAD:
        raise CommandError(ErrorCode.DLQ_NOT_FOUND, f"no dead letter has the key {key!r}")
    return entry
