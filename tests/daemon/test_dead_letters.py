"""Dead letters: consumed by their address, leased, counted."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from postroom_daemon.model.records import NO_DEATHS, Deaths
from tests.conformance.bench import Bench, exported
from tests.daemon.dead_letters import bench, bury, dead, fail, policy, settle

__all__ = ["bench"]

# --- the name as an address ---------------------------------------------------------------------------------------


def test_dead_letters_are_leased_by_their_address_and_stay_dead(bench: Bench) -> None:
    first, second = bury(bench), bury(bench)
    policy(bench, limits={"inflight": 1})
    bench.do("pause", queue="q")
    one = bench.do("consume_next", queue="q.dlq")
    other = bench.do("consume_next", queue="q.dlq")
    assert [one["message"]["messageKey"], other["message"]["messageKey"]] == [first, second]
    assert one["message"]["attempt"] == 1
    assert bench.do("consume_next", queue="q.dlq")["message"] is None
    assert bench.do("status", queue="q")["metrics"]["dlq"] == 2
    assert [letter["leased"] for letter in bench.do("list_dlq", queue="q.dlq")["messages"]] == [True, True]
    settle(bench, one)
    settle(bench, other, "nack", requeue=True)
    assert dead(bench) == [second]
    again = bench.do("consume_next", queue="q.dlq")
    assert again["message"]["attempt"] == 1
    bench.clocks.pass_ms(60_000)
    assert bench.do("consume_next", queue="q.dlq")["message"]["messageKey"] == second


def test_a_consumed_dead_letter_names_its_cause_of_death(bench: Bench) -> None:
    bury(bench, reason="bad")
    letter = bench.do("consume_next", queue="q.dlq")
    reported = letter["message"]["failure"]
    assert (reported["reasonCode"], reported["reasonMessage"], reported["attempt"]) == ("REJECTED", "bad", 1)
    settle(bench, letter, "release")
    bench.reopen()
    assert bench.do("consume_next", queue="q.dlq")["message"]["failure"] == reported
    bench.do("publish", queue="q", message="alive")
    assert "failure" not in bench.do("consume_next", queue="q")["message"]


def test_several_queues_share_an_address_and_their_dead_letters_come_by_time_of_death(bench: Bench) -> None:
    for queue in ("b", "a", "c"):
        policy(bench, queue, dlq={"queue": "morgue"})
    keys = [bury(bench, queue) for queue in ("b", "a", "c", "a", "b")]
    assert dead(bench, "morgue") == keys
    assert dead(bench, "a") == [keys[1], keys[3]]
    assert dead(bench, "a.dlq") == []
    page = bench.do("list_dlq", queue="morgue", limit=2)
    assert dead(bench, "morgue", after=page["next"]) == keys[2:]
    assert bench.do("count_dlq", queue="morgue")["count"] == 5
    for key in keys:
        delivery = bench.do("consume_next", queue="morgue")
        assert delivery["message"]["messageKey"] == key
        settle(bench, delivery)


def consumed(bench: Bench, name: str) -> list[str]:
    """The letters that are leased by a name, all of them put back."""
    deliveries = bench.do("consume_next", queue=name, max=100)["messages"] if name else []
    for delivery in deliveries:
        settle(bench, delivery, "release")
    return [delivery["message"]["messageKey"] for delivery in deliveries]


def test_a_shared_address_follows_each_queue_and_policy(bench: Bench) -> None:
    policy(bench, "a", dlq={"queue": "morgue"})
    first = bury(bench, "a")
    assert consumed(bench, "morgue") == [first]
    second = bury(bench, "b")
    assert consumed(bench, "morgue") == [first]
    policy(bench, "b", dlq={"queue": "morgue"})
    assert consumed(bench, "morgue") == [first, second]
    policy(bench, "a")
    assert consumed(bench, "morgue") == [second]
    policy(bench, "c", dlq={"queue": "morgue"})
    assert bench.do("count_dlq", queue="morgue")["queues"] == ["b", "c"]
    third = bury(bench, "c")
    assert consumed(bench, "morgue") == [second, third]
    bench.do("drop_dlq", queue="c")
    assert consumed(bench, "morgue") == [second]
    bench.do("delete_queue", queue="c")
    assert bench.do("count_dlq", queue="morgue")["queues"] == ["b"]
    fourth = bury(bench, "b")
    assert consumed(bench, "morgue") == [second, fourth]
    bench.do("reprocess_dlq", queue="b", to="d")
    policy(bench, "d", dlq={"queue": "morgue"})
    assert consumed(bench, "morgue") == []
    fail(bench, second, "d", requeue=False)
    assert consumed(bench, "morgue") == [second]


def test_after_a_rollback_a_shared_address_is_resolved_again(bench: Bench) -> None:
    policy(bench, "a", dlq={"queue": "morgue"})
    key = bury(bench, "a")
    assert consumed(bench, "morgue") == [key]
    change = bench.make("set_policy", queue="b", policy={"dlq": {"queue": "morgue"}})
    question = bench.make("count_dlq", queue="morgue")
    with bench.full_disk():
        bench.run(change, question)  # the question alone is answered, in a second group
    assert change.code == "ERR_STORAGE_FULL"
    assert question.data["queues"] == ["a"]
    assert bench.do("count_dlq", queue="morgue")["queues"] == ["a"]


def test_a_consumer_waiting_at_the_address_is_woken_by_a_death(bench: Bench) -> None:
    key = bench.publish()
    waiting = bench.make("consume_next", queue="q.dlq", waitMs=60_000)
    bench.run(waiting)
    assert not waiting.answers
    fail(bench, key, reason="bad", requeue=False)
    assert waiting.data["message"]["messageKey"] == key


def test_a_waiting_consumer_is_woken_by_a_dead_letter_that_is_released(bench: Bench) -> None:
    key = bury(bench)
    delivery = bench.do("consume_next", queue="q.dlq")
    waiting = bench.make("consume_next", queue="q.dlq", waitMs=60_000)
    bench.run(waiting)
    settle(bench, delivery, "release")
    assert waiting.data["message"]["messageKey"] == key


# --- looking ------------------------------------------------------------------------------------------------------


def test_complete_bodies_are_shown_with_failure_and_routing(bench: Bench) -> None:
    key = bury(bench, message={"n": 1}, attributes={"a": "b"})
    (plain,) = bench.do("list_dlq", queue="q")["messages"]
    assert "originalMessage" not in plain
    (letter,) = bench.do("list_dlq", queue="q", fullBodies=True)["messages"]
    assert letter["originalMessage"]["payload"] == {"n": 1}
    assert letter["originalMessage"]["attributes"] == {"a": "b"}
    assert letter["failure"]["reasonCode"] == "REJECTED"
    assert letter["routing"] == {"sourceQueue": "q", "dlqQueue": "q.dlq"}
    assert letter["messageKey"] == key


def test_dead_letters_are_counted_by_reason(bench: Bench) -> None:
    policy(bench, retry={"limit": 1})
    bury(bench)
    fail(bench, bench.publish(), requeue=True)
    bench.clocks.pass_ms(500)
    reported = bench.do("count_dlq", queue="q")
    assert reported["byReason"] == {"REJECTED": 1, "RETRY_LIMIT": 1}
    assert (reported["count"], reported["diedTotal"], reported["oldestAgeMs"]) == (2, 2, 510)
    assert bench.do("count_dlq", queue="none")["count"] == 0


def test_the_status_of_an_address_is_that_of_its_dead_letters(bench: Bench) -> None:
    for queue in ("a", "b"):
        policy(bench, queue, dlq={"queue": "morgue"})
        bury(bench, queue)
    for name, queues in (("morgue", ["a", "b"]), ("c.dlq", ["c"])):
        if name == "c.dlq":
            bury(bench, "c")
        reported = bench.do("status", queue=name)
        counted = bench.do("count_dlq", queue=name)
        assert reported["exists"] is False
        assert reported["metrics"]["dlq"] == len(queues) == sum(reported["metrics"].values())
        assert reported["reasons"] == {"REJECTED": len(queues)}
        assert {"queue": name, **reported["deadLetters"], "asOfEvent": reported["asOfEvent"]} == counted
        assert counted["queues"] == queues
    for name in ("a", "a.dlq", "none"):  # a queue, a name that its policy replaces, nothing
        assert "deadLetters" not in bench.do("status", queue=name)


def test_the_count_shows_whether_it_grows_even_after_a_restart(bench: Bench) -> None:
    for hours in (30, 23, 3, 0):
        bury(bench)
        bench.clocks.pass_ms(hours * 3_600_000)
    bench.do("drop_dlq", queue="q")
    last_wall = bench.clocks.wall_ms
    bury(bench)
    bench.clocks.pass_ms(590)
    for _ in range(2):
        reported = bench.do("count_dlq", queue="q.dlq")
        assert (reported["diedLastHour"], reported["diedLastDay"], reported["diedTotal"]) == (2, 3, 5)
        assert (reported["newestAgeMs"], reported["newestAt"]) == (600, last_wall)
        bench.reopen()
    reported = bench.do("count_dlq", queue="none")
    assert (reported["diedLastHour"], reported["newestAgeMs"], reported["newestAt"]) == (0, None, None)


@given(st.lists(st.integers(0, 40 * 60), min_size=1, max_size=60), st.integers(0, 30 * 60))
def test_deaths_of_the_last_hour_and_day_are_counted_to_a_slot(minutes: list[int], later: int) -> None:
    deaths = NO_DEATHS
    for minute in sorted(minutes):
        deaths = deaths.with_one(minute * 60_000, 1)
    now = max(minutes) + later
    within = {span: sum(now - minute < span for minute in minutes) for span in (60, 65, 24 * 60, 25 * 60)}
    assert within[60] <= deaths.in_last_hour(now * 60_000) <= within[65]
    assert within[24 * 60] <= deaths.in_last_day(now * 60_000) <= within[25 * 60]
    assert len(deaths.slots) <= 14 + 26
    assert Deaths.from_json(json.loads(json.dumps(deaths.to_json()))) == deaths


# --- what went wrong elsewhere ------------------------------------------------------------------------------------


def test_a_death_is_all_or_nothing_and_folding_it_twice_gives_the_same(bench: Bench) -> None:
    policy(bench, dlq={"maxMessages": 2})
    for _ in range(4):
        bury(bench)
    bench.do("quarantine_dlq", messageKey=dead(bench)[0])
    bench.do("consume_next", queue="q.dlq")
    before = exported(bench)
    bench.reopen()
    assert exported(bench) == before


def test_dead_letters_cannot_be_routed_in_a_circle(bench: Bench) -> None:
    policy(bench, "a", dlq={"queue": "b"})
    assert bench.send("publish", queue="b", message="x").code == "ERR_INVALID_REQUEST"
    assert bench.send("set_policy", queue="b", policy={"dlq": {"queue": "a"}}).code == "ERR_INVALID_REQUEST"
    key = bury(bench, "a")
    delivery = bench.do("consume_next", queue="b")
    settle(bench, delivery, "nack", requeue=False)
    assert dead(bench, "a") == [key]
    assert bench.do("count_dlq", queue="a")["diedTotal"] == 1


def test_an_ack_by_a_consumer_stopped_past_its_lease_changes_nothing(bench: Bench) -> None:
    bury(bench)
    stale = bench.do("consume_next", queue="q.dlq")
    bench.clocks.pass_ms(60_000)
    bench.run()
    fresh = bench.do("consume_next", queue="q.dlq")
    lease = stale["lease"]
    assert bench.send("ack", messageKey=lease["messageKey"], leaseId=lease["leaseId"]).code == "ERR_LEASE_MISMATCH"
    settle(bench, fresh)
