"""browse, get_message, list_inflight, list_consumers, status: looking changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from postroom_daemon.journal.history import LOOK_BYTES, MessageHistory, history_slices
from tests.conformance.bench import Bench, exported


@pytest.fixture(params=["sqlite", "memory", "filesystem", "hybrid"])
def bench(request: pytest.FixtureRequest, make_bench: Callable[..., Bench]) -> Bench:
    return make_bench(request.param).open()


def consume(bench: Bench, consumer: str = "c", **fields: Any) -> dict[str, Any]:
    delivery: dict[str, Any] = bench.do("consume_next", queue="q", consumerId=consumer, **fields)
    return delivery


def die(bench: Bench, reason: str = "broken") -> str:
    key = bench.publish()
    lease = consume(bench)["lease"]
    bench.do("nack", messageKey=lease["messageKey"], leaseId=lease["leaseId"], reason=reason)
    return key


def one_of_each(bench: Bench) -> dict[str, str]:
    """A message in each state."""
    keys = {"dead": die(bench)}
    keys["inflight"] = bench.publish()
    consume(bench)
    keys["ready"] = bench.publish(message="wide", priority=3)
    keys["delayed"] = bench.publish(delayMs=60_000)
    keys["held"] = bench.publish()
    bench.do("hold", messageKey=keys["held"])
    return keys


def test_messages_of_every_state_are_browsed_and_nothing_changes(bench: Bench) -> None:
    keys = one_of_each(bench)
    before, events = exported(bench), len(bench.events())
    for state, key in keys.items():
        page = bench.do("browse", queue="q", state=state)
        assert [message["messageKey"] for message in page["messages"]] == [key]
        assert page["messages"][0]["state"] == state
        assert page["next"] == ""
    ready = bench.do("browse", queue="q", previewBytes=2)["messages"][0]
    assert (ready["preview"], ready["bytes"], ready["priority"]) == ("wi", 4, 3)
    assert "payload" not in ready
    assert bench.do("browse", queue="q", fullBodies=True)["messages"][0]["payload"] == "wide"
    assert bench.do("browse", queue="q", state="delayed")["messages"][0]["availableAtEngineMs"] > 0
    assert bench.do("browse", queue="q", state="dead")["messages"][0]["reason"] == "broken"
    assert exported(bench) == before
    assert len(bench.events()) == events


def test_pages_have_each_message_once(bench: Bench) -> None:
    keys = [bench.publish(priority=number % 3) for number in range(7)]
    seen: list[str] = []
    after = ""
    while True:
        page = bench.do("browse", queue="q", limit=2, after=after)
        seen += [message["messageKey"] for message in page["messages"]]
        after = page["next"]
        if not after:
            break
    assert sorted(seen) == sorted(keys)
    assert bench.do("browse", queue="q", filter={"priority": 2})["count"] == 2


def test_a_page_of_large_bodies_is_shorter_than_asked(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom_daemon.engine.verbs.inspection.PAGE_BYTES", 2500)
    keys = [bench.publish(message="x" * 1000) for _ in range(5)]
    first = bench.do("browse", queue="q", fullBodies=True)
    assert [message["messageKey"] for message in first["messages"]] == keys[:2]
    second = bench.do("browse", queue="q", fullBodies=True, after=first["next"])
    assert [message["messageKey"] for message in second["messages"]] == keys[2:4]


def test_an_unknown_state_or_cursor_is_refused(bench: Bench) -> None:
    bench.publish()
    for wrong in ({"state": "lost"}, {"after": "nonsense"}, {"filter": {"colour": "red"}}):
        assert bench.send("browse", queue="q", **wrong).code == "ERR_INVALID_REQUEST"
    for command in ("list_inflight", "list_consumers"):
        assert bench.send(command, after="nonsense").code == "ERR_INVALID_REQUEST"
    assert bench.send("get_message", messageKey="msg:q:x", payloadAs="xml").code == "ERR_INVALID_REQUEST"


def test_one_message_is_shown_completely_with_its_history(bench: Bench) -> None:
    key = bench.publish(message={"a": 1}, attributes={"h": "v"}, orderingKey="k")
    lease = consume(bench)["lease"]
    bench.do("nack", messageKey=key, leaseId=lease["leaseId"], reason="busy", requeue=True)
    reported = bench.do("get_message", messageKey=key, payloadAs="value", events=10)
    assert reported["state"] == "delayed"
    assert (reported["message"]["payload"], reported["message"]["attributes"]) == ({"a": 1}, {"h": "v"})
    assert reported["message"]["orderingKey"] == "k"
    assert reported["failures"][0]["reasonMessage"] == "busy"
    assert [event["type"] for event in reported["events"]] == ["published", "leased", "retried"]
    assert reported["events"][-1]["by"]["client"] == "client"
    assert reported["completeFrom"] == reported["events"][0]["id"]
    assert reported["cut"] is False
    assert "message" not in reported["events"][0]


def test_only_the_latest_events_are_shown_and_the_first_complete_one_is_named(bench: Bench) -> None:
    key = bench.publish()
    for _ in range(3):
        bench.do("hold", messageKey=key)
        bench.do("unhold", messageKey=key)
    reported = bench.do("get_message", messageKey=key, events=2)
    assert [event["type"] for event in reported["events"]] == ["held", "unheld"]
    assert reported["cut"] is True
    assert reported["completeFrom"] == reported["events"][0]["id"]


def test_a_message_that_is_gone_is_described_while_the_journal_has_it(bench: Bench) -> None:
    key = bench.publish()
    lease = consume(bench)["lease"]
    bench.do("ack", messageKey=key, leaseId=lease["leaseId"])
    reported = bench.do("get_message", messageKey=key, events=10)
    assert reported["state"] == "gone"
    assert [event["type"] for event in reported["events"]] == ["published", "leased", "acked"]
    assert bench.send("get_message", messageKey=key).code == "ERR_MESSAGE_NOT_FOUND"
    never = bench.send("get_message", messageKey="msg:q:never", events=10)
    assert never.code == "ERR_MESSAGE_NOT_FOUND"
    assert "the journal does not name it" in str(never.answer.error)


def test_a_key_inside_a_body_is_not_that_message(bench: Bench) -> None:
    key = bench.publish()
    bench.publish(message={"key": key})
    assert [event["type"] for event in bench.do("get_message", messageKey=key, events=9)["events"]] == ["published"]


def history_of(root: Path, key: str, limit: int, most_bytes: int = LOOK_BYTES) -> MessageHistory:
    slices = history_slices(root, key, limit, most_bytes)
    while True:
        try:
            next(slices)
        except StopIteration as ended:
            history: MessageHistory = ended.value
            return history


def test_a_search_of_the_journal_is_bounded_and_says_where_it_ended(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench("sqlite").open()
    key = bench.publish()
    bench.publish(message="x" * 3_000_000)
    newest = bench.publish()
    cut = history_of(bench.journal_root, key, 10, most_bytes=100)
    assert (cut.events, cut.cut) == ([], True)
    assert cut.complete_from == bench.events()[-1]["id"]
    assert [event["key"] for event in history_of(bench.journal_root, newest, 10, 100).events] == [newest]
    assert [event["key"] for event in history_of(bench.journal_root, key, 10).events] == [key]


def test_other_requests_are_served_while_the_journal_is_searched(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench("sqlite").open()
    key = bench.publish()
    for _ in range(3):
        bench.publish(message="x" * 700_000)
    broker = bench.live.broker
    long = bench.make("get_message", messageKey=key, events=10)
    broker.submit(long.request)
    broker.run_group()
    assert broker.has_work and not long.answers
    assert broker.next_due() == 0
    other = bench.make("health")
    broker.submit(other.request)
    broker.run_group()
    assert other.answers and not long.answers
    bench.run()
    assert [event["type"] for event in long.data["events"]] == ["published"]
    assert broker.next_due() != 0


def test_a_withdrawn_query_is_not_processed(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench("sqlite").open()
    key = bench.publish()
    bench.publish(message="x" * 2_000_000)
    sent = bench.make("get_message", messageKey=key, events=10)
    bench.live.broker.submit(sent.request)
    bench.live.broker.run_group()
    bench.live.broker.cancel(sent.request)
    bench.run()
    assert not sent.answers


def test_an_unreadable_journal_gives_an_error_answer(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench("sqlite").open()
    key = bench.publish()

    def fail(path: Path, offset: int, length: int) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("postroom_daemon.journal.history.read_bytes", fail)
    assert bench.send("get_message", messageKey=key, events=10).code == "ERR_STORAGE_FAILED"


def test_a_search_ends_at_its_time_limit_and_gets_further_each_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom_daemon.engine.selection.LOOK_NS", -1)
    keys = [bench.publish() for _ in range(50)]
    found: list[str] = []
    after, pages = "", 0
    while after or not pages:
        page = bench.do("browse", queue="q", filter={"text": "body"}, after=after)
        found += [message["messageKey"] for message in page["messages"]]
        after, pages = page["next"], pages + 1
    assert found == keys
    assert pages >= 3, "the first ones are looked at in any case"


def test_a_history_goes_through_segments(make_bench: Callable[..., Bench], tmp_path: Path) -> None:
    bench = make_bench("sqlite", segment_bytes=2000).open()
    key = bench.publish()
    for _ in range(20):
        bench.do("hold", messageKey=key)
        bench.do("unhold", messageKey=key)
    assert len(bench.segments()) > 3
    assert len(bench.do("get_message", messageKey=key, events=1000)["events"]) == 41


def test_messages_in_flight_are_listed_with_their_consumer(bench: Bench) -> None:
    slow, quick = bench.publish(), bench.publish()
    consume(bench, "slow", visibilityTimeoutSec=60)
    consume(bench, "quick", visibilityTimeoutSec=5)
    rows = bench.do("list_inflight", queue="q")["messages"]
    assert [(row["messageKey"], row["consumerId"]) for row in rows] == [(quick, "quick"), (slow, "slow")]
    assert rows[0]["leaseUntilEngineMs"] - rows[0]["leasedAtEngineMs"] == 5000
    assert rows[0]["overdue"] is False
    assert "leaseId" not in rows[0]
    assert bench.do("list_inflight", limit=1)["count"] == 1
    assert bench.do("list_inflight", queue="other")["messages"] == []


def test_leased_dead_letters_are_listed_among_the_leases(bench: Bench) -> None:
    key = die(bench)
    living = bench.publish()
    consume(bench, visibilityTimeoutSec=60)
    bench.do("consume_next", queue="q.dlq", consumerId="mender", visibilityTimeoutSec=9)
    for page in (bench.do("list_inflight", queue="q"), bench.do("list_inflight")):
        assert [(row["messageKey"], row["state"]) for row in page["messages"]] == [(key, "dead"), (living, "inflight")]
        letter = page["messages"][0]
        assert (letter["consumerId"], letter["attempt"]) == ("mender", 1)
        assert letter["leaseUntilEngineMs"] - letter["leasedAtEngineMs"] == 9000
    first = bench.do("list_inflight", queue="q", limit=1)
    second = bench.do("list_inflight", queue="q", after=first["next"])
    assert [row["messageKey"] for row in second["messages"]] == [living]
    assert bench.send("list_inflight", queue="other", after=first["next"]).code == "ERR_INVALID_REQUEST"


def test_a_lease_shows_its_user_even_after_a_restart(make_bench: Callable[..., Bench]) -> None:
    for store in ("sqlite", "filesystem", "hybrid"):
        bench = make_bench(store).open()
        key = bench.publish()
        sent = bench.make("consume_next", uid=7, queue="q")
        bench.run(sent)
        bench.reopen()
        assert bench.do("list_inflight")["messages"][0]["uid"] == 7
        bench.do("release", messageKey=key, leaseId=sent.data["lease"]["leaseId"])
        assert "uid" not in bench.do("browse", queue="q")["messages"][0]
        bench.close()


def test_a_list_of_queues_has_what_a_screen_needs(bench: Bench) -> None:
    one_of_each(bench)
    bench.do("pause", queue="q")
    bench.clocks.pass_ms(3000)
    listed = bench.do("list_queues")
    row = listed["queues"][0]
    assert {name: row[name] for name in ("ready", "delayed", "inflight", "held", "dlq")} == {
        "ready": 1, "delayed": 1, "inflight": 1, "held": 1, "dlq": 1
    }  # fmt: skip
    assert row["paused"] == {"publish": False, "consume": True}
    assert (row["oldestReadyAgeMs"], row["oldestLeaseAgeMs"], row["oldestDeadAgeMs"]) == (3000, 3000, 3000)
    assert listed["draining"] is False
    bench.do("drain")
    assert bench.do("list_queues")["draining"] is True


def test_the_oldest_lease_of_a_queue_is_tracked_while_leases_come_and_go(bench: Bench) -> None:
    def age() -> int | None:
        reported: int | None = bench.do("list_queues")["queues"][0]["oldestLeaseAgeMs"]
        return reported

    leases = []
    for _ in range(3):
        bench.publish()
        leases.append(consume(bench, visibilityTimeoutSec=60)["lease"])
        bench.clocks.pass_ms(1000)
    assert age() == 3000
    bench.do("ack", messageKey=leases[0]["messageKey"], leaseId=leases[0]["leaseId"])
    assert age() == 2000
    bench.reopen()
    assert age() == 2000
    for lease in leases[1:]:
        bench.do("ack", messageKey=lease["messageKey"], leaseId=lease["leaseId"])
    assert age() is None


def test_consumers_are_listed_by_queue_and_name(bench: Bench) -> None:
    bench.clocks.pass_ms(1)
    for number in range(3):
        bench.publish()
        consume(bench, f"c{number}")
    consume(bench, "c1")
    first = bench.do("list_consumers", limit=2)
    assert [(row["consumerId"], row["inflight"], row["delivered"]) for row in first["consumers"]] == [
        ("c0", 1, 1),
        ("c1", 1, 1),
    ]
    second = bench.do("list_consumers", limit=2, after=first["next"])
    assert [row["consumerId"] for row in second["consumers"]] == ["c2"]
    assert second["next"] == ""
    assert first["consumers"][0]["lastAskedEngineMs"] > 0
    assert bench.do("list_consumers", queue="other")["consumers"] == []


def test_a_status_shows_ages_bytes_reasons_and_the_next_message(bench: Bench) -> None:
    die(bench)
    bench.publish()
    consume(bench, visibilityTimeoutSec=12)
    bench.publish(ttlMs=5)
    bench.publish(delayMs=60_000)
    bench.clocks.pass_ms(3000)
    reported = bench.do("status", queue="q")
    assert reported["oldestLeaseAgeMs"] == 3000
    assert (reported["endingSoon"], reported["overdue"], reported["inflightLooked"]) == (1, 0, 1)
    assert reported["nextDueEngineMs"] - reported["engineNowMs"] == 57_000
    assert reported["reasons"] == {"REJECTED": 1, "MESSAGE_EXPIRED": 1}
    assert reported["bytes"] > 0
    row = bench.do("list_queues")["queues"][0]
    assert (row["bytes"], row["reasons"], row["held"]) == (reported["bytes"], reported["reasons"], 0)
    assert row["totals"] == reported["totals"]


def test_a_status_of_an_empty_queue_has_no_ages(bench: Bench) -> None:
    reported = bench.do("status", queue="none")
    assert (reported["oldestLeaseAgeMs"], reported["nextDueEngineMs"], reported["endingSoon"], reported["bytes"]) == (
        None,
        None,
        0,
        0,
    )
