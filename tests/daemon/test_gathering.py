"""Queues that gather: several publishes become the parts of one message, which is ready when the window ends."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from postroom_common import protocol
from postroom_common.events import EventType
from postroom_daemon.engine.verbs import gathering
from tests.conformance.bench import Bench, exported, seen_in
from tests.daemon.maintenance_runs import repaired, verified

MakeBench = Callable[..., Bench]
BACKENDS = ("sqlite", "memory", "filesystem", "hybrid")
WINDOW_MS = 5000


def gathers(bench: Bench, **policy: Any) -> Bench:
    bench.do("set_policy", queue="q", policy={"gatherWindowSec": WINDOW_MS / 1000, **policy})
    return bench


@pytest.fixture(params=BACKENDS)
def any_bench(request: pytest.FixtureRequest, make_bench: MakeBench) -> Bench:
    """An open root whose queue ``q`` gathers."""
    return gathers(make_bench(request.param).open())


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    return gathers(make_bench().open())


def published(bench: Bench, message: Any, **options: Any) -> Any:
    """``new`` or ``appended``; None for a message of its own."""
    return bench.do("publish", queue="q", message=message, **options).get("gathering")


def counts(bench: Bench) -> dict[str, int]:
    return {name: count for name, count in bench.do("status", queue="q")["metrics"].items() if count}


def delivered(bench: Bench, queue: str = "q", **options: Any) -> Any:
    return bench.do("consume_next", queue=queue, **options)["message"]


def bodies(message: Any) -> list[Any]:
    return [part["payload"] for part in message["parts"]]


# --- the window ---------------------------------------------------------------------------------------------------


def test_messages_within_the_window_of_the_first_become_parts_of_one_message(any_bench: Bench) -> None:
    first = any_bench.do("publish", queue="q", message="one", contentType="text/plain")
    any_bench.clocks.pass_ms(WINDOW_MS - 1)
    second = any_bench.do("publish", queue="q", message={"two": 2})
    third = any_bench.do("publish", queue="q", message="AAEC", encoding="base64")
    assert [one["gathering"] for one in (first, second, third)] == ["new", "appended", "appended"]
    assert len({one["messageKey"] for one in (first, second, third)}) == 1
    assert counts(any_bench) == {"gathering": 1} and delivered(any_bench) is None
    any_bench.clocks.pass_ms(1)
    assert counts(any_bench) == {"ready": 1}
    message = delivered(any_bench, payloadAs="value")
    assert message["gathered"] is True and message["messageKey"] == first["messageKey"]
    assert message["parts"] == [
        {"payload": "one", "contentType": "text/plain", "name": ""},
        {"payload": {"two": 2}, "name": ""},
        {"payload": "AAEC", "encoding": "base64", "contentType": "application/octet-stream", "name": ""},
    ]
    assert message["payload"] == "one"


def test_the_window_is_not_extended_and_the_next_message_begins_another(any_bench: Bench) -> None:
    for pause in (0, 3000, 1999, 1):
        any_bench.clocks.pass_ms(pause)
        published(any_bench, str(pause))
    assert counts(any_bench) == {"ready": 1, "gathering": 1}
    assert bodies(delivered(any_bench)) == ["0", "3000", "1999"]


def test_a_single_message_is_gathered_too(any_bench: Bench) -> None:
    published(any_bench, "alone")
    any_bench.clocks.pass_ms(WINDOW_MS)
    message = delivered(any_bench)
    assert message["gathered"] is True and bodies(message) == ["alone"]


def test_each_part_has_what_its_publisher_sent_with_it(any_bench: Bench) -> None:
    published(any_bench, "a", attributes={"n": 1}, type="t1", traceId="x", version=3)
    published(any_bench, "b", attributes={"n": 2}, correlationId="c")
    any_bench.clocks.pass_ms(WINDOW_MS)
    message = delivered(any_bench, payloadAs="value")
    assert message["parts"] == [
        {"payload": "a", "name": "", "type": "t1", "version": 3, "traceId": "x", "attributes": {"n": 1}},
        {"payload": "b", "name": "", "correlationId": "c", "attributes": {"n": 2}},
    ]
    assert message["attributes"] == {} and "traceId" not in message


def test_priority_and_time_to_live_are_those_of_the_first_publish(any_bench: Bench) -> None:
    published(any_bench, "a", priority=3, ttlMs=WINDOW_MS + 1000)
    published(any_bench, "b", priority=9, ttlMs=1)
    any_bench.clocks.pass_ms(WINDOW_MS)
    message = delivered(any_bench)
    assert message["priority"] == 3 and bodies(message) == ["a", "b"]


def test_a_message_that_expires_within_the_window_takes_no_more_parts(any_bench: Bench) -> None:
    published(any_bench, "a", ttlMs=1000)
    any_bench.clocks.pass_ms(1000)
    assert published(any_bench, "b") == "new"
    assert counts(any_bench) == {"gathering": 1, "dlq": 1}
    letter = any_bench.do("list_dlq", queue="q")["messages"][0]
    assert letter["reasonCode"] == "MESSAGE_EXPIRED" and letter["preview"] == "a"


@pytest.mark.parametrize(
    "option",
    [{"delayMs": 10}, {"deliverAt": 1}, {"orderingKey": "k"}, {"targetConsumerId": "c"}],
    ids=lambda option: next(iter(option)),
)
def test_a_publish_that_says_how_it_is_delivered_is_a_message_of_its_own(bench: Bench, option: dict[str, Any]) -> None:
    assert published(bench, "a") == "new"
    assert published(bench, "own", **option) is None
    assert published(bench, "b") == "appended"


def test_a_message_that_was_returned_is_whole_and_never_appended_to(any_bench: Bench) -> None:
    for body in "ab":
        published(any_bench, body)
    any_bench.clocks.pass_ms(WINDOW_MS)
    leased = any_bench.do("consume_next", queue="q")
    any_bench.do("nack", messageKey=leased["message"]["messageKey"], leaseId=leased["lease"]["leaseId"], requeue=True)
    assert published(any_bench, "c") == "new"
    any_bench.clocks.pass_ms(WINDOW_MS)
    assert [bodies(delivered(any_bench)) for _ in range(2)] == [["a", "b"], ["c"]]


def test_without_the_policy_later_messages_are_plain_and_overtake(any_bench: Bench) -> None:
    published(any_bench, "a")
    any_bench.do("set_policy", queue="q", policy={"gatherWindowSec": 0})
    assert published(any_bench, "b") is None
    assert delivered(any_bench)["payload"] == "b"
    any_bench.clocks.pass_ms(WINDOW_MS)
    assert bodies(delivered(any_bench)) == ["a"]


def test_a_batch_is_gathered_into_one_message(any_bench: Bench) -> None:
    results = any_bench.do("publish_batch", queue="q", messages=[{"message": body} for body in "abc"])["results"]
    assert [one["gathering"] for one in results] == ["new", "appended", "appended"]
    any_bench.clocks.pass_ms(WINDOW_MS)
    assert bodies(delivered(any_bench)) == ["a", "b", "c"]


def test_what_a_schedule_publishes_is_gathered_too(any_bench: Bench) -> None:
    any_bench.do("set_schedule", name="s", queue="q", cron="@every 2s", message="tick", missed="all")
    published(any_bench, "by hand")
    any_bench.clocks.pass_ms(4000)
    assert counts(any_bench) == {"gathering": 1}
    any_bench.do("delete_schedule", name="s")
    any_bench.clocks.pass_ms(1000)
    assert bodies(delivered(any_bench)) == ["by hand", "tick", "tick"]


def test_nothing_stays_of_a_gathered_message_that_was_acknowledged(any_bench: Bench) -> None:
    for body in "abc":
        published(any_bench, body)
    any_bench.clocks.pass_ms(WINDOW_MS)
    lease = any_bench.do("consume_next", queue="q")["lease"]
    any_bench.do("ack", messageKey=lease["messageKey"], leaseId=lease["leaseId"])
    assert counts(any_bench) == {} and any_bench.store.facts.names("part:", "", 10) == []
    status = any_bench.do("status", queue="q")
    assert status["bytes"] == 0
    assert (status["totals"]["published"], status["totals"]["part_appended"]) == (1, 2)


# --- the cost -----------------------------------------------------------------------------------------------------


def test_an_event_has_only_the_new_part(any_bench: Bench) -> None:
    published(any_bench, "a" * 1000)
    for _ in range(3):
        published(any_bench, "b")
    events = [event for event in any_bench.events() if event["type"] == EventType.PART_APPENDED]
    assert [(event["part"], event["content"]) for event in events] == [(n, {"text": "b"}) for n in (1, 2, 3)]


def test_a_part_that_would_exceed_the_limit_of_a_message_begins_another(any_bench: Bench) -> None:
    gathers(any_bench, limits={"messageBytes": 200})
    outcomes = [published(any_bench, letter * 50) for letter in "abcdef"]
    assert outcomes.count("new") > 1
    any_bench.clocks.pass_ms(WINDOW_MS)
    parts: list[str] = []
    while message := delivered(any_bench):
        assert sum(map(len, bodies(message))) <= 200
        parts += bodies(message)
    assert parts == [letter * 50 for letter in "abcdef"]


def test_a_message_takes_a_limited_number_of_parts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "APPENDED_PARTS_LIMIT", 2)
    assert [published(bench, "x") for _ in range(5)] == ["new", "appended", "appended", "new", "appended"]
    assert protocol.APPENDED_PARTS_LIMIT > 1000


def test_a_full_queue_takes_no_more_parts(any_bench: Bench) -> None:
    gathers(any_bench, limits={"bytes": 300, "messages": 1})
    assert [published(any_bench, "x" * 60) for _ in range(2)] == ["new", "appended"]
    assert any_bench.send("publish", queue="q", message="x" * 200).code == "ERR_QUEUE_FULL"
    assert published(any_bench, "x") == "appended"
    gathers(any_bench, limits={"bytes": 300, "messages": 0, "overflow": "dead-letter"})
    dead = any_bench.do("publish", queue="q", message="x" * 200)
    assert dead["state"] == "dead" and "gathering" not in dead
    assert published(any_bench, "y") == "appended"


def test_parts_count_for_the_rate_of_a_queue(bench: Bench) -> None:
    gathers(bench, limits={"publishPerSec": 2})
    assert [published(bench, "x") for _ in range(2)] == ["new", "appended"]
    assert bench.send("publish", queue="q", message="x").code == "ERR_RATE_LIMITED"


def test_a_part_counts_for_the_quota_of_its_publisher(make_bench: MakeBench) -> None:
    bench = gathers(make_bench("sqlite", **{"limits.userStoredBytes": "400"}).open())

    def publish(uid: int, size: int) -> Any:
        sent = bench.make("publish", uid=uid, queue="q", message="x" * size)
        bench.run(sent)
        return sent.code if sent.code != "OK" else sent.data["gathering"]

    assert [publish(1001, 100), publish(1002, 100), publish(1001, 100)] == ["new", "new", "appended"]
    assert publish(1001, 200) == "ERR_QUOTA_EXCEEDED"
    assert publish(1002, 150) == "appended"


# --- deduplication and repeats ------------------------------------------------------------------------------------


def test_a_duplicate_of_a_part_is_not_appended(any_bench: Bench) -> None:
    gathers(any_bench, deduplication={"mode": "window", "windowSec": 60})
    first = any_bench.do("publish", queue="q", message="a", deduplicationKey="one")
    assert published(any_bench, "b", deduplicationKey="two") == "appended"
    again = any_bench.do("publish", queue="q", message="b", deduplicationKey="two")
    assert again == {
        "messageId": first["messageId"],
        "messageKey": first["messageKey"],
        "duplicate": True,
    }
    any_bench.clocks.pass_ms(WINDOW_MS)
    assert bodies(delivered(any_bench)) == ["a", "b"]


def test_a_key_that_counts_while_its_message_is_there_makes_a_message_of_its_own(bench: Bench) -> None:
    gathers(bench, deduplication={"mode": "while-present"})
    assert published(bench, "a", deduplicationKey="one") is None
    assert published(bench, "b") == "new"
    assert bench.do("publish", queue="q", message="a", deduplicationKey="one")["duplicate"] is True


def test_a_repeated_publish_is_appended_once_even_after_a_restart(any_bench: Bench) -> None:
    published(any_bench, "a")
    sent = any_bench.make("publish", queue="q", message="b")
    any_bench.run(sent)
    again = any_bench.again(sent)
    any_bench.run(again)
    any_bench.reopen()
    later = any_bench.again(sent)
    any_bench.run(later)
    assert again.data == later.data == sent.data and sent.data["gathering"] == "appended"
    any_bench.clocks.pass_ms(WINDOW_MS)
    assert bodies(delivered(any_bench)) == ["a", "b"]


# --- operators ----------------------------------------------------------------------------------------------------


def test_a_gathering_message_can_be_browsed_moved_and_purged_but_not_held(any_bench: Bench) -> None:
    key = any_bench.publish(message="a", attributes={"n": 1})
    published(any_bench, "bb", attributes={"n": 2})
    (row,) = any_bench.do("browse", queue="q", state="gathering")["messages"]
    assert (row["state"], row["preview"], row["bytes"]) == ("gathering", "a", 3) and row["availableAtEngineMs"]
    found = any_bench.do("browse", queue="q", state="gathering", filter={"attribute": {"n": 2}})["messages"]
    assert len(found) == 1
    assert bodies(any_bench.do("get_message", messageKey=key)["message"]) == ["a", "bb"]
    assert any_bench.send("hold", messageKey=key).code == "ERR_INVALID_REQUEST"
    any_bench.do("move", messageKey=key, to="other")
    assert published(any_bench, "c") == "new"
    any_bench.clocks.pass_ms(WINDOW_MS)
    assert bodies(delivered(any_bench, "other")) == ["a", "bb"]
    published(any_bench, "d")
    assert any_bench.do("purge", queue="q")["purged"] == 2
    assert published(any_bench, "e") == "new"


def test_dead_letters_show_and_return_all_parts(any_bench: Bench) -> None:
    for body in "ab":
        published(any_bench, body)
    any_bench.clocks.pass_ms(WINDOW_MS)
    lease = any_bench.do("consume_next", queue="q")["lease"]
    any_bench.do("nack", messageKey=lease["messageKey"], leaseId=lease["leaseId"])
    assert any_bench.do("list_dlq", queue="q")["messages"][0]["bytes"] == 2
    assert bodies(delivered(any_bench, "q.dlq")) == ["a", "b"]
    any_bench.clocks.pass_ms(60_000)
    any_bench.do("reprocess_dlq", messageKey=lease["messageKey"])
    assert bodies(delivered(any_bench)) == ["a", "b"]


# --- restarts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("without_store", [False, True], ids=["store", "journal"])
def test_a_message_goes_on_gathering_after_a_crash(any_bench: Bench, without_store: bool) -> None:
    for body in "ab":
        published(any_bench, body)
    any_bench.reopen(without_store)
    assert published(any_bench, "c") == "appended"
    any_bench.store.disk.checkpoint()
    assert published(any_bench, "d") == "appended"
    any_bench.reopen(without_store)
    any_bench.clocks.pass_ms(WINDOW_MS)
    assert bodies(delivered(any_bench)) == ["a", "b", "c", "d"]


def test_a_store_that_is_rebuilt_is_equal(any_bench: Bench) -> None:
    for body in "abc":
        published(any_bench, body)
    any_bench.clocks.pass_ms(WINDOW_MS)
    published(any_bench, "d")
    published(any_bench, "e")
    before = seen_in(any_bench)
    any_bench.reopen()
    assert seen_in(any_bench) == before
    any_bench.reopen(without_store=True)
    assert seen_in(any_bench) == before


@pytest.mark.parametrize("backend", ["sqlite", "filesystem", "hybrid"])
def test_what_is_lost_of_a_gathered_message_is_reported_and_put_back(
    make_bench: MakeBench, tmp_path: Path, backend: str
) -> None:
    bench = gathers(make_bench(backend).open())
    for body in "abc":
        published(bench, body)
    state, (entry,) = exported(bench), bench.store.pages.entries("", 2)
    file = bench.store.audit.file_of(entry.key)
    bench.stop()
    bench.store.disk.checkpoint()
    bench.close()
    assert not verified(bench, tmp_path).faults
    lose_part(bench, file)
    assert verified(bench, tmp_path).faults
    repaired(bench, tmp_path)
    bench.open()
    assert [line for line in exported(bench) if line["kind"] == "message"] == [
        line for line in state if line["kind"] == "message"
    ]


def lose_part(bench: Bench, file: Path | None) -> None:
    """Damage one part of the only message, which has a file (filesystem)."""
    if bench.config.settings.backend == "filesystem":
        assert file is not None
        file.write_bytes(file.read_bytes().replace(b'"text":"b"', b'"text":"x"'))
        return
    with closing(sqlite3.connect(bench.config.settings.sqlite_db_path)) as db:
        assert db.execute("DELETE FROM kv WHERE key LIKE 'fact:part:000001:%'").rowcount == 1
        db.commit()
