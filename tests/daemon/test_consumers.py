"""What a consume is admitted to: limits in flight, turns of ordering keys, the oldest now and then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from postroom_common.protocol import State
from postroom_daemon.broker import periodic as ttl
from postroom_daemon.broker import transaction
from postroom_daemon.model import consumers
from postroom_daemon.model.consumers import Consumers
from postroom_daemon.model.records import Entry
from tests.conformance.bench import Bench, Sent

MakeBench = Callable[..., Bench]


@pytest.fixture(params=["sqlite", "memory", "filesystem", "hybrid"])
def any_bench(request: pytest.FixtureRequest, make_bench: MakeBench) -> Bench:
    return make_bench(request.param).open()


def policy(bench: Bench, **groups: object) -> None:
    bench.do("set_policy", queue="q", policy=groups)


def consume(bench: Bench, consumer: str = "c", **options: Any) -> dict[str, Any] | None:
    data = bench.do("consume_next", queue="q", consumerId=consumer, **options)
    return data if data["message"] else None


def settle(bench: Bench, delivery: dict[str, Any] | None, command: str = "ack", **options: Any) -> None:
    assert delivery
    lease = delivery["lease"]
    bench.do(command, messageKey=lease["messageKey"], leaseId=lease["leaseId"], **options)


def wait(bench: Bench, consumer: str = "c") -> Sent:
    sent = bench.make("consume_next", queue="q", consumerId=consumer, waitMs=60_000)
    bench.run(sent)
    return sent


def got(sent: Sent) -> str | None:
    """The payload that a waiting consumer was served with."""
    return sent.data["message"]["payload"] if sent.answers else None


def publish(bench: Bench, *bodies: str, **options: Any) -> None:
    for body in bodies:
        bench.publish(message=body, **options)


# --- limits in flight ---------------------------------------------------------------------------------------------


def test_no_more_is_leased_than_a_queue_may_have_in_flight(any_bench: Bench) -> None:
    policy(any_bench, limits={"inflight": 2})
    publish(any_bench, "a", "b", "c")
    first, second = consume(any_bench, "one"), consume(any_bench, "two")
    assert first and second
    assert consume(any_bench, "three") is None
    settle(any_bench, first)
    assert consume(any_bench, "three")


def test_no_more_is_leased_to_a_consumer_than_its_share(any_bench: Bench) -> None:
    policy(any_bench, limits={"inflightPerConsumer": 1})
    publish(any_bench, "a", "b", "c")
    first = consume(any_bench, "one")
    assert consume(any_bench, "one") is None
    assert consume(any_bench, "two")
    settle(any_bench, first, "nack", requeue=True, delayMs=0)
    assert consume(any_bench, "one")


@pytest.mark.parametrize("end", ["ack", "nack", "requeue", "release", "expiry"])
def test_whatever_ends_a_delivery_frees_the_limit_and_serves_waiting_consumers(end: str, any_bench: Bench) -> None:
    policy(any_bench, limits={"inflight": 1})
    publish(any_bench, "a", "b")
    first = consume(any_bench, "one", visibilityTimeoutSec=5)
    waiting = wait(any_bench, "two")
    assert got(waiting) is None
    if end == "expiry":
        any_bench.clocks.pass_ms(5000)
        any_bench.run()
    elif end == "requeue":
        settle(any_bench, first, "nack", requeue=True)
    else:
        settle(any_bench, first, end)
    assert got(waiting) == ("a" if end == "release" else "b")


def test_a_consumers_own_settlement_serves_its_own_wait(any_bench: Bench) -> None:
    policy(any_bench, limits={"inflightPerConsumer": 1})
    publish(any_bench, "a", "b")
    first = consume(any_bench)
    waiting = wait(any_bench)
    assert got(waiting) is None
    settle(any_bench, first)
    assert got(waiting) == "b"


def test_a_consumer_at_its_limit_does_not_block_another_that_waits(any_bench: Bench) -> None:
    policy(any_bench, limits={"inflightPerConsumer": 1})
    publish(any_bench, "a")
    consume(any_bench, "one")
    waits = [wait(any_bench, name) for name in ("one", "two")]
    publish(any_bench, "b")
    assert [got(one) for one in waits] == [None, "b"]


def test_a_batch_stops_at_the_limit(any_bench: Bench) -> None:
    policy(any_bench, limits={"inflight": 3})
    publish(any_bench, *"abcde")
    assert len(any_bench.do("consume_next", queue="q", max=10)["messages"]) == 3
    assert any_bench.do("consume_next", queue="q", max=10)["messages"] == []


def test_the_limit_is_exact_within_a_group(any_bench: Bench) -> None:
    policy(any_bench, limits={"inflightPerConsumer": 2})
    publish(any_bench, *"abcde")
    sent = [any_bench.make("consume_next", queue="q", consumerId="c") for _ in range(4)]
    any_bench.run(*sent)
    assert [bool(one.data["message"]) for one in sent] == [True, True, False, False]


def test_messages_in_flight_count_after_a_restart(any_bench: Bench) -> None:
    policy(any_bench, limits={"inflightPerConsumer": 2})
    publish(any_bench, "a", "b", "c")
    first = consume(any_bench)
    consume(any_bench)
    any_bench.reopen(without_store=True)
    assert consume(any_bench) is None
    any_bench.reopen()
    assert consume(any_bench) is None
    settle(any_bench, first)
    assert consume(any_bench)


def test_a_group_that_is_rolled_back_counts_for_nobody(any_bench: Bench) -> None:
    policy(any_bench, limits={"inflightPerConsumer": 1})
    publish(any_bench, "a", "b")
    with any_bench.full_disk():
        assert any_bench.send("consume_next", queue="q", consumerId="c").code == "ERR_STORAGE_FULL"
    delivery = consume(any_bench)
    with any_bench.full_disk():
        lease = delivery["lease"] if delivery else {}
        refused = any_bench.send("ack", messageKey=lease["messageKey"], leaseId=lease["leaseId"])
        assert refused.code == "ERR_STORAGE_FULL"
    assert consume(any_bench) is None
    settle(any_bench, delivery)
    assert consume(any_bench)


def test_consumers_without_a_lease_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "CONSUMERS_LIMIT", 10)
    counted = Consumers()
    counted.leased([Entry("k", "q", State.INFLIGHT, 0, 1, 0, 0, consumer_id="holder", leased_at=1)])
    for number in range(50):
        counted.commit()
        counted.note_asked("q", f"c{number}", number)
    known = {name for _, name, _ in counted.listed("q")}
    assert known == {"holder", *(f"c{number}" for number in range(41, 50))}
    assert counted.leases_of("q", "holder") == 1


def test_leased_dead_letters_count_for_no_limit(any_bench: Bench) -> None:
    policy(any_bench, limits={"inflight": 1, "inflightPerConsumer": 1})
    publish(any_bench, "dead", "alive", "last")
    settle(any_bench, consume(any_bench), "nack")
    letter = any_bench.do("consume_next", queue="q.dlq", consumerId="c")
    assert letter["message"]["payload"] == "dead"
    alive = consume(any_bench)
    assert alive and consume(any_bench) is None
    any_bench.reopen()
    assert consume(any_bench) is None
    settle(any_bench, letter)
    assert consume(any_bench) is None
    settle(any_bench, alive)
    assert consume(any_bench)


# --- order --------------------------------------------------------------------------------------------------------


def test_every_nth_delivery_takes_the_oldest_even_after_a_restart(any_bench: Bench) -> None:
    policy(any_bench, priority={"oldestEvery": 3})
    publish(any_bench, "old")
    publish(any_bench, *"abcdef", priority=9)
    found = []
    for _ in range(2):
        delivery = consume(any_bench)
        assert delivery
        found.append(delivery["message"]["payload"])
    any_bench.reopen(without_store=True)
    for _ in range(4):
        delivery = consume(any_bench)
        assert delivery
        found.append(delivery["message"]["payload"])
    assert found == ["a", "b", "old", "c", "d", "e"]


def test_consuming_dead_letters_uses_no_turn_of_the_oldest(any_bench: Bench) -> None:
    policy(any_bench, priority={"oldestEvery": 2})
    publish(any_bench, "dead")
    settle(any_bench, consume(any_bench), "nack")
    publish(any_bench, "old")
    publish(any_bench, *"abcd", priority=9)
    found = []
    for _ in range(3):
        letter = any_bench.do("consume_next", queue="q.dlq", consumerId="looker")
        assert letter["message"]["payload"] == "dead"
        settle(any_bench, letter, "release")
        delivery = consume(any_bench)
        assert delivery
        found.append(delivery["message"]["payload"])
    assert "old" in found
    assert any_bench.do("status", queue="q")["totals"]["leased"] == 4


def test_the_oldest_message_for_another_consumer_is_not_delivered(any_bench: Bench) -> None:
    policy(any_bench, priority={"oldestEvery": 1})
    publish(any_bench, "theirs", targetConsumerId="other")
    publish(any_bench, "mine")
    delivery = consume(any_bench)
    assert delivery and delivery["message"]["payload"] == "mine"


def test_one_message_of_an_ordering_key_is_in_flight_and_its_failure_blocks_only_that_key(any_bench: Bench) -> None:
    publish(any_bench, "a1", "a2", orderingKey="a")
    publish(any_bench, "b1", orderingKey="b")
    publish(any_bench, "free")
    first = consume(any_bench)
    assert first and first["message"]["payload"] == "a1"
    settle(any_bench, first, "nack", requeue=True, delayMs=60_000)
    others = [consume(any_bench) for _ in range(3)]
    assert [one["message"]["payload"] if one else None for one in others] == ["b1", "free", None]
    any_bench.clocks.pass_ms(60_000)
    again = consume(any_bench)
    assert again and again["message"]["payload"] == "a1"
    assert consume(any_bench) is None


@pytest.mark.parametrize("end", ["ack", "nack"])
def test_a_waiting_consumer_is_served_when_a_key_is_freed(end: str, any_bench: Bench) -> None:
    publish(any_bench, "a1", "a2", orderingKey="a")
    first = consume(any_bench)
    waiting = wait(any_bench, "other")
    assert got(waiting) is None
    settle(any_bench, first, end)  # a nack lets it die: a dead letter blocks nothing
    assert got(waiting) == "a2"


def test_a_key_is_freed_by_the_last_failed_delivery(any_bench: Bench) -> None:
    policy(any_bench, retry={"limit": 1})
    publish(any_bench, "a1", "a2", orderingKey="a")
    consume(any_bench, visibilityTimeoutSec=1)
    waiting = wait(any_bench, "other")
    any_bench.clocks.pass_ms(1000)
    any_bench.run()
    assert got(waiting) == "a2"


# --- nothing whose time is over -----------------------------------------------------------------------------------


def test_a_message_past_its_time_is_not_delivered_even_before_it_expires(
    any_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ttl, "EXPIRIES_LIMIT", 2)
    publish(any_bench, *"abcde", ttlMs=1000)
    publish(any_bench, "fresh")
    any_bench.clocks.pass_ms(1000)
    delivery = consume(any_bench)
    assert delivery and delivery["message"]["payload"] == "fresh"
    assert any_bench.do("status", queue="q")["metrics"]["dlq"] == 5


@pytest.mark.parametrize("many", [False, True], ids=["one", "max"])
def test_if_very_many_messages_are_past_their_time_a_request_ends_without_a_message(
    many: bool, any_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ttl, "EXPIRIES_LIMIT", 1)
    monkeypatch.setattr(transaction, "PASSED_OVER_LIMIT", 2)
    publish(any_bench, *"abcdefg", ttlMs=1000)
    any_bench.clocks.pass_ms(1000)
    options = {"max": 5} if many else {}
    data = any_bench.do("consume_next", queue="q", waitMs=1000, **options)
    nothing: dict[str, Any] = {"messages": []} if many else {"message": None}
    assert data == nothing
    assert any_bench.counts("q") == {"ready": 3, "dlq": 4}


def test_a_message_that_kills_one_consumer_after_the_other_is_poison(any_bench: Bench) -> None:
    any_bench.do(
        "set_policy",
        queue="q",
        policy={"retry": {"sameReasonLimit": 3, "limit": 9, "maxDelaySec": 1}, "visibilityTimeoutSec": 1},
    )
    key = any_bench.publish()
    for consumer in ("a", "b", "c"):
        assert any_bench.do("consume_next", queue="q", consumerId=consumer)["message"]["messageKey"] == key
        any_bench.clocks.pass_ms(1000)
        any_bench.run()
        any_bench.clocks.pass_ms(1000)
    letter = any_bench.do("list_dlq", queue="q")["messages"][0]
    assert (letter["reasonCode"], letter["attempt"], letter["quarantined"]) == ("POISON", 3, True)
