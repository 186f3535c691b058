"""Kept outcomes, through the mailbox and the lane, and as ``postroom`` and the Python client show them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from postroom_client import Client
from tests.wire.conftest import MakeDaemon, on_every_store
from tests.wire.daemon import Daemon


@pytest.fixture
def daemon(make_daemon: MakeDaemon) -> Daemon:
    daemon = make_daemon().start()
    daemon.ask("set_policy", queue="q", policy={"done": {"keep": "message"}})
    return daemon


def completed(daemon: Daemon, body: str) -> str:
    key = daemon.publish("q", body)
    daemon.settle("ack", daemon.ask("consume_next", queue="q"))
    return key


def browsed(daemon: Daemon, state: str) -> list[str]:
    return [one["messageKey"] for one in daemon.ask("browse", queue="q", state=state)["messages"]]


def postroom(daemon: Daemon, *words: str) -> str:
    line = [sys.executable, "-m", "postroom_client", "--ipc-root", str(daemon.ipc), *words]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout


@on_every_store
def test_a_message_that_is_done_is_listed_after_a_restart_and_purged(daemon: Daemon) -> None:
    keys = [completed(daemon, body) for body in ("a", "b")]
    daemon.restart(kill=True)
    assert browsed(daemon, "done") == keys
    daemon.restart()
    assert browsed(daemon, "done") == keys
    assert daemon.ask("get_message", messageKey=keys[0])["message"]["payload"] == "a"
    daemon.publish("q", "c")
    answer = daemon.ask("purge", queue="q", state="any", resetTally=True)
    assert (answer["purged"], answer["next"]) == (3, "")
    assert daemon.counts("q") == {}


@on_every_store
def test_messages_are_abandoned_in_any_state_and_told_from_those_that_failed(daemon: Daemon) -> None:
    done = completed(daemon, "done")
    failed = daemon.publish("q", "failed")
    daemon.settle("nack", daemon.ask("consume_next", queue="q"))
    leased = daemon.publish("q", "leased")
    daemon.ask("consume_next", queue="q")
    ready = daemon.publish("q", "ready")
    for key in (done, leased, ready):
        assert daemon.ask("abandon", messageKey=key, reason="no longer needed") == {"state": "dead"}
    daemon.restart(kill=True)
    status: dict[str, Any] = daemon.ask("status", queue="q")
    assert status["reasons"] == {"ABANDONED": 3, "REJECTED": 1}
    letters = daemon.ask("list_dlq", queue="q", filter={"notReasonCode": "ABANDONED"})["messages"]
    assert [letter["messageKey"] for letter in letters] == [failed]
    waiting = daemon.send("consume_next", {"queue": "q", "waitMs": 60_000})
    daemon.ask("reprocess_dlq", queue="q", filter={"notReasonCode": "ABANDONED"})
    assert daemon.answer(waiting)["data"]["message"]["messageKey"] == failed


@on_every_store
def test_outcomes_that_are_not_kept_are_counted_in_the_tally_across_restarts(daemon: Daemon) -> None:
    daemon.ask("set_policy", queue="q", policy={"done": {"keep": "none"}, "abandon": {"keep": "none"}})
    completed(daemon, "a")
    assert daemon.ask("abandon", messageKey=daemon.publish("q", "b")) == {"state": "dropped"}
    for restart in (lambda: daemon.restart(kill=True), daemon.restart):
        restart()
        assert daemon.ask("status", queue="q")["tally"] == {"completed": 1, "abandoned": 1}
    daemon.ask("purge", queue="q", resetTally=True)
    daemon.restart(kill=True)
    assert daemon.ask("list_queues")["queues"][0]["tally"] == {"completed": 0, "abandoned": 0}


def test_the_client_and_the_command_line_show_outcomes(daemon: Daemon) -> None:
    with Client(str(daemon.ipc)) as client:
        key = completed(daemon, "a")
        client.abandon(client.publish("q", "b")["messageKey"], reason="late")
        assert client.browse("q", state="done")["messages"][0]["messageKey"] == key
    assert key in postroom(daemon, "done", "--queue", "q")
    shown = json.loads(postroom(daemon, "done", "--queue", "q", "--json"))
    assert shown["data"]["state"] == "done"
    assert "done          1" in postroom(daemon, "status", "--queue", "q")
    header, row = (line.split() for line in postroom(daemon, "queues").splitlines()[:2])
    assert row[header.index("done")] == "1"
    assert "dead" in postroom(daemon, "abandon", "--message-key", key, "--reason", "recalled")
    postroom(daemon, "purge", "--queue", "q", "--state", "any", "--reset-tally", "--yes")
    assert daemon.counts("q") == {}


@on_every_store
def test_a_purge_of_one_message_removes_it_whatever_its_state_and_no_other(daemon: Daemon) -> None:
    done, failed = completed(daemon, "done"), daemon.publish("q", "failed")
    daemon.settle("nack", daemon.ask("consume_next", queue="q"))
    leased = daemon.publish("q", "leased")
    lease = daemon.ask("consume_next", queue="q")["lease"]["leaseId"]
    ready, other = daemon.publish("q", "ready"), daemon.publish("q", "other")
    draft = daemon.ask("draft", queue="q", parts=["a"])["messageKey"]
    assert daemon.ask("purge", queue="q", messageKey=ready, dryRun=True)["purged"] == 1
    for key in (ready, failed, leased, done, draft):
        answer = daemon.ask("purge", queue="q", messageKey=key)
        assert (answer["purged"], answer["next"]) == (1, "")
        assert daemon.refusal("purge", queue="q", messageKey=key) == "ERR_MESSAGE_NOT_FOUND"
    assert daemon.refusal("ack", messageKey=leased, leaseId=lease) == "ERR_MESSAGE_NOT_FOUND"
    daemon.restart(kill=True)
    assert daemon.counts("q") == {"ready": 1}
    daemon.publish("another", "x")
    assert daemon.refusal("purge", queue="another", messageKey=other) == "ERR_MESSAGE_NOT_FOUND"
    assert daemon.refusal("purge", queue="q", messageKey=other, state="ready") == "ERR_INVALID_REQUEST"
    assert daemon.refusal("purge", queue="q", messageKey=other, filter={}) == "ERR_INVALID_REQUEST"
    postroom(daemon, "purge", "--queue", "q", "--message-key", other, "--yes")
    assert daemon.counts("q") == {}
