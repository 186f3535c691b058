"""Drafts: messages with named parts, which are ready when all of them have a value; names; bodies set in place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from postroom_daemon.maintenance.verify import Kind
from postroom_daemon.model.facts import name_fact, part_fact
from postroom_daemon.stores.filesystem.store import FilesystemStore
from postroom_daemon.stores.sqlite.store import SqliteStore
from tests.conformance.bench import Bench, exported, seen_in
from tests.daemon.access_rules import ALICE, FORBIDDEN, allow, as_user, for_user, use
from tests.daemon.maintenance_runs import repaired, verified

MakeBench = Callable[..., Bench]
BACKENDS = ("sqlite", "memory", "filesystem", "hybrid")


@pytest.fixture(params=BACKENDS)
def any_bench(request: pytest.FixtureRequest, make_bench: MakeBench) -> Bench:
    bench: Bench = make_bench(request.param).open()
    return bench


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    bench: Bench = make_bench().open()
    return bench


def drafted(bench: Bench, *parts: str, **options: Any) -> str:
    """The key of a new draft in the queue ``q``."""
    key: str = bench.do("draft", **{"queue": "q", "parts": list(parts or ("a", "b")), **options})["messageKey"]
    return key


def set_part(bench: Bench, key: str, part: str, message: Any = "x", **options: Any) -> Any:
    """The state of a message after a part was set."""
    return bench.do("set", messageKey=key, part=part, message=message, **options)["state"]


def ready(bench: Bench, value: Any = "x", **options: Any) -> str:
    """The key of a new message with one part, ``a``, which is ready."""
    key = drafted(bench, "a", **options)
    assert set_part(bench, key, "a", value) == "ready"
    return key


def code(bench: Bench, command: str, **payload: Any) -> str:
    """The code with which a request is refused."""
    return bench.send(command, **payload).code


def counts(bench: Bench, queue: str = "q") -> dict[str, int]:
    return {name: count for name, count in bench.do("status", queue=queue)["metrics"].items() if count}


def delivered(bench: Bench, queue: str = "q", **options: Any) -> Any:
    return bench.do("consume_next", queue=queue, **options)["message"]


def bodies(message: Any) -> dict[str, Any]:
    return {part["name"]: part["payload"] for part in message["parts"]}


# --- parts --------------------------------------------------------------------------------------------------------


def test_a_draft_is_delivered_with_its_named_parts_once_the_last_one_is_set(any_bench: Bench) -> None:
    options = {"attributes": {"scanner": 7}, "type": "scan", "priority": 3}
    key = drafted(any_bench, "head", "image", "note", **options)
    assert counts(any_bench) == {"drafting": 1} and delivered(any_bench) is None
    assert set_part(any_bench, key, "image", "AAEC", encoding="base64") == "drafting"
    assert set_part(any_bench, key, "head", {"b": 2, "a": 1}) == "drafting"
    assert counts(any_bench) == {"drafting": 1} and delivered(any_bench) is None
    assert set_part(any_bench, key, "note", "seen", contentType="text/plain") == "ready"
    assert counts(any_bench) == {"ready": 1}
    message = delivered(any_bench, payloadAs="value")
    assert message["parts"] == [
        {"payload": {"b": 2, "a": 1}, "name": "head"},
        {"payload": "AAEC", "encoding": "base64", "contentType": "application/octet-stream", "name": "image"},
        {"payload": "seen", "contentType": "text/plain", "name": "note"},
    ]
    assert (message["attributes"], message["type"], message["priority"]) == ({"scanner": 7}, "scan", 3)
    assert message["messageKey"] == key and "draft" not in message and "gathered" not in message
    lease = any_bench.do("list_inflight")["messages"][0]
    assert lease["attempt"] == 1
    any_bench.do("ack", messageKey=key, consumerId=lease["consumerId"])
    assert counts(any_bench) == {}


def test_what_is_set_of_a_draft_is_shown_before_it_is_ready(any_bench: Bench) -> None:
    key = drafted(any_bench, "a", "b", attributes={"n": 1})
    shown = any_bench.do("get_message", messageKey=key)
    assert (shown["state"], shown["message"]["parts"], shown["message"]["unset"]) == ("drafting", [], 2)
    assert shown["message"]["payload"] is None and shown["message"]["attributes"] == '{"n":1}'
    (listed,) = any_bench.do("browse", queue="q", state="drafting")["messages"]
    assert (listed["messageKey"], listed["preview"], listed["bytes"], listed["unset"]) == (key, "", 0, 2)
    (full,) = any_bench.do("browse", queue="q", state="drafting", fullBodies=True)["messages"]
    assert full["parts"] == []
    set_part(any_bench, key, "b", "two")
    shown = any_bench.do("get_message", messageKey=key)
    assert bodies(shown["message"]) == {"b": "two"} and shown["message"]["unset"] == 1
    (listed,) = any_bench.do("browse", queue="q", state="drafting")["messages"]
    assert (listed["preview"], listed["bytes"]) == ("two", 3)


def test_a_part_may_be_set_again_and_the_last_value_counts_also_while_the_message_is_ready(any_bench: Bench) -> None:
    first, second = drafted(any_bench), ready(any_bench)
    set_part(any_bench, first, "a", "x" * 500)
    set_part(any_bench, first, "a", "again")
    assert set_part(any_bench, first, "b") == "ready"
    assert set_part(any_bench, first, "b", None) == "ready"
    assert set_part(any_bench, second, "a", {"second": 2}) == "ready"
    any_bench.reopen()
    assert bodies(any_bench.do("get_message", messageKey=first)["message"]) == {"a": "again", "b": "null"}
    assert bodies(delivered(any_bench, payloadAs="value")) == {"a": {"second": 2}}
    assert bodies(delivered(any_bench, payloadAs="value")) == {"a": "again", "b": None}


def test_a_draft_goes_to_the_end_of_its_priority_when_it_is_ready_and_stays_there_when_it_is_set_again(
    any_bench: Bench,
) -> None:
    keys = [drafted(any_bench, "a") for _ in range(3)]
    for number in (2, 0, 1):
        set_part(any_bench, keys[number], "a")
    any_bench.do("publish", queue="q", message="later")
    set_part(any_bench, keys[2], "a", "again")
    urgent = ready(any_bench, priority=1)
    any_bench.reopen()
    order = [delivered(any_bench)["messageKey"] for _ in range(4)]
    assert order == [urgent, keys[2], keys[0], keys[1]]


def test_a_part_of_a_message_that_is_delivered_again_later_may_be_set(any_bench: Bench) -> None:
    key = ready(any_bench)
    delivered(any_bench, consumerId="c")
    any_bench.do("nack", messageKey=key, consumerId="c", requeue=True, delayMs=900)
    assert set_part(any_bench, key, "a", "another") == "ready"
    assert any_bench.do("consume_next", queue="q")["message"] is None
    any_bench.clocks.pass_ms(900)
    assert bodies(delivered(any_bench)) == {"a": "another"}


@pytest.mark.parametrize("state", ["inflight", "dead", "held"])
def test_parts_of_a_message_that_is_neither_drafting_nor_ready_cannot_be_set(bench: Bench, state: str) -> None:
    key = ready(bench)
    if state == "held":
        bench.do("hold", messageKey=key)
    else:
        delivered(bench, consumerId="c")
    if state == "dead":
        bench.do("nack", messageKey=key, consumerId="c")
    assert code(bench, "set", messageKey=key, part="a", message="y") == "ERR_BAD_STATE"
    assert bodies(bench.do("get_message", messageKey=key)["message"]) == {"a": "x"}


def test_a_part_that_the_message_does_not_have_cannot_be_set(bench: Bench) -> None:
    key, plain = drafted(bench), bench.do("publish", queue="q", message="x")["messageKey"]
    for one, part in ((key, "c"), (plain, "a")):
        assert code(bench, "set", messageKey=one, part=part) == "ERR_PART_NOT_FOUND"
    assert code(bench, "set", messageKey="msg:q:none", part="a") == "ERR_MESSAGE_NOT_FOUND"
    assert code(bench, "set", part="a") == "ERR_INVALID_REQUEST"


@pytest.mark.parametrize("parts", [[], [""], ["x" * 256], [7], [f"p{n}" for n in range(257)]])
def test_a_draft_has_1_to_256_parts_with_names(bench: Bench, parts: list[Any]) -> None:
    assert code(bench, "draft", queue="q", parts=parts) == "ERR_INVALID_REQUEST"


def test_the_same_name_twice_is_one_part(bench: Bench) -> None:
    key = drafted(bench, "a", "a")
    assert set_part(bench, key, "a") == "ready"


def test_the_queue_of_a_draft_is_created_unless_it_must_exist(bench: Bench) -> None:
    assert code(bench, "draft", queue="new", parts=["a"], mustExist=True) == "ERR_QUEUE_NOT_FOUND"
    bench.do("draft", queue="new", parts=["a"], createWith={"ttlSec": 5})
    bench.do("draft", queue="new", parts=["a"], mustExist=True)
    assert counts(bench, "new") == {"drafting": 2}
    assert bench.do("get_policy", queue="new")["policy"]["ttlSec"] == 5


def test_a_draft_with_an_ordering_key_keeps_later_messages_of_the_key_waiting(any_bench: Bench) -> None:
    key = drafted(any_bench, "a", orderingKey="line")
    any_bench.do("publish", queue="q", message="second", orderingKey="line")
    assert delivered(any_bench) is None
    set_part(any_bench, key, "a")
    assert delivered(any_bench, consumerId="c")["messageKey"] == key and delivered(any_bench) is None
    any_bench.do("ack", messageKey=key, consumerId="c")
    assert delivered(any_bench)["payload"] == "second"


def test_a_draft_for_a_consumer_is_delivered_to_it_and_to_anyone_after_its_time_from_when_it_is_ready(
    bench: Bench,
) -> None:
    bench.do("set_policy", queue="q", policy={"targetFallbackSec": 5})
    key = drafted(bench, "a", targetConsumerId="me")
    bench.clocks.pass_ms(10_000)
    set_part(bench, key, "a")
    assert delivered(bench, consumerId="other") is None
    bench.clocks.pass_ms(5000)
    assert delivered(bench, consumerId="other")["messageKey"] == key


def test_a_consumer_that_waits_gets_a_draft_when_its_last_part_is_set(bench: Bench) -> None:
    key = drafted(bench)
    waits = [
        bench.make("consume_next", waitMs=60_000, queue="q"),
        bench.make("consume_next", waitMs=60_000, queuePattern="^q$"),
    ]
    bench.run(*waits)
    set_part(bench, key, "a")
    assert not any(one.answers for one in waits)
    set_part(bench, key, "b")
    other = ready(bench)
    assert [one.data["message"]["messageKey"] for one in waits] == [key, other]


# --- time ---------------------------------------------------------------------------------------------------------


def test_a_draft_that_is_not_ready_in_time_is_dropped_whatever_was_set(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy={"draftingSec": 5})
    key, other = drafted(any_bench, name="late"), drafted(any_bench, "a")
    any_bench.clocks.pass_ms(4000)
    set_part(any_bench, key, "a")
    set_part(any_bench, other, "a")
    any_bench.reopen()
    any_bench.clocks.pass_ms(1000)
    assert counts(any_bench) == {"ready": 1}
    assert code(any_bench, "set", messageKey=key, part="b") == "ERR_MESSAGE_NOT_FOUND"
    last = any_bench.do("get_message", messageKey=key, events=10)["events"][-1]
    assert (last["type"], last["failure"]["reasonCode"]) == ("dropped", "DRAFT_EXPIRED")
    assert drafted(any_bench, name="late") != key


@pytest.mark.parametrize("options", [{"ttlMs": 3000}, {}])
def test_the_time_to_live_of_a_draft_begins_when_it_is_ready(bench: Bench, options: dict[str, Any]) -> None:
    bench.do("set_policy", queue="q", policy={"ttlSec": 3 if not options else 60})
    key = drafted(bench, "a", **options)
    bench.clocks.pass_ms(10_000)
    set_part(bench, key, "a")
    bench.clocks.pass_ms(2999)
    assert counts(bench) == {"ready": 1}
    bench.clocks.pass_ms(1)
    assert counts(bench) == {"dlq": 1}
    assert bodies(bench.do("get_message", messageKey=key)["message"]) == {"a": "x"}


# --- names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["order-7", "a:b%3A/é", "x" * 255])
def test_a_message_is_found_by_its_name_as_long_as_it_exists(any_bench: Bench, name: str) -> None:
    key = drafted(any_bench, "a", name=name)
    named = f"msg:q:{name.replace('%', '%25').replace(':', '%3A')}"
    assert code(any_bench, "draft", queue="q", parts=["a"], name=name) == "ERR_DUPLICATE_MESSAGE"
    assert drafted(any_bench, "a", queue="other", name=name) != key
    assert set_part(any_bench, named, "a") == "ready"
    any_bench.reopen()
    assert code(any_bench, "draft", queue="q", parts=["a"], name=name) == "ERR_DUPLICATE_MESSAGE"
    message = delivered(any_bench, consumerId="c")
    assert (message["messageKey"], message["name"]) == (key, name)
    shown = any_bench.do("get_message", messageKey=named)
    assert (shown["messageKey"], shown["message"]["name"]) == (key, name)
    any_bench.do("nack", messageKey=named, consumerId="c")
    (letter,) = any_bench.do("list_dlq", queue="q", fullBodies=True)["messages"]
    assert letter["name"] == letter["originalMessage"]["name"] == name
    assert any_bench.do("reprocess_dlq", messageKey=named)["messageKey"] == key
    delivered(any_bench, consumerId="c")
    any_bench.do("ack", messageKey=named, consumerId="c")
    assert code(any_bench, "get_message", messageKey=named) == "ERR_MESSAGE_NOT_FOUND"
    any_bench.reopen()
    assert drafted(any_bench, "a", name=name) != key


def test_a_message_that_has_moved_is_found_by_the_queue_in_which_it_was_drafted(any_bench: Bench) -> None:
    key = ready(any_bench, name="n")
    assert any_bench.do("move", messageKey="msg:q:n", to="other")["moved"] == 1
    assert code(any_bench, "draft", queue="q", parts=["a"], name="n") == "ERR_DUPLICATE_MESSAGE"
    assert drafted(any_bench, "a", queue="other", name="n") != key
    assert any_bench.do("get_message", messageKey="msg:q:n")["message"]["queue"] == "other"
    any_bench.do("purge", queue="other", state="ready")
    assert code(any_bench, "get_message", messageKey="msg:q:n") == "ERR_MESSAGE_NOT_FOUND"


def test_who_may_consume_may_abandon_a_message_in_flight_by_its_name(bench: Bench) -> None:
    for name in ("first", "second"):
        ready(bench, name, name=name)
    bench.do("consume_next", queue="q")
    use(bench, allow(for_user(ALICE, "consume")))
    assert as_user(bench, ALICE, "abandon", messageKey="msg:q:first").data == {"state": "dead"}
    assert as_user(bench, ALICE, "abandon", messageKey="msg:q:second").code == FORBIDDEN


def test_one_message_is_settled_once_in_a_batch_that_has_its_key_and_its_name(bench: Bench) -> None:
    key = ready(bench, name="n")
    delivered(bench, consumerId="c")
    items = [{"messageKey": "msg:q:n"}, {"messageKey": key}, {"messageKey": "msg:q:n"}]
    results = bench.do("ack_batch", consumerId="c", items=items)["results"]
    assert [one.get("error", {}).get("code") for one in results] == [None, *["ERR_MESSAGE_NOT_FOUND"] * 2]
    other = ready(bench, name="n")
    delivered(bench, consumerId="c")
    again = {"messageKey": "msg:q:n", "consumerId": "c", "messages": [{"queue": "q", "message": "next"}]}
    assert len(bench.do("ack_and_publish", **again)["results"]) == 1
    assert code(bench, "get_message", messageKey=other) == "ERR_MESSAGE_NOT_FOUND"


def test_requests_of_one_group_that_settle_a_message_by_its_key_and_by_its_name_settle_it_once(bench: Bench) -> None:
    for keys in (("real", "name"), ("name", "real"), ("name", "name")):
        real = ready(bench, name="n")
        delivered(bench, consumerId="c")
        written = {"real": real, "name": "msg:q:n"}
        acks = [bench.make("ack", messageKey=written[key], consumerId="c") for key in keys]
        bench.run(*acks)
        assert [one.code for one in acks] == ["OK", "ERR_MESSAGE_NOT_FOUND"], keys


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["while-present", "window"])
def test_a_draft_with_the_parts_of_another_message_does_not_become_ready(any_bench: Bench, mode: str) -> None:
    any_bench.do("set_policy", queue="q", policy={"deduplication": {"mode": mode, "content": True}})
    first, second = drafted(any_bench, "a", "b"), drafted(any_bench, "b", "a")
    other = drafted(any_bench, "a", "c")
    for key in (first, second, other):
        set_part(any_bench, key, "a", {"x": 1, "y": [2]})
    assert set_part(any_bench, first, "b", "same") == "ready"
    assert code(any_bench, "set", messageKey=second, part="b", message="same") == "ERR_DUPLICATE_MESSAGE"
    shown = any_bench.do("get_message", messageKey=second)
    assert (shown["state"], list(bodies(shown["message"]))) == ("drafting", ["a"])
    assert set_part(any_bench, other, "c", "same") == "ready"
    set_part(any_bench, second, "a", {"y": [2], "x": 1})
    assert code(any_bench, "set", messageKey=second, part="b", message="same") == "ERR_DUPLICATE_MESSAGE"
    assert set_part(any_bench, second, "b", "another") == "ready"
    assert set_part(any_bench, first, "b", "same") == "ready"  # its own value
    any_bench.reopen()
    assert code(any_bench, "set", messageKey=second, part="b", message="same") == "ERR_DUPLICATE_MESSAGE"
    assert bodies(any_bench.do("get_message", messageKey=second)["message"])["b"] == "another"


def test_a_part_that_is_set_again_gives_the_earlier_content_free(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy={"deduplication": {"mode": "while-present", "content": True}})
    first, second = ready(any_bench, "one"), drafted(any_bench, "a")
    assert code(any_bench, "set", messageKey=second, part="a", message="one") == "ERR_DUPLICATE_MESSAGE"
    set_part(any_bench, first, "a", "two")
    any_bench.reopen()
    assert set_part(any_bench, second, "a", "one") == "ready"
    assert code(any_bench, "set", messageKey=second, part="a", message="two") == "ERR_DUPLICATE_MESSAGE"
    delivered(any_bench, consumerId="c")
    any_bench.do("nack", messageKey=first, consumerId="c")
    assert code(any_bench, "set", messageKey=second, part="a", message="two") == "ERR_DUPLICATE_MESSAGE"
    any_bench.do("drop_dlq", messageKey=first)
    assert set_part(any_bench, second, "a", "two") == "ready"


def test_limits_of_size_count_the_parts_and_give_back_what_was_replaced(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy={"limits": {"messageBytes": 100, "bytes": 300}})
    key, other = drafted(any_bench), drafted(any_bench)
    set_part(any_bench, key, "a", "x" * 60)
    assert code(any_bench, "set", messageKey=key, part="b", message="y" * 41) == "ERR_MESSAGE_TOO_LARGE"
    set_part(any_bench, key, "a", "x" * 50)
    assert set_part(any_bench, key, "b", "y" * 50) == "ready"
    assert code(any_bench, "set", messageKey=other, part="a", message="z" * 100) == "ERR_QUEUE_FULL"
    set_part(any_bench, key, "b", "y")
    set_part(any_bench, key, "a", "y")
    set_part(any_bench, other, "a", "z" * 99)
    any_bench.do("purge", queue="q")
    record = any_bench.store.queue("q")
    assert record is not None and record.bytes == 0


def test_a_full_queue_takes_no_draft(bench: Bench) -> None:
    bench.do("set_policy", queue="q", policy={"limits": {"messages": 1, "overflow": "dead-letter"}})
    drafted(bench)
    assert code(bench, "draft", queue="q", parts=["a"]) == "ERR_QUEUE_FULL"
    bench.do("set_policy", queue="r", policy={"limits": {"messages": 1, "overflow": "drop-oldest"}})
    bench.do("publish", queue="r", message="x")
    drafted(bench, queue="r")
    assert counts(bench, "r") == {"drafting": 1}


def test_all_parts_together_must_match_the_schema_of_the_queue(bench: Bench) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    bench.do("set_policy", queue="q", policy={"validation": {"schema": schema, "onFailure": "dead-letter"}})
    key = drafted(bench, "n", "text")
    set_part(bench, key, "n", "seven")
    assert code(bench, "set", messageKey=key, part="text", message="x") == "ERR_VALIDATION_FAILED"
    set_part(bench, key, "n", 7)
    assert set_part(bench, key, "text", "x") == "ready"
    assert code(bench, "set", messageKey=key, part="n", message="seven") == "ERR_VALIDATION_FAILED"


def test_a_message_has_a_priority_or_none(bench: Bench) -> None:
    assert code(bench, "draft", queue="q", parts=["a"], priority=0, noPriority=True) == "ERR_INVALID_REQUEST"
    assert code(bench, "publish", queue="q", priority=0, noPriority=True) == "ERR_INVALID_REQUEST"


def test_what_has_no_priority_is_delivered_last_and_shown_with_null(any_bench: Bench) -> None:
    none = ready(any_bench, noPriority=True)
    any_bench.do("publish", queue="q", message="none", noPriority=True)
    any_bench.do("publish", queue="q", message="low", priority=-(2**31))
    any_bench.reopen()
    assert [one["priority"] for one in any_bench.do("browse", queue="q")["messages"]] == [-(2**31), None, None]
    assert delivered(any_bench)["payload"] == "low"
    message = delivered(any_bench)
    assert (message["messageKey"], message["priority"]) == (none, None)


def test_operators_may_purge_drafts_and_neither_move_nor_hold_them(bench: Bench) -> None:
    key = drafted(bench)
    assert code(bench, "move", messageKey=key, to="other") == "ERR_INVALID_REQUEST"
    assert code(bench, "move", queue="q", state="drafting", to="other") == "ERR_INVALID_REQUEST"
    assert code(bench, "hold", messageKey=key) == "ERR_INVALID_REQUEST"
    assert bench.do("move", queue="q", to="other")["moved"] == 0
    assert bench.do("purge", queue="q", state="ready")["purged"] == 0
    assert bench.do("purge", queue="q", state="drafting")["purged"] == 1
    drafted(bench)
    assert bench.do("purge", queue="q")["purged"] == 1
    drafted(bench)
    assert bench.do("delete_queue", queue="q", discard=True)["discarded"] == 1


# --- set in place -------------------------------------------------------------------------------------------------


def test_who_has_a_message_leased_replaces_its_body(any_bench: Bench) -> None:
    sent = {"message": "old", "attributes": {"n": 1}, "type": "t", "traceId": "1"}
    key = any_bench.do("publish", queue="q", **sent)["messageKey"]
    lease = any_bench.do("consume_next", queue="q", consumerId="c")["lease"]["leaseId"]
    assert code(any_bench, "set", messageKey=key, message="new", consumerId="d") == "ERR_LEASE_MISMATCH"
    assert any_bench.do("set", leaseId=lease, message={"new": 1}) == {"messageKey": key, "state": "inflight"}
    any_bench.do("release", leaseId=lease)
    any_bench.reopen()
    message = delivered(any_bench, consumerId="c", payloadAs="value")
    assert (message["payload"], message["attributes"]) == ({"new": 1}, {"n": 1})
    assert (message["type"], message["traceId"]) == ("t", "1")
    any_bench.do("set", messageKey=key, message="x" * 5000, attributes={"m": 2}, consumerId="c")
    any_bench.do("nack", messageKey=key, consumerId="c")
    any_bench.reopen()
    message = any_bench.do("get_message", messageKey=key, payloadAs="value")["message"]
    assert (message["payload"], message["attributes"]) == ("x" * 5000, {"m": 2})
    any_bench.do("purge", queue="q", state="dead")
    assert counts(any_bench) == {}


def test_a_body_is_replaced_only_under_a_lease_and_within_the_limits(bench: Bench) -> None:
    bench.do("set_policy", queue="q", policy={"limits": {"messageBytes": 10}})
    key = bench.do("publish", queue="q", message="old")["messageKey"]
    assert code(bench, "set", messageKey=key, message="new") == "ERR_LEASE_EXPIRED"
    delivered(bench, consumerId="c")
    assert code(bench, "set", messageKey=key, message="x" * 11, consumerId="c") == "ERR_MESSAGE_TOO_LARGE"
    assert code(bench, "set", message="new") == "ERR_INVALID_REQUEST"
    named = ready(bench)
    delivered(bench, consumerId="c")
    assert code(bench, "set", messageKey=named, message="new", consumerId="c") == "ERR_INVALID_REQUEST"


@pytest.mark.parametrize("outcome", ["done", "abandon"])
def test_of_a_message_whose_headers_are_kept_no_body_and_no_part_stays(any_bench: Bench, outcome: str) -> None:
    any_bench.do("set_policy", queue="q", policy={outcome: {"keep": "headers"}})
    plain = any_bench.do("publish", queue="q", message="x" * 5000, attributes={"n": 1}, type="t")["messageKey"]
    named, half = ready(any_bench, name="n", attributes={"m": 2}), drafted(any_bench, "a", "b")
    set_part(any_bench, half, "a")
    for key in (plain, named):
        delivered(any_bench, consumerId="c")
        settle = {"consumerId": "c"} if outcome == "done" else {}
        any_bench.do("ack" if outcome == "done" else "abandon", messageKey=key, **settle)
    if outcome == "abandon":
        any_bench.do("abandon", messageKey=half)
    for without_store in (False, True):
        any_bench.reopen(without_store)
        shown = any_bench.do("get_message", messageKey=plain)["message"]
        assert (shown["payload"], shown["bytes"], shown["attributes"], shown["type"]) == ("", 0, '{"n":1}', "t")
        shown = any_bench.do("get_message", messageKey="msg:q:n")["message"]
        assert (shown["payload"], shown["attributes"], "parts" in shown) == ("", '{"m":2}', False)
        assert code(any_bench, "draft", queue="q", parts=["a"], name="n") == "ERR_DUPLICATE_MESSAGE"
    assert any_bench.store.facts.get(part_fact(named, 1)) is None
    assert (any_bench.store.facts.get(part_fact(half, 1)) is None) == (outcome == "abandon")
    any_bench.do("purge", queue="q", state="any")
    record = any_bench.store.queue("q")
    assert record is not None and record.bytes == 0


def test_a_draft_that_was_abandoned_is_not_delivered_until_it_has_all_parts(bench: Bench) -> None:
    key = drafted(bench)
    set_part(bench, key, "a")
    bench.do("abandon", messageKey=key)
    assert code(bench, "reprocess_dlq", messageKey=key) == "ERR_BAD_STATE"
    assert bench.do("reprocess_dlq", queue="q")["reprocessed"] == 0
    assert bodies(bench.do("get_message", messageKey=key)["message"]) == {"a": "x"}


# --- maintenance --------------------------------------------------------------------------------------------------


def worked(bench: Bench) -> Bench:
    """A root with drafts, named messages, replaced bodies and claims in many states."""
    bench.do("set_policy", queue="q", policy={"deduplication": {"mode": "while-present", "content": True}})
    half = drafted(bench, "a", "b", name="half", ttlMs=60_000)
    set_part(bench, half, "b", {"half": True})
    drafted(bench, "a", name="none", noPriority=True)
    again = ready(bench, "first", name="again")
    set_part(bench, again, "a", "second")
    leased = bench.do("publish", queue="r", message="old", attributes={"n": 1})["messageKey"]
    delivered(bench, "r", consumerId="c")
    bench.do("set", messageKey=leased, message={"new": [1]}, consumerId="c")
    for name in ("dead", "gone"):
        ready(bench, name, queue="s", name=name)
        delivered(bench, "s", consumerId="c")
    bench.do("nack", messageKey="msg:s:dead", consumerId="c", reason="bad")
    bench.do("ack", messageKey="msg:s:gone", consumerId="c")
    ready(bench, queue="s", name="moved")
    bench.do("move", messageKey="msg:s:moved", to="q")
    return bench


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("without_store", [False, True])
def test_a_crash_changes_nothing_of_drafts_names_and_bodies(
    make_bench: MakeBench, backend: str, without_store: bool
) -> None:
    bench = worked(make_bench(backend).open())
    before = seen_in(bench)
    bench.reopen(without_store=without_store)
    assert seen_in(bench) == before
    assert code(bench, "draft", queue="q", parts=["a"], name="half") == "ERR_DUPLICATE_MESSAGE"
    assert set_part(bench, "msg:q:half", "a") == "ready"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("without_store", [False, True])
def test_a_crash_changes_nothing_of_a_part_that_was_set_after_a_retry(
    make_bench: MakeBench, backend: str, without_store: bool
) -> None:
    bench = make_bench(backend).open()
    key = ready(bench, "first")
    delivered(bench)
    bench.do("nack", messageKey=key, requeue=True, delayMs=900)
    bench.clocks.pass_ms(1000)
    assert set_part(bench, key, "a", "second, and longer") == "ready"
    before = seen_in(bench)
    bench.reopen(without_store=without_store)
    assert seen_in(bench) == before
    assert bodies(delivered(bench)) == {"a": "second, and longer"}


@pytest.mark.parametrize("backend", ["sqlite", "filesystem", "hybrid"])
def test_a_start_from_a_checkpoint_before_the_draft_finds_it_by_its_name(make_bench: MakeBench, backend: str) -> None:
    bench = make_bench(backend).open()
    gone = ready(bench, "gone", name="gone")
    bench.store.disk.checkpoint()
    key = ready(bench, name="n")
    set_part(bench, key, "a", "again")
    bench.do("purge", queue="q", filter={"text": "gone"})
    assert isinstance(bench.store, SqliteStore | FilesystemStore)
    bench.store.flush()
    bench.reopen()
    assert gone and drafted(bench, name="gone") != gone
    assert bench.do("get_message", messageKey="msg:q:n")["messageKey"] == key
    assert bodies(bench.do("get_message", messageKey=key)["message"]) == {"a": "again"}


@pytest.mark.parametrize("backend", ["sqlite", "filesystem", "hybrid"])
def test_the_root_is_what_its_events_say_and_what_is_wrong_is_put_back(
    make_bench: MakeBench, tmp_path: Path, backend: str
) -> None:
    bench = worked(make_bench(backend).open())
    state = exported(bench)
    bench.stop()
    bench.store.disk.checkpoint()
    bench.close()
    assert not verified(bench, tmp_path).faults
    bench.open()
    bench.store.begin()
    for name, value in (("half", None), ("again", "msg:q:none"), ("never", "msg:q:none")):
        bench.store.facts.put(name_fact(f"msg:q:{name}"), value)
    bench.store.commit()
    bench.stop()
    bench.store.disk.checkpoint()
    bench.close()
    report = verified(bench, tmp_path)
    assert report.faults == 3 and {finding.kind for finding in report.findings} == {Kind.NAME_WRONG}
    repaired(bench, tmp_path)
    bench.open()
    assert exported(bench) == state


def test_a_part_is_what_its_event_says_also_if_its_draft_is_older_than_the_journal(
    make_bench: MakeBench, tmp_path: Path
) -> None:
    bench = make_bench(segment_bytes=1500).open()
    key = drafted(bench, "a", "b")
    set_part(bench, key, "a", "first")
    while len(bench.segments()) < 3:
        bench.publish()
    set_part(bench, key, "b", "second")
    bench.stop()
    bench.close()
    bench.segments()[0].unlink()
    assert not verified(bench, tmp_path).faults
    bench.open()
    bench.store.begin()
    bench.store.facts.put(part_fact(key, 2), bench.store.facts.get(part_fact(key, 1)))
    bench.store.commit()
    bench.stop()
    bench.close()
    report = verified(bench, tmp_path)
    assert report.faults == 1 and {finding.kind for finding in report.findings} == {Kind.MESSAGE_WRONG}
    repaired(bench, tmp_path)
    bench.open()
    assert bodies(bench.do("get_message", messageKey=key)["message"]) == {"a": "first", "b": "second"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_export_brings_drafts_names_and_bodies_to_another_root(make_bench: MakeBench, backend: str) -> None:
    source, target = (
        worked(make_bench(backend).open()),
        make_bench("sqlite" if backend == "memory" else "memory").open(),
    )
    head = source.do("read_state", part="head")
    times = {"engineMs": head["engineMs"], "wallMs": head["wallMs"]}
    for part in ("queues", "facts", "messages"):
        page = source.do("read_state", part=part)
        target.do("import_state", **times, **{part: page[part]})
    for queue in ("q", "r", "s"):
        assert target.do("status", queue=queue)["metrics"].keys() == source.do("status", queue=queue)["metrics"].keys()
    for name in ("q:half", "q:none", "q:again", "s:dead", "s:moved"):
        before, after = (one.do("get_message", messageKey=f"msg:{name}", payloadAs="value") for one in (source, target))
        for one in (before["message"], after["message"]):
            for changing in ("ageMs", "expiresEngineMs", "dlqAt", "diedEngineMs"):
                one.pop(changing, None)
        assert before["message"] == after["message"]
    assert code(target, "draft", queue="q", parts=["a"], name="half") == "ERR_DUPLICATE_MESSAGE"
    assert code(target, "set", messageKey="msg:q:none", part="a", message="second") == "ERR_DUPLICATE_MESSAGE"
    assert set_part(target, "msg:q:half", "a") == "ready"
