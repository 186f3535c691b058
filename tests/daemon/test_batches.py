"""Several messages in one request: what each comes to, and what all come to together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from postroom_daemon.engine.verbs import consume
from tests.conformance.bench import Bench, Sent, exported

MakeBench = Callable[..., Bench]


@pytest.fixture(params=["sqlite", "memory", "filesystem", "hybrid"])
def bench(request: pytest.FixtureRequest, make_bench: MakeBench) -> Bench:
    return make_bench(request.param).open()


def messages(*bodies: Any, **fields: Any) -> list[dict[str, Any]]:
    return [{"message": body, **fields} for body in bodies]


def publish_batch(bench: Bench, *bodies: Any, queue: str = "q", **fields: Any) -> list[dict[str, Any]]:
    items = messages(*bodies, **fields)
    results: list[dict[str, Any]] = bench.do("publish_batch", queue=queue, messages=items)["results"]
    return results


def lease(bench: Bench, most: int = 10, queue: str = "q", **fields: Any) -> list[dict[str, Any]]:
    """Messages with their leases."""
    found: list[dict[str, Any]] = bench.do("consume_next", queue=queue, max=most, **fields)["messages"]
    return found


def receipt(delivery: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"messageKey": delivery["lease"]["messageKey"], "leaseId": delivery["lease"]["leaseId"], **fields}


def bodies(deliveries: list[dict[str, Any]]) -> list[str]:
    return [delivery["message"]["payload"] for delivery in deliveries]


def counts(bench: Bench, queue: str = "q") -> dict[str, int]:
    return {name: count for name, count in bench.do("status", queue=queue)["metrics"].items() if count}


def codes(results: list[dict[str, Any]]) -> list[str]:
    return [result["error"]["code"] if "error" in result else "ok" for result in results]


def assert_repeatable(bench: Bench, sent: Sent) -> None:
    """The same bytes get the same answer: at once, after a crash, and from the journal alone."""
    held = exported(bench)
    for prepare in (lambda: None, bench.reopen, lambda: bench.reopen(without_store=True)):
        prepare()
        again = bench.again(sent)
        bench.run(again)
        assert without_clocks(again.data) == without_clocks(sent.data)
        assert exported(bench) == held


def without_clocks(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_clocks(one) for name, one in value.items() if name not in ("engineNowMs", "leaseUntil")}
    return [without_clocks(one) for one in value] if isinstance(value, list) else value


# --- publish_batch ------------------------------------------------------------------------------------------------


def test_a_batch_is_stored_in_its_order(bench: Bench) -> None:
    results = publish_batch(bench, "a", "b", "c")
    assert [result["messageKey"] for result in results] == [f"msg:q:{result['messageId']}" for result in results]
    assert bodies(lease(bench)) == ["a", "b", "c"]


def test_a_batch_is_one_request_in_the_journal(bench: Bench) -> None:
    publish_batch(bench, "a", "b")
    events = [event for event in bench.events() if event["type"] in ("queue_created", "published")]
    assert [event["type"] for event in events] == ["queue_created", "published", "published"]
    assert {event["req"] for event in events} == {events[-1]["id"]}
    assert events[-1]["n"] == 3


def test_an_item_that_is_refused_changes_nothing_for_the_others(bench: Bench) -> None:
    items = [
        {"queue": "q", "message": "a"},
        {"message": "no queue"},
        "no object",
        {"queue": "q", "delayMs": -1},
        {"queue": "q", "priority": "high"},
        {"queue": "q", "message": "b", "priority": 9},
    ]
    results = bench.do("publish_batch", messages=items)["results"]
    wrong = ["ERR_INVALID_REQUEST", "ERR_PARSE_ERROR", "ERR_INVALID_REQUEST", "ERR_PARSE_ERROR"]
    assert codes(results) == ["ok", *wrong, "ok"]
    assert bodies(lease(bench)) == ["b", "a"]


def test_an_items_own_queue_overrides_that_of_the_batch(bench: Bench) -> None:
    bench.do("publish_batch", queue="q", messages=[{"message": "a"}, {"queue": "r", "message": "b"}, {"queue": None}])
    assert (counts(bench), counts(bench, "r")) == ({"ready": 2}, {"ready": 1})


def test_each_item_sees_the_ones_before_it(bench: Bench) -> None:
    policy = {"limits": {"messages": 2}, "deduplication": {"mode": "window"}}
    bench.do("set_policy", queue="q", policy=policy)
    first, second, third, fourth = bench.do(
        "publish_batch",
        queue="q",
        messages=[
            {"message": "a", "deduplicationKey": "one"},
            {"message": "a", "deduplicationKey": "one"},
            {"message": "b"},
            {"message": "c"},
        ],
    )["results"]
    assert second == {**first, "duplicate": True}
    assert codes([first, third, fourth]) == ["ok", "ok", "ERR_QUEUE_FULL"]
    assert bodies(lease(bench)) == ["a", "b"]


def test_the_oldest_of_a_batch_are_evicted_by_its_last(bench: Bench) -> None:
    bench.do("set_policy", queue="q", policy={"limits": {"messages": 2, "overflow": "drop-oldest"}})
    publish_batch(bench, "a", "b", "c", "d")
    assert bodies(lease(bench)) == ["c", "d"]


def test_a_message_that_is_published_and_dies_says_so(bench: Bench) -> None:
    bench.do("set_policy", queue="q", policy={"limits": {"messages": 1, "overflow": "dead-letter"}})
    sent = bench.send("publish_batch", queue="q", messages=messages("a", "b"))
    alive, dead = sent.data["results"]
    assert "state" not in alive
    assert dead["state"] == "dead"
    assert counts(bench) == {"ready": 1, "dlq": 1}
    assert_repeatable(bench, sent)


@pytest.mark.parametrize(
    ("given", "text"),
    [([], "is empty"), ([{}] * 1001, "1 to 1,000"), ({}, "of type array"), (None, "is required")],
)
@pytest.mark.parametrize(
    ("command", "name"),
    [("publish_batch", "messages"), ("ack_batch", "items"), ("nack_batch", "items"), ("ack_and_publish", "messages")],
)
def test_an_invalid_batch_is_refused_completely(bench: Bench, command: str, name: str, given: Any, text: str) -> None:
    sent = bench.send(command, messageKey="k", queue="q", **{name: given})
    assert sent.answer.error is not None
    assert text in sent.answer.error.message
    assert "published" not in bench.event_types()


def test_a_thousand_messages_are_one_batch(bench: Bench) -> None:
    assert codes(publish_batch(bench, *range(1000))) == ["ok"] * 1000
    taken = lease(bench, 1000)
    assert codes(bench.do("ack_batch", items=[receipt(one) for one in taken])["results"]) == ["ok"] * 1000
    assert counts(bench) == {}


def test_a_batch_that_the_disk_has_no_space_for_is_refused_completely(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(bench.live.vitals), "has_space_to_publish", lambda self: False)
    for command in ("publish_batch", "ack_and_publish"):
        sent = bench.send(command, queue="q", messageKey="k", messages=messages("a", queue="q"))
        assert sent.code == "ERR_STORAGE_FULL"
    monkeypatch.undo()
    again = bench.again(sent)
    bench.run(again)
    assert again.code == "ERR_MESSAGE_NOT_FOUND"  # it was looked at anew


# --- consume_next with max -----------------------------------------------------------------------------------------


def test_max_returns_as_many_as_there_are(bench: Bench) -> None:
    publish_batch(bench, "a", "b", "c")
    assert bodies(lease(bench, 2)) == ["a", "b"]
    assert bodies(lease(bench, 2)) == ["c"]
    assert lease(bench, 2) == []
    assert bench.do("consume_next", queue="q") == {"message": None}


def test_each_message_has_a_lease_of_its_own(bench: Bench) -> None:
    publish_batch(bench, "a", "b")
    first, second = lease(bench, visibilityTimeoutSec=5)
    assert first["lease"]["leaseId"] != second["lease"]["leaseId"]
    assert first["message"]["attempt"] == second["message"]["attempt"] == 1
    assert first["lease"]["messageKey"] == first["message"]["messageKey"]


def test_limits_in_flight_apply_to_many_at_once(bench: Bench) -> None:
    bench.do("set_policy", queue="q", policy={"limits": {"inflight": 3, "inflightPerConsumer": 2}})
    publish_batch(bench, *range(6))
    assert len(lease(bench, consumerId="one")) == 2
    assert len(lease(bench, consumerId="two")) == 1
    assert lease(bench, consumerId="three") == []


def test_messages_of_one_ordering_key_come_one_after_the_other(bench: Bench) -> None:
    publish_batch(bench, "a1", "a2", orderingKey="a")
    publish_batch(bench, "b1", orderingKey="b")
    taken = lease(bench)
    assert bodies(taken) == ["a1", "b1"]
    bench.do("ack", **receipt(taken[0]))
    assert bodies(lease(bench)) == ["a2"]


def test_priorities_and_the_turn_of_the_oldest_apply_to_many_at_once(bench: Bench) -> None:
    bench.do("set_policy", queue="q", policy={"priority": {"oldestEvery": 3}})
    publish_batch(bench, "low")
    publish_batch(bench, "1", "2", "3", priority=5)
    assert bodies(lease(bench)) == ["1", "2", "low", "3"]


def test_a_reply_is_bounded_in_bytes_but_for_its_first_message(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume, "DELIVERED_BYTES", 1000)
    publish_batch(bench, "x" * 2000, "y" * 600, "z" * 600)
    assert [len(body) for body in bodies(lease(bench))] == [2000]
    assert [len(body) for body in bodies(lease(bench))] == [600]
    assert [len(body) for body in bodies(lease(bench))] == [600]


def test_a_message_past_its_time_ends_the_reply_and_is_not_delivered(bench: Bench) -> None:
    publish_batch(bench, "first")
    publish_batch(bench, "short", ttlMs=10)
    publish_batch(bench, "last")
    with bench.full_disk():  # after that, messages expire only when somebody wants them, for a second
        assert bench.send("publish", queue="q", message="x").code == "ERR_STORAGE_FULL"
    bench.clocks.pass_ms(50)
    assert bodies(lease(bench)) == ["first"]
    assert bodies(lease(bench)) == ["last"]


def test_a_wait_for_many_returns_the_first_to_arrive(bench: Bench) -> None:
    waiting = bench.make("consume_next", queue="q", max=5, waitMs=1000)
    bench.run(waiting)
    assert not waiting.answers
    publish_batch(bench, "a", "b")
    assert bodies(waiting.data["messages"]) == ["a", "b"]


def test_a_wait_for_many_that_times_out_returns_an_empty_list(bench: Bench) -> None:
    waiting = bench.make("consume_next", queue="q", max=5, waitMs=1000)
    bench.run(waiting)
    bench.clocks.pass_ms(2000)
    bench.run()
    assert waiting.data == {"messages": []}


def test_a_repeat_gets_the_deliveries_that_have_not_ended(bench: Bench) -> None:
    publish_batch(bench, "a", "b")
    sent = bench.send("consume_next", queue="q", max=2)
    assert_repeatable(bench, sent)
    first, second = sent.data["messages"]
    bench.do("ack", **receipt(first))
    again = bench.again(sent)
    bench.run(again)
    assert bodies(again.data["messages"]) == ["b"]
    bench.do("ack", **receipt(second))
    last = bench.again(sent)
    bench.run(last)
    assert last.code == "ERR_LEASE_EXPIRED"


# --- ack_batch, nack_batch -----------------------------------------------------------------------------------------


def test_a_message_is_settled_once_in_a_batch(bench: Bench) -> None:
    publish_batch(bench, "a", "b")
    first, second = lease(bench)
    items = [receipt(first), receipt(first), receipt(second)]
    sent = bench.send("ack_batch", items=items)
    assert codes(sent.data["results"]) == ["ok", "ERR_MESSAGE_NOT_FOUND", "ok"]
    assert counts(bench) == {}
    assert_repeatable(bench, sent)


def test_a_refused_item_does_not_use_up_its_message(bench: Bench) -> None:
    publish_batch(bench, "a")
    (held,) = lease(bench)
    results = bench.do("ack_batch", items=[receipt(held) | {"leaseId": "another"}, receipt(held)])["results"]
    assert codes(results) == ["ERR_LEASE_MISMATCH", "ok"]


def test_a_batch_settles_for_the_consumer_that_it_names(bench: Bench) -> None:
    publish_batch(bench, "a", "b")
    keys = [one["lease"]["messageKey"] for one in lease(bench, consumerId="worker")]
    items = [{"messageKey": keys[0]}, {"messageKey": keys[1], "consumerId": "another"}]
    results = bench.do("ack_batch", consumerId="worker", items=items)["results"]
    assert codes(results) == ["ok", "ERR_LEASE_MISMATCH"]


def test_a_nack_batch_treats_each_message_as_its_item_says(bench: Bench) -> None:
    publish_batch(bench, "a", "b", "c")
    again, dead, twice = lease(bench)
    sent = bench.send(
        "nack_batch",
        items=[
            receipt(again, requeue=True, delayMs=7000, reason="busy"),
            receipt(dead, reason="no use"),
            receipt(dead),
            receipt(twice, requeue=1),
        ],
    )
    results = sent.data["results"]
    assert codes(results) == ["ok", "ok", "ERR_LEASE_EXPIRED", "ERR_PARSE_ERROR"]
    assert (results[0]["state"], results[1]) == ("delayed", {"state": "dead"})
    assert results[0]["availableAtEngineMs"] == sent.data["engineNowMs"] + 7000
    assert counts(bench) == {"delayed": 1, "dlq": 1, "inflight": 1}
    assert_repeatable(bench, sent)


def test_dead_letters_of_one_batch_respect_their_limit(bench: Bench) -> None:
    bench.do("set_policy", queue="q", policy={"dlq": {"maxMessages": 2}})
    publish_batch(bench, *range(5))
    sent = bench.send("nack_batch", items=[receipt(one) for one in lease(bench)])
    assert codes(sent.data["results"]) == ["ok"] * 5
    assert counts(bench) == {"dlq": 2}
    assert_repeatable(bench, sent)


@pytest.mark.parametrize("command", ["ack_batch", "nack_batch"])
def test_a_batch_of_refusals_is_remembered_while_the_daemon_runs(bench: Bench, command: str) -> None:
    publish_batch(bench, "a")
    sent = bench.send(command, items=[{"messageKey": "msg:q:message-1"}])
    assert codes(sent.data["results"]) == ["ERR_LEASE_EXPIRED"]
    lease(bench)
    again = bench.again(sent)
    bench.run(again)
    assert again.data == sent.data


# --- ack_and_publish -----------------------------------------------------------------------------------------------


def test_a_step_is_done_and_its_results_are_there(bench: Bench) -> None:
    publish_batch(bench, "a")
    (held,) = lease(bench)
    next_messages = messages("b", queue="next") + messages("c", queue="log")
    sent = bench.send("ack_and_publish", **receipt(held), messages=next_messages)
    assert [result["messageKey"].split(":")[1] for result in sent.data["results"]] == ["next", "log"]
    assert (counts(bench), counts(bench, "next"), counts(bench, "log")) == ({}, {"ready": 1}, {"ready": 1})
    assert_repeatable(bench, sent)


def test_a_step_that_cannot_publish_all_changes_nothing(bench: Bench) -> None:
    bench.do("set_policy", queue="next", policy={"limits": {"messages": 1}})
    publish_batch(bench, "a")
    (held,) = lease(bench)
    held_before = exported(bench)
    sent = bench.send("ack_and_publish", **receipt(held), messages=messages("b", "c", queue="next"))
    assert sent.code == "ERR_QUEUE_FULL"
    assert sent.answer.error is not None and sent.answer.error.message.startswith("messages[1]: ")
    assert exported(bench) == held_before
    bench.do("ack_and_publish", **receipt(held), messages=messages("b", queue="next"))


def test_a_step_needs_the_lease(bench: Bench) -> None:
    publish_batch(bench, "a")
    (held,) = lease(bench)
    wrong = receipt(held) | {"leaseId": "another"}
    assert bench.send("ack_and_publish", **wrong, messages=messages("b", queue="q")).code == "ERR_LEASE_MISMATCH"
    assert bench.send("ack_and_publish", messageKey="k", messages=messages("b", queue="q")).code == (
        "ERR_MESSAGE_NOT_FOUND"
    )
    assert counts(bench) == {"inflight": 1}


def test_a_step_within_a_full_queue_replaces_its_message(bench: Bench) -> None:
    bench.do("set_policy", queue="q", policy={"limits": {"messages": 1}})
    publish_batch(bench, "a")
    (held,) = lease(bench)
    bench.do("ack_and_publish", **receipt(held), messages=messages("b", queue="q"))
    assert bodies(lease(bench)) == ["b"]


def test_a_duplicate_is_no_reason_to_refuse_a_step(bench: Bench) -> None:
    bench.do("set_policy", queue="next", policy={"deduplication": {"mode": "window"}})
    first = bench.do("publish", queue="next", message="b", deduplicationKey="one")
    publish_batch(bench, "a")
    (held,) = lease(bench)
    sent = bench.send("ack_and_publish", **receipt(held), messages=messages("b", queue="next", deduplicationKey="one"))
    assert sent.data["results"] == [{**first, "duplicate": True}]
    assert counts(bench) == {}
    assert_repeatable(bench, sent)
