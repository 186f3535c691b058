"""browse, get_message, list_inflight, list_consumers: messages, and who has them, without changing anything."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from heapq import nsmallest
from typing import Any, Final

import orjson

from postroom_common.body import preview
from postroom_common.errors import CommandError
from postroom_common.events import Event
from postroom_common.protocol import ErrorCode, State

from ...model.principal import account_fields
from ...model.records import Entry, history_fact, message_id_of
from ...model.request import MessageView
from ...policy.access_rules import Verb
from ..context import Context, Decision, Work
from ..fields import Fields
from ..filters import Filter
from ..replies import stored_to_wire
from ..selection import Page, select, select_leases
from .lookup import as_of, message_at, message_of

#: Bodies that one page reads; a page of large ones is shorter than asked.
PAGE_BYTES: Final = 2 * 1024 * 1024
#: Fields of an event that are not shown: its body, and what only the daemon needs.
_INTERNAL: Final = ("message", "body", "crc", "req", "grp", "gn", "n", "epoch", "reply", "key")


def browse(context: Context, fields: Fields) -> Decision:
    """A page of a queue's messages in a state, in the order in which they come next. Raises ``CommandError``."""
    queue, state = fields["queue"], fields["state"]
    context.require(Verb.BROWSE, queue)
    if state not in list(State):
        raise CommandError(ErrorCode.INVALID_REQUEST, f"state must be one of {', '.join(State)}")
    wanted = Filter(fields["filter"])
    page = select(context, queue, (State(state),), wanted, fields["after"], fields["limit"])
    fitting = _fitting(page.entries)
    if fitting < len(page.entries):
        page = select(context, queue, (State(state),), wanted, fields["after"], fitting)
    return _listed(context, [_browsed(context, entry, fields) for entry in page.entries], page, queue, state=state)


def get_message(context: Context, fields: Fields) -> Decision:
    """A message in whatever state, and what the journal tells of it. Raises ``CommandError`` (ERR_MESSAGE_NOT_FOUND)
    for one that is gone, unless its history is asked for and there is one."""
    key, as_value = fields["messageKey"], fields["payloadAs"] == "value"
    if fields["payloadAs"] not in ("text", "value"):
        raise CommandError(ErrorCode.INVALID_REQUEST, "payloadAs must be text or value")
    entry = message_at(context, key, Verb.BROWSE)
    told: dict[str, Any] = {"messageKey": key, "state": entry.state if entry else "gone"}
    if entry:
        told["message"] = _complete(context, entry, as_value)
        told["failures"] = (context.store.get_kv(history_fact(key)) or []) if entry.failures else []
    told |= as_of(context)
    if fields["events"]:
        return Decision(work=_with_history(context, key, told, fields["events"], _hidden_lease(context, entry)))
    if entry is None:
        raise CommandError(ErrorCode.MESSAGE_NOT_FOUND, _unknown(key, told))
    return Decision(data=told)


def _with_history(context: Context, key: str, told: dict[str, Any], limit: int, hidden: str) -> Work:
    history = yield from context.vitals.history(key, limit)
    events = [_told(event, hidden) for event in history.events if _may_see(context, event)]
    told |= {"events": events, "completeFrom": history.complete_from}
    told["cut"] = history.cut
    if told["state"] == "gone" and not told["events"]:
        raise CommandError(ErrorCode.MESSAGE_NOT_FOUND, _unknown(key, told))
    return told


def list_inflight(context: Context, fields: Fields) -> Decision:
    """A page of what is leased, dead letters with it, the lease that ends first before all others. Raises
    ``CommandError``."""
    if fields["queue"]:
        context.require(Verb.BROWSE, fields["queue"])
    page = select_leases(context, fields["queue"], fields["after"], fields["limit"])
    page.entries = [entry for entry in page.entries if context.may(Verb.BROWSE, entry.queue)]
    return _listed(context, [_facts(context, entry) for entry in page.entries], page, fields["queue"])


def list_consumers(context: Context, fields: Fields) -> Decision:
    """A page of those that have consumed since the start, or hold messages, by queue and name. Raises
    ``CommandError``."""
    if fields["queue"]:
        context.require(Verb.BROWSE, fields["queue"])
    known = context.consumers.listed(fields["queue"])
    known = [one for one in known if context.may(Verb.BROWSE, one[0])]
    after, limit = _read_place(fields["after"]), fields["limit"]
    found = nsmallest(limit + 1, (one for one in known if one[:2] > after), key=lambda one: one[:2])
    rows = [
        {
            "queue": queue,
            "consumerId": name,
            "inflight": consumer.leased,
            "delivered": consumer.delivered,
            "lastAskedEngineMs": consumer.asked or None,
            "lastDeliveredEngineMs": consumer.delivered_at or None,
        }
        for queue, name, consumer in found[:limit]
    ]
    following = _written_place(found[limit - 1][:2]) if len(found) > limit else ""
    return Decision(data={"consumers": rows, "count": len(rows), "next": following, **as_of(context)})


def _listed(
    context: Context, rows: Sequence[MessageView | dict[str, Any]], page: Page, queue: str, **more: Any
) -> Decision:
    told = {"queue": queue, **more, "count": len(rows), "messages": rows, "next": page.next}
    return Decision(data=told | as_of(context))


def _fitting(entries: list[Entry]) -> int:
    """How many messages of a page may be read: at least one, and no more bytes than a page has."""
    size = 0
    for number, entry in enumerate(entries):
        if number and size + entry.size > PAGE_BYTES:
            return number
        size += entry.size
    return len(entries)


def _browsed(context: Context, entry: Entry, fields: Fields) -> MessageView | dict[str, Any]:
    if fields["fullBodies"]:
        return _complete(context, entry, as_value=False)
    message = message_of(context, entry)
    if message is None:
        return _facts(context, entry) | {"preview": "", "bytes": 0, "bodyLost": True}
    body = message.body
    return _facts(context, entry) | {"preview": preview(body, fields["previewBytes"]), "bytes": message.size}


def _complete(context: Context, entry: Entry, as_value: bool) -> MessageView | dict[str, Any]:
    facts, message = _facts(context, entry), message_of(context, entry)
    if message is None:
        return facts | {"bodyLost": True}
    view = stored_to_wire(entry, message, as_value, entry.attempt)
    return view._replace(fields=facts | view.fields | {"bytes": message.size})


def _facts(context: Context, entry: Entry) -> dict[str, Any]:
    """What is known of a message beside its body; what does not apply is left out."""
    now = context.now
    shown: dict[str, Any] = {
        "messageKey": entry.key,
        "messageId": message_id_of(entry.key),
        "queue": entry.queue,
        "state": entry.state,
        "priority": entry.priority,
        "attempt": entry.attempt,
        "createdAt": entry.created_wall,
        "ageMs": now.engine - entry.created,
    }
    texts = {"targetConsumerId": entry.target, "orderingKey": entry.order_key, "phase": entry.phase}
    times = {"expiresEngineMs": entry.expires, "targetFallbackEngineMs": entry.fallback, "deliverAt": entry.due_wall}
    shown |= {name: value for name, value in (texts | times).items() if value}
    if entry.state in (State.DELAYED, State.HELD) and entry.due > now.engine:
        shown["availableAtEngineMs"] = entry.due
    if entry.lease_id:
        shown |= {
            "consumerId": entry.consumer_id,
            "leasedAtEngineMs": entry.leased_at,
            "leaseUntilEngineMs": entry.lease_until,
            "leaseUntil": now.wall + entry.lease_until - now.engine,
            "overdue": entry.lease_until <= now.engine,
        }
        if entry.holder_uid:
            shown |= account_fields(entry.holder_uid)
    if entry.state is State.DEAD:
        last = (context.store.get_kv(history_fact(entry.key)) or [{}])[-1]
        shown |= {
            "reasonCode": entry.reason or last.get("reasonCode", ""),
            "reason": last.get("reasonMessage", ""),
            "diedAtEngineMs": entry.dead_at,
            "dlqAt": last.get("failedAtMs", 0),
        }
    return shown


def _may_see(context: Context, event: Event) -> bool:
    """Whether an event is for the user: a message may have been in other queues."""
    return all(context.may(Verb.BROWSE, event[name]) for name in ("queue", "to") if name in event)


def _hidden_lease(context: Context, entry: Entry | None) -> str:
    """The lease that a message has, unless the user got it or is an operator: who knows it can settle the message."""
    account = context.who.account
    if entry is None or entry.holder_uid == str(account) or context.access.is_operator(account):
        return ""
    return entry.lease_id


def _told(event: Event, hidden: str) -> dict[str, Any]:
    """An event of a history, without bodies, and without the lease that is ``hidden``."""
    shown = {name: value for name, value in event.items() if name not in _INTERNAL}
    if hidden and shown.get("lease") == hidden:
        del shown["lease"]
    if "by" in event:
        by = event["by"]
        who = "principal" if "principal" in by else "uid"
        shown["by"] = {name: by.get(name) for name in (who, "client", "request")}
        if "traceparent" in by:
            shown["by"]["traceparent"] = by["traceparent"]
    return shown


def _unknown(key: str, told: dict[str, Any]) -> str:
    text = f"no message has the key {key!r}"
    if "events" not in told:
        return f"{text}; with events its history is looked for"
    if told["cut"]:
        return f"{text}, and the journal does not name it from event {told['completeFrom']} on, where the look ended"
    return f"{text}, and the journal does not name it"


def _written_place(place: tuple[str, ...]) -> str:
    return urlsafe_b64encode(orjson.dumps(place)).decode().rstrip("=")


def _read_place(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    try:
        place = orjson.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except ValueError:
        place = None
    if type(place) is not list or any(type(name) is not str for name in place):
        raise CommandError(ErrorCode.INVALID_REQUEST, "after must be the next of an earlier page")
    return tuple(place)
