"""The whole broker against a small model of its promises, on every store with the same history.

The model knows nothing of the engine, the life cycle or the fold. ``HYPOTHESIS_PROFILE=long`` looks longer.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.conformance.bench import Bench, Sent, exported, picture

QUEUES = ("a", "b")
CONSUMERS = ("c1", "c2")
BACKENDS = ("sqlite", "memory", "filesystem", "hybrid")
#: limit, backoff, initial s, longest s, whether dead letters are kept; the first is the default.
POLICIES: tuple[tuple[int, str, int, int, bool], ...] = (
    (5, "exponential", 1, 60, True),
    (1, "exponential", 1, 60, True),
    (0, "fixed", 2, 60, False),
    (3, "linear", 2, 5, True),
    (4, "exponential", 1, 3, False),
)
#: So long that an event is as long with it as with what stands for it in the journal of hybrid: all journals begin new
#: files at the same events.
BODY = "a body of just thirty-one letters"[:31]
LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"


@dataclass(eq=False)
class Message:
    """What the model knows of one message."""

    key: str
    queue: str
    priority: int
    order: int
    target: str
    state: str
    due: int = 0
    attempt: int = 0
    lease: str = ""
    consumer: str = ""
    until: int = 0
    died: int = 0


@dataclass(eq=False)
class Waiting:
    sents: list[Sent]
    queue: str
    consumer: str
    until: int


@dataclass
class Model:
    """The promises of docs/protocol.md, sections 5, 6 and 8, in the plainest form."""

    now: int = 0
    messages: list[Message] = field(default_factory=list)
    leases: list[tuple[Message, str, str]] = field(default_factory=list)
    queues: set[str] = field(default_factory=set)
    publish_paused: set[str] = field(default_factory=set)
    consume_paused: set[str] = field(default_factory=set)
    policy: dict[str, int] = field(default_factory=dict)
    waiting: list[Waiting] = field(default_factory=list)
    order: int = 0

    def in_state(self, queue: str, state: str) -> list[Message]:
        return [m for m in self.messages if m.queue == queue and m.state == state]

    # What happens by itself, at the head of a group.

    def tick(self) -> None:
        woken = []
        for message in sorted(self.messages, key=lambda m: (m.due, m.order)):
            if message.state == "delayed" and message.due <= self.now:
                message.state = "ready"
                woken.append(message.queue)
        for message in self.messages:
            if message.state == "inflight" and message.until <= self.now:
                self.fail(message)
        for one in [w for w in self.waiting if w.until <= self.now]:
            self.waiting.remove(one)
            for sent in one.sents:
                assert sent.data == {"message": None}
        for queue in dict.fromkeys(woken):
            self.serve(queue)

    def fail(self, message: Message) -> None:
        limit, backoff, initial, longest, _ = POLICIES[self.policy.get(message.queue, 0)]
        if message.attempt >= max(1, limit):
            self.bury(message)
            return
        seconds = {"fixed": initial, "linear": initial * message.attempt}.get(
            backoff, initial * 2 ** (message.attempt - 1)
        )
        message.state, message.due = (
            "delayed",
            self.now + 1000 * (initial if backoff == "fixed" else min(seconds, longest)),
        )

    def bury(self, message: Message) -> None:
        kept = POLICIES[self.policy.get(message.queue, 0)][4]
        message.state, message.died = ("dead" if kept else "gone"), self.now

    def pick(self, queue: str, consumer: str) -> Message | None:
        if queue in self.consume_paused:
            return None
        mine = [m for m in self.in_state(queue, "ready") if m.target in ("", consumer)]
        return min(mine, key=lambda m: (-m.priority, m.order), default=None)

    def lease(self, message: Message, sents: list[Sent], consumer: str, visibility_ms: int) -> None:
        for sent in sents:
            data = sent.data
            assert data["message"]["messageKey"] == message.key
            assert data["message"]["attempt"] == message.attempt + 1
            assert data["lease"]["consumerId"] == consumer
            assert data["lease"]["leaseUntilEngineMs"] == self.now + visibility_ms
        message.state, message.attempt = "inflight", message.attempt + 1
        message.consumer, message.until = consumer, self.now + visibility_ms
        message.lease = sents[0].data["lease"]["leaseId"]
        assert message.lease not in [lease for _, lease, _ in self.leases]
        self.leases.append((message, message.lease, consumer))

    def serve(self, queue: str) -> None:
        for one in [w for w in self.waiting if w.queue == queue]:
            message = self.pick(queue, one.consumer)
            if message:
                self.waiting.remove(one)
                self.lease(message, one.sents, one.consumer, 30_000)


COMMANDS = st.one_of(
    st.tuples(
        st.just("publish"),
        st.sampled_from(QUEUES),
        st.sampled_from([0, 0, 0, 5, -5]),
        st.sampled_from([0, 0, 0, 1, 700, 5000]),
        st.sampled_from(["", "", "", *CONSUMERS]),
    ),
    st.tuples(
        st.just("consume"),
        st.sampled_from(QUEUES),
        st.sampled_from(CONSUMERS),
        st.sampled_from([0, 0, 0, 1, 2500, 10**6]),
        st.sampled_from([1, 2000, 30_000]),
    ),
    st.tuples(
        st.sampled_from(["ack", "nack", "retry", "retry", "release", "extend"]),
        st.integers(0, 6),
        st.sampled_from(["lease", "lease", "lease", "consumer", "other lease", "other consumer"]),
    ),
    st.tuples(st.just("reprocess"), st.integers(0, 6)),
    st.tuples(
        st.sampled_from(["pause", "resume", "resume"]), st.sampled_from(QUEUES), st.sampled_from(["publish", "consume"])
    ),
    st.tuples(st.just("policy"), st.sampled_from(QUEUES), st.integers(0, len(POLICIES) - 1)),
)


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
        self.model = Model()
        self.done: list[list[Sent]] = []

    def teardown(self) -> None:
        for bench in self.benches:
            bench.close()
        shutil.rmtree(self.directory)

    # --- rules ------------------------------------------------------------------------------------------------

    @rule(commands=st.lists(COMMANDS, min_size=1, max_size=4))
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
        known = [m.due for m in self.model.messages if m.state == "delayed"]
        known += [m.until for m in self.model.messages if m.state == "inflight"] + [w.until for w in self.model.waiting]
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
        if not first[0].call.command or first[0].data_or_none() in (None, {"message": None}):
            return  # it changed nothing: executed again
        self.empty_group()
        events = [len(bench.events()) for bench in self.benches]
        for bench, sent in zip(self.benches, again, strict=True):
            bench.run(sent)
        assert events == [len(bench.events()) for bench in self.benches]
        assert all((a.answer.data, a.code) == (again[0].answer.data, again[0].code) for a in again)
        if first[0].call.command == "consume_next":
            key, lease = (first[0].data["lease"][name] for name in ("messageKey", "leaseId"))
            held = [m for m in self.model.messages if m.key == key and m.state == "inflight" and m.lease == lease]
            assert again[0].code == ("OK" if held else "ERR_LEASE_EXPIRED")
            if held:
                assert again[0].data["message"] == first[0].data["message"]
                assert again[0].data["lease"]["leaseId"] == lease
        elif first[0].call.command in ("publish", "ack", "release", "reprocess_dlq"):
            assert again[0].data == first[0].data

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
            case ("publish", queue, priority, delay, target):
                fields = {"queue": queue, "priority": priority, "delayMs": delay, "targetConsumerId": target}
                return "publish", "c1", fields | {"message": BODY}
            case ("consume", queue, consumer, wait, visibility):
                fields = {"queue": queue, "consumerId": consumer, "waitMs": wait}
                return "consume_next", "c1", fields | ({} if wait else {"visibilityTimeoutSec": visibility / 1000})
            case ("reprocess", number):
                return "reprocess_dlq", "c1", {"messageKey": self.key(number)}
            case ("pause" | "resume" as name, queue, operation):
                return name, "c1", {"queue": queue, "operation": operation}
            case ("policy", queue, number):
                limit, backoff, initial, longest, kept = POLICIES[number]
                retry = {"limit": limit, "backoff": backoff, "initialDelaySec": initial, "maxDelaySec": longest}
                return "set_policy", "c1", {"queue": queue, "policy": {"retry": retry, "dlq": {"enabled": kept}}}
        name, number, how = command
        message, lease, consumer = self.lease(number)
        other = CONSUMERS[1 - CONSUMERS.index(consumer)]
        payload: dict[str, Any] = {"messageKey": message.key if message else "msg:a:none"}
        payload |= {
            "lease": {"leaseId": lease, "consumerId": other},
            "consumer": {"consumerId": consumer},
            "other lease": {"leaseId": "lease-0", "consumerId": consumer},
            "other consumer": {"consumerId": other},
        }[how]
        if name in ("nack", "retry"):
            payload |= {"requeue": name == "retry", "reason": "told"}
        if name == "extend":
            payload["visibilityTimeoutSec"] = 4
        return {"retry": "nack", "extend": "extend_lease"}.get(name, name), consumer, payload

    def lease(self, number: int) -> tuple[Message | None, str, str]:
        leases = self.model.leases
        return leases[-1 - number % len(leases)] if leases else (None, "lease-0", "c1")

    def key(self, number: int) -> str:
        dead = [m for m in self.model.messages if m.state == "dead"] or self.model.messages
        return dead[number % len(dead)].key if dead else "msg:a:none"

    def expect(self, command: tuple[Any, ...], sents: list[Sent]) -> None:
        model, first = self.model, sents[0]
        match command:
            case ("publish", queue, priority, delay, target):
                if queue in model.publish_paused:
                    assert first.code == "ERR_PAUSED"
                    return
                model.order += 1
                state = "delayed" if delay else "ready"
                due = model.now + delay if delay else 0
                model.messages.append(
                    Message(first.data["messageKey"], queue, priority, model.order, target, state, due)
                )
                model.queues.add(queue)
                model.serve(queue)
            case ("consume", queue, consumer, wait, visibility):
                message = model.pick(queue, consumer)
                if message:
                    model.lease(message, sents, consumer, 30_000 if wait else visibility)
                elif wait:
                    # A later request of the same group may have served it already: looked at when that is expected.
                    model.waiting.append(Waiting(sents, queue, consumer, model.now + wait))
                else:
                    assert first.data == {"message": None}
            case ("reprocess", _):
                key = first.call.request.payload["messageKey"]
                dead = [m for m in model.messages if m.key == key and m.state == "dead"]
                assert first.code == ("OK" if dead else "ERR_DLQ_NOT_FOUND")
                for message in dead:
                    message.state, message.attempt = "ready", 0
                    model.serve(message.queue)
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

    def expect_settled(self, command: tuple[Any, ...], sent: Sent) -> None:
        name, _, how = command
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
            if message.state == "delayed":
                assert entry.due == message.due
            if message.state == "inflight":
                assert (entry.lease_id, entry.lease_until) == (message.lease, message.until)
        for queue in self.model.queues:
            counts = {
                state: len(self.model.in_state(queue, state)) for state in ("ready", "delayed", "inflight", "dead")
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
    max_examples=3000 if LONG else 120,
    stateful_step_count=100 if LONG else 30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestHistory = History.TestCase
