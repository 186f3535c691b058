"""hold, unhold, move, purge, delete_queue, drain: commands of operators."""

from __future__ import annotations

from typing import Final

from postroom_common.errors import CommandError
from postroom_common.events import EventType
from postroom_common.protocol import ErrorCode, ReasonCode, State

from ...model.facts import FACT_DRAINING
from ...model.records import Entry, QueueRecord
from ...policy.access_rules import Verb
from ...stores.base import Cursor
from ..context import Context, Decision, Draft
from ..fields import Fields
from ..filters import Filter
from ..selection import Page, select
from .addresses import queue_created, queue_deleted, refuse_address, refuse_log
from .lookup import check_state, existing_message, existing_queue, named_states
from .terminations import QUARANTINED, about, dropped

#: Maximum number of messages that one request discards with their queue.
DISCARDED = 1000
_FIRST_PAGE: Final[Cursor] = ()
#: In place of a state: messages in every state.
_ANY: Final = "any"
#: States of the backlog, in the order in which a request visits them, so that it does not miss a message that becomes
#: due or is unheld meanwhile.
WAITING: Final = (State.HELD, State.GATHERING, State.DELAYED, State.READY)
_PURGED: Final = (State.DRAFTING, *WAITING)


def hold(context: Context, fields: Fields) -> Decision:
    """Put a ready or delayed message on hold. Raises ``CommandError`` if it does not exist or is in another state."""
    entry = existing_message(context, fields["messageKey"], Verb.OPERATE)
    if entry.state not in (State.READY, State.DELAYED):
        raise CommandError(
            ErrorCode.INVALID_REQUEST, f"{entry.key} is {entry.state}: only ready and delayed messages can be held"
        )
    draft = about(EventType.HELD, entry)
    if fields["reason"]:
        draft["reason"] = fields["reason"]
    return _done([draft], {"messageKey": entry.key, "state": State.HELD})


def unhold(context: Context, fields: Fields) -> Decision:
    """End the hold of a message: it becomes ready, or delayed if it is not due yet. Raises ``CommandError`` if it is
    not on hold."""
    entry, now = existing_message(context, fields["messageKey"], Verb.OPERATE), context.now
    if entry.state is not State.HELD:
        raise CommandError(ErrorCode.INVALID_REQUEST, f"{entry.key} is not held: it is {entry.state}")
    due = entry.due
    if entry.due_wall and not entry.attempt and not entry.failures:  # the wall clock may have been set meanwhile
        due = entry.due_wall - now.wall + now.engine
    draft = about(EventType.UNHELD, entry)
    data: Draft = {"messageKey": entry.key, "state": State.READY}
    if due <= now.engine:
        return _done([draft], data)
    draft["dueEngineMs"] = due
    data |= {"state": State.DELAYED, "availableAtEngineMs": due, "engineNowMs": now.engine}
    return _done([draft], data)


def purge(context: Context, fields: Fields) -> Decision:
    """Drop a page of a queue's messages, with one counted event each; leased and quarantined dead letters stay, except
    with the state ``any``, or with ``messageKey``, which names one message in any state. With ``resetTally``, the last
    page sets the tally of the queue to 0. Raises ``CommandError`` (ERR_QUEUE_NOT_FOUND, ERR_MESSAGE_NOT_FOUND,
    ERR_BAD_STATE, and ERR_INVALID_REQUEST for messages in flight)."""
    record = existing_queue(context, fields["queue"], Verb.OPERATE)
    queue, is_any = record.name, fields["state"] == _ANY
    if fields["messageKey"]:
        selected = Page([_named(context, fields, queue)], "")
        is_any = True
    elif fields["ifState"]:
        raise CommandError(ErrorCode.INVALID_REQUEST, "ifState is for the message that messageKey names")
    else:
        selected = _selected(context, fields, queue, _PURGED, State.DEAD, State.DONE)
    entries = selected.entries
    if not is_any:
        entries = [entry for entry in entries if not entry.lease_id and entry.phase != QUARANTINED]
    elif len(entries) == sum(record.counts.values()):
        selected = Page(entries, "")
    text = f"purged by {context.who.client_id}"
    drafts = [draft for entry in entries for draft in dropped(entry, ReasonCode.PURGED, text)]
    if fields["resetTally"] and not selected.next:
        drafts.append({"type": EventType.TALLY_RESET, "queue": queue})
    return _paged(context, fields, drafts, {"queue": queue, "purged": len(entries)}, selected)


def _named(context: Context, fields: Fields, queue: str) -> Entry:
    """The message that a purge names. Raises ``CommandError``."""
    if fields["state"] or fields["filter"] is not None:
        raise CommandError(ErrorCode.INVALID_REQUEST, "messageKey names one message: no state or filter beside it")
    entry = existing_message(context, fields["messageKey"], Verb.OPERATE)
    if entry.queue != queue:
        raise CommandError(ErrorCode.MESSAGE_NOT_FOUND, f"{entry.key} is not in queue {queue!r}")
    check_state(entry, fields["ifState"])
    return entry


def move(context: Context, fields: Fields) -> Decision:
    """Move a message, or a page of a queue's messages, to another queue; requires ``operate`` in both. Raises
    ``CommandError``."""
    key, target = fields["messageKey"], fields["to"]
    context.require(Verb.OPERATE, target)
    refuse_address(context, target)
    refuse_log(context, target, "append adds records to it")
    if not key and not fields["queue"]:
        raise CommandError(ErrorCode.INVALID_REQUEST, "give messageKey, or the queue that they are in")
    if key:
        if fields["queue"] or fields["state"] or fields["filter"] is not None:
            raise CommandError(
                ErrorCode.INVALID_REQUEST, "messageKey names one message: no queue, state or filter beside it"
            )
        selected = Page([_movable(existing_message(context, key, Verb.OPERATE))], "")
        source = selected.entries[0].queue
        refuse_log(context, source, "its records stay, and those that are delayed belong to it")
    else:
        source = existing_queue(context, fields["queue"], Verb.OPERATE).name
        refuse_log(context, source, "its records stay, and those that are delayed belong to it")
        selected = _selected(context, fields, source, WAITING)
    if source == target:
        raise CommandError(ErrorCode.INVALID_REQUEST, f"queue and to are the same: {target!r}")
    drafts: list[Draft] = []
    if selected.entries and context.store.queue(target) is None:
        drafts.append(queue_created(context, target))
    for entry in selected.entries:
        draft = about(EventType.MOVED, entry) | {"to": target}
        if entry.expires:
            draft["expiresEngineMs"] = entry.expires
        drafts.append(draft)
    return _paged(context, fields, drafts, {"queue": source, "to": target, "moved": len(selected.entries)}, selected)


def delete_queue(context: Context, fields: Fields) -> Decision:
    """Delete a queue that is empty, or whose messages are to be discarded. Raises ``CommandError``:
    ERR_QUEUE_NOT_FOUND, ERR_QUEUE_NOT_EMPTY."""
    record = existing_queue(context, fields["queue"], Verb.OPERATE)
    drafts: list[Draft] = []
    data: Draft = {"queue": record.name, "deleted": True}
    if fields["discard"]:
        entries = any_messages(context, record)
        text = f"discarded by {context.who.client_id}"
        drafts = [draft for entry in entries for draft in dropped(entry, ReasonCode.PURGED, text)]
        data = {"queue": record.name, "deleted": len(entries) == sum(record.counts.values()), "discarded": len(entries)}
        if drafts and not data["deleted"]:
            return _done(drafts, data)
    left = [f"{count} {state}" for state, count in record.counts.items() if count]
    if record.log and record.log.records and not fields["discard"]:
        left.append(f"{record.log.records} records")
    if left and not drafts:
        raise CommandError(ErrorCode.QUEUE_NOT_EMPTY, f"queue {record.name!r} holds messages: {', '.join(left)}")
    return _done([*drafts, queue_deleted(record, "requested")], data)


def any_messages(context: Context, record: QueueRecord) -> list[Entry]:
    """Messages of a queue in any state, ``DISCARDED`` at most; all of them if there are fewer."""
    entries: list[Entry] = []
    for state in State:
        left, after = record.counts[state], _FIRST_PAGE
        while left > 0 and len(entries) < DISCARDED:
            page, after = context.store.pages.scan(record.name, state, after, DISCARDED - len(entries))
            entries += page
            left -= len(page)
            if not after:
                break
    return entries


def drain(context: Context, fields: Fields) -> Decision:
    """Stop or resume accepting new messages in all queues."""
    draining, store = fields["draining"], context.store
    if bool(store.facts.get(FACT_DRAINING)) == draining:
        return Decision(data={"draining": draining, "asOfEvent": store.applied}, once=True)
    return _done([{"type": EventType.DRAIN_SET, "draining": draining}], {"draining": draining})


_IN_FLIGHT: Final = "what is in flight is its consumer's until the lease ends"
#: Prefix of an ``after`` that requires another pass over the queue; alone it starts that pass.
_AGAIN: Final = "again."


def _selected(context: Context, fields: Fields, queue: str, usual: tuple[State, ...], *others: State) -> Page:
    """A page of the messages that a request changes, in the ``usual`` states unless it names one of these or of
    ``others``; without those that are published after its first page.

    When a message with an ordering key is removed, the next one of the key may appear before the page, which requires
    another pass. Raises ``CommandError`` for an invalid state, filter or cursor.
    """
    states, allowed = usual, (*usual, *others)
    if fields["state"] == _ANY and State.DEAD in allowed:
        states = (*usual, State.INFLIGHT, State.DEAD, State.DONE)
    elif fields["state"]:
        if fields["state"] not in allowed:
            why = f": {_IN_FLIGHT}" if fields["state"] == State.INFLIGHT else ""
            raise CommandError(ErrorCode.INVALID_REQUEST, f"state must be one of {named_states(allowed)}{why}")
        states = (State(fields["state"]),)
    after, again = fields["after"], False
    if after.startswith(_AGAIN):
        after, again = after[len(_AGAIN) :], after != _AGAIN
    page = select(context, queue, states, Filter(fields["filter"]), after, fields["limit"], _up_to(context, fields))
    is_any = fields["state"] == _ANY  # others may come to a state that was looked through before
    again |= not fields["dryRun"] and any(entry.order_key or is_any for entry in page.entries)
    return Page(page.entries, _AGAIN + page.next if again else page.next)


def _up_to(context: Context, fields: Fields) -> int:
    up_to: int | None = fields["upToEvent"]
    return context.store.applied if up_to is None else up_to


def _done(drafts: list[Draft], data: Draft) -> Decision:
    return Decision(drafts, reply={"as": "operation", "data": data})


def _paged(context: Context, fields: Fields, drafts: list[Draft], result: Draft, selected: Page) -> Decision:
    """The decision about a request that continues with the next page; a dry run changes nothing."""
    data = {**result, "next": selected.next, "upToEvent": _up_to(context, fields)}
    if drafts and not fields["dryRun"]:
        return _done(drafts, data)
    data["asOfEvent"] = context.store.applied
    return Decision(data=data | {"dryRun": True}) if fields["dryRun"] else Decision(data=data, once=True)


def _movable(entry: Entry) -> Entry:
    if entry.state is State.INFLIGHT:
        raise CommandError(ErrorCode.INVALID_REQUEST, f"{entry.key} is in flight: {_IN_FLIGHT}")
    if entry.state is State.DEAD:
        raise CommandError(ErrorCode.INVALID_REQUEST, f"{entry.key} is a dead letter: reprocess_dlq brings it back")
    if entry.state is State.DONE:
        raise CommandError(ErrorCode.INVALID_REQUEST, f"{entry.key} is done")
    if entry.state is State.DRAFTING:
        raise CommandError(ErrorCode.INVALID_REQUEST, f"{entry.key} is a draft: set its parts first")
    return entry
