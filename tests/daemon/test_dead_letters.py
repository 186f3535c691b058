"""Dead letters: addressed by name, leased, counted, brought back, removed, set apart, and kept for a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom_daemon.attempt import Attempt
from postroom_daemon.deaths import NO_DEATHS, Deaths
from tests.conformance.bench import Bench, exported

DAY_MS = 24 * 3600 * 1000


@pytest.fixture(params=["sqlite", "memory", "filesystem", "hybrid"])
def bench(request: pytest.FixtureRequest, make_bench: Callable[..., Bench]) -> Bench:
    return make_bench(request.param).open()


def policy(bench: Bench, queue: str = "q", **groups: Any) -> None:
    bench.do("set_policy", queue=queue, policy=groups)


def fail(bench: Bench, key: str, queue: str = "q", **options: Any) -> dict[str, Any]:
    delivery = bench.do("consume_next", queue=queue)
    assert delivery["message"]["messageKey"] == key
    return bench.do("nack", messageKey=key, leaseId=delivery["lease"]["leaseId"], **options)


def bury(bench: Bench, queue: str = "q", reason: str = "bad", **options: Any) -> str:
    """A new dead letter."""
    key = bench.publish(queue, **options)
    fail(bench, key, queue, reason=reason, requeue=False)
    bench.hands.pass_ms(10)
    return key


def dead(bench: Bench, queue: str = "q", **options: Any) -> list[str]:
    return [one["messageKey"] for one in bench.do("list_dlq", queue=queue, **options)["messages"]]


def chores(bench: Bench, seconds: int = 2) -> None:
    for _ in range(seconds):
        bench.hands.pass_ms(1001)
        bench.run()


def settle(bench: Bench, delivery: dict[str, Any], command: str = "ack", **options: Any) -> None:
    lease = delivery["lease"]
    bench.do(command, messageKey=lease["messageKey"], leaseId=lease["leaseId"], **options)


# --- the name as an address ---------------------------------------------------------------------------------------


def test_dead_letters_are_leased_by_their_name_and_stay_dead(bench: Bench) -> None:
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
    bench.hands.pass_ms(60_000)
    assert bench.do("consume_next", queue="q.dlq")["message"]["messageKey"] == second


def test_who_consumes_a_dead_letter_is_told_what_it_died_of(bench: Bench) -> None:
    bury(bench, reason="bad")
    letter = bench.do("consume_next", queue="q.dlq")
    told = letter["message"]["failure"]
    assert (told["reasonCode"], told["reasonMessage"], told["attempt"]) == ("REJECTED", "bad", 1)
    settle(bench, letter, "release")
    bench.reopen()
    assert bench.do("consume_next", queue="q.dlq")["message"]["failure"] == told
    bench.do("publish", queue="q", message="alive")
    assert "failure" not in bench.do("consume_next", queue="q")["message"]


def test_several_queues_share_a_name_and_their_letters_come_by_time_of_death(bench: Bench) -> None:
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


def test_what_a_shared_name_addresses_follows_each_queue_and_policy(bench: Bench) -> None:
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


def test_what_a_group_found_that_was_taken_back_is_found_anew(bench: Bench) -> None:
    policy(bench, "a", dlq={"queue": "morgue"})
    key = bury(bench, "a")
    assert consumed(bench, "morgue") == [key]
    parts = bench.live.broker._parts
    attempt = Attempt(parts, bench.live.clock.now())
    bench.store.begin()
    wanted = {"queue": "b", "policy": {"dlq": {"queue": "morgue"}}}
    for command, payload in (("set_policy", wanted), ("count_dlq", {"queue": "morgue"})):
        attempt.take(bench.make(command, **payload).call)
    (_, told) = attempt.answers[-1]
    assert told.data and told.data["queues"] == ["a", "b"]
    bench.store.rollback()
    attempt.take_back()
    assert bench.do("count_dlq", queue="morgue")["queues"] == ["a"]


def test_who_waits_by_the_name_is_woken_by_a_death(bench: Bench) -> None:
    key = bench.publish()
    waiting = bench.make("consume_next", queue="q.dlq", waitMs=60_000)
    bench.run(waiting)
    assert not waiting.answers
    fail(bench, key, reason="bad", requeue=False)
    assert waiting.data["message"]["messageKey"] == key


def test_who_waits_is_woken_by_a_letter_that_is_put_back(bench: Bench) -> None:
    key = bury(bench)
    delivery = bench.do("consume_next", queue="q.dlq")
    waiting = bench.make("consume_next", queue="q.dlq", waitMs=60_000)
    bench.run(waiting)
    settle(bench, delivery, "release")
    assert waiting.data["message"]["messageKey"] == key


# --- looking ------------------------------------------------------------------------------------------------------


def test_whole_bodies_are_shown_with_failure_and_routing(bench: Bench) -> None:
    key = bury(bench, message={"n": 1}, attributes={"a": "b"})
    (plain,) = bench.do("list_dlq", queue="q")["messages"]
    assert "originalMessage" not in plain
    (letter,) = bench.do("list_dlq", queue="q", fullBodies=True)["messages"]
    assert letter["originalMessage"]["payload"] == {"n": 1}
    assert letter["originalMessage"]["attributes"] == {"a": "b"}
    assert letter["failure"]["reasonCode"] == "REJECTED"
    assert letter["routing"] == {"sourceQueue": "q", "dlqQueue": "q.dlq"}
    assert letter["messageKey"] == key


def test_letters_are_counted_by_reason(bench: Bench) -> None:
    policy(bench, retry={"limit": 1})
    bury(bench)
    fail(bench, bench.publish(), requeue=True)
    bench.hands.pass_ms(500)
    told = bench.do("count_dlq", queue="q")
    assert told["byReason"] == {"REJECTED": 1, "RETRY_LIMIT": 1}
    assert (told["count"], told["diedTotal"], told["oldestAgeMs"]) == (2, 2, 510)
    assert bench.do("count_dlq", queue="none")["count"] == 0


def test_the_status_of_a_name_is_that_of_the_letters_that_it_addresses(bench: Bench) -> None:
    for queue in ("a", "b"):
        policy(bench, queue, dlq={"queue": "morgue"})
        bury(bench, queue)
    for name, queues in (("morgue", ["a", "b"]), ("c.dlq", ["c"])):
        if name == "c.dlq":
            bury(bench, "c")
        told = bench.do("status", queue=name)
        counted = bench.do("count_dlq", queue=name)
        assert told["exists"] is False
        assert told["metrics"]["dlq"] == len(queues) == sum(told["metrics"].values())
        assert told["reasons"] == {"REJECTED": len(queues)}
        assert {"queue": name, **told["deadLetters"], "asOfEvent": told["asOfEvent"]} == counted
        assert counted["queues"] == queues
    for name in ("a", "a.dlq", "none"):  # a queue, a name that its policy replaces, nothing
        assert "deadLetters" not in bench.do("status", queue=name)


def test_the_count_tells_whether_it_grows_also_after_a_restart(bench: Bench) -> None:
    for hours in (30, 23, 3, 0):
        bury(bench)
        bench.hands.pass_ms(hours * 3_600_000)
    bench.do("drop_dlq", queue="q")
    last_wall = bench.hands.wall_ms
    bury(bench)
    bench.hands.pass_ms(590)
    for _ in range(2):
        told = bench.do("count_dlq", queue="q.dlq")
        assert (told["diedLastHour"], told["diedLastDay"], told["diedTotal"]) == (2, 3, 5)
        assert (told["newestAgeMs"], told["newestAt"]) == (600, last_wall)
        bench.reopen()
    told = bench.do("count_dlq", queue="none")
    assert (told["diedLastHour"], told["newestAgeMs"], told["newestAt"]) == (0, None, None)


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


# --- bringing back, removing, setting apart -----------------------------------------------------------------------


def test_a_letter_brought_back_has_all_its_attempts_and_its_history(bench: Bench) -> None:
    policy(bench, retry={"limit": 2, "backoff": "fixed", "initialDelaySec": 1})
    key = bench.publish(ttlMs=60_000)
    fail(bench, key, requeue=True)
    bench.hands.pass_ms(1000)
    fail(bench, key, requeue=True)
    bench.hands.pass_ms(100_000)
    bench.do("reprocess_dlq", messageKey=key)
    assert fail(bench, key, requeue=True)["state"] == "delayed"
    entry = bench.store.get(key)
    assert entry and entry.failures == 3 and entry.attempt == 1
    assert entry.expires == 0


def test_a_letter_brought_back_has_the_time_that_its_queue_gives_to_new_messages(bench: Bench) -> None:
    policy(bench, ttlSec=60)
    key = bury(bench)
    for _ in range(2):
        bench.hands.pass_ms(100_000)
        bench.do("reprocess_dlq", messageKey=key)
        entry = bench.store.get(key)
        assert entry and entry.expires == bench.live.clock.now().engine + 60_000
        bench.hands.pass_ms(60_000)
        assert bench.do("count_dlq", queue="q")["byReason"] == {"MESSAGE_EXPIRED": 1}


def test_letters_are_brought_back_by_filter_in_pages_and_a_dry_run_changes_nothing(bench: Bench) -> None:
    keys = [bury(bench, reason="disk" if number % 2 else "pump") for number in range(6)]
    wanted = {"reasonText": "pump"}
    dry = bench.do("reprocess_dlq", queue="q", filter=wanted, dryRun=True)
    assert dry == {"reprocessed": 3, "next": "", "dryRun": True}
    assert dead(bench) == keys
    page = bench.send("reprocess_dlq", queue="q.dlq", filter=wanted, limit=2)
    assert page.data["reprocessed"] == 2 and page.data["next"]
    repeat = bench.again(page)
    bench.reopen()
    bench.run(repeat)
    assert repeat.data == page.data
    last = bench.do("reprocess_dlq", queue="q", filter=wanted, limit=2, after=page.data["next"])
    assert last == {"reprocessed": 1, "next": ""}
    assert dead(bench) == keys[1::2]


def test_going_on_by_pages_ends_although_letters_that_are_brought_back_die_again(bench: Bench) -> None:
    keys = [bury(bench) for _ in range(4)]
    page, count = bench.do("reprocess_dlq", queue="q", limit=1), 1
    while page["next"]:
        bench.hands.pass_ms(10)
        fail(bench, keys[count - 1], reason="still bad", requeue=False)
        page = bench.do("reprocess_dlq", queue="q", limit=1, after=page["next"])
        count += page["reprocessed"]
    assert count == 4
    assert dead(bench) == keys[:3]


def test_ages_are_those_of_the_first_page(bench: Bench) -> None:
    old = [bury(bench) for _ in range(3)]
    bench.hands.pass_ms(60_000)
    young = bury(bench)
    wanted = {"olderThanMs": 60_000}
    page = bench.do("drop_dlq", queue="q", filter=wanted, limit=1)
    bench.hands.pass_ms(60_000)
    assert bench.do("drop_dlq", queue="q", filter=wanted, after=page["next"])["dropped"] == len(old) - 1
    assert dead(bench) == [young]


@pytest.mark.parametrize("after", ["x", "1", "1.", "1.2.", "1.2.3.4", "1.-2", "1.2.²", "1" * 63 + ".1"])
def test_a_cursor_that_is_none_is_refused(bench: Bench, after: str) -> None:
    for command in ("list_dlq", "reprocess_dlq", "drop_dlq"):
        assert bench.send(command, queue="q", after=after).code == "ERR_INVALID_REQUEST"


@pytest.mark.parametrize("command", ["reprocess_dlq", "drop_dlq"])
def test_a_name_that_nothing_has_is_told(bench: Bench, command: str) -> None:
    policy(bench, "named", dlq={"queue": "shared"})
    policy(bench, "own")
    for name in ("nobody", "nobody.dlq", "named.dlq"):
        assert bench.send(command, queue=name).code == "ERR_QUEUE_NOT_FOUND"
    for name in ("named", "shared", "own", "own.dlq"):
        assert bench.do(command, queue=name)["next"] == ""


def test_letters_go_to_another_queue_whatever_it_is_told_to_take(bench: Bench) -> None:
    key = bury(bench)
    policy(bench, "other", limits={"messages": 1})
    bench.publish("other")
    bench.do("pause", queue="other", operation="publish")
    bench.do("reprocess_dlq", queue="q", to="other")
    entry = bench.store.get(key)
    assert entry and entry.queue == "other" and entry.state == "ready"
    other = bury(bench)
    bench.do("reprocess_dlq", messageKey=other, to="new")
    assert bench.do("consume_next", queue="new")["message"]["messageKey"] == other
    assert bench.send("reprocess_dlq", queue="q", to="x.dlq").code == "ERR_INVALID_REQUEST"


def test_letters_are_dropped_by_key_and_by_filter(bench: Bench) -> None:
    keys = [bury(bench, reason=reason) for reason in ("a", "b", "b")]
    assert bench.do("drop_dlq", queue="q", filter={"reasonText": "b"}, dryRun=True)["dropped"] == 2
    assert bench.do("drop_dlq", queue="q", filter={"reasonText": "b"})["dropped"] == 2
    assert dead(bench) == keys[:1]
    sent = bench.send("drop_dlq", messageKey=keys[0])
    assert sent.data == {"dropped": 1, "next": ""}
    repeat = bench.again(sent)
    bench.reopen()
    bench.run(repeat)
    assert repeat.data == sent.data
    assert bench.do("status", queue="q")["totals"]["dropped"] == 3
    assert bench.send("drop_dlq", messageKey=keys[0]).code == "ERR_DLQ_NOT_FOUND"


def test_a_letter_that_is_set_apart_comes_back_by_its_own_key_only(bench: Bench) -> None:
    key = bury(bench)
    sent = bench.send("quarantine_dlq", messageKey=key, reason="look at it")
    repeat = bench.again(sent)
    bench.reopen()
    bench.run(repeat)
    assert repeat.data == sent.data == {"messageKey": key, "quarantined": True}
    assert bench.do("list_dlq", queue="q")["messages"][0]["quarantined"] is True
    assert bench.do("consume_next", queue="q.dlq")["message"] is None
    assert bench.do("reprocess_dlq", queue="q")["reprocessed"] == 0
    assert bench.do("drop_dlq", queue="q")["dropped"] == 0
    bench.do("quarantine_dlq", messageKey=key, quarantined=False)
    assert bench.do("consume_next", queue="q.dlq")["message"]["messageKey"] == key
    bench.hands.pass_ms(60_000)
    bench.run()
    bench.do("quarantine_dlq", messageKey=key)
    bench.do("reprocess_dlq", messageKey=key)
    assert dead(bench) == []


@pytest.mark.parametrize("payload", [{}, {"messageKey": "k", "filter": {}}, {"queue": "q", "filter": {"x": 1}}])
@pytest.mark.parametrize("command", ["reprocess_dlq", "drop_dlq"])
def test_a_request_that_does_not_say_which_letters_is_refused(
    bench: Bench, command: str, payload: dict[str, Any]
) -> None:
    bury(bench)
    assert bench.send(command, **payload).code == "ERR_INVALID_REQUEST"


# --- what is kept -------------------------------------------------------------------------------------------------


def test_letters_are_kept_for_as_many_days_as_the_policy_says(bench: Bench) -> None:
    policy(bench, dlq={"retentionDays": 2})
    old, apart = bury(bench), bury(bench)
    bench.do("quarantine_dlq", messageKey=apart)
    bench.hands.pass_ms(DAY_MS)
    new = bury(bench)
    chores(bench)
    assert dead(bench) == [old, apart, new]
    bench.hands.pass_ms(DAY_MS)
    chores(bench)
    assert dead(bench) == [apart, new]
    dropped = [event for event in bench.events() if event["type"] == "dropped"]
    assert [event["key"] for event in dropped] == [old]
    assert "older" in dropped[0]["failure"]["reasonMessage"]


def test_letters_that_are_set_apart_do_not_keep_those_behind_them(bench: Bench) -> None:
    policy(bench, dlq={"retentionDays": 2})
    apart = [bury(bench) for _ in range(101)]
    for key in apart:
        bench.do("quarantine_dlq", messageKey=key)
    bury(bench)
    bench.hands.pass_ms(2 * DAY_MS)
    chores(bench)
    assert bench.do("count_dlq", queue="q")["count"] == len(apart)


def bury_many(bench: Bench, count: int) -> list[str]:
    bench.do("publish_batch", queue="q", messages=[{"message": "x"}] * count)
    leases = [one["lease"] for one in bench.do("consume_next", queue="q", max=count)["messages"]]
    items = [{"messageKey": one["messageKey"], "leaseId": one["leaseId"]} for one in leases]
    bench.do("nack_batch", items=items)
    return [item["messageKey"] for item in items]


@pytest.mark.parametrize("bench", ["sqlite", "filesystem"], indirect=True)
def test_letters_behind_very_many_that_are_set_apart_are_reached(bench: Bench) -> None:
    policy(bench, dlq={"retentionDays": 2})
    apart = [key for _ in range(3) for key in bury_many(bench, 800)]
    bench.run(*(bench.make("quarantine_dlq", messageKey=key) for key in apart))
    bench.hands.pass_ms(10)
    bury(bench)
    bench.hands.pass_ms(2 * DAY_MS)
    for left in (2401, 2400):
        chores(bench, 1)
        assert bench.do("count_dlq", queue="q")["count"] == left
    bench.do("quarantine_dlq", messageKey=apart[0], quarantined=False)
    chores(bench, 1)
    assert bench.do("count_dlq", queue="q")["count"] == 2400, "all are read again every second"
    bench.hands.pass_ms(60_000)
    chores(bench, 1)
    assert bench.do("count_dlq", queue="q")["count"] == 2399


def test_a_policy_that_is_made_stricter_lets_the_oldest_go(bench: Bench) -> None:
    keys = bury_many(bench, 250)
    policy(bench, dlq={"maxMessages": 10})
    chores(bench, 4)
    assert dead(bench) == keys[-10:]


def test_the_newest_letter_is_kept_however_many_are_set_apart(bench: Bench) -> None:
    policy(bench, dlq={"maxMessages": 2, "retentionDays": 2})
    apart = [bury(bench) for _ in range(2)]
    for key in apart:
        bench.do("quarantine_dlq", messageKey=key)
    for _ in range(2):
        newest = bury(bench)
        chores(bench)
        assert dead(bench) == [*apart, newest]
    bench.hands.pass_ms(2 * DAY_MS)
    chores(bench)
    assert dead(bench) == apart


def test_the_oldest_letters_give_way_to_one_too_many(bench: Bench) -> None:
    policy(bench, dlq={"maxMessages": 2})
    keys = [bury(bench) for _ in range(4)]
    assert dead(bench) == keys[2:]
    bench.do("quarantine_dlq", messageKey=keys[2])
    bench.do("consume_next", queue="q.dlq")
    last = bury(bench)
    assert dead(bench) == [*keys[2:], last]


def test_the_number_is_exact_for_letters_that_die_in_one_request(bench: Bench) -> None:
    policy(bench, dlq={"maxMessages": 2}, retry={"limit": 1})
    before = bury(bench)
    keys = [bench.publish() for _ in range(5)]
    deliveries = bench.do("consume_next", queue="q", max=5)["messages"]
    items = [{"messageKey": one["lease"]["messageKey"], "leaseId": one["lease"]["leaseId"]} for one in deliveries]
    results = bench.do("nack_batch", items=items)["results"]
    assert [one["state"] for one in results] == ["dead"] * 5
    assert len(dead(bench)) == 2
    assert before not in dead(bench) and set(dead(bench)) == set(keys[3:])


def test_the_number_is_exact_for_leases_that_end_together(bench: Bench) -> None:
    policy(bench, dlq={"maxMessages": 3}, retry={"limit": 1})
    for _ in range(6):
        bench.publish()
    bench.do("consume_next", queue="q", max=6)
    bench.hands.pass_ms(60_000)
    bench.run()
    assert len(dead(bench)) == 3


def test_a_message_that_fails_alike_again_and_again_is_poison(bench: Bench) -> None:
    policy(bench, retry={"sameReasonLimit": 3, "limit": 9, "backoff": "fixed", "initialDelaySec": 1})
    key = bench.publish()
    for reason, state in (("a", "delayed"), ("b", "delayed"), ("b", "delayed"), ("b", "dead")):
        assert fail(bench, key, reason=reason, requeue=True)["state"] == state
        bench.hands.pass_ms(1000)
    (letter,) = bench.do("list_dlq", queue="q")["messages"]
    assert letter["reasonCode"] == "POISON" and letter["quarantined"]


def test_where_no_letters_are_kept_they_are_dropped_and_counted(bench: Bench) -> None:
    policy(bench, dlq={"enabled": False})
    fail(bench, bench.publish(), requeue=False)
    assert dead(bench) == []
    assert bench.do("status", queue="q")["totals"]["dropped"] == 1


# --- what went wrong elsewhere ------------------------------------------------------------------------------------


def test_a_death_is_whole_or_not_at_all_and_a_repeat_of_the_fold_comes_to_the_same(bench: Bench) -> None:
    policy(bench, dlq={"maxMessages": 2})
    for _ in range(4):
        bury(bench)
    bench.do("quarantine_dlq", messageKey=dead(bench)[0])
    bench.do("consume_next", queue="q.dlq")
    before = exported(bench)
    bench.reopen()
    assert exported(bench) == before


def test_dead_letters_cannot_go_round_in_a_circle(bench: Bench) -> None:
    policy(bench, "a", dlq={"queue": "b"})
    assert bench.send("publish", queue="b", message="x").code == "ERR_INVALID_REQUEST"
    assert bench.send("set_policy", queue="b", policy={"dlq": {"queue": "a"}}).code == "ERR_INVALID_REQUEST"
    key = bury(bench, "a")
    delivery = bench.do("consume_next", queue="b")
    settle(bench, delivery, "nack", requeue=False)
    assert dead(bench, "a") == [key]
    assert bench.do("count_dlq", queue="a")["diedTotal"] == 1


def test_who_was_stopped_past_the_lease_changes_nothing_by_an_ack(bench: Bench) -> None:
    bury(bench)
    stale = bench.do("consume_next", queue="q.dlq")
    bench.hands.pass_ms(60_000)
    bench.run()
    fresh = bench.do("consume_next", queue="q.dlq")
    lease = stale["lease"]
    assert bench.send("ack", messageKey=lease["messageKey"], leaseId=lease["leaseId"]).code == "ERR_LEASE_MISMATCH"
    settle(bench, fresh)
