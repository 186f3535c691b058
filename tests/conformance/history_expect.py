"""What each command of a history is to be answered, and what it makes of the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.conformance.bench import Sent
from tests.conformance.history_commands import Command, other
from tests.conformance.history_messages import (
    ALIVE,
    EXPIRES,
    LAPSES,
    PARTS,
    SETTABLE,
    WAITS,
    Message,
    New,
    Schedule,
    Waiting,
    nothing,
)
from tests.conformance.history_model import VISIBILITY_MS, Model, Refused


class Reported(NamedTuple):
    """An answer, or the result of an item: "OK" with its data, or an error code."""

    code: str
    data: dict[str, Any]


def expect(command: Command, sents: list[Sent], model: Model) -> Model:
    """Look at the answer to a command, the same on all stores. The model that goes on from there."""
    first = sents[0]
    match command:
        case ("publish", new):
            _published(new, _reported(first), model)
        case ("draft", new, name):
            _drafted(new, name, _reported(first), model)
        case ("set", _, part):
            _set(part, first, model)
        case ("consume", *_):
            _consumed(command, sents, model)
        case ("publish batch", news):
            for new, reported in zip(news, _results(first), strict=True):
                _published(new, reported, model)
        case ("ack batch" | "nack batch", items):
            _settled_each(items, first, model)
        case ("ack and publish", *_):
            model = _acked_and_published(command, first, model)
        case ("schedule", name, plan):
            _scheduled(name, plan, first, model)
        case ("reprocess" | "drop" | "quarantine", *_):
            _with_letter(command, first, model)
        case ("reprocess all", name, _) if name.removesuffix(".dlq") not in model.queues:
            assert first.code == "ERR_QUEUE_NOT_FOUND"
        case ("reprocess all", name, target):
            letters = [m for m in model.letters(name.removesuffix(".dlq")) if m.is_free and not m.unset]
            assert (first.data["reprocessed"], first.data["next"]) == (len(letters), "")
            for message in letters:
                model.reprocess(message, target or message.queue)
        case ("abandon", _):
            _abandoned(first, model)
        case ("hold" | "unhold" | "move", *_):
            _operated(command, first, model)
        case ("move all" | "purge", *_):
            _operated_all(command, first, model)
        case ("drain", draining):
            assert first.data["draining"] is draining
            model.draining = draining
        case ("pause" | "resume" | "policy" | "delete", *_):
            _said(command, first, model)
        case _:
            _settled(command, first.request.wire.payload, _reported(first), model)
    model.serve()
    return model


def _reported(sent: Sent) -> Reported:
    return Reported(sent.code, sent.data_or_none() or {})


def _results(sent: Sent) -> Iterator[Reported]:
    for result in sent.data["results"]:
        yield Reported(result["error"]["code"], {}) if "error" in result else Reported("OK", result)


def _published(new: New, reported: Reported, model: Model) -> None:
    known = list(model.messages)
    try:
        message = model.publish(new)
    except Refused as refused:
        assert reported.code == refused.code
        return
    assert reported.code == "OK"
    if message in known and message.parts > 1:
        assert reported.data == {
            "messageId": message.key.rpartition(":")[2], "messageKey": message.key, "gathering": "appended"
        }  # fmt: skip
        return
    if message in known:
        assert (reported.data["messageKey"], reported.data["duplicate"]) == (message.key, True)
        return
    message.key = reported.data["messageKey"]
    end = {"dead": "dead", "gone": "dropped"}.get(message.state)
    assert (reported.data.get("state"), reported.data.get("reasonCode")) == (end, end and "QUEUE_FULL")
    assert reported.data.get("gathering") == ("new" if message.parts else None)


def _drafted(new: New, name: str, reported: Reported, model: Model) -> None:
    try:
        message = model.draft(new, name)
    except Refused as refused:
        assert reported.code == refused.code
        return
    assert reported.code == "OK" and reported.data.get("name", "") == name
    message.key = reported.data["messageKey"]


def _set(part: str, sent: Sent, model: Model) -> None:
    key = sent.request.wire.payload["messageKey"]
    names = (m for m in model.messages if m.state != "gone" and m.name[1] and _named(*m.name) == key)
    message = model.find(key) or next(names, None)
    try:
        if message and message.state in SETTABLE and part not in PARTS:
            raise Refused("ERR_PART_NOT_FOUND")
        message = model.set_part(message, part)
    except Refused as refused:
        assert sent.code == refused.code
        return
    assert sent.data == {"messageKey": message.key, "state": message.state}


def _named(queue: str, name: str) -> str:
    return f"msg:{queue}:{name.replace('%', '%25').replace(':', '%3A')}"


def _consumed(command: Command, sents: list[Sent], model: Model) -> None:
    _, name, consumer, wait, visibility, most = command
    if model.deliver(sents, name, consumer, most, VISIBILITY_MS if wait else visibility):
        return
    if wait:
        # A later request of the same group may have served it already: looked at when that is expected.
        model.waiting.append(Waiting(sents, name, consumer, model.now + wait, most))
    else:
        assert sents[0].data == nothing(most)


def _settled_each(items: list[Command], sent: Sent, model: Model) -> None:
    done: set[str] = set()
    there = {message.key for message in model.messages if message.state != "gone"}
    for item, payload, reported in zip(items, sent.request.wire.payload["items"], _results(sent), strict=True):
        key = payload["messageKey"]
        gave_way = key in there and model.find(key) is None  # to one that an item before has let die
        if key in done or gave_way:
            assert reported.code == ("ERR_MESSAGE_NOT_FOUND" if item[0] == "ack" else "ERR_LEASE_EXPIRED")
            continue
        _settled(item, payload, reported, model)
        if reported.code == "OK":
            done.add(key)


def _acked_and_published(command: Command, sent: Sent, model: Model) -> Model:
    """All of it or nothing: the model as it was, if anything is refused."""
    news, payload, trial = command[-1], sent.request.wire.payload, model.copied()
    code = _settling_code(command[0], payload, trial)
    if code == "OK":
        _settled(command, payload, Reported(code, {}), trial)
        try:
            if sent.code == "OK":
                for new, reported in zip(news, _results(sent), strict=True):
                    _published(new, reported, trial)
                return trial
            for new in news:
                trial.publish(new)
        except Refused as refused:
            code = refused.code
    assert sent.code == code
    return model


def _scheduled(name: str, plan: tuple[New, int, str] | None, sent: Sent, model: Model) -> None:
    if plan is None:
        assert sent.code == ("OK" if name in model.schedules else "ERR_SCHEDULE_NOT_FOUND")
        model.schedules.pop(name, None)
        return
    new, every_s, missed = plan
    new = New(new.queue, new.priority, ttl=new.ttl, ordering_key=new.ordering_key)
    model.schedules[name] = Schedule(new, 1000 * every_s, missed, model.now, model.now + 1000 * every_s)
    assert sent.code == "OK"


def _with_letter(command: Command, sent: Sent, model: Model) -> None:
    """A dead letter is named by its key."""
    message = model.find(sent.request.wire.payload["messageKey"])
    if message is None or message.state != "dead":
        assert sent.code == "ERR_DLQ_NOT_FOUND"
        return
    match command:
        case ("quarantine", _, wanted):
            assert sent.data == {"messageKey": message.key, "quarantined": wanted}
            message.apart = wanted
        case _ if message.lease:
            assert sent.code == "ERR_INVALID_REQUEST"
        case ("reprocess", *_) if message.unset:  # a draft that was abandoned
            assert sent.code == "ERR_BAD_STATE"
        case ("reprocess", _, target):
            assert sent.data == {"messageKey": message.key, "reprocessed": True}
            model.reprocess(message, target or message.queue)
        case _:
            assert sent.data == {"dropped": 1, "next": ""}
            message.state = "gone"


def _abandoned(sent: Sent, model: Model) -> None:
    message = model.find(sent.request.wire.payload["messageKey"])
    if message is None:
        assert sent.code == "ERR_MESSAGE_NOT_FOUND"
        return
    model.abandon(message)
    assert sent.data == {"state": "dropped" if message.state == "gone" else "dead"}


def _operated(command: Command, sent: Sent, model: Model) -> None:
    name = command[0]
    message = model.find(sent.request.wire.payload["messageKey"])
    if message is None:
        assert sent.code == "ERR_MESSAGE_NOT_FOUND"
        return
    fits = {"hold": WAITS, "unhold": ("held",), "move": (*EXPIRES, "held")}[name]
    if message.state not in fits or (name == "move" and command[2] == message.queue):
        assert sent.code == "ERR_INVALID_REQUEST"
        return
    assert sent.code == "OK"
    if name == "hold":
        message.state = "held"
    elif name == "unhold":
        model.unhold(message)
    else:
        model.move(message, command[2])


def _operated_all(command: Command, sent: Sent, model: Model) -> None:
    name, queue, state = command
    if queue not in model.queues:
        assert sent.code == "ERR_QUEUE_NOT_FOUND"
        return
    usual = (*(LAPSES if name == "purge" else EXPIRES), "held")
    states = {"": usual, "any": (*ALIVE, "dead", "done")}.get(state, (state,))
    found = [message for message in model.in_state(queue, *states) if message.is_free or state == "any"]
    assert sent.data["purged" if name == "purge" else "moved"] == len(found)
    for message in found:
        if name == "purge":
            message.state = "gone"
            message.end_lease()
        else:
            model.move(message, other(queue))


def _said(command: Command, sent: Sent, model: Model) -> None:
    """Something is said of a queue."""
    match command:
        case ("policy", queue, number):
            assert sent.code == "OK"
            model.queues.add(queue)
            model.policy[queue] = number
        case (_, queue, *_) if queue not in model.queues:
            assert sent.code == "ERR_QUEUE_NOT_FOUND"
        case ("delete", queue):
            empty = all(m.state == "gone" for m in model.messages if m.queue == queue)
            assert sent.code == ("OK" if empty else "ERR_QUEUE_NOT_EMPTY")
            if empty:
                model.delete(queue)
        case (name, queue, operation):
            assert sent.code == "OK"
            paused = model.publish_paused if operation == "publish" else model.consume_paused
            (paused.add if name == "pause" else paused.discard)(queue)


def _settling_code(name: str, payload: dict[str, Any], model: Model) -> str:
    """What is answered to whoever settles a delivery."""
    message = model.find(payload["messageKey"])
    if message is None:
        return "ERR_MESSAGE_NOT_FOUND"
    if not message.lease:
        return "ERR_LEASE_EXPIRED"
    holds = payload["leaseId"] == message.lease if "leaseId" in payload else payload["consumerId"] == message.consumer
    if holds and message.ordered and name not in ("release", "extend", "activate", "set body"):
        return "ERR_BAD_STATE"
    return "OK" if holds else "ERR_LEASE_MISMATCH"


def _settled(command: Command, payload: dict[str, Any], reported: Reported, model: Model) -> None:
    name, delay = command[0], command[3:] if command[0] == "retry in" else ()
    message, code = model.find(payload["messageKey"]), _settling_code(name, payload, model)
    if name == "set body" and code == "OK" and message and message.parts:
        code = "ERR_INVALID_REQUEST"  # it has several
    assert reported.code == code
    if code == "OK":
        assert message is not None
        _settle(name, message, delay, reported, model)


def _settle(name: str, message: Message, delay: tuple[int, ...], reported: Reported, model: Model) -> None:
    if name == "set body":
        message.was_set = True
        assert reported.data == {"messageKey": message.key, "state": message.state}
    elif name == "extend":
        message.until = model.now + 4000
        assert reported.data["leaseUntilEngineMs"] == message.until
    elif name == "activate":
        if message.ordered:
            message.ordered, message.attempt, message.until = False, message.attempt + 1, model.now + VISIBILITY_MS
        assert reported.data["message"]["attempt"] == message.attempt
        assert reported.data["lease"]["leaseUntilEngineMs"] == message.until
    elif name in ("ack", "ack and publish"):
        model.complete(message)
    elif name in ("retry", "retry in"):
        model.fail(message, delay[0] if delay else None, nacked=True)
    elif message.state == "dead":
        message.end_lease()
    elif name == "nack":
        model.bury(message)
    else:
        message.state, message.attempt = "ready", message.attempt - (not message.ordered)
        model.put_back(message)
        message.end_lease()
