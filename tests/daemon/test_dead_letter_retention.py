"""Dead letters: how long they are retained, and how many."""

from __future__ import annotations

import pytest

from tests.conformance.bench import Bench
from tests.daemon.dead_letters import DAY_MS, bench, bury, dead, fail, policy, run_periodic_tasks

__all__ = ["bench"]


def test_dead_letters_are_retained_for_the_days_of_the_policy(bench: Bench) -> None:
    policy(bench, dlq={"retentionDays": 2})
    old, apart = bury(bench), bury(bench)
    bench.do("quarantine_dlq", messageKey=apart)
    bench.clocks.pass_ms(DAY_MS)
    new = bury(bench)
    run_periodic_tasks(bench)
    assert dead(bench) == [old, apart, new]
    bench.clocks.pass_ms(DAY_MS)
    run_periodic_tasks(bench)
    assert dead(bench) == [apart, new]
    dropped = [event for event in bench.events() if event["type"] == "dropped"]
    assert [event["key"] for event in dropped] == [old]
    assert "older" in dropped[0]["failure"]["reasonMessage"]


def test_quarantined_dead_letters_do_not_retain_those_after_them(bench: Bench) -> None:
    policy(bench, dlq={"retentionDays": 2})
    apart = [bury(bench) for _ in range(101)]
    for key in apart:
        bench.do("quarantine_dlq", messageKey=key)
    bury(bench)
    bench.clocks.pass_ms(2 * DAY_MS)
    run_periodic_tasks(bench)
    assert bench.do("count_dlq", queue="q")["count"] == len(apart)


def bury_many(bench: Bench, count: int) -> list[str]:
    bench.do("publish_batch", queue="q", messages=[{"message": "x"}] * count)
    leases = [one["lease"] for one in bench.do("consume_next", queue="q", max=count)["messages"]]
    items = [{"messageKey": one["messageKey"], "leaseId": one["leaseId"]} for one in leases]
    bench.do("nack_batch", items=items)
    return [item["messageKey"] for item in items]


@pytest.mark.parametrize("bench", ["sqlite", "filesystem"], indirect=True)
def test_dead_letters_after_very_many_quarantined_ones_are_reached(bench: Bench) -> None:
    policy(bench, dlq={"retentionDays": 2})
    apart = [key for _ in range(3) for key in bury_many(bench, 800)]
    bench.run(*(bench.make("quarantine_dlq", messageKey=key) for key in apart))
    bench.clocks.pass_ms(10)
    bury(bench)
    bench.clocks.pass_ms(2 * DAY_MS)
    for left in (2401, 2400):
        run_periodic_tasks(bench, 1)
        assert bench.do("count_dlq", queue="q")["count"] == left
    bench.do("quarantine_dlq", messageKey=apart[0], quarantined=False)
    run_periodic_tasks(bench, 1)
    assert bench.do("count_dlq", queue="q")["count"] == 2400, "all are read again every second"
    bench.clocks.pass_ms(60_000)
    run_periodic_tasks(bench, 1)
    assert bench.do("count_dlq", queue="q")["count"] == 2399


def test_a_stricter_policy_removes_the_oldest(bench: Bench) -> None:
    keys = bury_many(bench, 250)
    policy(bench, dlq={"maxMessages": 10})
    run_periodic_tasks(bench, 4)
    assert dead(bench) == keys[-10:]


def test_the_newest_dead_letter_is_retained_however_many_are_quarantined(bench: Bench) -> None:
    policy(bench, dlq={"maxMessages": 2, "retentionDays": 2})
    apart = [bury(bench) for _ in range(2)]
    for key in apart:
        bench.do("quarantine_dlq", messageKey=key)
    for _ in range(2):
        newest = bury(bench)
        run_periodic_tasks(bench)
        assert dead(bench) == [*apart, newest]
    bench.clocks.pass_ms(2 * DAY_MS)
    run_periodic_tasks(bench)
    assert dead(bench) == apart


def test_the_oldest_dead_letters_are_evicted_by_one_too_many(bench: Bench) -> None:
    policy(bench, dlq={"maxMessages": 2})
    keys = [bury(bench) for _ in range(4)]
    assert dead(bench) == keys[2:]
    bench.do("quarantine_dlq", messageKey=keys[2])
    bench.do("consume_next", queue="q.dlq")
    last = bury(bench)
    assert dead(bench) == [*keys[2:], last]


def test_the_number_is_exact_for_messages_that_die_in_one_request(bench: Bench) -> None:
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
    bench.clocks.pass_ms(60_000)
    bench.run()
    assert len(dead(bench)) == 3


def test_a_message_that_fails_repeatedly_with_the_same_error_is_poison(bench: Bench) -> None:
    policy(bench, retry={"sameReasonLimit": 3, "limit": 9, "backoff": "fixed", "initialDelaySec": 1})
    key = bench.publish()
    for reason, state in (("a", "delayed"), ("b", "delayed"), ("b", "delayed"), ("b", "dead")):
        assert fail(bench, key, reason=reason, requeue=True)["state"] == state
        bench.clocks.pass_ms(1000)
    (letter,) = bench.do("list_dlq", queue="q")["messages"]
    assert letter["reasonCode"] == "POISON" and letter["quarantined"]


def test_without_a_dead_letter_queue_dead_messages_are_dropped_and_counted(bench: Bench) -> None:
    policy(bench, dlq={"enabled": False})
    fail(bench, bench.publish(), requeue=False)
    assert dead(bench) == []
    assert bench.do("status", queue="q")["totals"]["dropped"] == 1
