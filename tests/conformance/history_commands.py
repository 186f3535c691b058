"""The commands of the histories: how they are drawn, and the requests that they are sent as."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from postroom_common.protocol import NO_PRIORITY
from tests.conformance.history_messages import ALIVE, LAPSES, PARTS, Message, New
from tests.conformance.history_model import GATHERS, Model, gathers
from tests.conformance.history_policies import POLICIES

QUEUES = ("a", "b")
CONSUMERS = ("c1", "c2")
SCHEDULES = ("s1", "s2")
#: So long that an event is as long with it as with what stands for it in the journal of hybrid: all journals begin new
#: files at the same events.
BODY = "a body of just thirty-one letters"[:31]

Command = tuple[Any, ...]
#: Command, client and payload.
Wire = tuple[str, str, dict[str, Any]]

QUEUE = st.sampled_from(QUEUES)
ANY_QUEUE = st.sampled_from([*QUEUES, *QUEUES, GATHERS])
NUMBER = st.integers(0, 6)
HOW = st.sampled_from(["lease", "lease", "lease", "consumer", "other lease", "other consumer"])
NEW = st.builds(
    New,
    queue=QUEUE,
    priority=st.sampled_from([0, 0, 0, 5, -5]),
    delay=st.sampled_from([0, 0, 0, 1, 700, 5000]),
    target=st.sampled_from(["", "", "", "", *CONSUMERS]),
    ttl=st.sampled_from([0, 0, 0, 0, 1, 1500, 40_000]),
    ordering_key=st.sampled_from(["", "k1", "k1", "k2"]),
    deduplication_key=st.sampled_from(["", "d1", "d1", "d2"]),
)
#: Nothing that a key stands for: see BODY.
GATHERED = NEW.map(lambda new: new._replace(queue=GATHERS, deduplication_key=""))
PLAINLY = st.just(New(GATHERS))
ANY_NEW = st.one_of(NEW, NEW, NEW, GATHERED, PLAINLY)
SOME_NEW = st.lists(ANY_NEW, min_size=1, max_size=4).map(tuple)
PUBLISH = st.tuples(st.just("publish"), ANY_NEW)


def plainly(new: New) -> New:
    """Without what a draft does not have, and without a time to live, which stands in its body: see BODY."""
    return new._replace(ttl=0, delay=0, deduplication_key="")


#: With names that some others have.
DRAFT = st.tuples(
    st.just("draft"),
    NEW.flatmap(lambda new: st.sampled_from([new, new._replace(priority=NO_PRIORITY)])).map(plainly),
    st.sampled_from(["", "n:1", "n:1", "n%2"]),
)
SET_PART = st.tuples(st.just("set"), NUMBER, st.sampled_from([*PARTS, *PARTS, *PARTS, "none"]))
SET_BODY = st.tuples(st.just("set body"), NUMBER, HOW)
DRAFTS = st.one_of(DRAFT, SET_PART, SET_PART, SET_PART, SET_BODY)
CONSUME = st.tuples(
    st.just("consume"),
    st.sampled_from([*QUEUES, *QUEUES, *QUEUES, GATHERS, *(f"{queue}.dlq" for queue in QUEUES)]),
    st.sampled_from(CONSUMERS),
    st.sampled_from([0, 0, 0, 1, 2500, 10**6]),
    st.sampled_from([1, 2000, 30_000]),
    st.sampled_from([0, 0, 0, 1, 3]),
)
SETTLE = st.tuples(st.sampled_from(["ack", "nack", "retry", "retry", "release", "extend"]), NUMBER, HOW)
ACTIVATE = st.tuples(st.just("activate"), NUMBER, HOW)
RETRY_IN = st.tuples(st.just("retry in"), NUMBER, HOW, st.sampled_from([0, 1, 700, 10_000]))
FAILED = st.one_of(st.tuples(st.sampled_from(["nack", "retry"]), NUMBER, HOW), RETRY_IN)
#: Several at once.
BATCHES = st.one_of(
    st.tuples(st.just("publish batch"), SOME_NEW),
    st.tuples(st.just("ack batch"), st.lists(st.tuples(st.just("ack"), NUMBER, HOW), min_size=1, max_size=4)),
    st.tuples(st.just("nack batch"), st.lists(FAILED, min_size=1, max_size=4)),
    st.tuples(st.just("ack and publish"), NUMBER, HOW, SOME_NEW),
)
#: What operators do to single messages and to pages of them.
OPERATIONS = st.one_of(
    st.tuples(st.just("reprocess"), NUMBER, st.sampled_from(["", *QUEUES])),
    st.tuples(st.just("reprocess all"), st.sampled_from(["a", "b", "a.dlq"]), st.sampled_from(["", *QUEUES])),
    st.tuples(st.just("quarantine"), NUMBER, st.sampled_from([True, True, False])),
    st.tuples(st.just("drop"), NUMBER),
    st.tuples(st.just("abandon"), NUMBER),
    st.tuples(st.sampled_from(["hold", "unhold"]), NUMBER),
    st.tuples(st.just("move"), NUMBER, QUEUE),
    st.tuples(st.just("move all"), ANY_QUEUE, st.sampled_from(["", "ready", "delayed", "held", "gathering"])),
    st.tuples(
        st.just("purge"),
        ANY_QUEUE,
        st.sampled_from(["", "", "ready", "delayed", "held", "gathering", "drafting", "dead", "dead", "done", "any"]),
    ),
)
#: What is said of queues.
OF_QUEUES = st.one_of(
    st.tuples(st.sampled_from(["pause", "resume", "resume"]), QUEUE, st.sampled_from(["publish", "consume"])),
    st.tuples(st.just("policy"), QUEUE, st.integers(0, len(POLICIES) - 1)),
    st.tuples(st.just("delete"), QUEUE),
    st.tuples(st.just("drain"), st.sampled_from([True, False, False])),
)
#: None: it is deleted.
PLAN = st.one_of(st.tuples(NEW, st.sampled_from([10, 30, 90]), st.sampled_from(["skip", "once", "all"])), st.none())
SCHEDULE = st.tuples(st.just("schedule"), st.sampled_from(SCHEDULES), PLAN)
COMMANDS = st.one_of(PUBLISH, DRAFTS, CONSUME, SETTLE, ACTIVATE, RETRY_IN, BATCHES, OPERATIONS, OF_QUEUES, SCHEDULE)
#: What fills queues and has much in flight.
WORK = st.one_of(PUBLISH, CONSUME, PUBLISH, CONSUME, DRAFTS, ACTIVATE)


def request(command: Command, model: Model) -> Wire:
    """The request of a command: it names what there is by now, and sometimes what there is not."""
    match command:
        case ("publish", new):
            return "publish", "c1", fields_of(new)
        case ("draft", new, name):
            return "draft", "c1", _draft(new, name)
        case ("set", number, part):
            message = _message(model, number, "drafting", "ready")
            fields = {"part": part, "message": BODY[number:]}
            return "set", "c1", {"messageKey": _named(message, number) if message else "msg:a:none", **fields}
        case ("consume", name, consumer, wait, visibility, most):
            fields = {"queue": name, "consumerId": consumer, "waitMs": wait} | ({"max": most} if most else {})
            return "consume_next", "c1", fields | ({} if wait else {"visibilityTimeoutSec": visibility / 1000})
        case ("publish batch", news):
            return "publish_batch", "c1", {"messages": [fields_of(new) for new in news]}
        case ("ack batch" | "nack batch" as name, items):
            return name.replace(" ", "_"), "c1", {"items": [_settled(item, model)[2] for item in items]}
        case ("ack and publish", number, how, news):
            _, client, fields = _settled(("ack", number, how), model)
            return "ack_and_publish", client, fields | {"messages": [fields_of(new) for new in news]}
        case ("schedule", name, None):
            return "delete_schedule", "c1", {"name": name}
        case ("schedule", name, (new, every_s, missed)):
            known = ("queue", "priority", "ttlMs", "orderingKey")  # no delay, target or key
            fields = {field: value for field, value in fields_of(new).items() if field in known}
            fields |= {"message": BODY, "cron": f"@every {every_s}s", "missed": missed}
            return "set_schedule", "c1", {"name": name} | fields
        case ("delete", queue):
            return "delete_queue", "c1", {"queue": queue}
        case ("drain", draining):
            return "drain", "c1", {"draining": draining}
        case ("pause" | "resume" as name, queue, operation):
            return name, "c1", {"queue": queue, "operation": operation}
        case ("policy", queue, number):
            return "set_policy", "c1", {"queue": queue, "policy": POLICIES[number].wire()}
        case ("ack" | "nack" | "retry" | "retry in" | "release" | "extend" | "activate" | "set body", *_):
            return _settled(command, model)
    return _operated(command, model)


def fields_of(new: New) -> dict[str, Any]:
    """A message as it is published."""
    fields: dict[str, Any] = {"queue": new.queue, "priority": new.priority, "delayMs": new.delay}
    fields |= {"targetConsumerId": new.target} | ({"ttlMs": new.ttl} if new.ttl else {})
    fields |= {"orderingKey": new.ordering_key} if new.ordering_key else {}
    # It is kept beside the body, in as many letters: see BODY.
    key = new.deduplication_key
    if gathers(new):
        return fields | {"message": BODY[len(',"gathered":true') :]}
    return fields | ({"deduplicationKey": key, "message": BODY[24:]} if key else {"message": BODY})


def _draft(new: New, name: str) -> dict[str, Any]:
    given = fields_of(new)
    known = ("queue", "priority", "targetConsumerId", "orderingKey")
    fields = {field: value for field, value in given.items() if field in known}
    if new.priority == NO_PRIORITY:
        fields |= {"noPriority": True, "priority": None}
    return fields | {"parts": [*PARTS], "name": name}


def _named(message: Message, number: int) -> str:
    """The key of a message, with its name if it has one; sometimes."""
    queue, name = message.name
    return f"msg:{queue}:{name.replace('%', '%25').replace(':', '%3A')}" if name and number % 2 else message.key


def _operated(command: Command, model: Model) -> Wire:
    match command:
        case ("hold" | "unhold" as name, number):
            return name, "c1", {"messageKey": _key(model, number, *(("held",) if name == "unhold" else LAPSES))}
        case ("move", number, queue):
            return "move", "c1", {"messageKey": _key(model, number, *LAPSES, "held"), "to": queue}
        case ("reprocess", number, target):
            key = _key(model, number, "dead")
            return "reprocess_dlq", "c1", {"messageKey": key} | ({"to": target} if target else {})
        case ("quarantine", number, wanted):
            return "quarantine_dlq", "c1", {"messageKey": _key(model, number, "dead"), "quarantined": wanted}
        case ("abandon", number):
            return "abandon", "c1", {"messageKey": _key(model, number, *ALIVE, "dead", "done")}
        case ("drop", number):
            return "drop_dlq", "c1", {"messageKey": _key(model, number, "dead")}
        case ("reprocess all", name, target):
            return "reprocess_dlq", "c1", {"queue": name} | ({"to": target} if target else {})
        case ("move all", queue, state):
            return "move", "c1", {"queue": queue, "to": other(queue)} | ({"state": state} if state else {})
        case ("purge", queue, state):
            return "purge", "c1", {"queue": queue} | ({"state": state} if state else {})
    raise AssertionError(command)


def _settled(command: Command, model: Model) -> Wire:
    name: str = command[0]
    number, how, *delay = command[1:]
    message, lease, consumer = _lease(model, number)
    another = CONSUMERS[1 - CONSUMERS.index(consumer)]
    payload: dict[str, Any] = {"messageKey": message.key if message else "msg:a:none"}
    payload |= {
        "lease": {"leaseId": lease, "consumerId": another},
        "consumer": {"consumerId": consumer},
        "other lease": {"leaseId": "lease-0", "consumerId": consumer},
        "other consumer": {"consumerId": another},
    }[how]
    if name in ("nack", "retry", "retry in"):
        payload |= {"requeue": name != "nack", "reason": "told"} | ({"delayMs": delay[0]} if delay else {})
    if name == "extend":
        payload["visibilityTimeoutSec"] = 4
    if name == "set body":
        payload["message"] = BODY[number:]
    words = {"retry": "nack", "retry in": "nack", "extend": "extend_lease", "set body": "set"}
    return words.get(name, name), consumer, payload


def _lease(model: Model, number: int) -> tuple[Message | None, str, str]:
    leases = model.leases
    return leases[-1 - number % len(leases)] if leases else (None, "lease-0", "c1")


def _key(model: Model, number: int, *states: str) -> str:
    """The key of a message in one of these states, if there is one; else of another."""
    message = _message(model, number, *states)
    return message.key if message else "msg:a:none"


def _message(model: Model, number: int, *states: str) -> Message | None:
    found = [m for m in model.messages if m.state in states] or model.messages
    return found[number % len(found)] if found else None


def other(queue: str) -> str:
    """The other of the two queues."""
    return QUEUES[queue == QUEUES[0]]
