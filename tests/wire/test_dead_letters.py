"""Dead letters through a daemon: brought back and removed to the last one, and what goes wrong with them elsewhere."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

from postroom_client import Client, InvalidArgument
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
    """The data of a command that must succeed, saying nothing on standard error."""
    done = subprocess.run(command(daemon, "--json", *words), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done
    data: Fields = json.loads(done.stdout)["data"]
    return data


# --- to the last one ----------------------------------------------------------------------------------------------


def test_all_are_brought_back_by_one_command_and_a_dry_run_counts_them_all(daemon: Daemon) -> None:
    bury(daemon, "q", 2500)
    apart = bury(daemon, "q", 1, reason="odd")[0]
    daemon.ask("quarantine_dlq", messageKey=apart)
    assert postroom(daemon, "reprocess", "--queue", "q.dlq", "--dry-run")["reprocessed"] == 2500
    assert daemon.counts("q") == {"dlq": 2501}
    assert postroom(daemon, "reprocess", "--queue", "q", "--limit", "7")["reprocessed"] == 7
    assert postroom(daemon, "reprocess", "--queue", "q.dlq")["reprocessed"] == 2493
    assert daemon.counts("q") == {"ready": 2500, "dlq": 1}


def test_all_that_a_filter_means_are_removed_by_one_command(daemon: Daemon) -> None:
    bury(daemon, "q", 1200)
    kept = bury(daemon, "q", 3, reason="out of ink")
    bury(daemon, "q", 1200)
    wanted = ("drop-dlq", "--queue", "q", "--filter", '{"reasonText": "bad"}')
    assert postroom(daemon, *wanted, "--dry-run")["dropped"] == 2400
    assert postroom(daemon, *wanted)["dropped"] == 2400
    assert [one["messageKey"] for one in daemon.ask("list_dlq", queue="q")["messages"]] == kept


def test_a_command_that_is_interrupted_says_how_much_is_done_and_how_to_go_on(daemon: Daemon) -> None:
    bury(daemon, "q", 300)
    words = ("reprocess", "--queue", "q.dlq", "--filter", '{"reasonText": "bad"}', "--rate", "20")
    process = subprocess.Popen(command(daemon, *words), stderr=subprocess.PIPE, text=True)
    assert process.stderr
    far = process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, told = process.communicate()
    assert process.returncode == 130
    assert re.fullmatch(r"ready again so far: \d+\n", far)
    done = int(re.findall(r"stopped: ready again: (\d+)", told)[0])
    assert 0 < done < 300
    assert done <= daemon.counts("q")["ready"] <= done + 2
    late = bury(daemon, "other", 1)  # who goes on does what the first one meant, and no more
    daemon.ask("reprocess_dlq", messageKey=late[0], to="q")
    died = daemon.ask("consume_next", queue="q", max=1000)["messages"]
    daemon.ask("nack_batch", items=[receipt(one) | {"reason": "bad again"} for one in died])
    rest = shlex.split(told.partition("go on with: ")[2].replace("--rate 20", ""))
    assert rest[0] == "postroom"
    data = postroom(daemon, *rest[1:])
    assert len(died) - 1 + data["reprocessed"] == 300
    assert daemon.counts("q") == {"dlq": len(died), "ready": data["reprocessed"]}


def test_a_command_that_gets_no_answer_says_how_much_is_done_and_how_to_go_on(daemon: Daemon) -> None:
    bury(daemon, "q", 30)
    words = ("reprocess", "--queue", "q", "--rate", "10", "--timeout", "500")
    process = subprocess.Popen(command(daemon, *words), stderr=subprocess.PIPE, text=True)
    daemon.wait(lambda: daemon.counts("q").get("ready", 0) > 3, "some are ready again")
    daemon.freeze()
    _, told = process.communicate()
    daemon.thaw()
    assert process.returncode == 3
    rest = shlex.split(told.partition("go on with: ")[2].partition("\n")[0].replace("--rate 10", ""))
    postroom(daemon, *rest[1:])
    assert daemon.counts("q") == {"ready": 30}


def test_no_more_come_back_in_a_time_than_the_rate_allows(daemon: Daemon) -> None:
    bury(daemon, "q", 40)
    with Client(str(daemon.ipc)) as client:
        begun = time.monotonic()
        came = [(count, time.monotonic() - begun) for count in client.reprocess_all("q", rate=50)]
    assert [count for count, _ in came] == list(range(5, 41, 5))
    assert all(count - 5 <= 50 * after_s for count, after_s in came), "faster than it was told"
    assert daemon.counts("q") == {"ready": 40}
    brought = [event["engineMs"] for event in daemon.events("reprocessed")]
    assert brought[-1] - brought[0] >= 690, "35 of 40 at 50 a second"


def test_the_client_removes_all_and_counts_all_without_removing(daemon: Daemon) -> None:
    bury(daemon, "q", 1500)
    with Client(str(daemon.ipc)) as client:
        assert list(client.drop_all("q.dlq", dry_run=True)) == [1000, 1500]
        assert list(client.reprocess_all("q", dry_run=True, rate=1)) == [1000, 1500]
        for rate in (0, -1, float("nan"), float("inf"), True, "5"):
            with pytest.raises(InvalidArgument, match="rate"):
                client.reprocess_all("q", rate=rate)  # type: ignore[arg-type]
        assert daemon.counts("q") == {"dlq": 1500}
        assert list(client.drop_all("q", filter={"reasonText": "bad"})) == [1000, 1500]
    assert daemon.counts("q") == {}
