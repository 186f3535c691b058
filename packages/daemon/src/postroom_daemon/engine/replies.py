"""Builds the answer to a request from its events: at once, and again for a repeat, even after a restart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from postroom_common.body import NO_PART, Part, open_stored, text_alone
from postroom_common.errors import CommandError
from postroom_common.events import Event, EventType
from postroom_common.policy import Policy
from postroom_common.protocol import NO_PRIORITY, ErrorCode, State

from ..model.facts import last_failure
from ..model.lifecycle import attempts_left
from ..model.records import Entry, QueueRecord, message_id_of
from ..model.request import NO_ATTRIBUTES, MessageView
from ..platform.clock import Now
from ..policy.policies import Policies, override_to_wire
from ..stores.base import Store

_DEAD: Final = State.DEAD


def reply_to(events: list[Event], store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    """The ``data`` of the answer to the request with ``events``, which have been applied: from the last event, or as
    its ``reply`` says.

    Raises ``CommandError`` if a repeat asks for a delivery that has ended since.
    """
    last = events[-1]
    if "reply" in last:
        reply = last["reply"]
        return _REPLIES_BY_NAME[reply["as"]](events, reply, store, policies, now)
    return _REPLIES[last["type"]](last, store, policies, now)


def message_to_wire(event: Event, store: Store, policies: Policies) -> MessageView | dict[str, Any]:
    """A leased message as its consumer sees it, with the number of deliveries that are left; a dead letter with its
    failure."""
    entry = store.get(event["key"])
    if entry is None or entry.lease_id != event["lease"]:
        raise CommandError(ErrorCode.LEASE_EXPIRED, f"the delivery of {event['key']} is over")
    return _leased_to_wire(entry, event.get("as", "text"), event["attempt"], store, policies)


def _leased_to_wire(
    entry: Entry, payload_as: str, attempt: int, store: Store, policies: Policies
) -> MessageView | dict[str, Any]:
    """See ``message_to_wire``. ``payload_as`` is none, text or value."""
    shown: MessageView | dict[str, Any]
    if payload_as == "none":
        shown = fields = entry_to_wire(entry, attempt)
    else:
        stored = orjson.loads(store.bodies.message(entry) if entry.parts else store.bodies.envelope(entry.key))
        text, as_value = text_alone(stored), payload_as == "value"
        if text is None:
            shown = stored_to_wire(entry, open_stored(stored), as_value, attempt)
            fields = shown.fields
        else:
            fields = entry_to_wire(entry, attempt)
            shown = MessageView(fields, as_value, text)
    if entry.state is _DEAD:
        fields["failure"] = last_failure(store.facts.history(entry))
    else:
        policy = policies.applied(entry.queue, store.queue(entry.queue))[0]
        fields["attemptsLeft"] = attempts_left(policy, entry.retry_limit, attempt)
    return shown


def delivery_to_wire(
    entry: Entry, until: int, attempt: int, payload_as: str, store: Store, policies: Policies, now: Now
) -> dict[str, Any]:
    """A leased message and its lease, which ends at ``until`` (engine ms), as ``consume_next`` returns them.
    ``attempt`` is the number of the delivery, ``payload_as`` is none, text or value."""
    lease = {
        "leaseId": entry.lease_id,
        "messageKey": entry.key,
        "consumerId": entry.consumer_id,
        "leaseUntil": now.wall + until - now.engine,
        "leaseUntilEngineMs": until,
    }
    message = _leased_to_wire(entry, payload_as, attempt, store, policies)
    return {"message": message, "lease": lease, "engineNowMs": now.engine}


def stored_to_wire(
    entry: Entry, message: tuple[tuple[Part, ...], Part | None, Mapping[str, Any]], as_value: bool, attempt: int
) -> MessageView:
    """A message with its complete body and all headers."""
    parts, attributes, carried = message
    shown = entry_to_wire(entry, attempt)
    if carried:
        shown.update(carried)
    return MessageView(shown, as_value, None, parts or (NO_PART,), attributes or NO_ATTRIBUTES)


def entry_to_wire(entry: Entry, attempt: int) -> dict[str, Any]:
    """A message without body and headers."""
    shown: dict[str, Any] = {
        "messageId": message_id_of(entry.key),
        "messageKey": entry.key,
        "queue": entry.queue,
        "priority": shown_priority(entry),
        "attempt": attempt,
        "createdAt": entry.created_wall,
    }
    if entry.target:
        shown["targetConsumerId"] = entry.target
    if entry.name:
        shown["name"] = entry.name
    return shown


def shown_priority(entry: Entry) -> int | None:
    """A priority as replies show it; None: the message has none."""
    return None if entry.priority == NO_PRIORITY else entry.priority


def duplicate_of(key: str) -> dict[str, Any]:
    """The result of publishing a duplicate of the message ``key``."""
    return {"messageId": message_id_of(key), "messageKey": key, "duplicate": True}


def paused_to_wire(record: QueueRecord | None) -> dict[str, bool]:
    """Which operations of a queue are paused."""
    return {
        "publish": bool(record and record.publish_paused),
        "consume": bool(record and record.consume_paused),
    }


def log_to_wire(record: QueueRecord, policy: Policy) -> dict[str, Any]:
    """What ``status`` and ``list_queues`` show of a log beside the figures of every queue; nothing of a queue."""
    log = record.log
    if log is None:
        return {}
    shown = {"created": log.created, "createdMs": record.created_wall}
    shown |= {"first": log.first, "last": log.last, "records": log.records, "bytes": log.bytes}
    return {"log": shown | {"readers": len(log.readers), "expireAtMs": policy.log_expire_at_ms}}


def policy_to_wire(queue: str, store: Store, policies: Policies) -> dict[str, Any]:
    """The policy in force for a queue, and the part of it that was set at run time."""
    record = store.queue(queue)
    return {
        "queue": queue,
        "policy": policies.effective(queue, record).to_wire(),
        "override": override_to_wire(record.override if record else {}),
        "asOfEvent": store.applied,
    }


def patterns_to_wire(patterns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Policy patterns as replies show them."""
    return [{"pattern": one["pattern"], "policy": override_to_wire(one["policy"])} for one in patterns]


def _published(event: Event, store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    key = event["key"]
    if "gathering" in event:
        return {"messageId": message_id_of(key), "messageKey": key, "gathering": "new"}
    return {"messageId": message_id_of(key), "messageKey": key}


def _part_appended(event: Event, store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    key = event["key"]
    return {"messageId": message_id_of(key), "messageKey": key, "gathering": "appended"}


def _one_appended(event: Event, store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    return {"first": event["id"], "last": event["id"], "count": 1}


def _part_set(event: Event, store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    return {"messageKey": event["key"], "state": State.DRAFTING if event["unset"] else State.READY}


def _body_set(event: Event, store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    return {"messageKey": event["key"], "state": event["state"]}


def _leased(event: Event, store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    delivery = _delivery(event, store, policies, now)
    delivery["engineNowMs"] = now.engine
    return delivery


def _delivery(event: Event, store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    """A leased message, and its lease."""
    until = event["untilEngineMs"]
    lease = {
        "leaseId": event["lease"],
        "messageKey": event["key"],
        "consumerId": event["consumer"],
        "leaseUntil": now.wall + until - now.engine,
        "leaseUntilEngineMs": until,
    }
    if "phase" in event:
        lease["phase"] = event["phase"]
    return {"message": message_to_wire(event, store, policies), "lease": lease}


def _activated(event: Event, store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    entry = store.get(event["key"])
    if entry is None or entry.lease_id != event["lease"]:
        raise CommandError(ErrorCode.LEASE_EXPIRED, f"the delivery of {event['key']} is over")
    until, payload_as = event["untilEngineMs"], event.get("as", "text")
    return delivery_to_wire(entry, until, event["attempt"], payload_as, store, policies, now)


def _extended(event: Event, store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    until = event["untilEngineMs"]
    return {"leaseUntil": now.wall + until - now.engine, "leaseUntilEngineMs": until, "engineNowMs": now.engine}


def _acked(event: Event, store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    return {}


def _released(event: Event, store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    return {"state": State.READY}


def _retried(event: Event, store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    return {"state": State.DELAYED, "availableAtEngineMs": event["dueEngineMs"], "engineNowMs": now.engine}


def _died(event: Event, store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    return {"state": State.DEAD}


def _dropped(event: Event, store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    return {"state": "dropped"}


def _reprocessed(event: Event, store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    return {"messageKey": event["key"], "reprocessed": True}


def _paused(event: Event, store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    return {"queue": event["queue"], "paused": event["paused"], "asOfEvent": event["id"]}


def _policy_set(event: Event, store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    return {
        "queue": event["queue"],
        "policy": event["policy"],
        "override": override_to_wire(event["override"]),
        "asOfEvent": event["id"],
    }


def _patterns_set(event: Event, store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    return {"patterns": patterns_to_wire(event["patterns"]), "asOfEvent": event["id"]}


def _imported(event: Event, store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    return {name: event[name] for name in ("queues", "messages", "skipped", "facts") if name in event}


def _data(events: list[Event], reply: dict[str, Any], store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    data: dict[str, Any] = reply["data"]
    return data


def _duplicate(
    events: list[Event], reply: dict[str, Any], store: Store, policies: Policies, now: Now
) -> dict[str, Any]:
    return duplicate_of(reply["of"])


def _drafted(events: list[Event], reply: dict[str, Any], store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    event = events[-1]
    name = {"name": event["name"]} if "name" in event else {}
    return {"messageId": message_id_of(event["key"]), "messageKey": event["key"], **name}


def _appended(events: list[Event], reply: dict[str, Any], store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    """The positions of appended records: the ids of their events."""
    return {"first": events[0]["id"], "last": events[-1]["id"], "count": len(events)}


def _appended_later(
    events: list[Event], reply: dict[str, Any], store: Store, policies: Policies, now: Now
) -> dict[str, Any]:
    """The delayed messages of records that are appended when they are due."""
    due = events[0]["dueEngineMs"]
    shown = {"count": len(events), "messageKeys": [event["key"] for event in events]}
    return {**shown, "availableAtEngineMs": due, "engineNowMs": now.engine}


def _operation(
    events: list[Event], reply: dict[str, Any], store: Store, policies: Policies, now: Now
) -> dict[str, Any]:
    """The result of an operator's request, with the event that made it so."""
    return {**reply["data"], "asOfEvent": events[-1]["id"]}


def _deliveries(
    events: list[Event], reply: dict[str, Any], store: Store, policies: Policies, now: Now
) -> dict[str, Any]:
    """Several leased messages; for a repeat those that are still leased."""
    messages = []
    ended = None
    for event in events:
        try:
            messages.append(_delivery(event, store, policies, now))
        except CommandError as error:
            ended = error
    if ended and not messages:
        raise ended
    return {"messages": messages, "engineNowMs": now.engine}


def _results(events: list[Event], reply: dict[str, Any], store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    """The result of each item of a batch. For each item, ``items`` has the number of its events, the last of which
    determines the result, or a list of that number and the result (for a duplicate the key of the first message).
    Without ``items`` each item has one event."""
    if "items" not in reply and events[0]["type"] in _SELF_CONTAINED and len({event["type"] for event in events}) == 1:
        reply_for = _REPLIES[events[0]["type"]]
        return {"results": [reply_for(event, store, policies, now) for event in events[reply.get("from", 0) :]]}
    results = []
    times: dict[str, Any] = {}
    at = 0
    for item in reply.get("items") or [1] * len(events):
        count, result = item if type(item) is list else (item, None)
        at += count
        if type(result) is str:
            result = duplicate_of(result)
        if result is None:
            result = _REPLIES[events[at - 1]["type"]](events[at - 1], store, policies, now)
            if result.pop("engineNowMs", None) is not None:
                times["engineNowMs"] = now.engine
        results.append(result)
    return {"results": results[reply.get("from", 0) :], **times}


def _by_queue(events: list[Event], reply: dict[str, Any], store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    """The results of a publish to several queues. For each queue, ``items`` has its name, the number of its events,
    and the result if they do not determine it; without ``items`` each queue has one event."""
    published = {}
    at = 0
    for queue, count, result in reply.get("items") or [(event["queue"], 1, None) for event in events]:
        at += count
        if result is None:
            result = _REPLIES[events[at - 1]["type"]](events[at - 1], store, policies, now)
        published[queue] = duplicate_of(result) if type(result) is str else result
    return {"published": published, "refused": reply.get("refused", {})}


def _schedule(events: list[Event], reply: dict[str, Any], store: Store, policies: Policies, now: Now) -> dict[str, Any]:
    event = events[-1]
    result = {"nextMs": event["schedule"]["nextMs"]} if "schedule" in event else {"deleted": True}
    return {"name": event["name"], **result, "asOfEvent": event["id"]}


_REPLIES: dict[str, Callable[[Event, Store, Policies, Now], dict[str, Any]]] = {
    EventType.PUBLISHED: _published,
    EventType.PART_APPENDED: _part_appended,
    EventType.APPENDED: _one_appended,
    EventType.PART_SET: _part_set,
    EventType.BODY_SET: _body_set,
    EventType.LEASED: _leased,
    EventType.LEASE_EXTENDED: _extended,
    EventType.ACTIVATED: _activated,
    EventType.ACKED: _acked,
    EventType.RELEASED: _released,
    EventType.RETRIED: _retried,
    EventType.DIED: _died,
    EventType.DROPPED: _dropped,
    EventType.REPROCESSED: _reprocessed,
    EventType.PAUSED: _paused,
    EventType.RESUMED: _paused,
    EventType.POLICY_SET: _policy_set,
    EventType.POLICY_PATTERNS_SET: _patterns_set,
    EventType.IMPORTED: _imported,
}
#: Types whose answer contains no time.
_SELF_CONTAINED: Final = frozenset({EventType.PUBLISHED, EventType.PART_APPENDED, EventType.ACKED})

#: Functions that build the answer from all events of a request, by the ``as`` of its last event's ``reply``.
_REPLIES_BY_NAME: dict[str, Callable[[list[Event], dict[str, Any], Store, Policies, Now], dict[str, Any]]] = {
    "data": _data,
    "duplicate": _duplicate,
    "drafted": _drafted,
    "appended": _appended,
    "appendedLater": _appended_later,
    "operation": _operation,
    "deliveries": _deliveries,
    "results": _results,
    "byQueue": _by_queue,
    "schedule": _schedule,
}
