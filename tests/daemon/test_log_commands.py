"""Logs: records that stay, and readers at their own positions, decided and folded in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from postroom_common.errors import CommandError
from postroom_common.protocol import ErrorCode
from postroom_daemon.model.request import Answer
from tests.conformance.bench import Bench, Sent

HOUR_MS = 3600 * 1000


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    bench: Bench = make_bench().open()
    bench.do("create_queue", queue="log", createWith={"kind": "log"})
    return bench


def append(bench: Bench, *bodies: Any, queue: str = "log", **options: Any) -> dict[str, Any]:
    return bench.do("append", queue=queue, messages=[{"message": body} for body in bodies], **options)


def everything(bench: Bench, **options: Any) -> list[Any]:
    """The bodies that one read after the other returns: a page may end with a segment."""
    found, data = list[Any](), bench.do("read", **options)
    while data["records"]:
        found += bodies(data)
        data = bench.do("read", **options | {"after": data["last"]})
    return found


def bodies(data: dict[str, Any]) -> list[Any]:
    return [one["payload"] for one in data["records"]]


def read(bench: Bench, **options: Any) -> list[Any]:
    """The bodies that a read returns, as values."""
    return bodies(bench.do("read", **{"queue": "log", "payloadAs": "value"} | options))


def waiting(bench: Bench, **options: Any) -> Sent:
    """A read that waits."""
    fields: dict[str, Any] = {"queue": "log", "waitMs": 60_000, **options}
    sent = bench.make("read", **fields)
    bench.run(sent)
    assert not sent.answers
    return sent


def test_records_stay_and_each_read_begins_where_it_says(bench: Bench) -> None:
    first = append(bench, "a", {"n": 1})
    assert (first["count"], first["last"]) == (2, first["first"] + 1)
    one = bench.do("append", queue="log", message="c", attributes={"k": "v"}, contentType="text/x")
    assert (one["first"], one["count"]) == (one["last"], 1)
    assert read(bench) == read(bench, start="oldest") == read(bench, after=0) == ["a", {"n": 1}, "c"]
    assert read(bench, after=first["first"]) == [{"n": 1}, "c"]
    assert read(bench, start="newest") == read(bench, after=one["last"]) == []
    assert read(bench, max=1) == ["a"]
    assert read(bench, maxBytes=1) == ["a"]  # the first, whatever its size
    data = bench.do("read", queue="log", after=first["last"])
    created = bench.do("status", queue="log")["log"]["created"]
    shown = {"position": one["last"], "wallMs": bench.clocks.wall_ms, "payload": "c", "contentType": "text/x"}
    assert data == {
        "records": [shown | {"attributes": '{"k":"v"}'}],
        "count": 1,
        "last": one["last"],
        "first": first["first"],
        "end": one["last"],
        "created": created,
    }
    bench.clocks.pass_ms(10)
    append(bench, "later")
    assert read(bench, sinceMs=bench.clocks.wall_ms) == ["later"]
    assert bench.do("read", queue="log", payloadAs="none", max=1)["records"] == [
        {"position": first["first"], "wallMs": bench.clocks.wall_ms - 10}
    ]


def test_a_position_must_be_that_of_a_record_only_for_an_exact_read(bench: Bench) -> None:
    positions = append(bench, "a", "b")
    assert read(bench, after=positions["first"], exact=True) == ["b"]
    assert read(bench, after=0, exact=True) == ["a", "b"]
    other = bench.publish()
    assert other and read(bench, after=positions["last"] + 1) == []
    assert bench.send("read", queue="log", after=positions["last"] + 1, exact=True).code == "ERR_POSITION_NOT_FOUND"


def test_two_places_in_one_read_are_refused(bench: Bench) -> None:
    for other in ({"reader": "r"}, {"start": "newest"}, {"sinceMs": 1}):
        assert bench.send("read", queue="log", after=0, **other).code == "ERR_INVALID_REQUEST"


def test_a_batch_is_appended_whole_or_not_at_all(bench: Bench) -> None:
    for wrong in (
        "x",
        {"message": "x", "attributes": {"n": 1}},
        {"message": "!", "encoding": "base64"},
        {"message": "x", "encoding": "records"},
    ):
        sent = bench.send("append", queue="log", messages=[{"message": "fine"}, wrong])
        assert sent.answer.error and str(sent.answer.error).startswith("messages[1]: ")
    assert bench.send("append", queue="log", messages=[]).code == "ERR_INVALID_REQUEST"
    assert bench.send("append", queue="log", message="x", messages=[{"message": "x"}]).code == "ERR_INVALID_REQUEST"
    assert (
        bench.send("append", queue="log", message="x", attributes={"content-type": "x"}).code == "ERR_INVALID_REQUEST"
    )
    assert read(bench) == []


def test_a_repeated_append_adds_nothing_and_gets_the_first_answer(bench: Bench) -> None:
    sent = bench.make("append", queue="log", message="once")
    bench.run(sent)
    bench.reopen()
    again = bench.again(sent)
    bench.run(again)
    assert again.data == sent.data
    assert bench.event_types().count("appended") == 1


def test_a_log_is_created_only_where_the_request_or_the_configuration_says_so(bench: Bench) -> None:
    assert bench.send("append", queue="new", message="x").code == "ERR_QUEUE_NOT_FOUND"
    bench.do("append", queue="new", message="x", createWith={"log": {"retentionHours": 1}})
    status = bench.do("status", queue="new")
    assert (status["kind"], status["log"]["records"], status["policy"]["log"]["retentionHours"]) == ("log", 1, 1)
    bench.do("set_policy_patterns", patterns=[{"pattern": "^logs[.]", "policy": {"kind": "log"}}])
    bench.do("append", queue="logs.a", message="x")
    assert bench.send("publish", queue="logs.b", message="x").code == "ERR_WRONG_KIND"
    assert bench.do("list_queues")["queues"][-1]["kind"] == "log"


def test_create_queue_makes_queues_and_logs(bench: Bench) -> None:
    assert bench.send("create_queue", queue="log").code == "ERR_QUEUE_EXISTS"
    assert bench.do("create_queue", queue="log", createWith={"kind": "log"}, mustBeNew=False)["created"] is False
    assert (
        bench.send("create_queue", queue="log", createWith={"kind": "queue"}, mustBeNew=False).code == "ERR_WRONG_KIND"
    )
    assert bench.do("create_queue", queue="q")["kind"] == "queue"
    assert bench.do("status", queue="q")["kind"] == "queue"


def test_the_kind_of_what_exists_stays(bench: Bench) -> None:
    assert bench.send("set_policy", queue="log", policy={"kind": "queue"}).code == "ERR_INVALID_REQUEST"
    bench.do("set_policy", queue="new", policy={"kind": "log"})
    assert bench.do("status", queue="new")["kind"] == "log"
    bench.do("set_policy_patterns", patterns=[{"pattern": "^p", "policy": {"kind": "log"}}])
    bench.do("append", queue="p", message="x")
    bench.do("set_policy_patterns", patterns=[])
    assert bench.do("get_policy", queue="p")["policy"]["kind"] == "log"
    bench.do("append", queue="p", message="y")


def test_commands_of_queues_refuse_logs_and_those_of_logs_queues(bench: Bench) -> None:
    key = bench.publish("q")
    log = {"queue": "log"}
    refused: dict[str, dict[str, Any]] = {
        "publish": {**log, "message": "x"},
        "draft": {**log, "parts": ["a"]},
        "consume_next": log,
        "move": {"messageKey": key, "to": "log"},
        "set_schedule": {**log, "name": "s", "cron": "@every 1h"},
        "append": {"queue": "q", "message": "x"},
        "read": {"queue": "q"},
        "move_reader": {"queue": "q", "reader": "r", "position": 0},
        "delete_reader": {"queue": "q", "reader": "r"},
        "list_readers": {"queue": "q"},
    }
    for command, payload in refused.items():
        assert bench.send(command, **payload).code == "ERR_WRONG_KIND", command
    assert (
        bench.do("publish_batch", messages=[{**log, "message": "x"}])["results"][0]["error"]["code"] == "ERR_WRONG_KIND"
    )
    assert bench.do("publish", queuePattern=".", message="x")["refused"]["log"]["code"] == "ERR_WRONG_KIND"
    bench.do("append", **log, message="x", delayMs=10)
    bench.clocks.pass_ms(5)
    assert bench.do("consume_next", queuePattern="log", waitMs=0) == {"message": None}


def test_readers_have_positions_that_they_set_themselves(bench: Bench) -> None:
    positions = append(bench, "a", "b")
    assert read(bench, reader="r") == ["a", "b"]  # it does not exist yet
    assert (
        bench.do("move_reader", queue="log", reader="r", position=positions["first"])["position"] == positions["first"]
    )
    bench.reopen()
    assert read(bench, reader="r") == ["b"]
    listed = bench.do("list_readers", queue="log")
    assert listed["end"] == positions["last"]
    assert [(one["reader"], one["position"], one["isBehind"]) for one in listed["readers"]] == [
        ("r", positions["first"], True)
    ]
    too_far = bench.send("move_reader", queue="log", reader="r", position=positions["last"] + 1)
    assert too_far.code == "ERR_INVALID_REQUEST"
    events = len(bench.events())
    bench.do("move_reader", queue="log", reader="r", position=positions["first"])
    assert len(bench.events()) == events  # it is there already
    bench.do("delete_reader", queue="log", reader="r")
    assert bench.send("delete_reader", queue="log", reader="r").code == "ERR_READER_NOT_FOUND"


def test_waiting_readers_get_a_record_once_it_is_durable(bench: Bench) -> None:
    append(bench, "old")
    readers = [
        waiting(bench, start="newest"),
        waiting(bench, after=10**9),
        waiting(bench, start="newest", payloadAs="value"),
    ]
    sent = bench.make("append", queue="log", message="new")
    bench.live.broker.submit(sent.request)
    bench.live.broker.run_group()
    assert sent.answers and not readers[0].answers  # they are served by the next group
    assert bench.live.broker.next_due() == 0
    bench.live.broker.run_group()
    assert bodies(readers[0].data) == bodies(readers[2].data) == ["new"]
    assert not readers[1].answers
    assert bench.event_types()[-1] == "appended"  # a read is no event


def test_a_read_in_the_group_of_an_append_gets_the_record_in_the_next(bench: Bench) -> None:
    appending, reading = bench.make("append", queue="log", message="x"), bench.make("read", queue="log", waitMs=1000)
    bench.run(appending, reading)
    assert bench.live.broker.next_due() == 0
    bench.run()
    assert bodies(reading.data) == ["x"]


def test_a_wait_ends_with_its_time_its_session_or_the_log(bench: Bench) -> None:
    timed, cancelled, deleted = waiting(bench, waitMs=100), waiting(bench), waiting(bench)
    bench.live.broker.end_wait(cancelled.request)
    bench.run()
    assert bodies(cancelled.data) == []
    bench.clocks.pass_ms(101)
    bench.run()
    assert (timed.data["count"], timed.data["last"]) == (0, 0)
    bench.do("delete_queue", queue="log")
    assert deleted.code == "ERR_QUEUE_NOT_FOUND"


def test_consumers_who_wait_by_pattern_do_not_notice_logs(bench: Bench) -> None:
    consumer = bench.make("consume_next", queuePattern="l", waitMs=60_000)
    bench.run(consumer)
    append(bench, "x")
    bench.run()
    assert not consumer.answers
    bench.publish("l2")
    assert consumer.data["message"]["queue"] == "l2"


def test_delayed_records_are_appended_when_they_are_due_in_that_order(bench: Bench) -> None:
    later = append(bench, "third", delayMs=2000)
    assert later["count"] == 1 and later["availableAtEngineMs"] == later["engineNowMs"] + 2000
    append(bench, "first", "second", delayMs=1000)
    reader = waiting(bench, max=1)
    assert bench.counts("log") == {"delayed": 3}
    bench.reopen()
    reader = waiting(bench)
    bench.clocks.pass_ms(2500)
    bench.run()
    assert bench.counts("log") == {}
    bench.run()
    assert bodies(reader.data) == ["first", "second", "third"]
    assert [event["failure"]["reasonCode"] for event in bench.events() if event["type"] == "dropped"] == [
        "APPENDED"
    ] * 3


def test_a_delayed_record_is_shown_as_body_and_attributes(bench: Bench) -> None:
    sent = {"message": "hello", "attributes": {"site": "roof"}, "contentType": "text/x"}
    later = bench.do("append", queue="log", delayMs=1000, **sent)
    (shown,) = bench.do("browse", queue="log", state="delayed")["messages"]
    assert (shown["preview"], shown["bytes"]) == ("hello", 5)
    (whole,) = bench.do("browse", queue="log", state="delayed", fullBodies=True)["messages"]
    message = bench.do("get_message", messageKey=later["messageKeys"][0])["message"]
    for one in (whole, message):
        assert (one["payload"], one["attributes"], one["contentType"]) == ("hello", '{"site":"roof"}', "text/x")


def test_a_delayed_record_can_be_purged_and_goes_with_its_log(bench: Bench) -> None:
    key = append(bench, "x", delayMs=1000)["messageKeys"][0]
    bench.do("purge", queue="log", messageKey=key)
    append(bench, "y", delayMs=1000)
    assert bench.send("delete_queue", queue="log").code == "ERR_QUEUE_NOT_EMPTY"
    assert bench.do("delete_queue", queue="log", discard=True)["deleted"]
    bench.do("create_queue", queue="log", createWith={"kind": "log"})
    bench.clocks.pass_ms(2000)
    bench.run()
    assert read(bench) == []


def test_a_log_with_records_is_deleted_only_with_discard(bench: Bench) -> None:
    append(bench, "x")
    before = bench.do("status", queue="log")["log"]["created"]
    refused = bench.send("delete_queue", queue="log")
    assert refused.code == "ERR_QUEUE_NOT_EMPTY" and "1 records" in str(refused.answer.error)
    assert bench.do("delete_queue", queue="log", discard=True)["deleted"]
    bench.do("create_queue", queue="log", createWith={"kind": "log"})
    data = bench.do("read", queue="log")
    assert (data["count"], data["end"]) == (0, 0) and data["created"] > before


def with_small_segments(bench: Bench, **keys: Any) -> None:
    """A log ``small`` each of whose records has a segment of its own if it has more than 4,096 bytes."""
    bench.do("create_queue", queue="small", createWith={"kind": "log", "log": {"segmentBytes": 4096, **keys}})
    bench.clocks.pass_ms(1000)
    bench.run()


def test_retention_removes_old_records_but_none_that_a_reader_needs(bench: Bench) -> None:
    with_small_segments(bench, retentionHours=1)
    small, old, read_last, new = {"queue": "small"}, "a" * 5000, "b" * 5000, "c" * 5000
    first, last = (append(bench, body, **small)["last"] for body in (old, read_last))
    bench.do("move_reader", reader="slow", position=first, **small)
    bench.clocks.pass_ms(2 * HOUR_MS)
    append(bench, new, **small)
    bench.run()
    assert everything(bench, **small) == [read_last, new]
    bench.do("delete_reader", reader="slow", **small)
    bench.clocks.pass_ms(HOUR_MS // 2)
    bench.run()
    assert everything(bench, **small) == [new]
    assert read(bench, after=last, **small) == [new]  # it has missed nothing
    overtaken = bench.send("read", after=first, **small)
    assert overtaken.code == "ERR_POSITION_TRIMMED"
    skipped = bench.do("read", after=first, ifTrimmed="skip", **small)
    assert skipped["trimmed"] is True and bodies(skipped) == [new]


def test_a_log_full_of_unread_records_refuses_more_and_names_the_reader(bench: Bench) -> None:
    with_small_segments(bench, retentionBytes=12_000)
    small, body = {"queue": "small"}, "x" * 5000
    bench.do("move_reader", reader="slow", position=0, **small)
    last = [append(bench, body, **small)["last"] for _ in range(3)][-1]
    refused = bench.send("append", message=body, **small)
    assert refused.code == "ERR_QUEUE_FULL" and "'slow'" in str(refused.answer.error)
    bench.do("move_reader", reader="slow", position=last, **small)
    append(bench, body, **small)
    bench.clocks.pass_ms(2000)
    bench.run()
    assert bench.do("status", **small)["log"]["bytes"] <= 12_000


def test_a_log_expires_with_everything_in_it(bench: Bench) -> None:
    until = bench.clocks.wall_ms + 10_000
    bench.do("create_queue", queue="brief", createWith={"kind": "log", "log": {"expireAtMs": until}})
    append(bench, "x", queue="brief")
    append(bench, "y", queue="brief", delayMs=HOUR_MS)
    bench.clocks.pass_ms(9000)
    reader = waiting(bench, queue="brief", start="newest")
    assert bench.do("status", queue="brief")["log"]["expireAtMs"] == until
    bench.clocks.pass_ms(1000)
    assert bench.send("append", queue="brief", message="x").code == "ERR_QUEUE_NOT_FOUND"
    bench.clocks.pass_ms(1000)
    bench.run()
    assert reader.code == "ERR_QUEUE_NOT_FOUND"
    assert not bench.do("status", queue="brief")["exists"]


def test_policies_limit_records(bench: Bench) -> None:
    schema = {"type": "object", "required": ["n"]}
    bench.do(
        "set_policy",
        queue="log",
        policy={"limits": {"messageBytes": 60, "publishPerSec": 3}, "validation": {"schema": schema}},
    )
    assert bench.send("append", queue="log", message={"m": 1}).code == "ERR_VALIDATION_FAILED"
    assert bench.send("append", queue="log", message={"n": "x" * 60}).code == "ERR_MESSAGE_TOO_LARGE"
    append(bench, {"n": 1}, {"n": 2})
    assert bench.send("append", queue="log", messages=[{"message": {"n": 3}}] * 2).code == "ERR_RATE_LIMITED"
    append(bench, {"n": 3})
    bench.do("pause", queue="log", operation="publish")
    assert bench.send("append", queue="log", message={"n": 4}).code == "ERR_PAUSED"


def test_a_group_that_fails_appends_nothing_and_readers_wait_on(bench: Bench) -> None:
    reader = waiting(bench)
    with bench.full_disk():
        assert bench.send("append", queue="log", message="x").code == "ERR_STORAGE_FULL"
    assert not reader.answers and read(bench) == []
    bench.clocks.pass_ms(2000)
    append(bench, "y")
    bench.run()
    assert bodies(reader.data) == ["y"]


def test_an_answer_to_a_read_is_counted_by_its_bodies(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom_daemon.broker.transaction.BODIES_OF_A_GROUP", 1000)
    append(bench, "x" * 600)
    sent = [bench.make("read", queue="log") for _ in range(4)]
    for one in sent:
        bench.live.broker.submit(one.request)
    bench.live.broker.run_group()
    assert [bool(one.answers) for one in sent] == [True, True, False, False]
    bench.run()
    assert all(type(one.answer) is Answer for one in sent)


def test_a_pipe_passes_messages_on_to_logs_and_records_on_to_queues(bench: Bench) -> None:
    bench.do("create_queue", queue="log2", createWith={"kind": "log"})
    bench.do("set_policy", queue="in", policy={"pipe": {"to": ["log", "log2"]}})
    bench.do("set_policy", queue="log", policy={"pipe": {"to": ["a", "b"]}})
    bench.publish("in", {"n": 1}, attributes={"site": "roof", "level": 2}, correlationId="c")
    bench.publish("in", "two")
    bench.publish("in", "later", delayMs=60_000)
    for _ in range(4):
        bench.clocks.pass_ms(1000)
        bench.run()
    assert read(bench, queue="log2") == [{"n": 1}, "two"]
    (record, _) = bench.do("read", queue="log2", payloadAs="value")["records"]
    assert record["attributes"] == {"site": "roof", "level": "2", "correlationId": "c"}
    assert bench.counts("in") == {"delayed": 1}
    for queue in ("a", "b"):
        messages = bench.do("consume_next", queue=queue, max=10, payloadAs="value")["messages"]
        assert [one["message"]["payload"] for one in messages] == [{"n": 1}, "two"]
    readers = bench.do("list_readers", queue="log")["readers"]
    assert [(one["reader"], one["isBehind"]) for one in readers] == [("pipe:a", False), ("pipe:b", False)]


def test_a_pipe_that_would_come_back_is_refused_and_one_without_a_target_waits(bench: Bench) -> None:
    bench.do("set_policy", queue="log", policy={"pipe": {"to": ["a"]}})
    for targets in (["log"], ["a"]):
        refused = bench.send("set_policy", queue="a", policy={"pipe": {"to": targets}})
        assert refused.code == "ERR_INVALID_REQUEST", targets
    bench.do("set_policy", queue="in", policy={"pipe": {"to": ["log", "none"]}})
    bench.do("create_queue", queue="a")
    bench.publish("in", "x")
    bench.do("pause", queue="a", operation="publish")
    append(bench, "y")
    for _ in range(3):
        bench.clocks.pass_ms(1000)
        bench.run()
    assert bench.counts("in") == {"ready": 1} and bench.counts("a") == {}
    bench.do("create_queue", queue="none", createWith={"kind": "log"})
    bench.do("resume", queue="a", operation="publish")
    for _ in range(3):
        bench.clocks.pass_ms(1000)
        bench.run()
    assert bench.counts("in") == {} and bench.counts("a") == {"ready": 2}


def test_a_client_that_reads_no_answers_gets_no_more_records(bench: Bench) -> None:
    append(bench, "a")
    at_once, later = bench.make("read", queue="log"), waiting(bench, start="newest")

    def has_too_much_unread() -> None:
        raise CommandError(ErrorCode.QUOTA_EXCEEDED, "read the answers first")

    at_once.request.check_deliverable = later.request.check_deliverable = has_too_much_unread
    bench.run(at_once)
    append(bench, "b")
    bench.run()
    assert (at_once.code, later.code) == ("ERR_QUOTA_EXCEEDED", "ERR_QUOTA_EXCEEDED")
