"""Dead letters that are reprocessed, dropped, or quarantined."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.bench import Bench
from tests.daemon.dead_letters import bench, bury, dead, fail, policy

__all__ = ["bench"]


def test_a_reprocessed_dead_letter_has_all_its_attempts_and_its_history(bench: Bench) -> None:
    policy(bench, retry={"limit": 2, "backoff": "fixed", "initialDelaySec": 1})
    key = bench.publish(ttlMs=60_000)
    fail(bench, key, requeue=True)
    bench.clocks.pass_ms(1000)
    fail(bench, key, requeue=True)
    bench.clocks.pass_ms(100_000)
    bench.do("reprocess_dlq", messageKey=key)
    assert fail(bench, key, requeue=True)["state"] == "delayed"
    entry = bench.store.get(key)
    assert entry and entry.failures == 3 and entry.attempt == 1
    assert entry.expires == 0


def test_a_reprocessed_dead_letter_has_the_time_to_live_of_new_messages(bench: Bench) -> None:
    policy(bench, ttlSec=60)
    key = bury(bench)
    for _ in range(2):
        bench.clocks.pass_ms(100_000)
        bench.do("reprocess_dlq", messageKey=key)
        entry = bench.store.get(key)
        assert entry and entry.expires == bench.live.clock.now().engine + 60_000
        bench.clocks.pass_ms(60_000)
        assert bench.do("count_dlq", queue="q")["byReason"] == {"MESSAGE_EXPIRED": 1}


def test_dead_letters_are_reprocessed_by_filter_in_pages_and_a_dry_run_changes_nothing(bench: Bench) -> None:
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


def test_paging_ends_even_if_reprocessed_dead_letters_die_again(bench: Bench) -> None:
    keys = [bury(bench) for _ in range(4)]
    page, count = bench.do("reprocess_dlq", queue="q", limit=1), 1
    while page["next"]:
        bench.clocks.pass_ms(10)
        fail(bench, keys[count - 1], reason="still bad", requeue=False)
        page = bench.do("reprocess_dlq", queue="q", limit=1, after=page["next"])
        count += page["reprocessed"]
    assert count == 4
    assert dead(bench) == keys[:3]


def test_ages_are_measured_at_the_first_page(bench: Bench) -> None:
    old = [bury(bench) for _ in range(3)]
    bench.clocks.pass_ms(60_000)
    young = bury(bench)
    wanted = {"olderThanMs": 60_000}
    page = bench.do("drop_dlq", queue="q", filter=wanted, limit=1)
    bench.clocks.pass_ms(60_000)
    assert bench.do("drop_dlq", queue="q", filter=wanted, after=page["next"])["dropped"] == len(old) - 1
    assert dead(bench) == [young]


@pytest.mark.parametrize("after", ["x", "1", "1.", "1.2.", "1.2.3.4", "1.-2", "1.2.²", "1" * 63 + ".1"])
def test_an_invalid_cursor_is_refused(bench: Bench, after: str) -> None:
    for command in ("list_dlq", "reprocess_dlq", "drop_dlq"):
        assert bench.send(command, queue="q", after=after).code == "ERR_INVALID_REQUEST"


@pytest.mark.parametrize("command", ["reprocess_dlq", "drop_dlq"])
def test_an_unknown_name_is_reported(bench: Bench, command: str) -> None:
    policy(bench, "named", dlq={"queue": "shared"})
    policy(bench, "own")
    for name in ("nobody", "nobody.dlq", "named.dlq"):
        assert bench.send(command, queue=name).code == "ERR_QUEUE_NOT_FOUND"
    for name in ("named", "shared", "own", "own.dlq"):
        assert bench.do(command, queue=name)["next"] == ""


def test_dead_letters_move_to_another_queue_even_if_it_is_full_or_paused(bench: Bench) -> None:
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


def test_dead_letters_are_dropped_by_key_and_by_filter(bench: Bench) -> None:
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


def test_a_quarantined_dead_letter_is_reprocessed_by_its_own_key_only(bench: Bench) -> None:
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
    bench.clocks.pass_ms(60_000)
    bench.run()
    bench.do("quarantine_dlq", messageKey=key)
    bench.do("reprocess_dlq", messageKey=key)
    assert dead(bench) == []


@pytest.mark.parametrize("payload", [{}, {"messageKey": "k", "filter": {}}, {"queue": "q", "filter": {"x": 1}}])
@pytest.mark.parametrize("command", ["reprocess_dlq", "drop_dlq"])
def test_a_request_that_does_not_select_dead_letters_is_refused(
    bench: Bench, command: str, payload: dict[str, Any]
) -> None:
    bury(bench)
    assert bench.send(command, **payload).code == "ERR_INVALID_REQUEST"
