"""The whole broker against a small model of its promises, on every store with the same history.

The model knows nothing of the engine, the life cycle or the fold. ``HYPOTHESIS_PROFILE=long`` looks longer.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.conformance.bench import Bench, Sent, exported, picture
from tests.conformance.history_model import VISIBILITY_MS, WAITS, Full, Message, Model, Policy, Waiting, nothing

QUEUES = ("a", "b")
CONSUMERS = ("c1", "c2")
BACKENDS = ("sqlite", "memory", "filesystem", "hybrid")
#: The first is the default.
POLICIES = (
    Policy(),
    Policy(limit=1, deduplication="window", inflight=1),
    Policy(limit=0, backoff="fixed", initial_s=2, dead_letters=False, inflight_per_consumer=1),
    Policy(limit=3, backoff="linear", initial_s=2, longest_s=5, deduplication="while-present", oldest_every=2),
    Policy(limit=4, longest_s=3, dead_letters=False, ttl_s=2),
    Policy(ttl_s=1, ttl_action="drop", oldest_every=2, inflight=3, inflight_per_consumer=1),
    Policy(ttl_s=1, dead_letters=False, limit=2, deduplication="window"),
    Policy(messages=2, deduplication="while-present"),
    Policy(messages=2, overflow="drop-oldest", inflight=1),
    Policy(messages=2, overflow="dead-letter", deduplication="window"),
    Policy(messages=2, overflow="dead-letter", deduplication="while-present", dead_letters=False),
    Policy(deduplication="while-present", oldest_every=3, inflight_per_consumer=2),
)
#: So long that an event is as long with it as with what stands for it in the journal of hybrid: all journals begin new
#: files at the same events.
BODY = "a body of just thirty-one letters"[:31]
LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"


SETTLED = (st.integers(0, 6), st.sampled_from(["lease", "lease", "lease", "consumer", "other lease", "other consumer"]))
PUBLISH = st.tuples(
    st.just("publish"),
    st.sampled_from(QUEUES),
    st.sampled_from([0, 0, 0, 5, -5]),
    st.sampled_from([0, 0, 0, 1, 700, 5000]),
    st.sampled_from(["", "", "", "", *CONSUMERS]),
    st.sampled_from([0, 0, 0, 0, 1, 1500, 40_000]),
    st.sampled_from(["", "k1", "k1", "k2"]),
    st.sampled_from(["", "d1", "d1", "d2"]),
)
CONSUME = st.tuples(
    st.just("consume"),
    st.sampled_from(QUEUES),
    st.sampled_from(CONSUMERS),
    st.sampled_from([0, 0, 0, 1, 2500, 10**6]),
    st.sampled_from([1, 2000, 30_000]),
    st.sampled_from([0, 0, 0, 1, 3]),
)
OTHERS = (
    st.tuples(st.sampled_from(["ack", "nack", "retry", "retry", "release", "extend"]), *SETTLED),
    st.tuples(st.just("retry in"), *SETTLED, st.sampled_from([0, 1, 700, 10_000])),
    st.tuples(st.just("reprocess"), st.integers(0, 6)),
    st.tuples(
        st.sampled_from(["pause", "resume", "resume"]), st.sampled_from(QUEUES), st.sampled_from(["publish", "consume"])
    ),
    st.tuples(st.sampled_from(["hold", "unhold"]), st.integers(0, 6)),
    st.tuples(st.just("move"), st.integers(0, 6), st.sampled_from(QUEUES)),
    st.tuples(st.just("move all"), st.sampled_from(QUEUES), st.sampled_from(["", "ready", "delayed", "held"])),
    st.tuples(st.just("purge"), st.sampled_from(QUEUES), st.sampled_from(["", "ready", "delayed", "held", "dead"])),
    st.tuples(st.just("policy"), st.sampled_from(QUEUES), st.integers(0, len(POLICIES) - 1)),
)
COMMANDS = st.one_of(PUBLISH, CONSUME, *OTHERS)
#: What fills queues and has much in flight.
WORK = st.one_of(PUBLISH, CONSUME)


def changed_nothing(data: dict[str, Any] | None) -> bool:
    """Whether a request that was answered so, or refused, has changed nothing."""
    if data is None or data in (nothing(0), nothing(1)):
        return True
    return bool(data.get("duplicate")) or 0 in (data.get("moved"), data.get("purged"))


def deliveries(sent: Sent) -> list[dict[str, Any]]:
    """What a request was given."""
    return list(sent.data["messages"]) if "messages" in sent.data else [sent.data]


class History(RuleBasedStateMachine):
    """Histories of groups, passing time, and crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="history-"))
        self.benches = [
            Bench(self.directory / backend, backend, 4000, **{"storage.minFreeBytes": "0", "sqlite.synchronous": "OFF"})
            for backend in BACKENDS
        ]
        for bench in self.benches:
            bench.files.fdatasync = bench.files.fsync = bench.files.syncfs = lambda fd: None  # no power is cut here
            bench.open()
        self.model = Model(POLICIES)
        self.done: list[list[Sent]] = []

    def teardown(self) -> None:
        for bench in self.benches:
            bench.close()
        shutil.rmtree(self.directory)

    # --- rules ------------------------------------------------------------------------------------------------

    @initialize(numbers=st.tuples(*[st.integers(0, len(POLICIES) - 1) for _ in QUEUES]))
    def policies(self, numbers: tuple[int, ...]) -> None:
        self.group([("policy", *one) for one in zip(QUEUES, numbers, strict=True)])

    @rule(commands=st.lists(WORK, min_size=3, max_size=8))
    def work(self, commands: list[tuple[Any, ...]]) -> None:
        self.group(commands)

    @rule(commands=st.lists(COMMANDS, min_size=1, max_size=6))
    def mixed(self, commands: list[tuple[Any, ...]]) -> None:
        self.group(commands)

    def group(self, commands: list[tuple[Any, ...]]) -> None:
        requests = [self.request(command) for command in commands]
        sents = [[bench.make(name, client, **payload) for bench in self.benches] for name, client, payload in requests]
        for index, bench in enumerate(self.benches):
            bench.run(*[pair[index] for pair in sents])
        self.model.now = self.now
        self.model.tick()
        for command, pair in zip(commands, sents, strict=True):
            self.expect(command, pair)
        self.done += sents

    @rule(milliseconds=st.sampled_from([1, 600, 1000, 2000, 30_000, 100_000]))
    def time_passes(self, milliseconds: int) -> None:
        for bench in self.benches:
            bench.hands.pass_ms(milliseconds)
        self.empty_group()

    @rule()
    def time_passes_to_the_next_thing_due(self) -> None:
        dues = [bench.live.broker.next_due() for bench in self.benches]
        known = list(self.model.dues())
        for due in dues:
            assert (due is None or due >= 0) if not known else due is not None and due <= min(known)
        if known:
            wait_ms = max(0, min(known) - self.now)
            for bench in self.benches:
                bench.hands.pass_ms(wait_ms)
            self.empty_group()

    @rule(without_store=st.booleans(), reboot=st.booleans())
    def crash(self, without_store: bool, reboot: bool) -> None:
        self.empty_group()
        before, told = self.now, [exported(bench) for bench in self.benches]
        for bench in self.benches:
            bench.close()
            if reboot:
                bench.hands.boot_id += "'"
                bench.hands.boot_ms = 17
        for bench in self.benches:
            bench.reopen(without_store)
        assert self.now == before
        for one in self.model.waiting:
            assert not any(sent.answers for sent in one.sents)
        self.model.waiting.clear()
        self.empty_group()
        assert [exported(bench) for bench in self.benches] == told, "a restart has changed something"
        assert len(set(told)) == 1, "the stores do not export the same"

    @rule()
    def all_becomes_durable(self) -> None:
        for bench in self.benches:
            bench.store.checkpoint()

    @rule()
    def the_daemon_stops_in_order(self) -> None:
        for bench in self.benches:
            bench.stop()
            bench.store.checkpoint()
            bench.reopen()
        self.model.waiting.clear()
        self.empty_group()

    @rule(number=st.integers(0, 50))
    def a_request_comes_again(self, number: int) -> None:
        done = [pair for pair in self.done if pair[0].answers]
        if not done:
            return
        first = done[number % len(done)]
        again = [bench.again(sent) for bench, sent in zip(self.benches, first, strict=True)]
        if not first[0].call.command or changed_nothing(first[0].data_or_none()):
            return  # it changed nothing: executed again
        self.empty_group()
        events = [len(bench.events()) for bench in self.benches]
        for bench, sent in zip(self.benches, again, strict=True):
            bench.run(sent)
        assert events == [len(bench.events()) for bench in self.benches]
        assert all((a.answer.data, a.code) == (again[0].answer.data, again[0].code) for a in again)
        if first[0].call.command == "consume_next":
            held = [one for one in deliveries(first[0]) if self.is_held(one)]
            assert again[0].code == ("OK" if held else "ERR_LEASE_EXPIRED")
            if held:
                assert [one["message"] for one in deliveries(again[0])] == [one["message"] for one in held]
                assert all(map(self.is_held, deliveries(again[0])))
        elif first[0].call.command in ("publish", "ack", "release", "reprocess_dlq"):
            assert again[0].data == first[0].data

    def is_held(self, delivery: dict[str, Any]) -> bool:
        lease = delivery["lease"]
        found = [m for m in self.model.messages if (m.key, m.lease) == (lease["messageKey"], lease["leaseId"])]
        return any(m.state == "inflight" for m in found)

    def empty_group(self) -> None:
        for bench in self.benches:
            bench.run()
        self.model.now = self.now
        self.model.tick()

    @property
    def now(self) -> int:
        nows = {bench.live.clock.now().engine for bench in self.benches}
        assert len(nows) == 1
        return nows.pop()

    # --- requests, and what is to be answered -----------------------------------------------------------------

    def request(self, command: tuple[Any, ...]) -> tuple[str, str, dict[str, Any]]:
        match command:
            case ("publish", queue, priority, delay, target, ttl, ordering_key, key):
                fields = {"queue": queue, "priority": priority, "delayMs": delay, "targetConsumerId": target}
                fields |= {"ttlMs": ttl} if ttl else {}
                fields |= {"orderingKey": ordering_key} if ordering_key else {}
                # It is kept beside the body, in as many letters: see BODY.
                fields |= {"deduplicationKey": key, "message": BODY[24:]} if key else {"message": BODY}
                return "publish", "c1", fields
            case ("consume", queue, consumer, wait, visibility, most):
                fields = {"queue": queue, "consumerId": consumer, "waitMs": wait} | ({"max": most} if most else {})
                return "consume_next", "c1", fields | ({} if wait else {"visibilityTimeoutSec": visibility / 1000})
            case ("hold" | "unhold" as name, number):
                wanted = ("held",) if name == "unhold" else WAITS
                return name, "c1", {"messageKey": self.key(number, *wanted)}
            case ("move", number, queue):
                return "move", "c1", {"messageKey": self.key(number, *WAITS, "held"), "to": queue}
            case ("move all", queue, state):
                other = QUEUES[1 - QUEUES.index(queue)]
                return "move", "c1", {"queue": queue, "to": other} | ({"state": state} if state else {})
            case ("purge", queue, state):
                return "purge", "c1", {"queue": queue} | ({"state": state} if state else {})
            case ("reprocess", number):
                return "reprocess_dlq", "c1", {"messageKey": self.key(number, "dead")}
            case ("pause" | "resume" as name, queue, operation):
                return name, "c1", {"queue": queue, "operation": operation}
            case ("policy", queue, number):
                return "set_policy", "c1", {"queue": queue, "policy": POLICIES[number].wire()}
        name, number, how, *delay = command
        message, lease, consumer = self.lease(number)
        other = CONSUMERS[1 - CONSUMERS.index(consumer)]
        payload: dict[str, Any] = {"messageKey": message.key if message else "msg:a:none"}
        payload |= {
            "lease": {"leaseId": lease, "consumerId": other},
            "consumer": {"consumerId": consumer},
            "other lease": {"leaseId": "lease-0", "consumerId": consumer},
            "other consumer": {"consumerId": other},
        }[how]
        if name in ("nack", "retry", "retry in"):
            payload |= {"requeue": name != "nack", "reason": "told"} | ({"delayMs": delay[0]} if delay else {})
        if name == "extend":
            payload["visibilityTimeoutSec"] = 4
        return {"retry": "nack", "retry in": "nack", "extend": "extend_lease"}.get(name, name), consumer, payload

    def lease(self, number: int) -> tuple[Message | None, str, str]:
        leases = self.model.leases
        return leases[-1 - number % len(leases)] if leases else (None, "lease-0", "c1")

    def key(self, number: int, *states: str) -> str:
        """The key of a message in one of these states, if there is one; else of another."""
        found = [m for m in self.model.messages if m.state in states] or self.model.messages
        return found[number % len(found)].key if found else "msg:a:none"

    def expect(self, command: tuple[Any, ...], sents: list[Sent]) -> None:
        model, first = self.model, sents[0]
        match command:
            case ("publish", *_):
                self.expect_published(command, first)
            case ("consume", queue, consumer, wait, visibility, most):
                if model.deliver(sents, queue, consumer, most, VISIBILITY_MS if wait else visibility):
                    pass
                elif wait:
                    # A later request of the same group may have served it already: looked at when that is expected.
                    model.waiting.append(Waiting(sents, queue, consumer, model.now + wait, most))
                else:
                    assert first.data == nothing(most)
            case ("reprocess", _):
                key = first.call.request.payload["messageKey"]
                dead = [m for m in model.messages if m.key == key and m.state == "dead"]
                assert first.code == ("OK" if dead else "ERR_DLQ_NOT_FOUND")
                for message in dead:
                    model.reprocess(message)
                    model.serve(message.queue)
            case ("hold" | "unhold" | "move", *_):
                self.expect_operated(command, first)
            case ("move all" | "purge" as name, queue, state):
                if queue not in model.queues:
                    assert first.code == "ERR_QUEUE_NOT_FOUND"
                    return
                found = model.in_state(queue, *((state,) if state else (*WAITS, "held")))
                assert first.data["purged" if name == "purge" else "moved"] == len(found)
                other = QUEUES[1 - QUEUES.index(queue)]
                for message in found:
                    if name == "purge":
                        message.state = "gone"
                    else:
                        model.move(message, other)
                        model.queues.add(other)
                for one in QUEUES:
                    model.serve(one)
            case ("pause" | "resume" as name, queue, operation):
                assert first.code == ("OK" if queue in model.queues else "ERR_QUEUE_NOT_FOUND")
                paused = model.publish_paused if operation == "publish" else model.consume_paused
                if queue in model.queues:
                    (paused.add if name == "pause" else paused.discard)(queue)
                    model.serve(queue)
            case ("policy", queue, number):
                assert first.code == "OK"
                model.queues.add(queue)
                model.policy[queue] = number
                model.serve(queue)
            case _:
                self.expect_settled(command, first)

    def expect_published(self, command: tuple[Any, ...], sent: Sent) -> None:
        _, queue, priority, delay, target, ttl, ordering_key, key = command
        model, now = self.model, self.model.now
        if queue in model.publish_paused:
            assert sent.code == "ERR_PAUSED"
            return
        first = model.duplicate_of(queue, key)
        if first:
            assert (sent.data["messageKey"], sent.data["duplicate"]) == (first.key, True)
            return
        try:
            room = model.make_room(queue)
        except Full:
            assert sent.code == "ERR_QUEUE_FULL"
            return
        model.order += 1
        message = Message(sent.data["messageKey"], queue, priority, model.order, target, ordering_key)
        ttl = ttl or 1000 * model.of(queue).ttl_s
        message.expires, message.created = now + ttl if ttl else 0, now
        if delay:
            message.state, message.due = "delayed", now + delay
        model.messages.append(message)
        model.queues.add(queue)
        if not room:
            model.bury(message)
            state = "dead" if message.state == "dead" else "dropped"
            assert (sent.data["state"], sent.data["reasonCode"]) == (state, "QUEUE_FULL")
        model.claim(message, key)
        model.serve(queue)

    def expect_operated(self, command: tuple[Any, ...], sent: Sent) -> None:
        name, model = command[0], self.model
        key = sent.call.request.payload["messageKey"]
        message = next((m for m in model.messages if m.key == key and m.state != "gone"), None)
        if message is None:
            assert sent.code == "ERR_MESSAGE_NOT_FOUND"
            return
        fits = {"hold": WAITS, "unhold": ("held",), "move": (*WAITS, "held")}[name]
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
            model.queues.add(command[2])
        for queue in QUEUES:
            model.serve(queue)

    def expect_settled(self, command: tuple[Any, ...], sent: Sent) -> None:
        name, _, how, *delay = command
        payload, model = sent.call.request.payload, self.model
        message = next((m for m in model.messages if m.key == payload["messageKey"] and m.state != "gone"), None)
        holds = message is not None and (
            payload["leaseId"] == message.lease if "leaseId" in payload else payload["consumerId"] == message.consumer
        )
        if message is None:
            assert sent.code == "ERR_MESSAGE_NOT_FOUND"
        elif message.state != "inflight":
            assert sent.code == "ERR_LEASE_EXPIRED"
        elif not holds:
            assert sent.code == "ERR_LEASE_MISMATCH"
        else:
            assert sent.code == "OK", how
            match name:
                case "ack":
                    message.state = "gone"
                case "nack":
                    self.model.bury(message)
                case "retry":
                    self.model.fail(message)
                case "retry in":
                    self.model.fail(message, delay[0])
                case "release":
                    message.state, message.attempt = "ready", message.attempt - 1
                case "extend":
                    message.until = model.now + 4000
                    assert sent.data["leaseUntilEngineMs"] == message.until
            model.serve(message.queue)

    # --- what holds after every step --------------------------------------------------------------------------

    @invariant()
    def all_stores_tell_the_same_and_what_the_model_says(self) -> None:
        keys = [message.key for message in self.model.messages]
        pictures = [picture(bench.store, keys) for bench in self.benches]
        for bench, seen in zip(self.benches, pictures, strict=True):
            assert seen == pictures[0], bench.config.settings.backend
        for message in self.model.messages:
            entry = self.benches[0].store.get(message.key)
            if message.state == "gone":
                assert entry is None
                continue
            assert entry is not None
            assert (entry.state, entry.attempt, entry.priority) == (message.state, message.attempt, message.priority)
            assert (entry.queue, entry.order_key) == (message.queue, message.ordering_key)
            if message.state in WAITS:
                assert entry.expires == message.expires
            if message.state == "delayed":
                assert entry.due == message.due
            if message.state == "inflight":
                assert (entry.lease_id, entry.lease_until) == (message.lease, message.until)
        for queue in self.model.queues:
            counts = {
                state: len(self.model.in_state(queue, state))
                for state in ("ready", "delayed", "inflight", "held", "dead")
            }
            assert pictures[0]["queues"][queue].counts == counts
            dead = sorted(self.model.in_state(queue, "dead"), key=lambda m: (m.died, m.order))
            assert pictures[0]["dead"][queue] == [message.key for message in dead]

    @invariant()
    def all_journals_are_the_same(self) -> None:
        journals = [[(path.name, path.read_bytes()) for path in bench.segments()] for bench in self.benches]
        assert all(journal == journals[0] for journal in journals[:3])
        apart = [
            [event for event in bench.events() if event.pop("crc")] for bench in (self.benches[0], self.benches[3])
        ]
        for event in (event for events in apart for event in events if event["type"] == "published"):
            assert event.pop("message", None) or event.pop("body")
        assert apart[0] == apart[1]
        ids = [event["id"] for event in self.benches[0].events()]
        assert ids == list(range(1, len(ids) + 1))

    @invariant()
    def nobody_is_answered_twice_and_all_stores_answer_alike(self) -> None:
        parked = {id(sent) for one in self.model.waiting for sent in one.sents}
        for pair in self.done:
            answers = [[(a.data, a.error and a.error.code) for a in sent.answers] for sent in pair]
            assert all(answer == answers[0] for answer in answers) and len(answers[0]) <= 1
            assert not (answers[0] and id(pair[0]) in parked)


History.TestCase.settings = settings(
    max_examples=3000 if LONG else 80,
    stateful_step_count=100 if LONG else 30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestHistory = History.TestCase
