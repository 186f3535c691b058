"""What an operator does with messages and queues, and sees of them; over restarts, and by requests sent again."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from typing import Any

import pytest

from postroom_client.cli.answers import describe
from tests.wire.daemon import Daemon, receipt

Fields = dict[str, Any]


def bodies(daemon: Daemon, queue: str, state: str = "ready") -> list[str]:
    return [one["preview"] for one in daemon.ask("browse", queue=queue, state=state)["messages"]]


def all_pages(daemon: Daemon, command: str, **payload: Any) -> list[Fields]:
    """A request and those that go on where the page before has ended."""
    pages = [daemon.ask(command, **payload)]
    while pages[-1]["next"]:
        place = {"after": pages[-1]["next"]}
        if "upToEvent" in pages[-1]:
            place["upToEvent"] = pages[-1]["upToEvent"]
        pages.append(daemon.ask(command, **(payload | place)))
    return pages


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "stopped in order"])
def test_a_message_on_hold_is_not_delivered_until_unhold_even_over_a_restart(daemon: Daemon, kill: bool) -> None:
    key = daemon.publish("q", "first")
    daemon.publish("q", "second")
    daemon.ask("hold", messageKey=key, reason="looks odd")
    daemon.restart(kill=kill)
    assert daemon.counts("q") == {"held": 1, "ready": 1}
    delivery = daemon.consume("q")
    assert delivery["message"]["payload"] == "second"
    assert daemon.ask("consume_next", queue="q") == {"message": None}
    daemon.settle("release", delivery)
    assert daemon.ask("unhold", messageKey=key)["state"] == "ready"
    daemon.restart(kill=kill)
    assert bodies(daemon, "q") == ["first", "second"]


def test_a_delayed_message_is_still_delayed_after_unhold(daemon: Daemon) -> None:
    key = daemon.publish("q", delayMs=3_600_000)
    due = daemon.ask("get_message", messageKey=key)["message"]["availableAtEngineMs"]
    assert daemon.ask("hold", messageKey=key)["state"] == "held"
    let_go = daemon.ask("unhold", messageKey=key)
    assert (let_go["state"], let_go["availableAtEngineMs"]) == ("delayed", due)


def test_leased_or_dead_messages_cannot_be_put_on_hold_or_moved(daemon: Daemon) -> None:
    key = daemon.publish("q")
    delivery = daemon.consume("q")
    for command, more in (("hold", {}), ("unhold", {}), ("move", {"to": "other"})):
        assert daemon.refusal(command, messageKey=key, **more) == "ERR_INVALID_REQUEST"
    daemon.settle("nack", delivery)
    for command, more in (("hold", {}), ("unhold", {}), ("move", {"to": "other"})):
        assert daemon.refusal(command, messageKey=key, **more) == "ERR_INVALID_REQUEST"
    assert daemon.counts("q") == {"dlq": 1}
    assert [queue["queue"] for queue in daemon.ask("list_queues")["queues"]] == ["q"]


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "stopped in order"])
def test_a_moved_message_keeps_its_key_its_attempts_and_its_place(daemon: Daemon, kill: bool) -> None:
    key = daemon.publish("q", "older")
    daemon.publish("other", "younger")
    daemon.settle("nack", daemon.consume("q"), requeue=True, delayMs=0)
    daemon.wait(lambda: daemon.counts("q") == {"ready": 1}, "it is ready again")
    assert daemon.ask("move", messageKey=key, to="other")["moved"] == 1
    daemon.restart(kill=kill)
    delivery = daemon.consume("other")["message"]
    assert (delivery["payload"], delivery["messageKey"], delivery["attempt"]) == ("older", key, 2)
    assert (daemon.counts("q"), daemon.counts("other")) == ({}, {"inflight": 1, "ready": 1})


def test_waiting_messages_are_moved_by_a_filter_in_any_state(daemon: Daemon) -> None:
    held = daemon.publish("q", "held", attributes={"line": 7})
    daemon.publish("q", "ready", attributes={"line": 7})
    daemon.publish("q", "delayed", attributes={"line": 7}, delayMs=3_600_000)
    daemon.publish("q", "of another line", attributes={"line": 8})
    daemon.ask("hold", messageKey=held)
    pages = all_pages(daemon, "move", queue="q", to="line 7", filter={"attribute": {"line": 7}}, limit=1)
    assert sum(page["moved"] for page in pages) == 3
    assert daemon.counts("line 7") == {"held": 1, "ready": 1, "delayed": 1}
    assert bodies(daemon, "q") == ["of another line"]


def test_pages_of_a_purge_drop_all_earlier_messages_and_no_later_ones(daemon: Daemon) -> None:
    for number in range(5):
        daemon.publish("q", f"old {number}", orderingKey="k" if number % 2 else "")
    first = daemon.ask("purge", queue="q", limit=2)
    daemon.publish("q", "new", priority=9)
    rest = all_pages(daemon, "purge", queue="q", limit=2, after=first["next"], upToEvent=first["upToEvent"])
    assert first["purged"] + sum(page["purged"] for page in rest) == 5
    assert bodies(daemon, "q") == ["new"]


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "stopped in order"])
def test_a_purge_by_a_filter_leaves_other_messages_and_those_in_flight(daemon: Daemon, kill: bool) -> None:
    daemon.publish("q", {"temp": 20})
    daemon.publish("q", {"temp": 90}, priority=-1)
    daemon.publish("q", {"temp": 95}, priority=1)
    delivery = daemon.consume("q")
    hot: Fields = {"queue": "q", "filter": {"jsonPath": "$[?@ > 80]"}}
    assert daemon.ask("purge", **hot, dryRun=True)["purged"] == 1
    assert daemon.counts("q") == {"ready": 2, "inflight": 1}
    assert daemon.ask("purge", **hot)["purged"] == 1
    daemon.restart(kill=kill)
    assert bodies(daemon, "q") == ['{"temp":20}']
    daemon.settle("ack", delivery)
    assert [event["failure"]["reasonCode"] for event in daemon.events("dropped")] == ["PURGED"]


@pytest.mark.parametrize(("command", "more"), [("purge", {}), ("move", {"to": "other"})])
def test_every_suggested_continuation_includes_the_filter(daemon: Daemon, command: str, more: Fields) -> None:
    for number in range(3):
        daemon.publish("q", str(number))
    data = daemon.ask(command, queue="q", limit=1, filter={"attemptAtLeast": 0}, **more)
    reported = describe(command, data)
    assert f"the same command with --after {data['next']} --up-to-event {data['upToEvent']}" in reported
    assert f"postroom {command}" not in reported


@pytest.mark.parametrize(("answer", "left", "status"), [("no", 2, 1), ("yes", 0, 0)])
def test_a_purge_on_a_terminal_asks_first(daemon: Daemon, answer: str, left: int, status: int) -> None:
    daemon.publish("q")
    daemon.publish("q")
    terminal, other_end = pty.openpty()
    command = [sys.executable, "-m", "postroom_client", "--ipc-root", str(daemon.ipc), "purge", "--queue", "q"]
    with contextlib.closing(os.fdopen(terminal, "w")) as keyboard:
        process = subprocess.Popen(
            command, stdin=other_end, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        os.close(other_end)
        keyboard.write(answer + "\n")
        keyboard.flush()
        reported, _ = process.communicate(timeout=60)
    assert "2 messages will be removed from q" in reported
    assert process.returncode == status, reported
    assert daemon.counts("q").get("ready", 0) == left


def test_dead_letters_are_purged_only_on_request(daemon: Daemon) -> None:
    daemon.publish("q")
    daemon.settle("nack", daemon.consume("q"))
    assert daemon.ask("purge", queue="q")["purged"] == 0
    assert daemon.counts("q") == {"dlq": 1}
    assert daemon.ask("purge", queue="q", state="dead")["purged"] == 1
    assert daemon.counts("q") == {}


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "stopped in order"])
def test_a_deleted_queue_is_forgotten_with_its_policy_and_pauses(daemon: Daemon, kill: bool) -> None:
    key = daemon.publish("q")
    daemon.ask("set_policy", queue="q", policy={"retry": {"limit": 9}})
    daemon.ask("pause", queue="q")
    daemon.ask("hold", messageKey=key)
    assert daemon.refusal("delete_queue", queue="q") == "ERR_QUEUE_NOT_EMPTY"
    daemon.ask("purge", queue="q")
    daemon.ask("delete_queue", queue="q")
    daemon.restart(kill=kill)
    assert daemon.ask("status", queue="q")["exists"] is False
    daemon.publish("q")
    status = daemon.ask("status", queue="q")
    assert (status["policy"]["retry"]["limit"], status["paused"]["consume"]) == (5, False)


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "stopped in order"])
def test_a_drain_refuses_new_messages_until_it_ends_even_over_a_restart(daemon: Daemon, kill: bool) -> None:
    daemon.publish("q")
    daemon.ask("drain")
    daemon.restart(kill=kill)
    assert daemon.refusal("publish", queue="q", message="x") == "ERR_DRAINING"
    delivery = daemon.consume("q")
    step: Fields = {**receipt(delivery), "messages": [{"queue": "next", "message": "x"}]}
    assert daemon.refusal("ack_and_publish", **step) == "ERR_DRAINING"
    assert daemon.counts("q") == {"inflight": 1}
    daemon.settle("ack", delivery)
    daemon.ask("drain", draining=False)
    daemon.restart(kill=kill)
    daemon.publish("q")


def test_browsing_leases_nothing_and_lists_each_message_once_in_the_order_of_delivery(daemon: Daemon) -> None:
    for number in range(5):
        daemon.publish("q", str(number), priority=number)
    pages = all_pages(daemon, "browse", queue="q", limit=2)
    assert [one["preview"] for page in pages for one in page["messages"]] == ["4", "3", "2", "1", "0"]
    assert daemon.counts("q") == {"ready": 5}
    assert daemon.consume("q")["message"]["payload"] == "4"
    assert not daemon.events("released", "retried")


def test_the_history_of_a_message_outlives_it_and_the_daemon(daemon: Daemon) -> None:
    key = daemon.publish("q", {"secret": 42})
    daemon.ask("hold", messageKey=key, reason="looks odd")
    daemon.ask("unhold", messageKey=key)
    daemon.ask("move", messageKey=key, to="other")
    daemon.settle("ack", daemon.consume("other"))
    daemon.restart()
    assert daemon.refusal("get_message", messageKey=key) == "ERR_MESSAGE_NOT_FOUND"
    reported = daemon.ask("get_message", messageKey=key, events=100)
    types = [event["type"] for event in reported["events"]]
    assert (reported["state"], types) == ("gone", ["published", "held", "unheld", "moved", "leased", "acked"])
    assert reported["events"][1]["reason"] == "looks odd"
    assert {event["by"]["client"] for event in reported["events"]} == {"wire"}
    assert "secret" not in json.dumps(reported)
    latest = daemon.ask("get_message", messageKey=key, events=2)
    assert ([event["type"] for event in latest["events"]], latest["cut"]) == (["leased", "acked"], True)


def test_leases_of_all_queues_are_listed_by_the_time_of_their_end(daemon: Daemon) -> None:
    for queue, seconds in (("b", 3000), ("a", 1000), ("c", 2000)):
        daemon.publish(queue)
        daemon.consume(queue, visibilityTimeoutSec=seconds, consumerId=f"worker of {queue}")
    pages = all_pages(daemon, "list_inflight", limit=2)
    assert [one["queue"] for page in pages for one in page["messages"]] == ["a", "c", "b"]
    consumers = [one for page in all_pages(daemon, "list_consumers", limit=2) for one in page["consumers"]]
    assert [(one["consumerId"], one["inflight"]) for one in consumers] == [(f"worker of {q}", 1) for q in "abc"]
    daemon.restart(kill=True)
    assert [one["inflight"] for one in daemon.ask("list_consumers")["consumers"]] == [1, 1, 1]


def test_a_repeated_request_has_its_first_answer_and_is_not_executed_twice(daemon: Daemon) -> None:
    key = daemon.publish("q", "held")
    daemon.publish("q", "moved", priority=1)
    daemon.publish("q", "purged", priority=2)
    wanted: list[tuple[str, Fields]] = [
        ("hold", {"messageKey": key, "reason": "looks odd"}),
        ("purge", {"queue": "q", "filter": {"priority": 2}}),
        ("move", {"queue": "q", "to": "other", "filter": {"priority": 1}}),
        ("unhold", {"messageKey": key}),
        ("purge", {"queue": "q", "filter": {"priority": 0}}),
        ("delete_queue", {"queue": "q"}),
        ("drain", {}),
        ("drain", {"draining": False}),
    ]
    requests = [daemon.request(command, payload) for command, payload in wanted]
    first = [daemon.again(sent) for sent in requests]
    assert all(answer["ok"] for answer in first), first
    events = len(daemon.events())
    assert [daemon.again(sent) for sent in requests] == first
    assert len(daemon.events()) == events
    daemon.restart(kill=True)
    done = ("held", "unheld", "moved", "dropped", "queue_deleted", "drain_set")
    assert [daemon.again(sent) for sent in requests] == first
    assert len(daemon.events(*done)) == len(wanted)
