"""The limits of queues: what a publish is admitted to, and what gives way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from postroom_daemon.engine import admission
from postroom_daemon.policy.rates import Rates
from tests.conformance.bench import Bench
from tests.daemon.reached import reached

MakeBench = Callable[..., Bench]


@pytest.fixture(params=["sqlite", "memory", "filesystem", "hybrid"])
def any_bench(request: pytest.FixtureRequest, make_bench: MakeBench) -> Bench:
    return make_bench(request.param).open()


def limit(bench: Bench, queue: str = "q", **limits: object) -> None:
    bench.do("set_policy", queue=queue, policy={"limits": limits})


def bodies(bench: Bench, queue: str = "q") -> list[str]:
    """What is ready, in the order of delivery; it stays leased."""
    found = []
    while message := bench.do("consume_next", queue=queue)["message"]:
        found.append(message["payload"])
    return found


def counts(bench: Bench, queue: str = "q") -> dict[str, int]:
    return {name: count for name, count in bench.do("status", queue=queue)["metrics"].items() if count}


def stored_bytes(bench: Bench, queue: str = "q") -> int:
    record = bench.store.queue(queue)
    return record.bytes if record else 0


# --- messages and bytes -------------------------------------------------------------------------------------------


def test_a_full_queue_refuses_and_accepts_again_once_a_message_is_settled(any_bench: Bench) -> None:
    limit(any_bench, messages=2)
    for body in ("a", "b"):
        any_bench.publish(message=body)
    refused = any_bench.send("publish", queue="q", message="c")
    assert refused.code == "ERR_QUEUE_FULL"
    assert refused.answer.error is not None and "limits.messages" in refused.answer.error.message
    lease = any_bench.do("consume_next", queue="q")["lease"]
    assert any_bench.send("publish", queue="q", message="c").code == "ERR_QUEUE_FULL"  # in flight counts
    any_bench.do("ack", messageKey=lease["messageKey"], leaseId=lease["leaseId"])
    any_bench.publish(message="c")
    assert bodies(any_bench) == ["b", "c"]


@pytest.mark.parametrize("state", ["delayed", "dead"])
def test_messages_in_every_state_but_dead_count(state: str, any_bench: Bench) -> None:
    limit(any_bench, messages=1)
    any_bench.publish(delayMs=60_000 if state == "delayed" else 0)
    if state == "dead":
        lease = any_bench.do("consume_next", queue="q")["lease"]
        any_bench.do("nack", messageKey=lease["messageKey"], leaseId=lease["leaseId"])
    code = any_bench.send("publish", queue="q").code
    assert code == ("OK" if state == "dead" else "ERR_QUEUE_FULL")


def test_the_limit_is_exact_within_a_group(any_bench: Bench) -> None:
    limit(any_bench, messages=3)
    sent = [any_bench.make("publish", queue="q", message=str(number)) for number in range(10)]
    any_bench.run(*sent)
    assert [one.code for one in sent] == ["OK"] * 3 + ["ERR_QUEUE_FULL"] * 7


def test_the_limit_is_exact_within_a_batch(any_bench: Bench) -> None:
    limit(any_bench, messages=3)
    any_bench.publish()
    results = any_bench.do("publish_batch", queue="q", messages=[{"message": str(n)} for n in range(5)])["results"]
    assert [one.get("error", {}).get("code", "OK") for one in results] == ["OK"] * 2 + ["ERR_QUEUE_FULL"] * 3
    assert counts(any_bench) == {"ready": 3}


def test_space_that_an_ack_frees_may_be_used_by_its_publish(any_bench: Bench) -> None:
    limit(any_bench, messages=1)
    any_bench.publish(message="old")
    lease = any_bench.do("consume_next", queue="q")["lease"]
    both = {"messageKey": lease["messageKey"], "leaseId": lease["leaseId"]}
    two = [{"queue": "q", "message": "new"}, {"queue": "q", "message": "more"}]
    assert any_bench.send("ack_and_publish", **both, messages=two).code == "ERR_QUEUE_FULL"
    any_bench.do("ack_and_publish", **both, messages=two[:1])
    assert bodies(any_bench) == ["new"]


def test_bytes_count_bodies_and_headers_as_they_are_stored(any_bench: Bench) -> None:
    any_bench.publish(message="x" * 100)
    one = stored_bytes(any_bench)
    assert one > 100
    limit(any_bench, bytes=2 * one)
    any_bench.publish(message="y" * 100)
    assert stored_bytes(any_bench) == 2 * one
    assert any_bench.send("publish", queue="q", message="").code == "ERR_QUEUE_FULL"
    assert any_bench.send("publish", queue="q", message="z" * 2 * one).code == "ERR_MESSAGE_TOO_LARGE"


def test_the_size_of_a_message_is_that_of_its_own_bytes(any_bench: Bench) -> None:
    limit(any_bench, messageBytes=4)
    any_bench.publish(message="가x", attributes={"long": "headers do not count"})
    any_bench.publish(message="AAECAw==", encoding="base64")  # four bytes
    refused = any_bench.send("publish", queue="q", message="가나")
    assert refused.code == "ERR_MESSAGE_TOO_LARGE"
    assert refused.answer.error is not None and "6 bytes" in refused.answer.error.message


# --- what gives way -----------------------------------------------------------------------------------------------


def test_the_oldest_ready_message_is_evicted_whatever_its_priority(any_bench: Bench) -> None:
    limit(any_bench, messages=3, overflow="drop-oldest")
    for body, priority in (("a", 9), ("b", 0), ("c", 5)):
        any_bench.publish(message=body, priority=priority)
    any_bench.publish(message="d")
    assert bodies(any_bench) == ["c", "b", "d"]
    status = any_bench.do("status", queue="q")
    assert status["totals"]["dropped"] == 1


def test_no_message_in_flight_or_delayed_is_evicted(any_bench: Bench) -> None:
    limit(any_bench, messages=2, overflow="drop-oldest")
    any_bench.publish(message="a")
    any_bench.do("consume_next", queue="q")
    any_bench.publish(message="b", delayMs=60_000)
    refused = any_bench.send("publish", queue="q", message="c")
    assert refused.code == "ERR_QUEUE_FULL"
    assert counts(any_bench) == {"inflight": 1, "delayed": 1}


def test_as_many_are_evicted_as_the_bytes_of_the_new_one_need(any_bench: Bench) -> None:
    for body in "abc":
        any_bench.publish(message=body)
    limit(any_bench, bytes=stored_bytes(any_bench), overflow="drop-oldest")
    any_bench.publish(message="d" * 10)
    assert bodies(any_bench) == ["c", "d" * 10]


def test_a_batch_evicts_older_messages_and_then_its_own_first(any_bench: Bench) -> None:
    limit(any_bench, messages=3, overflow="drop-oldest")
    for body in "abc":
        any_bench.publish(message=body)
    results = any_bench.do("publish_batch", queue="q", messages=[{"message": str(n)} for n in range(5)])["results"]
    assert all("messageKey" in one for one in results)
    assert bodies(any_bench) == ["2", "3", "4"]
    assert any_bench.do("status", queue="q")["totals"]["dropped"] == 5


def test_after_the_limit_was_lowered_a_request_drops_a_bounded_number(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "DROPS_LIMIT", 4)
    for number in range(10):
        bench.publish(message=str(number))
    limit(bench, messages=2, overflow="drop-oldest")
    bench.publish(message="x")
    assert counts(bench) == {"ready": 7}
    bench.publish(message="y")
    bench.publish(message="z")
    assert bodies(bench) == ["y", "z"]


def test_an_overflowing_message_may_become_a_dead_letter(any_bench: Bench) -> None:
    limit(any_bench, messages=1, overflow="dead-letter")
    any_bench.publish(message="a")
    sent = any_bench.send("publish", queue="q", message="b")
    assert (sent.data["state"], sent.data["reasonCode"]) == ("dead", "QUEUE_FULL")
    assert "limits.messages" in sent.data["reason"]
    letter = any_bench.do("list_dlq", queue="q")["messages"][0]
    assert (letter["messageKey"], letter["reasonCode"]) == (sent.data["messageKey"], "QUEUE_FULL")
    assert bodies(any_bench) == ["a"]
    any_bench.reopen(without_store=True)
    again = any_bench.again(sent)
    any_bench.run(again)
    assert again.data == sent.data
    any_bench.do("reprocess_dlq", messageKey=sent.data["messageKey"])
    assert bodies(any_bench) == ["b"]


def test_without_a_dead_letter_queue_it_is_dropped_and_counted(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy={"limits": {"messages": 1, "overflow": "dead-letter"}})
    any_bench.do("set_policy", queue="q", policy={"dlq": {"enabled": False}})
    any_bench.publish()
    assert any_bench.do("publish", queue="q")["state"] == "dropped"
    assert any_bench.do("status", queue="q")["totals"]["dropped"] == 1


# --- how fast -----------------------------------------------------------------------------------------------------


def test_one_second_of_messages_may_come_at_once_and_then_as_time_passes(any_bench: Bench) -> None:
    limit(any_bench, publishPerSec=4)
    sent = [any_bench.make("publish", queue="q") for _ in range(6)]
    any_bench.run(*sent)
    assert [one.code for one in sent] == ["OK"] * 4 + ["ERR_RATE_LIMITED"] * 2
    assert sent[5].answer.error is not None and "250 ms" in sent[5].answer.error.message
    any_bench.clocks.pass_ms(249)
    assert any_bench.send("publish", queue="q").code == "ERR_RATE_LIMITED"
    any_bench.clocks.pass_ms(1)
    assert any_bench.send("publish", queue="q").code == "OK"
    assert any_bench.send("publish", queue="q").code == "ERR_RATE_LIMITED"
    any_bench.clocks.pass_ms(3_600_000)  # no more than a second's messages are saved up
    codes = [any_bench.send("publish", queue="q").code for _ in range(5)]
    assert codes == ["OK"] * 4 + ["ERR_RATE_LIMITED"]


def test_a_slow_rate_lets_one_through_after_its_time(bench: Bench) -> None:
    limit(bench, publishPerSec=0.1)
    bench.publish()
    refused = bench.send("publish", queue="q")
    assert refused.answer.error is not None and "10000 ms" in refused.answer.error.message
    bench.clocks.pass_ms(10_000)
    bench.publish()


def test_refusals_use_nothing_of_the_rate(bench: Bench) -> None:
    bench.do("set_policy", queue="q", policy={"limits": {"publishPerSec": 2, "messages": 1}})
    bench.publish()
    lease = bench.do("consume_next", queue="q")["lease"]
    for _ in range(5):
        assert bench.send("publish", queue="q").code == "ERR_QUEUE_FULL"
    bench.do("ack", messageKey=lease["messageKey"], leaseId=lease["leaseId"])
    bench.publish()


def test_a_group_that_is_rolled_back_uses_nothing_of_the_rate(bench: Bench) -> None:
    limit(bench, publishPerSec=1)

    with bench.full_disk():
        assert bench.send("publish", queue="q").code == "ERR_STORAGE_FULL"
    bench.publish()
    assert bench.send("publish", queue="q").code == "ERR_RATE_LIMITED"


def test_buckets_that_are_full_are_forgotten() -> None:
    rates = Rates()
    for number in range(5000):
        assert rates.wait_ms(f"q{number}", 1, 1, now=number * 1000) == 0
        rates.take(f"q{number}")
    assert reached(rates, str) <= 1001


def test_messages_published_without_a_limit_do_not_count_for_a_later_one(bench: Bench) -> None:
    limit(bench, publishPerSec=1)
    bench.publish()
    limit(bench, publishPerSec=0)
    for _ in range(20):
        bench.publish()
    limit(bench, publishPerSec=1)
    assert bench.send("publish", queue="q").code == "OK"
    assert bench.send("publish", queue="q").code == "ERR_RATE_LIMITED"
