"""consume_next with waitMs: who is woken, who is not, and when it ends."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.wire.daemon import PATIENCE_S, Daemon, Sent, wait_until

#: Longer than a test waits for an answer: what is answered was woken.
LONG_MS = 10 * PATIENCE_S * 1000


def wait_for(daemon: Daemon, queue: str, wait_ms: int = LONG_MS, **fields: object) -> Sent:
    """Send a waiting request, and see it parked."""
    parked = daemon.ask("metrics")["mailbox"]["parked"]
    sent = daemon.send("consume_next", {"queue": queue, "waitMs": wait_ms, **fields})
    daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] > parked, "the request waits")
    return sent


def payload(daemon: Daemon, sent: Sent) -> str | None:
    message = daemon.answer(sent)["data"]["message"]
    return message and str(message["payload"])


def test_a_publish_wakes_a_waiting_consumer(daemon: Daemon) -> None:
    sent = wait_for(daemon, "q")
    assert (daemon.requests / sent.name).exists(), "the request file must stay while it waits"
    daemon.publish("q", "for you")
    assert payload(daemon, sent) == "for you"
    daemon.wait(lambda: not (daemon.requests / sent.name).exists(), "the request is gone")


def test_the_wait_ends_with_null(daemon: Daemon) -> None:
    began = time.monotonic()
    sent = daemon.send("consume_next", {"queue": "q", "waitMs": 300})
    assert payload(daemon, sent) is None
    assert time.monotonic() - began >= 0.29


def test_the_deadline_ends_the_wait_with_null(daemon: Daemon) -> None:
    deadline = int(time.time() * 1000) + 3000
    sent = daemon.send("consume_next", {"queue": "q", "waitMs": LONG_MS}, deadlineMs=deadline)
    response = daemon.answer(sent)
    assert response["data"] == {"message": None}
    assert time.time() * 1000 >= deadline - 10


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "stopped in order"])
def test_a_restart_does_not_renew_the_wait(daemon: Daemon, kill: bool) -> None:
    """It is over before that of one who comes after the restart and waits a little less than it did at first."""
    sent = wait_for(daemon, "q", wait_ms=4000)
    began = time.monotonic()
    daemon.kill() if kill else daemon.stop()
    wait_until(lambda: time.monotonic() > began + 2, "half of the wait is over")
    daemon.start()
    later = daemon.send("consume_next", {"queue": "q", "waitMs": 2500})
    assert payload(daemon, later) is None
    assert daemon.answer_path(sent).exists(), "the wait began again"
    assert payload(daemon, sent) is None


def test_a_consumer_that_waits_over_a_restart_is_served(daemon: Daemon) -> None:
    sent = wait_for(daemon, "q")
    daemon.restart(kill=True)
    daemon.publish("q", "after the restart")
    assert payload(daemon, sent) == "after the restart"


def test_the_longest_waiting_consumer_is_served_first(daemon: Daemon) -> None:
    waiting = [wait_for(daemon, "q") for _ in range(4)]
    for number in range(4):
        daemon.publish("q", f"message {number}")
    assert [payload(daemon, sent) for sent in waiting] == [f"message {number}" for number in range(4)]


def test_a_message_for_one_consumer_wakes_that_consumer(daemon: Daemon) -> None:
    first = wait_for(daemon, "q", consumerId="first")
    second = wait_for(daemon, "q", consumerId="second")
    daemon.publish("q", "to the second", targetConsumerId="second")
    assert payload(daemon, second) == "to the second"
    assert not daemon.answer_path(first).exists()
    daemon.publish("q", "to anyone")
    assert payload(daemon, first) == "to anyone"


def test_withdrawing_the_request_ends_the_wait(daemon: Daemon) -> None:
    gone = wait_for(daemon, "q")
    stays = wait_for(daemon, "q")
    (daemon.requests / gone.name).unlink()
    daemon.publish("q", "to the one who stays")
    assert payload(daemon, stays) == "to the one who stays"
    assert not daemon.answer_path(gone).exists()
    daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] <= 1, "nobody waits")


def test_no_message_is_leased_to_a_consumer_that_withdrew_its_request(daemon: Daemon) -> None:
    gone = wait_for(daemon, "q")
    (daemon.requests / gone.name).unlink()
    daemon.publish("q")
    assert daemon.counts("q") == {"ready": 1}


def test_a_paused_queue_wakes_nobody_until_it_is_resumed(daemon: Daemon) -> None:
    daemon.ask("set_policy", queue="q", policy={})
    daemon.ask("pause", queue="q")
    sent = wait_for(daemon, "q")
    daemon.publish("q", "behind the pause")
    daemon.ask("health")
    assert not daemon.answer_path(sent).exists()
    daemon.ask("resume", queue="q")
    assert payload(daemon, sent) == "behind the pause"


def test_a_delayed_message_wakes_when_it_is_due(daemon: Daemon) -> None:
    sent = wait_for(daemon, "q")
    began = time.monotonic()
    daemon.publish("q", "later", delayMs=400)
    assert payload(daemon, sent) == "later"
    assert time.monotonic() - began >= 0.39


def test_a_lease_that_ends_wakes_the_next_consumer(daemon: Daemon) -> None:
    daemon.ask("set_policy", queue="q", policy={"retry": {"initialDelaySec": 0.01}})
    daemon.publish("q", "twice")
    delivery = daemon.consume("q")
    sent = wait_for(daemon, "q")
    daemon.settle("extend_lease", delivery, visibilityTimeoutSec=0.02)
    answer = daemon.answer(sent)["data"]
    assert (answer["message"]["payload"], answer["message"]["attempt"]) == ("twice", 2)


@pytest.mark.parametrize("command", ["release", "reprocess_dlq"])
def test_a_released_message_wakes_the_next_consumer(daemon: Daemon, command: str) -> None:
    daemon.publish("q", "again")
    delivery = daemon.consume("q")
    if command == "reprocess_dlq":
        daemon.settle("nack", delivery)
    sent = wait_for(daemon, "q")
    if command == "release":
        daemon.settle("release", delivery)
    else:
        daemon.ask("reprocess_dlq", messageKey=delivery["message"]["messageKey"])
    assert payload(daemon, sent) == "again"


# --- a client that dies ----------------------------------------------------------------------------------------------

WAITER = """
import fcntl, os, sys
temporary, name = sys.argv[1] + ".tmp", sys.argv[1]
fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
os.write(fd, sys.argv[2].encode())
fcntl.flock(fd, fcntl.LOCK_EX)
os.rename(temporary, name)
sys.stdin.read()
"""


def waiting_process(daemon: Daemon, queue: str) -> tuple[Sent, subprocess.Popen[bytes]]:
    """A process that waits, and holds the lock that says so."""
    parked = daemon.ask("metrics")["mailbox"]["parked"]
    sent = daemon.request("consume_next", {"queue": queue, "waitMs": LONG_MS, "waitLock": True})
    arguments = [sys.executable, "-c", WAITER, str(daemon.requests / sent.name), sent.data.decode()]
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE)
    daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] > parked, "the process waits")
    return sent, process


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdin
    process.stdin.close()


def test_a_client_that_was_killed_gets_no_message_and_the_next_one_does(daemon: Daemon) -> None:
    dead, process = waiting_process(daemon, "q")
    alive = wait_for(daemon, "q")
    end(process)
    daemon.publish("q", "to the living")
    assert payload(daemon, alive) == "to the living"
    assert not daemon.answer_path(dead).exists()
    daemon.wait(lambda: not (daemon.requests / dead.name).exists(), "its request is gone")
    (leased,) = daemon.events("leased")
    assert leased["by"]["request"] == alive.request_id


def test_with_nobody_else_the_message_of_a_killed_client_stays_ready(daemon: Daemon) -> None:
    _, process = waiting_process(daemon, "q")
    end(process)
    daemon.publish("q")
    assert daemon.counts("q") == {"ready": 1}
    assert daemon.events("leased") == []


def test_a_client_with_its_lock_is_served(daemon: Daemon) -> None:
    sent, process = waiting_process(daemon, "q")
    try:
        daemon.publish("q", "to a living process")
        assert payload(daemon, sent) == "to a living process"
    finally:
        end(process)


def test_a_client_that_sleeps_is_not_taken_for_dead(daemon: Daemon) -> None:
    sent, process = waiting_process(daemon, "q")
    try:
        process.send_signal(signal.SIGSTOP)
        daemon.publish("q", "kept for it")
        assert payload(daemon, sent) == "kept for it"
    finally:
        end(process)


def test_a_killed_client_stays_dead_over_a_restart(daemon: Daemon) -> None:
    dead, process = waiting_process(daemon, "q")
    end(process)
    daemon.restart(kill=True)
    daemon.publish("q")
    assert daemon.counts("q") == {"ready": 1}
    assert not daemon.answer_path(dead).exists()


def test_a_lock_without_the_promise_to_keep_it_means_nothing(daemon: Daemon) -> None:
    sent = wait_for(daemon, "q")  # no waitLock
    fd = os.open(daemon.requests / sent.name, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        daemon.publish("q", "anyway")
        assert payload(daemon, sent) == "anyway"
    finally:
        os.close(fd)
