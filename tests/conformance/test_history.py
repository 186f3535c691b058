"""The whole broker against a small model of its promises, on every store with the same history.

The model knows nothing of the engine, the life cycle or the fold. ``HYPOTHESIS_PROFILE=long`` looks longer.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from postroom_common.protocol import State
from tests.conformance.bench import Bench, Sent, exported, picture
from tests.conformance.history_commands import COMMANDS, QUEUES, WORK, Command, request
from tests.conformance.history_expect import expect
from tests.conformance.history_messages import LAPSES, Message
from tests.conformance.history_model import CHORES_EVERY_MS, GATHERS, Model
from tests.conformance.history_policies import GATHERING, POLICIES

pytestmark = pytest.mark.slow

BACKENDS = ("sqlite", "memory", "filesystem", "hybrid")
LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
#: To shorten a history that fails takes five minutes: in CI it is reported as it is, with what reproduces it.
PHASES = set(Phase) - ({Phase.shrink, Phase.explain} if os.environ.get("CI") and not LONG else set())


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
        self.model = Model()
        self.done: list[list[Sent]] = []
        self.seen = 0

    def teardown(self) -> None:
        for bench in self.benches:
            bench.close()
        shutil.rmtree(self.directory)

    # --- rules ------------------------------------------------------------------------------------------------

    @initialize(numbers=st.tuples(*[st.integers(0, len(POLICIES) - 1) for _ in QUEUES]))
    def policies(self, numbers: tuple[int, ...]) -> None:
        self.group([("policy", *one) for one in zip(QUEUES, numbers, strict=True)])
        for bench in self.benches:
            bench.do("set_policy", queue=GATHERS, policy=GATHERING.wire())
        self.model.queues.add(GATHERS)

    @rule(commands=st.lists(WORK, min_size=3, max_size=8))
    def work(self, commands: list[Command]) -> None:
        self.group(commands)

    @rule(commands=st.lists(COMMANDS, min_size=1, max_size=6))
    def mixed(self, commands: list[Command]) -> None:
        self.group(commands)

    def group(self, commands: list[Command]) -> None:
        requests = [request(command, self.model) for command in commands]
        sents = [[bench.make(name, client, **payload) for bench in self.benches] for name, client, payload in requests]
        for index, bench in enumerate(self.benches):
            bench.run(*[pair[index] for pair in sents])
        self.tick()
        for command, pair in zip(commands, sents, strict=True):
            self.model = expect(command, pair, self.model)
        self.done += sents

    @rule(milliseconds=st.sampled_from([1, 600, 1000, 2000, 30_000, 100_000]))
    def time_passes(self, milliseconds: int) -> None:
        for bench in self.benches:
            bench.clocks.pass_ms(milliseconds)
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
                bench.clocks.pass_ms(wait_ms)
            self.empty_group()

    @rule(without_store=st.booleans(), reboot=st.booleans())
    def crash(self, without_store: bool, reboot: bool) -> None:
        if self.model.has_chores():  # or else they are done by the first group behind the crash
            for bench in self.benches:
                bench.clocks.pass_ms(CHORES_EVERY_MS)
        self.empty_group()
        before, reported = self.now, [exported(bench) for bench in self.benches]
        for bench in self.benches:
            bench.close()
            if reboot:
                bench.clocks.boot_id += "'"
                bench.clocks.boot_ms = 17
        for bench in self.benches:
            bench.reopen(without_store)
        assert self.now == before
        for one in self.model.waiting:
            assert not any(sent.answers for sent in one.sents)
        self.model.waiting.clear()
        self.model.chores_from = 0
        self.empty_group()
        assert [exported(bench) for bench in self.benches] == reported, "a restart has changed something"
        assert reported == [reported[0]] * len(reported), "the stores do not export the same"

    @rule()
    def all_becomes_durable(self) -> None:
        for bench in self.benches:
            bench.store.disk.checkpoint()

    @rule()
    def a_second_passes_without_requests(self) -> None:
        for bench in self.benches:
            bench.store.disk.tidy()

    @rule()
    def the_daemon_stops_in_order(self) -> None:
        for bench in self.benches:
            bench.stop()
            bench.store.disk.checkpoint()
            bench.reopen()
        self.model.waiting.clear()
        self.model.chores_from = 0
        self.empty_group()

    @rule(number=st.integers(0, 50))
    def a_request_comes_again(self, number: int) -> None:
        done = [pair for pair in self.done if pair[0].answers]
        if not done:
            return
        first = done[number % len(done)]
        again = [bench.again(sent) for bench, sent in zip(self.benches, first, strict=True)]
        request_id = first[0].request.wire.request_id
        if not any(event["by"]["request"] == request_id for event in self.benches[0].events() if "by" in event):
            return  # it changed nothing: executed again
        self.empty_group()
        events = [len(bench.events()) for bench in self.benches]
        for bench, sent in zip(self.benches, again, strict=True):
            bench.run(sent)
        assert events == [len(bench.events()) for bench in self.benches]
        assert all((a.answer.data, a.code) == (again[0].answer.data, again[0].code) for a in again)
        if first[0].request.command in ("consume_next", "activate"):
            held = [one for one in deliveries(first[0]) if self.is_held(one)]
            assert again[0].code == ("OK" if held else "ERR_LEASE_EXPIRED")
            if held:
                assert [*map(self.shown, deliveries(again[0]))] == [*map(self.shown, held)]
                assert all(map(self.is_held, deliveries(again[0])))
        else:
            assert again[0].data | {"engineNowMs": 0} == first[0].data | {"engineNowMs": 0}

    def shown(self, delivery: dict[str, Any]) -> dict[str, Any]:
        """The message of a delivery, without a body that may have been set since."""
        message: dict[str, Any] = delivery["message"]
        found = self.model.find(message["messageKey"])
        return message | {"payload": None} if found and found.was_set else message

    def is_held(self, delivery: dict[str, Any]) -> bool:
        lease = delivery["lease"]
        found = [m for m in self.model.messages if (m.key, m.lease) == (lease["messageKey"], lease["leaseId"])]
        return bool(found)

    def empty_group(self) -> None:
        for bench in self.benches:
            bench.run()
        self.tick()

    def tick(self) -> None:
        self.model.now = self.now
        self.model.tick(iter(self.born()))

    def born(self) -> list[str]:
        """The keys of what schedules have published since this was asked last."""
        if not self.model.schedules:
            return []
        events = [event for event in self.benches[0].events() if event["id"] > self.seen]
        self.seen = self.benches[0].store.applied
        fired = {event["req"] for event in events if event["type"] == "schedule_fired"}
        return [event["key"] for event in events if event["type"] == "published" and event["req"] in fired]

    @property
    def now(self) -> int:
        nows = {bench.live.clock.now().engine for bench in self.benches}
        assert len(nows) == 1
        return nows.pop()

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
            if message.state in LAPSES:
                assert entry.expires == message.expires
            if message.state in ("delayed", "gathering"):
                assert entry.due == message.due
            assert entry.parts == (message.parts if message.unset is not None else max(0, message.parts - 1))
            assert (entry.unset, entry.name) == (len(message.unset or ()), message.name[1])
            assert (entry.lease_id, entry.consumer_id) == (message.lease, message.consumer)
            assert (entry.lease_until, entry.phase) == (message.until, _phase(message))
        assert pictures[0]["queues"].keys() == self.model.queues
        for queue in self.model.queues:
            counts = {state: len(self.model.in_state(queue, state)) for state in State}
            assert pictures[0]["queues"][queue].counts == counts
            assert pictures[0]["dead"][queue] == [letter.key for letter in self.model.letters(queue)]
            assert pictures[0]["done"][queue] == [one.key for one in self.model.done(queue)]

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


def _phase(message: Message) -> str:
    return "quarantined" if message.apart else "ordered" if message.ordered else ""


History.TestCase.settings = settings(
    max_examples=3000 if LONG else 28,
    stateful_step_count=100 if LONG else 30,
    phases=PHASES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestHistory = History.TestCase
