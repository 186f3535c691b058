"""Messages that are published a second time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from postroom_common.events import encode_event
from postroom_daemon.broker import periodic as chore
from postroom_daemon.model.facts import CLAIM, CLAIM_END, claim_fact
from tests.conformance.bench import Bench, exported, seen_in

MakeBench = Callable[..., Bench]
WINDOW = {"deduplication": {"mode": "window", "windowSec": 10}}
PRESENT = {"deduplication": {"mode": "while-present"}}


@pytest.fixture(params=["sqlite", "memory", "filesystem", "hybrid"])
def any_bench(request: pytest.FixtureRequest, make_bench: MakeBench) -> Bench:
    return make_bench(request.param).open()


def put(bench: Bench, key: str = "k", queue: str = "q", **options: Any) -> tuple[str, bool]:
    """The key of the message that stands for this one, and whether it was one before."""
    data = bench.do("publish", queue=queue, deduplicationKey=key, **options)
    return data["messageKey"], data.get("duplicate", False)


def finish(bench: Bench, queue: str = "q") -> None:
    lease = bench.do("consume_next", queue=queue)["lease"]
    bench.do("ack", messageKey=lease["messageKey"], leaseId=lease["leaseId"])


def claims(bench: Bench) -> int:
    return len(bench.store.facts.names(CLAIM, "", 100)) + len(bench.store.facts.names(CLAIM_END, "", 100))


def test_without_a_policy_a_key_is_only_carried(any_bench: Bench) -> None:
    first, second = put(any_bench), put(any_bench)
    assert first[0] != second[0] and not second[1]
    assert any_bench.do("consume_next", queue="q")["message"]["deduplicationKey"] == "k"


def test_within_the_window_a_key_is_accepted_once_even_if_its_message_is_gone(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy=WINDOW)
    key, _ = put(any_bench)
    assert put(any_bench) == (key, True)
    finish(any_bench)
    any_bench.clocks.pass_ms(9_999)
    assert put(any_bench) == (key, True)
    any_bench.clocks.pass_ms(1)
    other, duplicate = put(any_bench)
    assert other != key and not duplicate


def test_a_claim_survives_a_restart_and_the_loss_of_the_store(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy=WINDOW)
    key, _ = put(any_bench)
    finish(any_bench)
    any_bench.reopen(without_store=True)
    assert put(any_bench) == (key, True)
    any_bench.reopen()
    assert put(any_bench) == (key, True)


def test_a_duplicate_changes_nothing_and_its_repeat_gets_the_same_answer(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy=WINDOW)
    put(any_bench)
    before = seen_in(any_bench) | {"applied": 0}
    sent = any_bench.send("publish", queue="q", deduplicationKey="k")
    assert seen_in(any_bench) | {"applied": 0} == before
    any_bench.clocks.pass_ms(20_000)  # by now it would be taken
    for without_store in (None, False, True):
        if without_store is not None:
            any_bench.reopen(without_store)
        again = any_bench.again(sent)
        any_bench.run(again)
        assert again.data == sent.data and sent.data["duplicate"] is True
    assert any_bench.do("status", queue="q")["metrics"]["ready"] == 1


def test_a_batch_of_duplicates_is_answered_as_before_after_a_restart_when_their_message_is_gone(
    any_bench: Bench,
) -> None:
    any_bench.do("set_policy", queue="q", policy=PRESENT)
    put(any_bench)
    messages = [{"deduplicationKey": "k"}, {"deduplicationKey": "k", "ttlMs": -1}, {"deduplicationKey": "k"}]
    sent = any_bench.send("publish_batch", queue="q", messages=messages)
    assert [one.get("duplicate", False) for one in sent.data["results"]] == [True, False, True]
    finish(any_bench)
    any_bench.reopen()
    again = any_bench.again(sent)
    any_bench.run(again)
    assert again.data == sent.data
    assert any_bench.event_types().count("published") == 1


def test_a_duplicate_takes_few_bytes_of_the_journal(bench: Bench) -> None:
    bench.do("set_policy", queue="q", policy=WINDOW)
    put(bench, message="x" * 100_000)
    put(bench, message="x" * 100_000)
    bench.do("publish_batch", queue="q", messages=[{"deduplicationKey": "k"}] * 100)
    one, many = [len(encode_event(event)) for event in bench.events() if event["type"] == "answered"]
    assert one < 400 and many < 5000


def test_a_batch_that_is_refused_completely_leaves_nothing(bench: Bench) -> None:
    bench.do("set_policy", queue="q", policy=PRESENT)
    events = len(bench.events())
    bench.do("publish_batch", queue="q", messages=[{"ttlMs": -1}, {"ttlMs": -1}])
    assert len(bench.events()) == events


@pytest.mark.parametrize(
    ("command", "payload", "change"),
    [
        ("drain", {"draining": False}, ("drain", {"draining": True})),
        ("purge", {"queue": "q"}, ("publish", {"queue": "q"})),
        ("move", {"queue": "q", "to": "r"}, ("publish", {"queue": "q"})),
    ],
)
def test_a_request_that_had_nothing_to_do_does_nothing_after_a_restart_either(
    bench: Bench, command: str, payload: dict[str, Any], change: tuple[str, dict[str, Any]]
) -> None:
    bench.do("set_policy", queue="q", policy=PRESENT)
    sent = bench.send(command, **payload)
    bench.do(change[0], **change[1])
    bench.reopen()
    before = exported(bench)
    again = bench.again(sent)
    bench.run(again)
    assert again.data == sent.data
    assert exported(bench) == before


def test_a_key_is_in_use_while_its_message_exists_dead_or_alive(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy=PRESENT)
    key, _ = put(any_bench)
    any_bench.clocks.pass_ms(10**9)
    assert put(any_bench) == (key, True)
    lease = any_bench.do("consume_next", queue="q")["lease"]
    assert put(any_bench) == (key, True)
    any_bench.do("nack", messageKey=key, leaseId=lease["leaseId"])
    assert put(any_bench) == (key, True)
    any_bench.do("reprocess_dlq", messageKey=key)
    finish(any_bench)
    other, duplicate = put(any_bench)
    assert other != key and not duplicate
    assert claims(any_bench) == 1


def test_the_same_key_in_two_queues_is_two_keys(any_bench: Bench) -> None:
    for queue in ("q", "r"):
        any_bench.do("set_policy", queue=queue, policy=WINDOW)
    assert not put(any_bench)[1]
    assert not put(any_bench, queue="r")[1]


def test_a_refused_message_claims_nothing(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy=WINDOW | {"limits": {"messages": 1}})
    put(any_bench, key="first")
    assert any_bench.send("publish", queue="q", deduplicationKey="k").code == "ERR_QUEUE_FULL"
    assert put(any_bench, key="first")[1]  # it is in: there is nothing to refuse
    finish(any_bench)
    assert not put(any_bench)[1]


def test_a_dead_letter_by_overflow_keeps_its_claim(any_bench: Bench) -> None:
    limits = {"limits": {"messages": 1, "overflow": "dead-letter"}}
    any_bench.do("set_policy", queue="q", policy=PRESENT | limits)
    put(any_bench, key="first")
    key, duplicate = put(any_bench)
    assert not duplicate
    assert put(any_bench) == (key, True)


def test_a_message_dropped_by_overflow_can_be_published_again(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy=PRESENT | {"limits": {"messages": 1, "overflow": "drop-oldest"}})
    first, _ = put(any_bench, key="a")
    put(any_bench, key="b")
    second, duplicate = put(any_bench, key="a")
    assert second != first and not duplicate


def test_a_body_may_be_the_key(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy={"deduplication": {"mode": "window", "content": True}})
    publish = any_bench.publish
    assert publish(message="text") == publish(message="text") != publish(message="other")
    assert publish(message={"a": 1, "b": 2}) == publish(message={"b": 2, "a": 1}) != publish(message={"a": 1, "b": 3})
    assert publish(message="text", priority=5) == publish(message="text")
    assert publish(message="AAEC", encoding="base64") != publish(message="AAEC")
    # A key goes before the body.
    keyed = publish(message="text", deduplicationKey="k")
    assert keyed != publish(message="text")
    assert keyed == publish(message="another", deduplicationKey="k")


def test_a_key_and_a_body_of_the_same_bytes_are_different(bench: Bench) -> None:
    bench.do("set_policy", queue="q", policy={"deduplication": {"mode": "window", "content": True}})
    assert bench.publish(message="same") != bench.publish(message="x", deduplicationKey="same")


def test_the_second_of_a_batch_is_a_duplicate_of_the_first(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy=PRESENT)
    messages = [{"message": str(number), "deduplicationKey": key} for number, key in enumerate("aabca")]
    sent = any_bench.send("publish_batch", queue="q", messages=messages)
    results = sent.data["results"]
    assert [one.get("duplicate", False) for one in results] == [False, True, False, False, True]
    assert results[0]["messageKey"] == results[1]["messageKey"] == results[4]["messageKey"]
    assert any_bench.do("status", queue="q")["metrics"]["ready"] == 3
    any_bench.reopen()
    again = any_bench.again(sent)
    any_bench.run(again)
    assert again.data == sent.data


def test_in_a_batch_a_key_is_free_again_once_its_message_was_dropped(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy=PRESENT | {"limits": {"messages": 1, "overflow": "drop-oldest"}})
    messages = [{"deduplicationKey": key} for key in "aba"]
    results = any_bench.do("publish_batch", queue="q", messages=messages)["results"]
    assert len({one["messageKey"] for one in results}) == 3
    assert put(any_bench, key="a") == (results[2]["messageKey"], True)


def test_expired_claims_are_removed(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy=WINDOW)
    for number in range(7):
        put(any_bench, key=str(number))
        any_bench.clocks.pass_ms(1000)
    assert claims(any_bench) == 14
    any_bench.clocks.pass_ms(5500)  # three are over
    any_bench.run()
    assert claims(any_bench) == 8
    assert any_bench.event_types().count("claims_ended") >= 1
    any_bench.clocks.pass_ms(20_000)
    any_bench.run()
    assert claims(any_bench) == 0
    any_bench.reopen(without_store=True)
    assert claims(any_bench) == 0


def test_claims_end_as_fast_as_they_come(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chore, "_CLAIMS_AN_EVENT", 5)
    monkeypatch.setattr(chore, "_CLAIMS_A_GROUP", 5)
    bench.do("set_policy", queue="q", policy=WINDOW)
    bench.do("publish_batch", queue="q", messages=[{"deduplicationKey": str(number)} for number in range(42)])
    bench.clocks.pass_ms(10_000)
    left = []
    for _ in range(7):  # groups, of which the first has a turn of chores
        bench.run()
        left.append(claims(bench) // 2)
    assert left == [22, 17, 12, 7, 2, 0, 0]


def test_a_renewed_claim_ends_at_its_new_time(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy=WINDOW)
    put(any_bench)
    any_bench.clocks.pass_ms(10_000)
    key, duplicate = put(any_bench)  # the chore comes before it, or after: both come to the same
    assert not duplicate
    any_bench.clocks.pass_ms(9_000)
    any_bench.run()
    assert put(any_bench) == (key, True)
    assert claims(any_bench) == 2


def test_a_message_moved_to_another_queue_claims_nothing_any_more(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy=PRESENT)
    key, _ = put(any_bench)
    any_bench.do("move", messageKey=key, to="r")
    assert claims(any_bench) == 0
    assert not put(any_bench)[1]


def has_consistent_claims(bench: Bench) -> bool:
    """Every claim that counts while a message is there is that of one that is there; every other one has an end."""
    claims = {name: bench.store.facts.get(name) for name in bench.store.facts.names(CLAIM, "", 1000)}
    present = {name: value["key"] for name, value in claims.items() if not value["untilEngineMs"]}
    ends = {name.partition(":")[2].partition(":")[2] for name in bench.store.facts.names(CLAIM_END, "", 1000)}
    held = {claim_fact(one.queue, one.claim): one.key for one in bench.store.pages.entries("", 1000) if one.claim}
    return present == held and ends == {name.removeprefix(CLAIM) for name in claims.keys() - present.keys()}


def kill(bench: Bench, queue: str = "q") -> str:
    """Let the next message die; its key."""
    lease = bench.do("consume_next", queue=queue)["lease"]
    bench.do("nack", messageKey=lease["messageKey"], leaseId=lease["leaseId"], requeue=False)
    return str(lease["messageKey"])


def test_a_dead_letter_evicted_by_its_own_request_frees_its_key(any_bench: Bench) -> None:
    limits = {"limits": {"messages": 1, "overflow": "dead-letter"}, "dlq": {"maxMessages": 1}}
    any_bench.do("set_policy", queue="q", policy=PRESENT | limits)
    messages = [{"deduplicationKey": key} for key in "abcbb"]
    results = any_bench.do("publish_batch", queue="q", messages=messages)["results"]
    assert [one.get("duplicate", False) for one in results] == [False, False, False, False, True]
    assert results[4]["messageKey"] == results[3]["messageKey"]
    assert has_consistent_claims(any_bench)
    assert not put(any_bench, key="c")[1]
    assert has_consistent_claims(any_bench)
    any_bench.reopen(without_store=True)
    assert has_consistent_claims(any_bench)


def test_a_message_that_no_queue_stores_claims_nothing(any_bench: Bench) -> None:
    schema = {"validation": {"schema": {"type": "integer"}, "onFailure": "dead-letter"}, "dlq": {"enabled": False}}
    any_bench.do("set_policy", queue="q", policy=WINDOW | schema)
    assert any_bench.do("publish", queue="q", message="text", deduplicationKey="k")["state"] == "dropped"
    assert claims(any_bench) == 0
    assert not put(any_bench, message=1)[1]


@pytest.mark.parametrize("policy", [WINDOW, PRESENT])
def test_a_purged_message_frees_its_key_unless_its_window_is_open(any_bench: Bench, policy: dict[str, Any]) -> None:
    any_bench.do("set_policy", queue="q", policy=policy)
    put(any_bench, key="dead")
    kill(any_bench)
    put(any_bench)
    for state in ("ready", "dead"):
        any_bench.do("purge", queue="q", state=state)
    assert has_consistent_claims(any_bench)
    assert [put(any_bench, key=key)[1] for key in ("k", "dead")] == [policy is WINDOW] * 2


def test_a_dead_letter_that_ages_out_frees_its_key(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy=PRESENT | {"dlq": {"retentionDays": 1}})
    put(any_bench)
    key = kill(any_bench)
    any_bench.clocks.pass_ms(23 * 3_600_000)
    any_bench.run()
    assert put(any_bench) == (key, True)
    any_bench.clocks.pass_ms(2 * 3_600_000)
    any_bench.run()
    assert has_consistent_claims(any_bench) and claims(any_bench) == 0
    assert not put(any_bench)[1]


def test_an_expired_message_frees_its_key(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy=PRESENT | {"ttlAction": "drop"})
    put(any_bench, ttlMs=100)
    any_bench.clocks.pass_ms(101)
    any_bench.run()
    assert has_consistent_claims(any_bench)
    assert not put(any_bench)[1]


def test_a_window_outlives_its_queue(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy=WINDOW)
    key, _ = put(any_bench)
    finish(any_bench)
    any_bench.do("delete_queue", queue="q")
    any_bench.reopen()
    any_bench.do("set_policy", queue="q", policy=WINDOW)
    assert put(any_bench) == (key, True)
    any_bench.clocks.pass_ms(10_000)
    any_bench.run()
    assert not put(any_bench)[1] and has_consistent_claims(any_bench)


def test_neither_reprocessing_nor_moving_checks_the_key(any_bench: Bench) -> None:
    for queue in ("q", "r"):
        any_bench.do("set_policy", queue=queue, policy=PRESENT)
    here, _ = put(any_bench)
    there, _ = put(any_bench, queue="r")
    kill(any_bench)
    assert any_bench.do("reprocess_dlq", messageKey=here)["reprocessed"]
    assert put(any_bench) == (here, True)  # brought back, it has its key still
    any_bench.do("move", messageKey=here, to="r")
    assert put(any_bench, queue="r") == (there, True)
    again, duplicate = put(any_bench)
    assert not duplicate and has_consistent_claims(any_bench)
    kill(any_bench)
    any_bench.do("reprocess_dlq", messageKey=again, to="r")
    assert has_consistent_claims(any_bench) and not put(any_bench)[1]
    for _ in range(3):
        finish(any_bench, "r")
    assert has_consistent_claims(any_bench) and not put(any_bench, queue="r")[1]
    any_bench.reopen(without_store=True)
    assert has_consistent_claims(any_bench)


def test_a_message_settled_in_the_same_request_frees_its_key(any_bench: Bench) -> None:
    any_bench.do("set_policy", queue="q", policy=PRESENT)
    key, _ = put(any_bench)
    lease = any_bench.do("consume_next", queue="q")["lease"]["leaseId"]
    messages = [{"queue": "q", "deduplicationKey": "k"}] * 2
    results = any_bench.do("ack_and_publish", messageKey=key, leaseId=lease, messages=messages)["results"]
    assert [one.get("duplicate", False) for one in results] == [False, True]
    assert results[0]["messageKey"] not in (key, "") and has_consistent_claims(any_bench)


@pytest.mark.parametrize(("before", "after"), [(WINDOW, PRESENT), (PRESENT, WINDOW)])
def test_a_key_counts_by_the_policy_under_which_it_was_used(
    any_bench: Bench, before: dict[str, Any], after: dict[str, Any]
) -> None:
    any_bench.do("set_policy", queue="q", policy=before)
    key, _ = put(any_bench)
    any_bench.do("set_policy", queue="q", policy=after)
    any_bench.clocks.pass_ms(9_000)
    assert put(any_bench) == (key, True)
    any_bench.clocks.pass_ms(2_000)
    any_bench.run()
    assert put(any_bench)[1] == (before is PRESENT)
    assert has_consistent_claims(any_bench)
