"""Leases in two phases: a message is ordered first, without a counted delivery, until its consumer activates it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.bench import Bench, exported
from tests.daemon.maintenance_runs import verified

MakeBench = Callable[..., Bench]
BACKENDS = ("sqlite", "memory", "filesystem", "hybrid")
ORDERED_MS = 5000
ACTIVE_MS = 20_000


def with_phases(bench: Bench, **policy: Any) -> Bench:
    phases = {"orderedSec": ORDERED_MS / 1000, "visibilityTimeoutSec": ACTIVE_MS / 1000}
    bench.do("set_policy", queue="q", policy={**phases, **policy})
    return bench


@pytest.fixture(params=BACKENDS)
def any_bench(request: pytest.FixtureRequest, make_bench: MakeBench) -> Bench:
    """An open root whose queue ``q`` has leases in two phases."""
    return with_phases(make_bench(request.param).open())


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    return with_phases(make_bench().open())


def publish(bench: Bench, *messages: Any, **options: Any) -> list[str]:
    return [bench.do("publish", queue="q", message=message, **options)["messageKey"] for message in messages]


def consume(bench: Bench, **options: Any) -> dict[str, Any]:
    data = bench.do("consume_next", queue="q", **options)
    assert data["message"], "no message"
    return data


# --- the two phases -----------------------------------------------------------------------------------------------


def test_a_lease_begins_ordered_and_is_a_counted_delivery_once_it_is_activated(any_bench: Bench) -> None:
    (key,) = publish(any_bench, "work")
    first = consume(any_bench)
    assert (first["message"]["attempt"], first["lease"]["phase"]) == (0, "ordered")
    assert first["lease"]["leaseUntilEngineMs"] == first["engineNowMs"] + ORDERED_MS
    assert any_bench.counts() == {"inflight": 1, "ordered": 1}
    any_bench.clocks.pass_ms(ORDERED_MS - 1)
    data = any_bench.do("activate", messageKey=key)
    assert data["lease"]["leaseId"] == first["lease"]["leaseId"] and "phase" not in data["lease"]
    assert data["lease"]["leaseUntilEngineMs"] == data["engineNowMs"] + ACTIVE_MS
    assert (data["message"]["attempt"], data["message"]["payload"]) == (1, "work")
    assert any_bench.counts() == {"inflight": 1}
    any_bench.do("ack", messageKey=key)
    assert any_bench.counts() == {}


def test_a_lease_that_is_not_activated_in_time_ends_uncounted_and_keeps_its_place(any_bench: Bench) -> None:
    first, second = publish(any_bench, "a", "b")
    assert consume(any_bench)["message"]["messageKey"] == first
    any_bench.clocks.pass_ms(ORDERED_MS)
    again = consume(any_bench)["message"]
    assert (again["messageKey"], again["attempt"]) == (first, 0)
    assert any_bench.counts() == {"ready": 1, "inflight": 1, "ordered": 1}
    assert any_bench.do("status", queue="q")["totals"]["released"] == 1
    assert second


def test_it_goes_to_the_end_if_the_policy_returns_messages_there(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy={"retry": {"returnTo": "end"}})
    first, second = publish(any_bench, "a", "b")
    consume(any_bench)
    any_bench.clocks.pass_ms(ORDERED_MS)
    assert consume(any_bench)["message"]["messageKey"] == second
    assert consume(any_bench)["message"]["messageKey"] == first


def test_the_end_of_the_first_phase_wakes_a_consumer_that_waits(any_bench: Bench) -> None:
    (key,) = publish(any_bench, "a")
    consume(any_bench)
    waiting = any_bench.send("consume_next", queue="q", waitMs=60_000, consumerId="other")
    assert not waiting.answers
    any_bench.clocks.pass_ms(ORDERED_MS)
    any_bench.run()
    assert waiting.data["message"]["messageKey"] == key


def test_a_request_says_how_long_a_lease_is_ordered_and_0_means_active_at_once(any_bench: Bench) -> None:
    publish(any_bench, "a", "b")
    assert "phase" not in consume(any_bench, orderedSec=0)["lease"]
    data = consume(any_bench, orderedSec=1)
    assert data["lease"]["leaseUntilEngineMs"] == data["engineNowMs"] + 1000


def test_a_message_that_is_active_is_activated_again_without_an_effect(any_bench: Bench) -> None:
    (key,) = publish(any_bench, "a")
    consume(any_bench)
    first = any_bench.do("activate", messageKey=key)
    any_bench.clocks.pass_ms(1000)
    before = any_bench.do("status", queue="q")["asOfEvent"]
    again = any_bench.do("activate", messageKey=key)
    assert again["message"] == first["message"]
    assert again["lease"]["leaseUntilEngineMs"] == first["lease"]["leaseUntilEngineMs"]
    assert any_bench.do("status", queue="q")["asOfEvent"] == before


def test_a_repeat_of_the_same_request_gets_the_message_again(bench: Bench) -> None:
    (key,) = publish(bench, "a")
    consume(bench)
    first = bench.send("activate", messageKey=key)
    again = bench.again(first)
    bench.run(again)
    assert again.data == first.data


def test_what_is_ordered_cannot_be_settled_but_released(any_bench: Bench) -> None:
    (key,) = publish(any_bench, "a")
    consume(any_bench)
    for command in ("ack", "nack"):
        sent = any_bench.send(command, messageKey=key)
        assert sent.code == "ERR_BAD_STATE"
        assert sent.answer.error and "ordered" in sent.answer.error.message
    any_bench.do("release", messageKey=key)
    assert any_bench.counts() == {"ready": 1}
    assert consume(any_bench, orderedSec=0)["message"]["attempt"] == 1


def test_an_ordered_lease_is_extended_by_the_time_of_its_phase(any_bench: Bench) -> None:
    (key,) = publish(any_bench, "a")
    consume(any_bench)
    any_bench.clocks.pass_ms(1000)
    data = any_bench.do("extend_lease", messageKey=key)
    assert data["leaseUntilEngineMs"] == data["engineNowMs"] + ORDERED_MS
    data = any_bench.do("extend_lease", messageKey=key, visibilityTimeoutSec=60)
    assert data["leaseUntilEngineMs"] == data["engineNowMs"] + 60_000


def test_an_active_lease_that_ends_is_a_failed_attempt(any_bench: Bench) -> None:
    (key,) = publish(any_bench, "a")
    consume(any_bench)
    any_bench.do("activate", messageKey=key, visibilityTimeoutSec=1)
    any_bench.clocks.pass_ms(1000)
    any_bench.run()
    message = any_bench.do("get_message", messageKey=key)
    assert (message["state"], message["message"]["attempt"], len(message["failures"])) == ("delayed", 1, 1)


def test_phases_survive_the_loss_of_the_store_and_a_restart(any_bench: Bench) -> None:
    first, second = publish(any_bench, "a", "b")
    consume(any_bench)
    consume(any_bench)
    any_bench.do("activate", messageKey=second)
    any_bench.store.disk.checkpoint()
    before = exported(any_bench), any_bench.counts()
    for without_store in (False, True):
        any_bench.reopen(without_store)
        assert (exported(any_bench), any_bench.counts()) == before
    assert any_bench.counts() == {"inflight": 2, "ordered": 1}
    assert [one["messageKey"] for one in any_bench.do("list_inflight", queue="q")["messages"] if "phase" in one] == [
        first
    ]


def test_ordered_messages_count_for_the_limit_of_messages_in_flight(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy={"limits": {"inflight": 1}})
    publish(any_bench, "a", "b")
    consume(any_bench)
    assert any_bench.do("consume_next", queue="q")["message"] is None


def test_a_delivery_without_a_body(any_bench: Bench) -> None:
    publish(any_bench, {"a": 1}, attributes={"n": 1}, traceId="t")
    message = consume(any_bench, payloadAs="none")["message"]
    assert "payload" not in message and "attributes" not in message and message["queue"] == "q"
    shown = any_bench.do("activate", messageKey=message["messageKey"], payloadAs="value")["message"]
    assert (shown["payload"], shown["attributes"], shown["traceId"]) == ({"a": 1}, {"n": 1}, "t")


def test_several_messages_are_ordered_at_once(any_bench: Bench) -> None:
    publish(any_bench, "a", "b", "c")
    messages = any_bench.do("consume_next", queue="q", max=3)["messages"]
    assert [one["lease"]["phase"] for one in messages] == ["ordered"] * 3
    assert any_bench.counts() == {"inflight": 3, "ordered": 3}


def test_a_dead_letter_is_leased_without_a_first_phase(any_bench: Bench) -> None:
    (key,) = publish(any_bench, "a")
    consume(any_bench, orderedSec=0)
    any_bench.do("nack", messageKey=key)
    data = any_bench.do("consume_next", queue="q.dlq")
    assert "phase" not in data["lease"]
    assert data["lease"]["leaseUntilEngineMs"] == data["engineNowMs"] + ACTIVE_MS
    assert any_bench.do("activate", messageKey=key)["message"]["failure"]["reasonCode"] == "REJECTED"


@pytest.mark.parametrize("backend", ["sqlite", "filesystem", "hybrid"])
def test_verification_finds_nothing_wrong_with_both_phases(make_bench: MakeBench, backend: str, tmp_path: Path) -> None:
    bench = with_phases(make_bench(backend).open())
    keys = publish(bench, "a", "b", "c")
    for _ in keys:
        consume(bench)
    bench.do("activate", messageKey=keys[1])
    bench.do("release", messageKey=keys[2])
    bench.stop()
    bench.close()
    assert not verified(bench, tmp_path).faults


# --- any holder ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["ack", "nack", "release", "extend_lease", "activate"])
def test_any_holder_settles_a_lease_whoever_has_it(bench: Bench, command: str) -> None:
    (key,) = publish(bench, "a")
    consume(bench, consumerId="w1", orderedSec=0)
    sent = bench.send(command, messageKey=key, consumerId="w2")
    assert sent.code == "ERR_LEASE_MISMATCH"
    bench.do(command, messageKey=key, anyHolder=True)


def test_a_lease_that_any_holder_names_is_still_checked(bench: Bench) -> None:
    (key,) = publish(bench, "a")
    consume(bench, consumerId="w1", orderedSec=0)
    sent = bench.send("ack", messageKey=key, leaseId="another", anyHolder=True)
    assert sent.code == "ERR_LEASE_MISMATCH"


def test_any_holder_needs_a_lease(bench: Bench) -> None:
    (key,) = publish(bench, "a")
    sent = bench.send("ack", messageKey=key, anyHolder=True)
    assert sent.code == "ERR_LEASE_EXPIRED"


# --- a queue that must exist --------------------------------------------------------------------------------------


def test_a_queue_that_must_exist_and_does_not_is_an_error(bench: Bench) -> None:
    sent = bench.send("consume_next", queue="nobody", mustExist=True, waitMs=1000)
    assert sent.code == "ERR_QUEUE_NOT_FOUND"
    assert bench.do("consume_next", queue="q", mustExist=True)["message"] is None


def test_who_waits_for_a_queue_that_must_exist_is_told_of_its_end(bench: Bench) -> None:
    told = bench.send("consume_next", queue="q", mustExist=True, waitMs=60_000)
    waits = bench.send("consume_next", queue="q", waitMs=60_000)
    bench.do("delete_queue", queue="q")
    assert told.code == "ERR_QUEUE_NOT_FOUND" and not waits.answers


def test_a_pattern_and_a_queue_that_must_exist_exclude_each_other(bench: Bench) -> None:
    sent = bench.send("consume_next", queuePattern="q", mustExist=True)
    assert sent.code == "ERR_INVALID_REQUEST"
