"""Messages whose time comes while they wait: their end, their target's, and times of the wall."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from postroom_daemon.broker import periodic as wall_time
from tests.conformance.bench import Bench

MakeBench = Callable[..., Bench]
YEAR_MS = 366 * 24 * 3600 * 1000


@pytest.fixture(params=["sqlite", "memory", "filesystem", "hybrid"])
def any_bench(request: pytest.FixtureRequest, make_bench: MakeBench) -> Bench:
    return make_bench(request.param).open()


def counts(bench: Bench, queue: str = "q") -> dict[str, int]:
    return {name: count for name, count in bench.do("status", queue=queue)["metrics"].items() if count}


def consume(bench: Bench, queue: str = "q", **options: object) -> str | None:
    message = bench.do("consume_next", queue=queue, **options)["message"]
    return message["payload"] if message else None


# --- the end of a message -----------------------------------------------------------------------------------------


def test_a_message_that_is_not_consumed_in_time_dies_and_says_why(any_bench: Bench) -> None:
    any_bench.publish(message="short", ttlMs=1000)
    any_bench.publish(message="long", ttlMs=2000)
    any_bench.clocks.pass_ms(999)
    assert counts(any_bench) == {"ready": 2}
    any_bench.clocks.pass_ms(1)
    assert counts(any_bench) == {"ready": 1, "dlq": 1}
    assert consume(any_bench) == "long"
    letter = any_bench.do("list_dlq", queue="q")["messages"][0]
    assert letter["reasonCode"] == "MESSAGE_EXPIRED" and letter["preview"] == "short"
    assert any_bench.do("status", queue="q")["totals"]["expired"] == 1


def test_a_queues_policy_gives_messages_their_time_to_live_and_the_action_at_its_end(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy={"ttlSec": 5, "ttlAction": "drop"})
    any_bench.publish()
    any_bench.publish(ttlMs=9000)
    any_bench.clocks.pass_ms(5000)
    assert counts(any_bench) == {"ready": 1}
    status = any_bench.do("status", queue="q")
    assert status["totals"]["dropped"] == status["totals"]["expired"] == 1


def test_the_end_of_a_delayed_message_may_come_before_its_time(any_bench: Bench) -> None:
    any_bench.publish(delayMs=5000, ttlMs=1000)
    any_bench.clocks.pass_ms(1000)
    assert counts(any_bench) == {"dlq": 1}


def test_a_delivery_continues_past_the_messages_end_and_its_return_expires_it(any_bench: Bench) -> None:
    any_bench.publish(ttlMs=1000)
    delivery = any_bench.do("consume_next", queue="q", visibilityTimeoutSec=60)
    any_bench.clocks.pass_ms(5000)
    assert counts(any_bench) == {"inflight": 1}
    any_bench.do("release", messageKey=delivery["message"]["messageKey"], leaseId=delivery["lease"]["leaseId"])
    assert counts(any_bench) == {"dlq": 1}


def test_the_end_survives_a_restart_and_the_loss_of_the_store(any_bench: Bench) -> None:
    any_bench.publish(ttlMs=1000)
    any_bench.reopen(without_store=True)
    assert counts(any_bench) == {"ready": 1}
    any_bench.reopen()
    any_bench.clocks.pass_ms(1000)
    assert counts(any_bench) == {"dlq": 1}


def test_messages_beyond_the_limit_of_one_group_all_expire(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom_daemon.broker.periodic.EXPIRIES_LIMIT", 2)
    bench = make_bench().open()
    for _ in range(5):
        bench.publish(ttlMs=10)
    bench.clocks.pass_ms(10)
    bench.run()
    assert bench.live.broker.next_due() is not None
    bench.run()
    bench.run()
    assert counts(bench) == {"dlq": 5}


# --- targets ------------------------------------------------------------------------------------------------------


def test_a_message_whose_target_does_not_appear_is_for_anyone_after_its_time(any_bench: Bench) -> None:
    any_bench.publish(message="mine", targetConsumerId="me", targetFallbackMs=1000)
    any_bench.publish(message="policy's", targetConsumerId="me")
    assert consume(any_bench, consumerId="other") is None
    any_bench.clocks.pass_ms(1000)
    assert consume(any_bench, consumerId="other") == "mine"
    assert consume(any_bench, consumerId="other") is None
    any_bench.do("set_policy", queue="q", policy={"targetFallbackSec": 2})
    any_bench.publish(message="later", targetConsumerId="me")
    any_bench.clocks.pass_ms(2000)
    assert consume(any_bench, consumerId="other") == "later"


def test_a_waiting_consumer_gets_a_message_that_has_become_available_to_anyone(bench: Bench) -> None:
    bench.publish(targetConsumerId="me", targetFallbackMs=1000)
    waiting = bench.make("consume_next", queue="q", consumerId="other", waitMs=60_000)
    bench.run(waiting)
    assert waiting.answers == []
    bench.clocks.pass_ms(1000)
    bench.run()
    assert waiting.data["message"]["payload"] == "body"


# --- times of the wall --------------------------------------------------------------------------------------------


def test_a_message_is_delivered_at_the_wall_time_that_it_names(any_bench: Bench) -> None:
    any_bench.publish(deliverAt=any_bench.clocks.wall_ms + 5000)
    any_bench.publish(message="past", deliverAt=any_bench.clocks.wall_ms - 5000)
    assert consume(any_bench) == "past"
    any_bench.clocks.pass_ms(4999)
    assert consume(any_bench) is None
    any_bench.clocks.pass_ms(1)
    assert consume(any_bench) == "body"


@pytest.mark.parametrize("restart", [False, True])
def test_when_the_wall_clock_is_set_messages_for_a_wall_time_follow_it(any_bench: Bench, restart: bool) -> None:
    any_bench.publish(message="wall", deliverAt=any_bench.clocks.wall_ms + 10 * YEAR_MS)
    any_bench.publish(message="engine", delayMs=10_000)
    any_bench.run()
    any_bench.clocks.wall_ms += 10 * YEAR_MS
    if restart:
        any_bench.reopen()
    any_bench.clocks.boot_ms += 1000
    any_bench.run()
    assert consume(any_bench) == "wall"
    assert consume(any_bench) is None


def test_when_the_wall_clock_is_set_back_messages_due_soon_are_due_later(any_bench: Bench) -> None:
    any_bench.publish(deliverAt=any_bench.clocks.wall_ms + 60_000)
    any_bench.run()
    any_bench.clocks.wall_ms -= YEAR_MS
    any_bench.clocks.boot_ms += 1000
    any_bench.run()
    any_bench.clocks.pass_ms(120_000)
    any_bench.run()
    assert counts(any_bench) == {"delayed": 1}
    any_bench.clocks.pass_ms(YEAR_MS)
    any_bench.run()
    assert consume(any_bench) == "body"


def test_a_message_has_a_delay_or_a_wall_time_but_not_both(bench: Bench) -> None:
    wall = bench.clocks.wall_ms + 5000
    sent = bench.send("publish", queue="q", message="x", delayMs=5000, deliverAt=wall)
    assert sent.code == "ERR_INVALID_REQUEST" and "delayMs or deliverAt" in str(sent.answer.error)
    assert bench.publish(delayMs=0, deliverAt=wall)


def test_a_step_is_followed_for_all_messages_however_many(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wall_time, "_LOOKS", 3)
    for number in range(10):
        bench.publish(deliverAt=bench.clocks.wall_ms + YEAR_MS + number)
        bench.publish(delayMs=YEAR_MS // 2)
    bench.clocks.wall_ms += 2 * YEAR_MS
    for _ in range(12):
        bench.clocks.pass_ms(1000)
        bench.run()
    assert counts(bench) == {"ready": 10, "delayed": 10}


def test_a_retried_message_for_a_wall_time_keeps_its_backoff(any_bench: Bench) -> None:
    key = any_bench.publish(deliverAt=any_bench.clocks.wall_ms + 1000)
    any_bench.clocks.pass_ms(1000)
    delivery = any_bench.do("consume_next", queue="q")
    any_bench.do("nack", messageKey=key, leaseId=delivery["lease"]["leaseId"], requeue=True, delayMs=60_000)
    any_bench.reopen()
    any_bench.clocks.wall_ms += YEAR_MS
    any_bench.clocks.boot_ms += 1000
    any_bench.run()
    assert counts(any_bench) == {"delayed": 1}


# --- retries ------------------------------------------------------------------------------------------------------


def test_jitter_shortens_a_delay_and_is_recorded(make_bench: MakeBench) -> None:
    bench = make_bench().open()
    bench.do("set_policy", queue="q", policy={"retry": {"jitter": 0.5, "backoff": "fixed", "initialDelaySec": 10}})
    dues = set()
    for _ in range(20):
        key = bench.publish()
        delivery = bench.do("consume_next", queue="q")
        reply = bench.do("nack", messageKey=key, leaseId=delivery["lease"]["leaseId"], requeue=True)
        dues.add(reply["availableAtEngineMs"] - reply["engineNowMs"])
    assert min(dues) >= 5000 and max(dues) <= 10_000 and len(dues) > 3


def test_a_message_retried_in_the_first_moment_of_a_root_is_ready_in_the_next_group(any_bench: Bench) -> None:
    any_bench.publish(message="a", ttlMs=2000)
    delivery = any_bench.do("consume_next", queue="q")
    assert any_bench.live.clock.now().engine == 0
    any_bench.do("nack", messageKey=delivery["message"]["messageKey"], requeue=True, delayMs=0)
    assert consume(any_bench) == "a"


def test_a_nack_may_name_the_delay_itself(any_bench: Bench) -> None:
    key = any_bench.publish()
    delivery = any_bench.do("consume_next", queue="q")
    lease = {"messageKey": key, "leaseId": delivery["lease"]["leaseId"]}
    reply = any_bench.do("nack", requeue=True, delayMs=7, **lease)
    assert reply["availableAtEngineMs"] == reply["engineNowMs"] + 7
    any_bench.clocks.pass_ms(7)
    assert consume(any_bench) == "body"


# --- queues -------------------------------------------------------------------------------------------------------


def test_a_queue_that_nobody_uses_is_deleted_once_it_is_empty(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy={"expireAfterIdleSec": 10})
    key = any_bench.publish()
    any_bench.clocks.pass_ms(20_000)
    any_bench.run()
    assert counts(any_bench) == {"ready": 1}
    delivery = any_bench.do("consume_next", queue="q")
    any_bench.do("ack", messageKey=key, leaseId=delivery["lease"]["leaseId"])
    any_bench.clocks.pass_ms(9_999)
    any_bench.run()
    assert any_bench.do("status", queue="q")["exists"]
    any_bench.clocks.pass_ms(1001)
    any_bench.run()
    assert not any_bench.do("status", queue="q")["exists"]
    any_bench.reopen(without_store=True)
    assert not any_bench.do("status", queue="q")["exists"]
    any_bench.publish(message="anew")
    assert consume(any_bench) == "anew"


@pytest.mark.parametrize("operation", ["publish", "consume"])
def test_a_queue_that_is_paused_stays_with_its_pause(any_bench: Bench, operation: str) -> None:
    any_bench.do("set_policy", queue="q", policy={"expireAfterIdleSec": 10})
    any_bench.do("pause", queue="q", operation=operation)
    any_bench.clocks.pass_ms(100_000)
    any_bench.run()
    assert any_bench.do("status", queue="q")["paused"][operation]
    any_bench.do("resume", queue="q", operation=operation)
    any_bench.clocks.pass_ms(9_000)
    any_bench.run()
    assert any_bench.do("status", queue="q")["exists"]
    any_bench.clocks.pass_ms(2_000)
    any_bench.run()
    assert not any_bench.do("status", queue="q")["exists"]


def test_a_consume_request_counts_as_use_of_a_queue(bench: Bench) -> None:
    bench.do("set_policy", queue="q", policy={"expireAfterIdleSec": 10})
    for _ in range(3):
        bench.clocks.pass_ms(9_000)
        bench.run()
        assert bench.do("consume_next", queue="q")["message"] is None
    waiting = bench.make("consume_next", queue="q", waitMs=60_000)
    bench.run(waiting)
    bench.clocks.pass_ms(50_000)
    bench.run()
    assert bench.do("status", queue="q")["exists"]
    for passed, exists in ((10_000, True), (9_000, True), (1_000, False)):
        bench.clocks.pass_ms(passed)
        bench.run()
        assert bench.do("status", queue="q")["exists"] is exists
    assert waiting.data == {"message": None}


def test_a_new_policy_counts_as_use_of_a_queue(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy={"expireAfterIdleSec": 10})
    any_bench.clocks.pass_ms(9_000)
    any_bench.do("set_policy", queue="q", policy={"ttlSec": 5})
    any_bench.reopen()
    any_bench.clocks.pass_ms(9_000)
    any_bench.run()
    assert any_bench.do("status", queue="q")["exists"]
