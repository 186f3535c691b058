"""Queues by pattern: the order over queues, what is remembered between requests, and what it costs."""

from __future__ import annotations

import random
from typing import Any

import pytest

from postroom_common.protocol import ErrorCode
from postroom_daemon.engine import heads, queue_patterns, queue_search
from postroom_daemon.engine.heads import available_from
from postroom_daemon.policy.policies import Policies
from tests.conformance.bench import Bench
from tests.daemon.access_rules import ALICE, allow, use


def consume(bench: Bench, pattern: str = "^q", **fields: Any) -> str | None:
    message = bench.do("consume_next", queuePattern=pattern, **fields)["message"]
    return str(message["payload"]) if message else None


@pytest.fixture
def counted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the queues whose records are read."""
    names: list[str] = []
    read = bench.store.queue

    def queue(name: str) -> Any:
        names.append(name)
        return read(name)

    monkeypatch.setattr(bench.store, "queue", queue)
    return names


def test_random_work_is_delivered_in_the_order_over_all_queues(bench: Bench) -> None:
    """Publishes, delays, returns, pauses, limits and deletions, against a search through all queues."""
    chance = random.Random(7)
    names = [f"{kind}.{number}" for kind in "pq" for number in range(6)]
    leased: dict[str, dict[str, Any]] = {}
    for step in range(600):
        bench.clocks.pass_ms(chance.randrange(30))
        queue, what = chance.choice(names), chance.random()
        if what < 0.4:
            delay = chance.choice([0, 0, 0, 50])
            bench.do("publish", queue=queue, message=str(step), delayMs=delay, priority=chance.randrange(2))
        elif what < 0.45:
            bench.send("pause" if chance.random() < 0.5 else "resume", queue=queue)
        elif what < 0.5:
            bench.do("set_policy", queue=queue, policy={"limits": {"inflight": chance.choice([0, 1])}})
        elif what < 0.52:
            bench.send("delete_queue", queue=queue)
        elif what < 0.65 and leased:
            key = chance.choice(sorted(leased))
            delivery = leased.pop(key)
            command = chance.choice(["ack", "release", "nack"])
            more = {"requeue": True, "delayMs": 20} if command == "nack" else {}
            bench.send(command, messageKey=key, leaseId=delivery["lease"]["leaseId"], **more)
        else:
            bench.do("status", queue="q.0")  # what is due is ready
            expected = _first(bench, [name for name in names if name[0] == "q"])
            data = bench.do("consume_next", queuePattern="^q", visibilityTimeoutSec=1000)
            assert (data["message"] or {}).get("messageKey") == expected, step
            if data["message"]:
                leased[data["message"]["messageKey"]] = data


def _first(bench: Bench, names: list[str]) -> str | None:
    """The key of the message that is next, by looking at all queues."""
    heads = []
    for name in names:
        record = bench.store.queue(name)
        if record is None or record.consume_paused:
            continue
        limit = bench.live.broker.state.policies.effective(name, record).max_inflight
        if limit and record.counts["inflight"] >= limit:
            continue
        entry = bench.store.next_ready(name, "client")
        if entry:
            heads.append((*available_from(entry), name, entry.key))
    return min(heads)[3] if heads else None


@pytest.mark.interpreted  # it replaces a method of the store
def test_a_request_looks_at_one_queue_and_not_at_all(bench: Bench, counted: list[str]) -> None:
    bench.run(*[bench.make("publish", queue=f"q.{number}", message=str(number)) for number in range(1000)])
    assert consume(bench) == "0", "this one has looked at all, in steps"
    counted.clear()
    for number in range(1, 50):
        assert consume(bench) == str(number)
    assert len(counted) < 49 * 20
    counted.clear()
    assert consume(bench, "^nothing") is None and consume(bench, "^nothing") is None
    assert not counted, "queues that do not match are not read"


def test_other_requests_are_answered_while_queues_are_looked_at(bench: Bench) -> None:
    bench.run(*[bench.make("publish", queue=f"q.{number}", message=str(number)) for number in range(1000)])
    by_pattern, other = bench.make("consume_next", queuePattern="^q.9"), bench.make("status", queue="q.1")
    broker = bench.live.broker
    broker.submit(by_pattern.request, other.request)
    broker.run_group()
    assert other.data["exists"] and not by_pattern.answers
    bench.run(bench.make("publish", queue="q.90", message="later"))
    assert by_pattern.data["message"]["payload"] == "9"


def test_a_pattern_that_nobody_uses_is_forgotten_and_costs_nothing(bench: Bench) -> None:
    state = bench.live.broker.state
    before = {name: list(calls) for name, calls in state.observers.by_type.items() if calls}
    bench.publish("q.1", "a")
    assert consume(bench) == "a"
    assert {name: list(calls) for name, calls in state.observers.by_type.items() if calls} != before
    bench.clocks.pass_ms(queue_patterns.IDLE_MS + 2000)
    bench.do("status", queue="q.1")
    assert {name: list(calls) for name, calls in state.observers.by_type.items() if calls} == before
    bench.publish("q.2", "b")
    assert consume(bench) == "b"


def test_what_is_remembered_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_patterns, "PATTERNS_LIMIT", 5)
    bench.publish("q.1", "a")
    for number in range(30):
        consume(bench, f"none-{number}")
        bench.do("publish", queuePattern=f"none-{number}", message="x")
    patterns = bench.live.broker.state.patterns
    assert len(patterns._heads) == len(patterns._matching) == len(patterns._compiled) == 5


def test_a_group_that_failed_loses_nothing(bench: Bench) -> None:
    for number in range(3):
        bench.publish(f"q.{number}", str(number))
    assert consume(bench) == "0"
    with bench.full_disk():
        refused = bench.send("consume_next", queuePattern="^q")
        assert refused.code == ErrorCode.STORAGE_FULL
        assert bench.send("publish", queuePattern="^q", message="x").code == ErrorCode.STORAGE_FULL
        bench.send("set_policy_patterns", patterns=[{"pattern": "^q", "policy": {"ttlSec": 1}}])
    assert bench.do("get_policy_patterns")["patterns"] == []
    assert bench.do("get_policy", queue="q.1")["policy"]["ttlSec"] == 0
    assert [consume(bench) for _ in range(3)] == ["1", "2", None]
    assert bench.do("publish", queuePattern="^q", message="y")["published"].keys() == {"q.0", "q.1", "q.2"}


def test_queues_that_come_and_go_are_reached_as_they_are(bench: Bench) -> None:
    for number in range(3):
        bench.publish(f"q.{number}", "x")
    assert len(bench.do("publish", queuePattern="^q", message="x")["published"]) == 3
    bench.do("purge", queue="q.1")
    bench.do("delete_queue", queue="q.1")
    bench.publish("q.9", "x")
    bench.publish("r", "x")
    assert sorted(bench.do("publish", queuePattern="^q", message="x")["published"]) == ["q.0", "q.2", "q.9"]


@pytest.mark.interpreted  # it sets a constant of the protocol
def test_a_publish_reaches_so_many_queues_and_no_more(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_search, "MATCHED_QUEUES_LIMIT", 3)
    for number in range(4):
        bench.publish(f"q.{number}", "x")
    for _ in range(2):
        refused = bench.send("publish", queuePattern="^q", message="x")
        assert refused.code == ErrorCode.INVALID_REQUEST
    bench.do("purge", queue="q.1")
    bench.do("delete_queue", queue="q.1")
    assert len(bench.do("publish", queuePattern="^q", message="x")["published"]) == 3


def test_queues_that_one_may_not_use_are_left_out(bench: Bench) -> None:
    for number in (1, 2, 3):
        bench.publish(f"q.{number}", str(number))
    rule = {"who": ["everyone"], "pattern": "q[.][12]", "allow": ["publish", "consume"]}
    use(bench, allow(rule))
    bench.run(mine := bench.make("consume_next", queuePattern="^q", uid=ALICE, visibilityTimeoutSec=1000))
    assert mine.data["message"]["payload"] == "1"
    bench.run(sent := bench.make("publish", queuePattern="", message="x", uid=ALICE))
    assert sorted(sent.data["published"]) == ["q.1", "q.2"] and not sent.data["refused"]
    waiting = bench.make("consume_next", queuePattern="3$", waitMs=60_000, uid=ALICE)
    bench.run(waiting)
    bench.publish("q.3", "not for a stranger")
    assert not waiting.answers
    use(bench, allow())
    bench.run(nothing := bench.make("consume_next", queuePattern="^q", uid=ALICE))
    assert nothing.data["message"] is None
    bench.run(asked := bench.make("set_policy_patterns", patterns=[], uid=ALICE))
    assert asked.code == ErrorCode.FORBIDDEN
    bench.run(asked := bench.make("get_policy_patterns", uid=ALICE))
    assert asked.code == "OK"


def test_a_policy_is_set_for_a_new_queue_over_that_with_which_it_is_created(bench: Bench) -> None:
    bench.do("set_policy", queue="new", policy={"ttlSec": 9}, createWith={"ttlSec": 5, "retry": {"limit": 3}})
    explained = bench.do("get_policy", queue="new", explain=True, createWith={"retry": {"limit": 8}})["explanation"]
    assert explained["ttlSec"] == {"value": 9, "layer": "override"}
    assert explained["retry.limit"] == {"value": 3, "layer": "created"}
    bench.do("set_policy", queue="new", policy={}, createWith={"ttlSec": 7})
    assert bench.do("get_policy", queue="new")["policy"]["ttlSec"] == 5


def test_the_policy_of_a_queue_can_be_asked_before_it_is_created(bench: Bench) -> None:
    bench.do("set_policy_patterns", patterns=[{"pattern": "^new", "policy": {"ttlSec": 9}}])
    data = bench.do("get_policy", queue="new", createWith={"ttlSec": 5, "retry": {"limit": 3}})
    assert (data["policy"]["ttlSec"], data["policy"]["retry"]["limit"], data["override"]) == (9, 3, {})
    assert bench.store.queue("new") is None
    assert bench.send("get_policy", queue="new", createWith={"bad": 1}).code == "ERR_INVALID_REQUEST"


def test_who_may_not_operate_a_queue_creates_it_within_the_configuration(bench: Bench) -> None:
    bench.live.broker.reload(Policies({"limits.messages": 5, "ttlSec": 60.0}, {}), bench.live.broker.limits)
    use(bench, allow(default=("publish", "consume")))
    policy = {"limits": {"messages": 0}, "retry": {"limit": 2}}
    for command in ("publish", "consume_next"):
        body = {"message": "x"} if command == "publish" else {}
        for refused in ({"dlq": {"queue": "graves"}}, {"validation": {"schema": {"type": "object"}}}):
            bench.run(sent := bench.make(command, queue=command, createWith=refused, uid=ALICE, **body))
            assert sent.code == ErrorCode.FORBIDDEN and bench.store.queue(command) is None
        bench.run(made := bench.make(command, queue=command, createWith=policy, uid=ALICE, **body))
        assert made.code == "OK"
        explained = bench.do("get_policy", queue=command, explain=True)["explanation"]
        assert explained["limits.messages"] == {"value": 5, "layer": "policyDefaults"}
        assert explained["retry.limit"] == {"value": 2, "layer": "created"}
    assert bench.send("publish", queue="mine", message="x", createWith=policy).code == "OK"
    assert bench.do("get_policy", queue="mine")["policy"]["limits"]["messages"] == 0, "an operator overrides it"


def test_messages_for_others_do_not_hide_those_for_everyone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "PASSED_OVER_LIMIT", 5)
    for number in range(12):
        bench.publish(f"q.{number}", "for another", targetConsumerId="another")
    bench.publish("q.last", "for anyone")
    answers = [consume(bench) for _ in range(3)]
    assert "for anyone" in answers and set(answers) <= {"for anyone", None}
    assert [consume(bench, consumerId="another") for _ in range(12)] == ["for another"] * 12


def test_an_in_flight_limit_that_a_policy_pattern_lifts_releases_messages(bench: Bench) -> None:
    bench.do("set_policy_patterns", patterns=[{"pattern": "^q", "policy": {"limits": {"inflight": 1}}}])
    bench.publish("q.1", "a")
    bench.publish("q.1", "b")
    assert consume(bench) == "a" and consume(bench) is None
    waiting = bench.make("consume_next", queue="q.1", waitMs=60_000)
    bench.run(waiting)
    bench.do("set_policy_patterns", patterns=[])
    assert waiting.data["message"]["payload"] == "b"


def test_dead_letters_have_the_address_that_a_policy_pattern_gives(bench: Bench) -> None:
    for queue in ("q.1", "q.2"):
        bench.publish(queue, queue)
        delivery = bench.do("consume_next", queue=queue)
        bench.do("nack", messageKey=delivery["message"]["messageKey"])
    assert bench.do("count_dlq", queue="graves")["count"] == 0
    waiting = bench.make("consume_next", queue="graves", waitMs=60_000)
    bench.run(waiting)
    bench.do("set_policy_patterns", patterns=[{"pattern": "^q", "policy": {"dlq": {"queue": "graves"}}}])
    assert waiting.data["message"]["payload"] == "q.1"
    assert bench.do("count_dlq", queue="graves")["count"] == 2
    assert bench.send("publish", queue="graves", message="x").code == ErrorCode.INVALID_REQUEST


def test_a_reload_of_the_configuration_keeps_the_policy_patterns(bench: Bench) -> None:
    bench.do("set_policy_patterns", patterns=[{"pattern": "^q", "policy": {"ttlSec": 9}}])
    bench.publish("q.1", "a")
    bench.live.broker.reload(Policies({"ttlSec": 5.0}, {}), bench.live.broker.limits)
    assert bench.do("get_policy", queue="q.1")["policy"]["ttlSec"] == 9
    bench.publish("r", "a")
    assert bench.do("get_policy", queue="r")["policy"]["ttlSec"] == 5


def test_items_of_one_request_see_the_policy_of_the_queue_that_it_creates(bench: Bench) -> None:
    policy = {"limits": {"messages": 1}}
    items = [{"queue": "q", "message": str(number), "createWith": policy} for number in range(3)]
    results = bench.do("publish_batch", messages=items)["results"]
    assert ["error" in one for one in results] == [False, True, True]
    assert bench.do("status", queue="q")["policy"]["limits"]["messages"] == 1


def test_a_repeated_request_that_created_a_queue_is_executed(bench: Bench) -> None:
    """The creation is not its answer."""
    first = bench.make("consume_next", queue="q", createWith={})
    bench.run(first)
    assert first.data["message"] is None
    bench.publish("q", "x")
    bench.run(again := bench.again(first))
    assert again.data["message"]["payload"] == "x"


def test_a_queue_that_gathers_takes_a_part_of_a_publish_by_pattern(bench: Bench) -> None:
    for queue in ("q.1", "q.2"):
        bench.do("set_policy", queue=queue, policy={"gatherWindowSec": 1} if queue == "q.1" else {})
    assert bench.do("publish", queue="q.1", message="a")["gathering"] == "new"
    published = bench.do("publish", queuePattern="^q", message="b")["published"]
    assert published["q.1"]["gathering"] == "appended" and "gathering" not in published["q.2"]
    assert bench.send("publish", queue="q.1", queuePattern="q", message="c").code == ErrorCode.INVALID_REQUEST
    assert bench.send("publish", queue="q.1", createWith={"ttl": 1}, message="c").code == ErrorCode.INVALID_REQUEST
    assert consume(bench) == "b" and consume(bench) is None
    bench.clocks.pass_ms(1001)
    bench.do("status", queue="q.1")
    assert bench.do("consume_next", queuePattern="^q")["message"]["queue"] == "q.1"
