"""A running daemon as a source, and the link to it: answers, lines, and a daemon that hangs."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from postroom_client import Client
from postroom_console.data import live
from postroom_console.data.link import Link
from postroom_console.data.live import Live
from postroom_console.data.updates import Answer, Failure, Lines, Step, Update
from tests.console.watching import Watch, is_alive, live_source
from tests.wire.daemon import Daemon, wait_until

# --- questions and lines ------------------------------------------------------------------------------------------


def test_questions_are_answered_again_and_again_until_they_are_forgotten(daemon: Daemon, source: Live) -> None:
    watch = Watch(source)
    source.subscribe("queues", "list_queues", {}, 10)
    watch.until(lambda one: isinstance(one, Answer) and one.data["queues"] == [], "there are no queues")
    daemon.publish("alarms")
    watch.until(lambda one: isinstance(one, Answer) and one.data["queues"], "there is a queue")
    source.unsubscribe("queues")
    source.subscribe("health", "health", {}, 10)
    watch.until(lambda one: isinstance(one, Answer) and one.name == "health", "health is told")
    watch.until(lambda one: isinstance(one, Answer) and one.name == "health", "health is told again")
    watch.until(lambda one: isinstance(one, Answer) and one.name == "health", "and again")
    assert not any(isinstance(one, Answer) and one.name == "queues" for one in watch.all())


def test_a_question_that_is_not_due_yet_is_asked_on_demand(source: Live) -> None:
    watch = Watch(source)
    source.subscribe("health", "health", {}, 3_600_000)
    watch.until(lambda one: isinstance(one, Answer), "health is told")
    source.refresh()
    watch.until(lambda one: isinstance(one, Answer), "health is told again")


def test_a_refusal_has_its_code(source: Live) -> None:
    source.subscribe("message", "get_message", {"messageKey": "msg:alarms:not-there"}, 1000)
    refused = Watch(source).until(lambda one: isinstance(one, Failure), "the question is refused")
    assert isinstance(refused, Failure)
    assert (refused.name, refused.code) == ("message", "ERR_MESSAGE_NOT_FOUND")


def test_a_list_is_gathered_from_its_pages(daemon: Daemon) -> None:
    for number in range(5):
        daemon.publish(f"q{number}")
    asker = Link(lambda: Client(str(daemon.ipc)), lambda: False)
    answer = asker.ask("queues", "list_queues", {"limit": 2})
    asker.close()
    assert isinstance(answer, Answer)
    assert [one["queue"] for one in answer.data["queues"]] == [f"q{number}" for number in range(5)]
    assert answer.data["next"] == ""


def test_activity_arrives_as_records_of_journal_and_traffic(daemon: Daemon, source: Live) -> None:
    watch = Watch(source)
    key = daemon.publish("alarms", {"a": 1})
    records: list[Any] = []

    def take(update: Update) -> bool:
        if isinstance(update, Lines):
            records.extend(update.records)
        return {"published", "publish"} <= {record.kind for record in records}

    watch.until(take, "event and request are there")
    event = next(record for record in records if record.kind == "published")
    request = next(record for record in records if record.kind == "publish")
    assert (event.key, event.queue, event.detail) == (key, "alarms", 'p0 {"a":1}')
    assert event.request == request.request


def test_answers_that_nobody_took_are_replaced_by_newer_ones(daemon: Daemon, source: Live) -> None:
    source.subscribe("queues", "list_queues", {}, 1)
    daemon.publish("alarms")
    listed = {line["command"]: line for line in _traffic(daemon)}
    wait_until(lambda: sum(line["command"] == "list_queues" for line in _traffic(daemon)) > 20, "it was asked often")
    assert listed
    assert sum(isinstance(update, Answer) for _, update in source.drain()) <= 1


def _traffic(daemon: Daemon) -> list[dict[str, Any]]:
    lines = [line for path in (daemon.root / "traffic").glob("*.jsonl") for line in path.read_bytes().split(b"\n")[:-1]]
    return [json.loads(line) for line in lines]


def test_records_that_nobody_takes_are_only_counted(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_WAITING_BYTES", 2000)
    source = live_source(daemon, Client)
    source.start()
    for number in range(40):
        daemon.publish("alarms", f"{number}")

    def skipped() -> int:
        with source._lock:
            return sum(update.skipped_bytes for _, update in source._updates if isinstance(update, Lines))

    wait_until(skipped, "something was passed over")
    lines = [update for _, update in source.drain() if isinstance(update, Lines)]
    source.stop()
    assert len(lines) == 1
    assert 0 < len(lines[0].records) < 80


def test_without_a_daemon_the_reason_is_shown_and_nothing_ends(tmp_path: Path, hasty: None) -> None:
    source = Live(lambda: Client(str(tmp_path / "ipc")), tmp_path / "journal", None)
    watch = Watch(source)
    source.subscribe("health", "health", {}, 1)
    source.start()
    missing = watch.until(lambda one: isinstance(one, Failure), "it is said that nobody answers")
    assert isinstance(missing, Failure)
    assert missing.code == "" and "does not exist" in missing.text
    watch.until(lambda one: isinstance(one, Failure), "it is said again")
    source.stop()
    wait_until(lambda: not is_alive(), "all threads have ended")


# --- a daemon that hangs ------------------------------------------------------------------------------------------


def test_a_daemon_that_hangs_is_reported_as_is_its_return(daemon: Daemon, source: Live, hasty: None) -> None:
    watch = Watch(source)
    source.subscribe("health", "health", {}, 10)
    watch.until(lambda one: isinstance(one, Answer), "health is told")
    daemon.freeze()
    lost = watch.until(lambda one: isinstance(one, Failure), "it is said that nobody answers")
    assert isinstance(lost, Failure) and lost.code == ""
    daemon.thaw()
    watch.until(lambda one: isinstance(one, Answer), "health is told again")


def test_it_ends_and_leaves_nothing_behind_even_if_the_daemon_hangs(daemon: Daemon) -> None:
    source = live_source(daemon, partial(Client, transport="mailbox"))
    source.subscribe("health", "health", {}, 10)
    source.start()
    Watch(source).until(lambda one: isinstance(one, Answer), "health is told")
    daemon.freeze()
    source.execute((Step("pause", {"queue": "alarms", "operation": "consume"}),))
    wait_until(lambda: len(list(daemon.requests.glob("*.json"))) == 2, "question and action wait")
    source.stop()
    wait_until(lambda: not is_alive(), "all threads have ended")
    assert list(daemon.requests.glob("*.json")) == []
    daemon.thaw()
    assert daemon.events("paused") == []


def test_an_answer_to_another_question_of_the_same_name_is_not_returned(daemon: Daemon, source: Live) -> None:
    daemon.publish("alarms", "x")
    daemon.publish("office", "x")
    source.subscribe("status", "status", {"queue": "alarms"}, 600_000)
    wait_until(lambda: "status" in [line["command"] for line in _traffic(daemon)], "the first question is answered")
    source.subscribe("status", "status", {"queue": "office"}, 600_000)
    answer = Watch(source).until(lambda one: isinstance(one, Answer), "the other one is answered")
    assert isinstance(answer, Answer) and answer.data["queue"] == "office"
