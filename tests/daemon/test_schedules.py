"""Messages that are published by the clock."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from postroom_daemon.engine import schedules
from postroom_daemon.engine.schedules import Plan
from tests.conformance.bench import Bench

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def drain(bench: Bench, queue: str = "q") -> list[str]:
    found = []
    while message := bench.do("consume_next", queue=queue)["message"]:
        found.append(message["payload"])
    return found


def pass_and_run(bench: Bench, milliseconds: int) -> None:
    bench.clocks.pass_ms(milliseconds)
    bench.run()


@pytest.fixture
def clocked(bench: Bench) -> Bench:
    """A bench at ten seconds past noon."""
    bench.clocks.wall_ms = at("2026-11-28T12:00:10")
    return bench


def test_every_run_publishes_one_message_with_all_that_the_schedule_says(clocked: Bench) -> None:
    reply = clocked.do(
        "set_schedule",
        name="beat",
        queue="q",
        cron="*/5 * * * *",
        message={"beat": 1},
        attributes={"a": "b"},
        priority=4,
    )
    assert reply["nextMs"] == at("2026-11-28T12:05:00")
    pass_and_run(clocked, 4 * MINUTE + 49_999)
    assert drain(clocked) == []
    pass_and_run(clocked, 1000)
    delivery = clocked.do("consume_next", queue="q", payloadAs="value")["message"]
    assert delivery["payload"] == {"beat": 1} and delivery["attributes"] == {"a": "b"} and delivery["priority"] == 4
    row = clocked.do("list_schedules")["schedules"][0]
    assert row["lastMs"] == at("2026-11-28T12:05:00") and row["nextMs"] == at("2026-11-28T12:10:00")


def test_a_schedule_of_the_same_name_replaces_it_and_a_deleted_one_publishes_nothing(clocked: Bench) -> None:
    clocked.do("set_schedule", name="s", queue="q", cron="@every 10s", message="old")
    clocked.do("set_schedule", name="s", queue="q", cron="@every 1h30m", message="new")
    pass_and_run(clocked, 90 * MINUTE)
    assert drain(clocked) == ["new"]
    clocked.do("delete_schedule", name="s")
    pass_and_run(clocked, DAY)
    assert drain(clocked) == [] and clocked.do("list_schedules")["schedules"] == []
    assert clocked.send("delete_schedule", name="s").code == "ERR_SCHEDULE_NOT_FOUND"


@pytest.mark.parametrize(("missed", "runs"), [("skip", 0), ("once", 1), ("all", 24)])
@pytest.mark.parametrize("without_store", [False, True])
def test_runs_missed_while_the_device_was_off_are_caught_up_as_the_schedule_says(
    clocked: Bench, missed: str, runs: int, without_store: bool
) -> None:
    clocked.clocks.pass_ms(HOUR // 2)
    clocked.do("set_schedule", name="s", queue="q", cron="0 * * * *", missed=missed)
    clocked.clocks.pass_ms(DAY)
    clocked.reopen(without_store)
    clocked.run()
    assert len(drain(clocked)) == runs
    assert clocked.do("list_schedules")["schedules"][0]["nextMs"] == at("2026-11-29T13:00:00")


def test_a_clock_that_jumps_ten_years_ahead_causes_one_run_and_one_that_jumps_back_delays_none(
    clocked: Bench,
) -> None:
    clocked.do("set_schedule", name="s", queue="q", cron="0 * * * *", missed="all")
    clocked.clocks.wall_ms += 3660 * DAY
    pass_and_run(clocked, 1000)
    assert len(drain(clocked)) == 1
    clocked.clocks.wall_ms -= 3960 * DAY
    pass_and_run(clocked, 1000)
    pass_and_run(clocked, HOUR)
    assert len(drain(clocked)) == 1


def test_before_the_clock_is_set_no_schedule_is_due(clocked: Bench) -> None:
    clocked.do("set_schedule", name="s", queue="q", cron="* * * * *")
    clocked.clocks.wall_ms = 5000
    pass_and_run(clocked, HOUR)
    assert drain(clocked) == []
    clocked.clocks.wall_ms = at("2026-11-28T14:00:00")
    pass_and_run(clocked, MINUTE)
    assert len(drain(clocked)) == 1


def test_a_refused_run_does_not_happen_and_the_journal_records_it(clocked: Bench) -> None:
    clocked.do("set_schedule", name="s", queue="q", cron="@every 10s")
    clocked.publish()
    clocked.do("pause", queue="q", operation="publish")
    pass_and_run(clocked, 10_000)
    assert clocked.events()[-1]["refused"] == "ERR_PAUSED"
    clocked.do("resume", queue="q", operation="publish")
    pass_and_run(clocked, 10_000)
    assert len(drain(clocked)) == 2


def test_a_repeat_gets_the_first_answer_after_a_restart_too(clocked: Bench) -> None:
    first = clocked.send("set_schedule", name="s", queue="q", cron="@every 10s")
    clocked.reopen()
    again = clocked.again(first)
    clocked.run(again)
    assert again.data == first.data


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"cron": "* * * *"}, "five fields"),
        ({"cron": "61 * * * *"}, "bad minute in '61 * * * *' (minute hour day month weekday)"),
        ({"cron": "0 0 30 2 *"}, "day-of-month"),
        ({"cron": "@every 5"}, "@every"),
        ({"cron": "@every 10ms"}, "1s to 366d"),
        ({"cron": "@hourly"}, "five fields, or @every"),
        ({"timezone": "Mars/Phobos"}, "time zone"),
        ({"timezone": "../../etc/passwd"}, "time zone"),
        ({"missed": "never"}, "missed must be"),
        ({"queue": "q.dlq"}, "dead letters"),
    ],
)
def test_an_invalid_schedule_is_refused_with_the_reason(bench: Bench, fields: dict[str, str], text: str) -> None:
    sent = bench.send("set_schedule", **({"name": "s", "queue": "q", "cron": "@every 5s"} | fields))
    assert sent.code == "ERR_INVALID_REQUEST" and sent.answer.error and text in sent.answer.error.message
    assert bench.do("list_schedules")["schedules"] == []


def test_an_hour_that_summer_time_skips_or_doubles_has_one_run() -> None:
    plan, zone = Plan("30 2 * * *", "Europe/Berlin"), ZoneInfo("Europe/Berlin")
    for begin in ("2026-03-27T12:00:00", "2026-10-23T12:00:00"):
        time, days = at(begin), []
        for _ in range(4):
            time = plan.after(time, 0)
            days.append(datetime.fromtimestamp(time / 1000, tz=zone).day)
        assert days == list(range(days[0], days[0] + 4))


def test_the_last_time_is_never_in_the_future_and_the_next_always_is() -> None:
    for cron in ("*/7 * * * *", "0 0 1 * *", "15 14 * * 1-5"):
        plan = Plan(cron, "UTC")
        for wall in (at("2026-11-28T12:00:00"), at("2026-11-28T12:00:00") + 1, at("2026-02-28T23:59:59")):
            last, following = plan.last(wall, 0), plan.after(wall, 0)
            assert last <= wall < following and plan.after(last, 0) == following


def test_a_schedule_that_has_become_unreadable_blocks_nothing(
    clocked: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As after an update of the device that has left the time zones out."""
    for name, timezone in (("a", "UTC"), ("b", "Europe/Berlin"), ("c", "UTC")):
        clocked.do("set_schedule", name=name, queue="q", cron="* * * * *", timezone=timezone, message=name)
    clocked.publish(queue="later", delayMs=1000)

    def no_zones(name: str) -> ZoneInfo:
        raise KeyError(name)

    with monkeypatch.context() as device:
        device.setattr(schedules, "ZoneInfo", no_zones)
        pass_and_run(clocked, 2 * MINUTE)
        assert clocked.do("consume_next", queue="later")["message"] is not None
        pass_and_run(clocked, 2 * MINUTE)
        assert sorted(drain(clocked)) == ["a", "a", "c", "c"]
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "schedule 'b' cannot be read, and publishes nothing"
    ]
    pass_and_run(clocked, MINUTE)
    assert sorted(drain(clocked)) == ["a", "b", "c"]


@pytest.mark.parametrize("cron", ["*/20 * * * *", "30 2 * * *", "0 */2 * * *", "*/20 1-3 * * *", "0 2 * * *"])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "America/Santiago"])
@pytest.mark.parametrize("begin", ["2026-03-28", "2026-10-24", "2026-04-04", "2026-10-03", "2026-09-05"])
def test_the_last_time_fits_the_next_when_the_offset_changes(cron: str, zone: str, begin: str) -> None:
    plan = Plan(cron, zone)
    time = plan.after(at(begin + "T06:00:00"), 0)
    for _ in range(30):
        following = plan.after(time, 0)
        assert plan.last(time, 0) == plan.last(following - 1, 0) == time
        time = following


def test_a_run_on_time_in_a_doubled_hour_was_not_missed(clocked: Bench) -> None:
    clocked.clocks.wall_ms = at("2026-10-25T00:30:00")
    clocked.do("set_schedule", name="s", queue="q", cron="*/20 1-3 * * *", timezone="Europe/Berlin", missed="skip")
    for _ in range(150):
        pass_and_run(clocked, MINUTE)
    runs = [event["forMs"] for event in clocked.events() if event["type"] == "schedule_fired"]
    assert runs == [at("2026-10-25T00:40:00") + number * 20 * MINUTE for number in range(7)]


def test_repeated_refusals_of_a_schedule_are_logged_once_each_time_they_begin(
    clocked: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    clocked.do("set_policy", queue="q", policy={"limits": {"messages": 1}})
    clocked.do("set_schedule", name="s", queue="q", cron="@every 10s", missed="all")
    for _ in range(2):
        pass_and_run(clocked, 10 * MINUTE)
        assert len(drain(clocked)) == 1
        assert [event.get("refused") for event in clocked.events()].count("ERR_QUEUE_FULL") == 59 * len(caplog.records)
        acked = clocked.do("list_inflight", queue="q")["messages"][0]["messageKey"]
        clocked.do("ack", messageKey=acked)


def test_one_turn_catches_up_a_bounded_number_of_runs_for_any_number_of_schedules(clocked: Bench) -> None:
    for name in "abcde":
        clocked.do("set_schedule", name=name, queue=name, cron="@every 10s", missed="all")
    pass_and_run(clocked, 20 * MINUTE)
    counts = [clocked.do("status", queue=name)["metrics"]["ready"] for name in "abcde"]
    assert counts == [100, 1, 1, 1, 1]
    for _ in range(10):
        pass_and_run(clocked, 1000)
    counts = [clocked.do("status", queue=name)["metrics"]["ready"] for name in "abcde"]
    assert counts == [121] * 5
