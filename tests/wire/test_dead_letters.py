"""Dead letters through a daemon: all reprocessed and removed, and what goes wrong with them elsewhere."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable

import pytest

from postroom_client import Client, InvalidArgument
from postroom_daemon.config.config import load
from postroom_daemon.platform.clock import Clock
from postroom_daemon.root.open_root import Sources, open_root
from tests.wire.conftest import MakeDaemon
from tests.wire.daemon import Daemon, Fields, receipt


def bury(daemon: Daemon, queue: str, count: int, reason: str = "bad") -> list[str]:
    """New dead letters; their keys, in the order of their deaths."""
    keys: list[str] = []
    while len(keys) < count:
        size = min(1000, count - len(keys))
        daemon.ask("publish_batch", queue=queue, messages=[{"message": str(number)} for number in range(size)])
        deliveries = daemon.ask("consume_next", queue=queue, max=size)["messages"]
        daemon.ask("nack_batch", items=[receipt(one) | {"reason": reason} for one in deliveries])
        keys += [one["message"]["messageKey"] for one in deliveries]
    return keys


def command(daemon: Daemon, *words: str) -> list[str]:
    return [sys.executable, "-m", "postroom_client", "--ipc-root", str(daemon.ipc), *words]


def postroom(daemon: Daemon, *words: str) -> Fields:
    """The data of a command that must succeed. Standard error shows nothing but progress, if it takes long."""
    done = subprocess.run(command(daemon, "--json", *words), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    assert all(re.fullmatch("[a-z ]+ so far: [0-9]+", line) for line in done.stderr.splitlines()), done
    data: Fields = json.loads(done.stdout)["data"]
    return data


# --- to the last one ----------------------------------------------------------------------------------------------


def test_one_command_reprocesses_all_and_a_dry_run_counts_them_all(daemon: Daemon) -> None:
    bury(daemon, "q", 2500)
    apart = bury(daemon, "q", 1, reason="odd")[0]
    daemon.ask("quarantine_dlq", messageKey=apart)
    assert postroom(daemon, "reprocess", "--queue", "q.dlq", "--dry-run")["reprocessed"] == 2500
    assert daemon.counts("q") == {"dlq": 2501}
    assert postroom(daemon, "reprocess", "--queue", "q", "--limit", "7")["reprocessed"] == 7
    assert postroom(daemon, "reprocess", "--queue", "q.dlq")["reprocessed"] == 2493
    assert daemon.counts("q") == {"ready": 2500, "dlq": 1}


def test_one_command_removes_all_that_match_a_filter(daemon: Daemon) -> None:
    bury(daemon, "q", 1200)
    kept = bury(daemon, "q", 3, reason="out of ink")
    bury(daemon, "q", 1200)
    wanted = ("drop-dlq", "--queue", "q", "--filter", '{"reasonText": "bad"}')
    assert postroom(daemon, *wanted, "--dry-run")["dropped"] == 2400
    assert postroom(daemon, *wanted)["dropped"] == 2400
    assert [one["messageKey"] for one in daemon.ask("list_dlq", queue="q")["messages"]] == kept


def test_an_interrupted_command_says_how_much_is_done_and_how_to_continue(daemon: Daemon) -> None:
    bury(daemon, "q", 300)
    words = ("reprocess", "--queue", "q.dlq", "--filter", '{"reasonText": "bad"}', "--rate", "20")
    process = subprocess.Popen(command(daemon, *words), stderr=subprocess.PIPE, text=True)
    assert process.stderr
    far = process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, reported = process.communicate()
    assert process.returncode == 130
    assert re.fullmatch(r"ready again so far: \d+\n", far)
    done = int(re.findall(r"stopped: ready again: (\d+)", reported)[0])
    assert 0 < done < 300
    assert done <= daemon.counts("q")["ready"] <= done + 2
    late = bury(daemon, "other", 1)  # who goes on does what the first one meant, and no more
    daemon.ask("reprocess_dlq", messageKey=late[0], to="q")
    died = daemon.ask("consume_next", queue="q", max=1000)["messages"]
    daemon.ask("nack_batch", items=[receipt(one) | {"reason": "bad again"} for one in died])
    rest = shlex.split(reported.partition("continue with: ")[2].replace("--rate 20", ""))
    assert rest[0] == "postroom"
    data = postroom(daemon, *rest[1:])
    assert len(died) - 1 + data["reprocessed"] == 300
    assert daemon.counts("q") == {"dlq": len(died), "ready": data["reprocessed"]}


def test_a_command_without_an_answer_says_how_much_is_done_and_how_to_continue(daemon: Daemon) -> None:
    bury(daemon, "q", 300)
    words = ("reprocess", "--queue", "q", "--rate", "10", "--timeout", "2000")
    process = subprocess.Popen(command(daemon, *words), stderr=subprocess.PIPE, text=True)
    daemon.wait(lambda: daemon.counts("q").get("ready", 0) > 3, "some are ready again")
    daemon.freeze()
    _, reported = process.communicate()
    daemon.thaw()
    assert process.returncode == 3
    rest = shlex.split(reported.partition("continue with: ")[2].partition("\n")[0].replace("--rate 10", ""))
    postroom(daemon, *rest[1:])
    assert daemon.counts("q") == {"ready": 300}


@pytest.mark.parametrize(("answer", "left", "status"), [("no", 2, 1), ("yes", 0, 0)])
def test_dead_letters_are_removed_from_a_terminal_only_after_confirmation(
    daemon: Daemon, answer: str, left: int, status: int
) -> None:
    keys = bury(daemon, "q", 3)
    terminal, other_end = pty.openpty()
    with contextlib.closing(os.fdopen(terminal, "w")) as keyboard:
        one = subprocess.run(command(daemon, "drop-dlq", "--message-key", keys[0]), stdin=other_end, check=False)
        assert one.returncode == 0, "one letter is meant as it is named"
        process = subprocess.Popen(
            command(daemon, "drop-dlq", "--queue", "q.dlq"),
            stdin=other_end,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        os.close(other_end)
        keyboard.write(answer + "\n")
        keyboard.flush()
        reported, _ = process.communicate(timeout=60)
    assert "2 messages will be removed from q.dlq" in reported
    assert process.returncode == status, reported
    assert daemon.counts("q").get("dlq", 0) == left


def test_reprocessing_keeps_to_the_given_rate(daemon: Daemon) -> None:
    bury(daemon, "q", 40)
    with Client(str(daemon.ipc)) as client:
        begun = time.monotonic()
        came = [(count, time.monotonic() - begun) for count in client.reprocess_all("q", rate=50)]
    assert [count for count, _ in came] == list(range(5, 41, 5))
    assert all(count - 5 <= 50 * after_s for count, after_s in came), "faster than it was told"
    assert daemon.counts("q") == {"ready": 40}


def assert_goes_on_to(count: int, pages: Iterable[int]) -> None:
    """Pages report their progress. On a busy machine there are more of them."""
    reported = list(pages)
    assert reported == sorted(reported) and reported[-1] == count and len(reported) > 1


def test_the_client_removes_all_and_counts_all_without_removing(daemon: Daemon) -> None:
    bury(daemon, "q", 1500)
    with Client(str(daemon.ipc)) as client:
        assert_goes_on_to(1500, client.drop_all("q.dlq", dry_run=True))
        assert_goes_on_to(1500, client.reprocess_all("q", dry_run=True, rate=1))
        for rate in (0, -1, float("nan"), float("inf"), True, "5"):
            with pytest.raises(InvalidArgument, match="rate"):
                client.reprocess_all("q", rate=rate)  # type: ignore[arg-type]
        assert daemon.counts("q") == {"dlq": 1500}
        assert_goes_on_to(1500, client.drop_all("q", filter={"reasonText": "bad"}))
    assert daemon.counts("q") == {}


# --- what went wrong elsewhere ------------------------------------------------------------------------------------


def test_a_second_life_begins_with_all_attempts_and_the_first_delay_and_keeps_the_history(daemon: Daemon) -> None:
    retry = {"limit": 3, "backoff": "exponential", "initialDelaySec": 0.004, "maxDelaySec": 9}
    daemon.ask("set_policy", queue="q", policy={"retry": retry})
    key = daemon.publish("q")
    for life in range(2):
        for attempt in range(3):
            delivery = daemon.ask("consume_next", queue="q", waitMs=30_000)
            assert delivery["message"]["attempt"] == attempt + 1
            daemon.settle("nack", delivery, requeue=True, reason=f"{life}.{attempt}")
        assert daemon.counts("q") == {"dlq": 1}
        daemon.restart(kill=True)
        assert daemon.ask("reprocess_dlq", queue="q.dlq")["reprocessed"] == 1
    delays_ms = [event["dueEngineMs"] - event["engineMs"] for event in daemon.events("retried")]
    assert delays_ms == [4, 8, 4, 8]
    message = daemon.ask("get_message", messageKey=key)
    reasons = [failure["reasonMessage"].rpartition(" ")[2] for failure in message["failures"]]
    assert reasons == ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]
    assert daemon.counts("q") == {"ready": 1}


def test_a_death_is_never_half_done_if_the_daemon_is_killed_during_it(daemon: Daemon) -> None:
    """Also where no more letters are kept, and none of those that are may go."""
    daemon.ask("set_policy", queue="q", policy={"dlq": {"maxMessages": 1}, "retry": {"limit": 1}})
    (apart,) = bury(daemon, "q", 1)
    daemon.ask("quarantine_dlq", messageKey=apart)
    keys = [apart]
    for round_ in range(6):
        keys.append(daemon.publish("q"))
        delivery = daemon.consume("q")
        sent = daemon.send("nack", receipt(delivery) | {"requeue": True})
        if round_ % 2:
            daemon.wait(lambda: keys[-1] in [event["key"] for event in daemon.events("died")], "it is dead")
        daemon.restart(kill=True)
        assert daemon.answer(sent)["data"]["state"] == "dead"
        assert daemon.again(sent)["data"]["state"] == "dead"
        assert daemon.counts("q")["dlq"] <= 2
        assert [event["key"] for event in daemon.events("died")] == keys
    left = [letter["messageKey"] for letter in daemon.ask("list_dlq", queue="q")["messages"]]
    assert left == [apart, keys[-1]]
    totals = daemon.ask("status", queue="q")["totals"]
    assert totals["published"] == totals["dropped"] + len(left), "each of them is somewhere, once"


def test_a_dead_letter_reprocessed_to_a_full_queue_is_in_one_place(daemon: Daemon) -> None:
    (key,) = bury(daemon, "q", 1)
    daemon.ask("set_policy", queue="full", policy={"limits": {"messages": 1}})
    daemon.publish("full")
    assert daemon.refusal("publish", queue="full", message="x") == "ERR_QUEUE_FULL"
    sent = daemon.send("reprocess_dlq", {"messageKey": key, "to": "full"})
    assert daemon.answer(sent)["ok"]
    daemon.restart(kill=True)
    assert daemon.again(sent)["ok"]
    assert (daemon.counts("q"), daemon.counts("full")) == ({}, {"ready": 2})


def test_dead_letters_cannot_be_routed_in_a_circle(daemon: Daemon) -> None:
    daemon.ask("set_policy", queue="a", policy={"dlq": {"queue": "b"}, "retry": {"limit": 1}})
    (key,) = bury(daemon, "a", 1)
    assert daemon.refusal("publish", queue="b", message="x") == "ERR_INVALID_REQUEST"
    assert daemon.refusal("set_policy", queue="b", policy={"dlq": {"queue": "a"}}) == "ERR_INVALID_REQUEST"
    assert daemon.refusal("set_policy", queue="a", policy={"dlq": {"queue": "a"}}) == "ERR_INVALID_REQUEST"
    assert daemon.refusal("reprocess_dlq", queue="a", to="b") == "ERR_INVALID_REQUEST"
    assert daemon.refusal("move", queue="a", to="b") == "ERR_INVALID_REQUEST"
    for _ in range(20):  # a consumer that gives back each letter it gets makes no new ones
        delivery = daemon.consume("b")
        daemon.settle("nack", delivery, requeue=True, reason="again")
    assert daemon.ask("count_dlq", queue="b")["diedTotal"] == 1
    assert [letter["messageKey"] for letter in daemon.ask("list_dlq", queue="b")["messages"]] == [key]


def test_a_queue_in_the_configuration_that_would_make_a_circle_takes_no_messages(make_daemon: MakeDaemon) -> None:
    queues = [{"name": "a", "policy": {"dlq": {"queue": "b"}}}, {"name": "b", "policy": {"dlq": {"queue": "a"}}}]
    daemon = make_daemon(config={"queues": queues}).start()
    for queue in ("a", "b"):
        assert daemon.refusal("publish", queue=queue, message="x") == "ERR_INVALID_REQUEST"
    assert "rename one of them" in daemon.log()


_LATE_CONSUMER = """
import sys
from postroom_client import Client, PostroomError
with Client(sys.argv[1], client_id="late") as client:
    delivery = client.consume_next(sys.argv[2], visibility_timeout_sec=0.2)
    print(delivery.message_key, flush=True)
    sys.stdin.readline()
    try:
        client.ack(delivery)
        print("acknowledged")
    except PostroomError as error:
        print(error.code)
"""


@pytest.mark.parametrize("name", ["q", "q.dlq"], ids=["a message", "a dead letter"])
def test_an_ack_by_a_consumer_stopped_past_its_lease_changes_nothing(daemon: Daemon, name: str) -> None:
    if name == "q":
        daemon.ask("set_policy", queue="q", policy={"retry": {"initialDelaySec": 0.001}})
        key = daemon.publish("q")
    else:
        (key,) = bury(daemon, "q", 1)
    words = [sys.executable, "-c", _LATE_CONSUMER, str(daemon.ipc), name]
    late = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert late.stdin and late.stdout
    assert late.stdout.readline() == key + "\n"
    late.send_signal(signal.SIGSTOP)
    fresh = daemon.ask("consume_next", queue=name, waitMs=30_000, consumerId="fresh")
    assert fresh["message"]["messageKey"] == key
    late.send_signal(signal.SIGCONT)
    reported, _ = late.communicate("\n")
    assert reported in ("ERR_LEASE_MISMATCH\n", "ERR_LEASE_EXPIRED\n")
    assert daemon.counts("q") == {"dlq" if name == "q.dlq" else "inflight": 1}
    daemon.settle("ack", fresh)
    assert daemon.counts("q") == {}
    assert [event["lease"] for event in daemon.events("acked")] == [fresh["lease"]["leaseId"]]


# --- how long they are retained ---------------------------------------------------------------------------------------

DAY_MS = 24 * 3600 * 1000


def jump(daemon: Daemon, boot_id: str | None, wall_ms: int) -> None:
    """The machine's clocks, as a stopped daemon finds them: another boot (or the same one, for None), and the wall
    clock set on by so much. It is left stopped in order."""
    boot_ms = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    now_ms = time.time_ns() // 1_000_000

    def clock() -> Clock:
        return Clock(lambda: boot_ms, lambda: now_ms + wall_ms, boot_id)

    root = open_root(load(daemon.root, None, daemon.environment, {}), Sources(clock=clock))
    with contextlib.closing(root):
        root.broker.run_group()
        root.broker.stop()
        root.store.disk.checkpoint()


@pytest.mark.parametrize(
    ("boot_id", "wall_ms", "left"),
    [
        pytest.param("another", 3 * DAY_MS, 1, id="off for three days"),
        pytest.param("another", DAY_MS, 3, id="off for a day"),
        pytest.param(None, 3650 * DAY_MS, 3, id="the wall clock is set on by ten years"),
        pytest.param(None, -3650 * DAY_MS, 3, id="the wall clock is set back by ten years"),
        pytest.param("another", -20_000 * DAY_MS, 3, id="a boot without a clock"),
        pytest.param("another", 3650 * DAY_MS, 3, id="a clock that comes back ten years later"),
    ],
)
def test_dead_letters_are_retained_for_their_days_over_a_restart_with_a_jump_of_the_clock(
    daemon: Daemon, boot_id: str | None, wall_ms: int, left: int
) -> None:
    daemon.ask("set_policy", queue="q", policy={"dlq": {"retentionDays": 2}})
    apart, *_ = bury(daemon, "q", 3)
    daemon.ask("quarantine_dlq", messageKey=apart)
    bury(daemon, "witness", 2)
    daemon.stop()
    jump(daemon, boot_id, wall_ms)
    daemon.start()
    daemon.ask("set_policy", queue="witness", policy={"dlq": {"maxMessages": 1, "retentionDays": 9}})
    daemon.wait(lambda: daemon.counts("witness") == {"dlq": 1}, "the letters were gone through")
    assert daemon.counts("q") == {"dlq": left}
    assert apart in [letter["messageKey"] for letter in daemon.ask("list_dlq", queue="q")["messages"]]
    dropped = [event for event in daemon.events("dropped") if event["queue"] == "q"]
    assert {event["failure"]["reasonCode"] for event in dropped} <= {"PURGED"}
    assert len(dropped) == 3 - left
