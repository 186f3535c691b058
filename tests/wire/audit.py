"""The journal judged by itself: an independent fold that allows only what the protocol promises."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from postroom_common.events import Event
from postroom_daemon.stores.hybrid.audit import HybridAudit
from tests.wire.daemon import Daemon

#: Events that put a message back, and so explain that it is delivered again.
EXPLANATIONS = ("retried", "released", "reprocessed")
#: Why a message may end that is not leased.
UNDELIVERED = ("BODY_LOST", "MESSAGE_EXPIRED", "QUEUE_FULL", "VALIDATION_ERROR", "APPENDED")


@dataclass
class Message:
    """What the journal says of a message so far."""

    queue: str
    body: dict[str, Any]
    target: str
    due: int
    state: str = "ready"
    attempt: int = 0
    lease: str = ""  # of one in flight, or of a dead letter that is leased
    consumer: str = ""
    until: int = 0
    phase: str = ""
    parts: int = 0  # that were appended to its body
    unset: int = 0  # named parts without a value


class Ledger:
    """Messages by key, what happened by queue, and every lease that was ever given."""

    def __init__(self) -> None:
        self.messages: dict[str, Message] = {}
        self.totals: Counter[tuple[str, str]] = Counter()
        self.leases: dict[str, Event] = {}
        #: Requests that tell of another root: what happened there between their events is not known.
        self.imported: set[int] = set()
        #: Requests of clients: what they did, they asked for.
        self.asked: set[int] = set()

    def counts(self, queue: str) -> dict[str, int]:
        """Messages by state; those that wait for their time are ``waiting`` with the ready ones, since becoming due is
        no event."""
        states = Counter(m.state for m in self.messages.values() if m.queue == queue)
        waiting = states.pop("ready", 0) + states.pop("delayed", 0)
        return {state: n for state, n in {**states, "waiting": waiting}.items() if n and state != "gone"}


def audit(events: list[Event], cut: bool = False) -> Ledger:
    """Check a whole journal. ``cut``: the power was cut, so that recovery may have kept a part of a group. Raises
    ``AssertionError`` at the first thing that must not be."""
    _check_frames(events, cut)
    _check_requests(events)
    ledger = Ledger()
    ledger.imported = _imported(events)
    ledger.asked = {event["req"] for event in events if "by" in event}
    for event in events:
        rule = _RULES.get(event["type"])
        if rule:
            message = ledger.messages.get(event["key"])
            assert message is None or event["queue"] == message.queue, f"it is in {message.queue}: {event}"
            rule(event, ledger)
            ledger.totals[event["queue"], event["type"]] += 1
    return ledger


def audit_bodies(daemon: Daemon) -> None:
    """What a store keeps in files agrees with its index. The daemon must have ended, however."""
    with daemon.opened() as store:
        if isinstance(store.audit, HybridAudit):
            assert list(store.audit.payload_findings()) == []


def _imported(events: list[Event]) -> set[int]:
    return {event["req"] for event in events if event["type"] == "imported"}


def _check_frames(events: list[Event], cut: bool) -> None:
    """Ids are dense, engine time never goes back, requests are whole, and so are groups unless power was ``cut``."""
    before: Event | None = None
    size, engine = 1, 0
    imported = _imported(events)
    for event in events:
        if before is not None:
            expected = event["next"] if event["type"] == "gap" else before["id"] + 1
            assert event["id"] == expected, f"{event['id']} follows {before['id']}"
            if event["req"] not in imported or event["type"] == "imported":  # else it tells of another root, and then
                assert event["engineMs"] >= engine, f"engine time goes back at {event['id']}"
                engine = event["engineMs"]
            size = size + 1 if before["req"] == event["req"] else 1
            assert before["id"] == before["req"] or event["req"] == before["req"], f"request torn at {event['id']}"
            whole = before["id"] == before["grp"] or event["grp"] == before["grp"]
            assert whole or cut, f"group torn at {event['id']}"
        assert event["id"] <= event["req"] <= event["grp"]
        if event["id"] == event["req"]:
            assert event.get("n", 1) == size, f"request of {event['id']} has {size} events"
        before = event
    assert before is None or before["id"] == before["grp"] or cut, "the last group is torn"


def _check_requests(events: list[Event]) -> None:
    """No request was executed twice."""
    seen: dict[tuple[int | str, str], int] = {}
    for event in events:
        if "digest" in event.get("by", {}):  # a local command has no idempotency key
            by = event["by"]
            key = (by["uid"] if "uid" in by else by["principal"], by["digest"])
            assert key not in seen, f"{event['by']} was executed by {seen.get(key)} and again by {event['id']}"
            seen[key] = event["id"]


def _published(event: Event, ledger: Ledger) -> None:
    assert event["key"] not in ledger.messages, f"{event['key']} is published twice"
    body = event["message"] if "message" in event else event["body"]  # the hybrid store's only refers to it
    message = Message(event["queue"], body, event.get("target", ""), event.get("dueEngineMs", 0))
    message.state = "drafting" if "drafting" in event else "delayed" if message.due else "ready"
    message.unset = event.get("drafting", 0)
    ledger.messages[event["key"]] = message


def _part_appended(event: Event, ledger: Ledger) -> None:
    message = ledger.messages[event["key"]]
    assert message.state == "delayed", f"appended to {event['key']} while it is {message.state}"
    assert event["engineMs"] < message.due, f"appended {event['engineMs'] - message.due} ms after it was ready"
    message.parts += 1
    assert event["part"] == message.parts, f"after part {message.parts - 1}: {event}"


def _part_set(event: Event, ledger: Ledger) -> None:
    message = ledger.messages[event["key"]]
    assert message.state in ("drafting", "ready", "delayed"), f"{event['key']} is set while it is {message.state}"
    assert event["unset"] in (message.unset, message.unset - 1), f"{message.unset} parts had no value: {event}"
    message.unset = event["unset"]
    assert ("state" in event) == (message.state == "drafting" and not message.unset), f"its parts are complete: {event}"
    message.state = event.get("state", message.state)


def _body_set(event: Event, ledger: Ledger) -> None:
    message = ledger.messages[event["key"]]
    assert message.lease == event["lease"], f"{event['key']} is set under a lease that it does not have: {event}"
    message.body = event["message"]


def _leased(event: Event, ledger: Ledger) -> None:
    message = ledger.messages[event["key"]]
    assert message.state in ("ready", "delayed", "dead"), (
        f"{event['key']} is leased while it is {message.state}: {event}"
    )
    if message.state == "dead":  # that is no attempt, and it stays dead
        assert not message.lease, f"a dead letter is leased under {message.lease}, and again: {event}"
        assert not message.phase, f"a dead letter is leased that is {message.phase}: {event}"
        assert event["attempt"] == message.attempt, f"a dead letter has made {message.attempt} attempts: {event}"
    else:
        assert message.due <= event["engineMs"], f"leased {message.due - event['engineMs']} ms before it was due"
        assert message.target in ("", event["consumer"]), event
        ordered = event.get("phase") == "ordered"
        expected = event["attempt"] if event["req"] in ledger.imported else message.attempt + (not ordered)
        assert event["attempt"] == expected >= message.attempt, f"after attempt {message.attempt}: {event}"
        message.state, message.attempt = "inflight", event["attempt"]
        message.phase = "ordered" if ordered else ""
    assert event["untilEngineMs"] > event["engineMs"], event
    assert event["lease"] not in ledger.leases, f"lease {event['lease']} is given twice"
    ledger.leases[event["lease"]] = event
    message.lease, message.consumer, message.until = event["lease"], event["consumer"], event["untilEngineMs"]


def _held(event: Event, ledger: Ledger, *states: str) -> Message:
    """The message, in one of ``states``, of an event that ends or extends a lease: only its holder can have done it,
    and only in time."""
    message = ledger.messages[event["key"]]
    assert message.state in states, f"{event['type']} of {event['key']} while it is {message.state}"
    assert message.lease, f"{event['type']} of {event['key']}, which is not leased"
    assert event["lease"] == message.lease, f"{event['type']} under {event['lease']}, held under {message.lease}"
    if event.get("undelivered"):
        assert event["type"] == "released", event
    if event["req"] in ledger.asked:
        assert event["engineMs"] < message.until, f"a late holder was heard: {event}"
    elif not event.get("undelivered"):  # a consumer may go at any time
        assert event["engineMs"] >= message.until, f"a lease was ended too early: {event}"
    return message


def _extended(event: Event, ledger: Ledger) -> None:
    message = _held(event, ledger, "inflight", "dead")
    assert event["req"] in ledger.asked, f"extended unasked: {event}"
    message.until = event["untilEngineMs"]


def _activated(event: Event, ledger: Ledger) -> None:
    message = _held(event, ledger, "inflight")
    assert event["req"] in ledger.asked, f"activated unasked: {event}"
    assert message.phase == "ordered", f"activated while it is active: {event}"
    assert event["attempt"] == message.attempt + 1, f"after attempt {message.attempt}: {event}"
    message.phase, message.attempt, message.until = "", event["attempt"], event["untilEngineMs"]


def _acked(event: Event, ledger: Ledger) -> None:
    message = _held(event, ledger, "inflight", "dead")
    assert event["req"] in ledger.asked, f"acknowledged unasked: {event}"
    assert message.phase != "ordered", f"acknowledged before it was activated: {event}"
    assert message.state == "inflight" or "keep" not in event, f"a dead letter that is done: {event}"
    message.state, message.lease = "done" if "keep" in event else "gone", ""


def _released(event: Event, ledger: Ledger) -> None:
    message = _held(event, ledger, "inflight", "dead")
    message.lease = ""
    if message.state == "dead":
        assert event.get("state") == "dead", f"a dead letter came to life: {event}"
        assert event["attempt"] == message.attempt, f"a dead letter has made {message.attempt} attempts: {event}"
        return
    assert "state" not in event, f"given back among the dead: {event}"
    ordered = message.phase == "ordered"
    is_explained = event["req"] in ledger.asked or event["req"] in ledger.imported or event.get("undelivered")
    assert is_explained or ordered, f"given back unasked: {event}"
    assert event["attempt"] == message.attempt - (not ordered), f"after attempt {message.attempt}: {event}"
    message.state, message.attempt, message.due, message.phase = "ready", event["attempt"], 0, ""


def _retried(event: Event, ledger: Ledger) -> None:
    message = _held(event, ledger, "inflight")
    assert message.phase != "ordered", f"failed before it was activated: {event}"
    assert event["dueEngineMs"] >= event["engineMs"]
    if "attempt" in event:  # given back
        assert event["attempt"] == message.attempt - 1 and event["failure"]["reasonCode"] == "NACKED", event
        message.attempt = event["attempt"]
    message.state, message.due, message.lease = "delayed", event["dueEngineMs"], ""


def _died(event: Event, ledger: Ledger) -> None:
    message = _ended(event, ledger)
    if event["failure"]["reasonCode"] == "ABANDONED":
        former = message.state if message.state in ("dead", "done", "held") else None
        assert event.get("state") == former, f"it was {message.state}: {event}"
    else:
        assert message.state != "dead", f"it was dead: {event}"
    message.state, message.lease, message.phase = "dead", "", event.get("phase", "")


def _dropped(event: Event, ledger: Ledger) -> None:
    message = _ended(event, ledger)
    message.state, message.lease = "gone", ""


def _ended(event: Event, ledger: Ledger) -> Message:
    """The message of an event that ends it: a delivery's, or one that ends for another reason."""
    message, reason = ledger.messages[event["key"]], event["failure"]["reasonCode"]
    if "lease" in event and reason in ("ABANDONED", "PURGED"):  # whoever has it, and in whatever state
        assert event["lease"] == message.lease and event["req"] in ledger.asked, event
        return message
    if "lease" in event:
        return _held(event, ledger, "inflight")
    assert not message.lease, f"{event['type']} of {event['key']}, which is leased: {event}"
    if reason == "ABANDONED":
        assert message.state != "gone" and (event["req"] in ledger.asked or event["req"] in ledger.imported), event
    elif message.state == "done":
        assert reason in ("PURGED", "QUEUE_FULL") and event["state"] == "done", f"{event} while it is done"
    elif message.state == "dead":
        assert reason in ("PURGED", "QUEUE_FULL"), f"{event} while it is dead"
        assert not message.phase or event["req"] in ledger.asked, f"{message.phase}, and dropped unasked: {event}"
    elif reason == "DRAFT_EXPIRED":
        assert message.state == "drafting", f"{event} while it is {message.state}"
    elif reason == "PURGED":
        assert message.state in ("ready", "delayed", "drafting", "held"), f"{event} while it is {message.state}"
        assert event["req"] in ledger.asked, f"purged unasked: {event}"
    else:
        assert reason in UNDELIVERED or event["req"] in ledger.imported, event
        assert message.state in ("ready", "delayed"), f"{event['type']} of {event['key']} while it is {message.state}"
    return message


def _put_on_hold(event: Event, ledger: Ledger) -> None:
    message = ledger.messages[event["key"]]
    assert message.state in ("ready", "delayed"), f"{event['key']} is held while it is {message.state}"
    message.state = "held"


def _unhold(event: Event, ledger: Ledger) -> None:
    message = ledger.messages[event["key"]]
    assert message.state == "held", f"{event['key']} is let go while it is {message.state}"
    message.due = event.get("dueEngineMs", 0)
    message.state = "delayed" if message.due else "ready"


def _moved(event: Event, ledger: Ledger) -> None:
    message = ledger.messages[event["key"]]
    assert message.state in ("ready", "delayed", "held"), f"{event['key']} is moved while it is {message.state}"
    assert message.queue == event["queue"] != event["to"], event
    message.queue = event["to"]


def _reprocessed(event: Event, ledger: Ledger) -> None:
    message = ledger.messages[event["key"]]
    assert message.state == "dead", f"{event['key']} is brought back while it is {message.state}"
    assert not message.lease, f"{event['key']} is brought back while it is leased: {event}"
    message.queue = event.get("to", message.queue)
    message.state, message.attempt, message.due, message.phase = "ready", 0, 0, ""


def _set_apart(event: Event, ledger: Ledger) -> None:
    message = ledger.messages[event["key"]]
    assert message.state == "dead", f"{event['key']} is set apart while it is {message.state}"
    message.phase = event["phase"]


def _let_anyone(event: Event, ledger: Ledger) -> None:
    ledger.messages[event["key"]].target = ""


def _put_off(event: Event, ledger: Ledger) -> None:
    ledger.messages[event["key"]].due = event["dueEngineMs"]


_RULES = {
    "published": _published,
    "part_appended": _part_appended,
    "part_set": _part_set,
    "body_set": _body_set,
    "leased": _leased,
    "lease_extended": _extended,
    "activated": _activated,
    "acked": _acked,
    "released": _released,
    "retried": _retried,
    "died": _died,
    "dropped": _dropped,
    "held": _put_on_hold,
    "unheld": _unhold,
    "moved": _moved,
    "reprocessed": _reprocessed,
    "quarantined": _set_apart,
    "retargeted": _let_anyone,
    "rescheduled": _put_off,
}
