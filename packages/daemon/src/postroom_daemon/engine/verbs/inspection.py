"""browse, get_message, list_inflight, list_consumers: show messages and their consumers without changing anything."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import nsmallest
from itertools import chain
from typing import Any, Final

import orjson

from postroom_common.body import Form, Message, Part, preview, value_to_wire
from postroom_common.errors import CommandError
from postroom_common.events import Event
from postroom_common.log_blocks import open_block
from postroom_common.protocol import ErrorCode, State

from ...model.principal import account_fields
from ...model.records import Entry, message_id_of
from ...model.request import MessageView
from ...policy.access_rules import Verb
from ..context import Context, Decision, Work
from ..fields import Fields
from ..filters import Filter
from ..replies import shown_priority, stored_to_wire
from ..selection import Page, select, select_leases
from .lookup import as_of, check_payload_as, message_at, message_of, named_states

#: Maximum size of the bodies on one page; a page of large ones is shorter than requested.
PAGE_BYTES: Final = 2 * 1024 * 1024
#: Fields of an event that are not shown: the body, and those that only the daemon needs.
_INTERNAL: Final = ("message", "body", "content", "crc", "req", "grp", "gn", "n", "epoch", "reply", "key")


def browse(context: Context, fields: Fields) -> Decision:
    """A page of a queue's messages in a state, in the order of delivery. Raises ``CommandError``."""
    queue, state = fields["queue"], fields["state"]
    context.require(Verb.BROWSE, queue)
    if state not in list(State):
        raise CommandError(ErrorCode.INVALID_REQUEST, f"state must be one of {named_states(State)}")
    wanted = Filter(fields["filter"])
    page = select(context, queue, (State(state),), wanted, fields["after"], fields["limit"])
    fitting = _count_that_fits(page.entries)
    if fitting < len(page.entries):
        page = select(context, queue, (State(state),), wanted, fields["after"], fitting)
    return _listed(context, [_browsed(context, entry, fields) for entry in page.entries], page, queue, state=state)


def get_message(context: Context, fields: Fields) -> Decision:
    """A message in any state, and its events in the journal. Raises ``CommandError`` (ERR_MESSAGE_NOT_FOUND) if it does
    not exist, unless its events are requested and there are any."""
    key, payload_as = fields["messageKey"], fields["payloadAs"]
    check_payload_as(fields)
    entry = message_at(context, key, Verb.BROWSE)
    key = entry.key if entry else key
    data: dict[str, Any] = {"messageKey": key, "state": entry.state if entry else "gone"}
    if entry:
        is_short = payload_as == "none"
        data["message"] = _facts(context, entry) if is_short else _complete(context, entry, payload_as == "value")
        data["failures"] = context.store.facts.history(entry)
    data |= as_of(context)
    if fields["events"]:
        return Decision(work=_with_history(context, key, data, fields["events"], _hidden_lease(context, entry)))
    if entry is None:
        raise CommandError(ErrorCode.MESSAGE_NOT_FOUND, _unknown(key, data))
    return Decision(data=data)


def _with_history(context: Context, key: str, data: dict[str, Any], limit: int, hidden: str) -> Work:
    history = yield from context.vitals.history(key, limit)
    events = [_shown_event(event, hidden) for event in history.events if _may_see(context, event)]
    data |= {"events": events, "completeFrom": history.complete_from}
    data["cut"] = history.cut
    if data["state"] == "gone" and not data["events"]:
        raise CommandError(ErrorCode.MESSAGE_NOT_FOUND, _unknown(key, data))
    return data


def list_inflight(context: Context, fields: Fields) -> Decision:
    """A page of leased messages and dead letters, by the end of the lease. Raises ``CommandError``."""
    if fields["queue"]:
        context.require(Verb.BROWSE, fields["queue"])
    page = select_leases(context, fields["queue"], fields["after"], fields["limit"])
    page.entries = [entry for entry in page.entries if context.may(Verb.BROWSE, entry.queue)]
    return _listed(context, [_facts(context, entry) for entry in page.entries], page, fields["queue"])


def list_consumers(context: Context, fields: Fields) -> Decision:
    """A page of the consumers that wait by pattern, by name and pattern, and then of those that have consumed since the
    start or have leases, by queue and name. Raises ``CommandError``."""
    queue, after, limit = fields["queue"], _read_cursor(fields["after"]), fields["limit"]
    if queue:
        context.require(Verb.BROWSE, queue)
    listed = context.consumers.listed(queue)
    consumers = {(of, name): consumer for of, name, consumer in listed if context.may(Verb.BROWSE, of)}
    waiting = _waiting_by_pattern(context, queue)
    keys: Iterator[tuple[str, ...]] = chain(waiting, consumers)
    page = nsmallest(limit + 1, (key for key in keys if key > after))
    rows, by_pattern = [], []
    for key in page[:limit]:
        if len(key) == 2:
            consumer = consumers[key]
            rows.append(
                {
                    "queue": key[0],
                    "consumerId": key[1],
                    "inflight": consumer.leased,
                    "delivered": consumer.delivered,
                    "lastAskedEngineMs": consumer.asked or None,
                    "lastDeliveredEngineMs": consumer.delivered_at or None,
                }
            )
        else:
            _, name, pattern = key
            by_pattern.append({"queuePattern": pattern, "consumerId": name, "waiting": waiting[key]})
    data: dict[str, Any] = {"consumers": rows, "count": len(rows)}
    if by_pattern:
        data["waitingByPattern"] = by_pattern
    data["next"] = _cursor_of(page[limit - 1]) if len(page) > limit else ""
    return Decision(data=data | as_of(context))


def _waiting_by_pattern(context: Context, queue: str) -> Counter[tuple[str, ...]]:
    """How many requests wait by pattern, by "" (they sort before all queues), name of the consumer, and pattern: of all
    accounts for an operator, and if everyone may browse; else those of the account. With ``queue``, those that could
    get its messages."""
    access, account = context.access, context.who.account
    is_all = access.is_open(Verb.BROWSE) or access.is_operator(account)
    waiting: Counter[tuple[str, ...]] = Counter()
    for one in context.subscriptions.by_pattern(queue):
        who, payload = one.request.who, one.request.wire.payload
        if (is_all or who.account == account) and (not queue or access.may(who.account, Verb.CONSUME, queue)):
            waiting["", payload.get("consumerId") or who.client_id, payload["queuePattern"]] += 1
    return waiting


def _listed(
    context: Context, rows: Sequence[MessageView | dict[str, Any]], page: Page, queue: str, **more: Any
) -> Decision:
    data = {"queue": queue, **more, "count": len(rows), "messages": rows, "next": page.next}
    return Decision(data=data | as_of(context))


def _count_that_fits(entries: list[Entry]) -> int:
    """How many messages fit on a page by size; at least one."""
    size = 0
    for number, entry in enumerate(entries):
        if number and size + entry.size > PAGE_BYTES:
            return number
        size += entry.size
    return len(entries)


def _browsed(context: Context, entry: Entry, fields: Fields) -> MessageView | dict[str, Any]:
    if fields["fullBodies"]:
        return _complete(context, entry, as_value=False)
    message = _message_of(context, entry)
    if message is None:
        return _facts(context, entry) | {"preview": "", "bytes": 0, "bodyLost": True}
    shown = preview(message.body, fields["previewBytes"]) if message.parts else ""
    return _facts(context, entry) | {"preview": shown, "bytes": message.size}


def _complete(context: Context, entry: Entry, as_value: bool) -> MessageView | dict[str, Any]:
    facts, message = _facts(context, entry), _message_of(context, entry)
    if message is None:
        return facts | {"bodyLost": True}
    view = stored_to_wire(entry, message, as_value, entry.attempt)
    if not message.parts:  # a draft of which no part is set
        attributes = value_to_wire(view.attributes, as_value)
        return facts | view.fields | {"payload": None, "attributes": attributes, "parts": [], "bytes": 0}
    view.fields = facts | view.fields | {"bytes": message.size}
    return view


def _message_of(context: Context, entry: Entry) -> Message | None:
    """As ``message_of``; of a record that is appended later, body and attributes."""
    message, record = message_of(context, entry), context.store.queue(entry.queue)
    if message is None or record is None or record.log is None:
        return message
    part, attributes = open_block(message.body.data)
    return Message((part,), Part(orjson.dumps(attributes), Form.JSON))


def _facts(context: Context, entry: Entry) -> dict[str, Any]:
    """The fields of a message except its body; those that do not apply are left out."""
    now = context.now
    shown: dict[str, Any] = {
        "messageKey": entry.key,
        "messageId": message_id_of(entry.key),
        "queue": entry.queue,
        "state": entry.state,
        "priority": shown_priority(entry),
        "attempt": entry.attempt,
        "createdAt": entry.created_wall,
        "ageMs": now.engine - entry.created,
    }
    texts = {"targetConsumerId": entry.target, "orderingKey": entry.order_key, "phase": entry.phase, "name": entry.name}
    times = {"expiresEngineMs": entry.expires, "targetFallbackEngineMs": entry.fallback, "deliverAt": entry.due_wall}
    own = {"retryLimit": entry.retry_limit, "unset": entry.unset}
    shown |= {name: value for name, value in (texts | times | own).items() if value}
    if entry.state in (State.DELAYED, State.GATHERING, State.HELD) and entry.due > now.engine:
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
        last = (context.store.facts.history(entry) or [{}])[-1]
        shown |= {
            "reasonCode": entry.reason or last.get("reasonCode", ""),
            "reason": last.get("reasonMessage", ""),
            "diedAtEngineMs": entry.dead_at,
            "dlqAt": last.get("failedAtMs", 0),
        }
    if entry.state is State.DONE:
        shown["doneAtEngineMs"] = entry.dead_at
    return shown


def _may_see(context: Context, event: Event) -> bool:
    """Whether the user may see an event: the message may have been in other queues."""
    return all(context.may(Verb.BROWSE, event[name]) for name in ("queue", "to") if name in event)


def _hidden_lease(context: Context, entry: Entry | None) -> str:
    """The lease to hide from the user, because it allows to settle the message; '' for its holder and for operators."""
    account = context.who.account
    if entry is None or entry.holder_uid == str(account) or context.access.is_operator(account):
        return ""
    return entry.lease_id


def _shown_event(event: Event, hidden: str) -> dict[str, Any]:
    """An event as it is shown, without bodies and without the ``hidden`` lease."""
    shown = {name: value for name, value in event.items() if name not in _INTERNAL}
    if hidden and shown.get("lease") == hidden:
        del shown["lease"]
    if "by" in event:
        by = event["by"]
        who = "principal" if "principal" in by else "uid"
        shown["by"] = {name: by.get(name) for name in (who, "client", "request")}
        shown["by"] |= {name: by[name] for name in ("door", "traceparent") if name in by}
    return shown


def _unknown(key: str, data: dict[str, Any]) -> str:
    text = f"no message has the key {key!r}"
    if "events" not in data:
        return f"{text}; with events its history is looked for"
    if data["cut"]:
        return f"{text}, and the journal does not name it from event {data['completeFrom']} on, where the look ended"
    return f"{text}, and the journal does not name it"


def _cursor_of(place: tuple[str, ...]) -> str:
    return urlsafe_b64encode(orjson.dumps(place)).decode().rstrip("=")


def _read_cursor(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    try:
        place = orjson.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except ValueError:
        place = None
    if type(place) is not list or any(type(name) is not str for name in place):
        raise CommandError(ErrorCode.INVALID_REQUEST, "after must be the next of an earlier page")
    return tuple(place)
