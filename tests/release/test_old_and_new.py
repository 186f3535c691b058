"""What was released last meets what is here: client and daemon, daemon and client, daemon and console, old data."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from postroom_client import Client
from tests.client.conftest import PACKAGE, REQUIRED, available_interpreters, run
from tests.console.desk import Desk, kill_one, sit_down
from tests.console.exports import Snapshot
from tests.release.conftest import MakeRecorded, Recorded
from tests.wire.conftest import MakeDaemon
from tests.wire.daemon import PATIENCE_S, Daemon

#: One that a device may have had for years, where this machine has it; else the one that runs this.
OLDEST = next((available_interpreters()[one] for one in REQUIRED if one in available_interpreters()), sys.executable)
#: The client's tests against a daemon, as they came with a release.
AT_A_DAEMON = ("wire.py", "wire_work.py")
#: What those tests name of the client's inside, and one text, as it was at the last release and as it is now.
RENAMED = {
    "_files": "_mailbox",
    "_exchange": "_mailbox_exchange",
    "_processes": "_process_pool",
    "_replies": "_reply_queues",
    "_made_at": "_created_at",
    "INSPECT_EVERY_S": "CHECK_EVERY_S",
    "_LOOK_EVERY_S": "_CHECK_EVERY_S",
    "its time was over": "the time limit",
}


def passes(interpreter: str, client: Path, tests: Path, ipc: Path, out: Path) -> None:
    """A client, found in a directory, passes tests at a daemon; ``out`` is for what these leave."""

    def passed(name: str) -> subprocess.CompletedProcess[str]:
        return run(interpreter, client, str(tests / name), POSTROOM_IPC_ROOT=str(ipc), POSTROOM_OUT=str(out))

    with ThreadPoolExecutor(len(AT_A_DAEMON)) as pool:  # they wait most of the time
        for done in pool.map(passed, AT_A_DAEMON):
            assert done.returncode == 0, done.stdout
            assert "\nOK" in done.stdout, done.stdout


@pytest.mark.slow
def test_the_released_client_passes_the_tests_of_its_time_at_today_s_daemon(
    recorded_client: Recorded, daemon: Daemon, tmp_path: Path
) -> None:
    reported = run(OLDEST, recorded_client.installed, "-m", "postroom_client", "--version").stdout
    assert reported == f"postroom {recorded_client.version}\n"
    tests = recorded_client.checkout / "tests" / "client" / "legacy"
    passes(OLDEST, recorded_client.installed, tests, daemon.ipc, tmp_path)


@pytest.mark.slow
def test_today_s_client_passes_the_tests_of_that_time_at_the_released_daemon(
    recorded_daemon: Recorded, make_recorded: MakeRecorded, tmp_path: Path
) -> None:
    daemon = make_recorded().start()
    assert daemon.ask("health")["version"] == recorded_daemon.version
    tests = tmp_path / "tests"
    tests.mkdir()
    for path in (recorded_daemon.checkout / "tests" / "client" / "legacy").glob("*.py"):
        renamed = re.sub(rf"\b({'|'.join(RENAMED)})\b", lambda match: RENAMED[match.group()], path.read_text("utf-8"))
        (tests / path.name).write_text(renamed, "utf-8")
    passes(sys.executable, PACKAGE.parent, tests, daemon.ipc, tmp_path)


def test_today_s_console_shows_the_released_daemon_and_acts_on_it(make_recorded: MakeRecorded) -> None:
    async def visit(desk: Desk) -> None:
        key = await kill_one(desk, "alarms", "too hot")
        await desk.keys("4")
        await desk.has("letters")
        await desk.keys("tab", "enter")
        await desk.sees(key[:8], "published", "leased", "died")
        await desk.keys("escape")
        for view, sign in (
            ("1", "alarms"),
            ("2", "FOLLOW"),
            ("3", "TIME LEFT"),
            ("5", "daemon"),
            ("6", "no actions yet"),
        ):
            await desk.keys(view)
            await desk.sees(sign)

    daemon = make_recorded().start()
    sit_down(daemon, visit, size=(100, 40))


def test_today_s_console_reads_and_exports_the_released_daemon(make_recorded: MakeRecorded, tmp_path: Path) -> None:
    daemon = make_recorded().start()
    daemon.publish("orders", "hello")
    for words in (["--once"], ["watch", "--no-follow"], ["export", "--out", str(tmp_path / "out")]):
        command = [sys.executable, "-m", "postroom_console", "--root", str(daemon.root), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        assert (done.returncode, done.stderr) == (0, "")
        assert "orders" in done.stdout or words[0] == "export"
    (path,) = (tmp_path / "out").glob("*.jsonl.gz")
    assert [one["queue"] for one in Snapshot(path).of("queue")] == ["orders"]


@pytest.mark.parametrize("store", ["sqlite", "filesystem", "hybrid"])
def test_today_s_daemon_continues_where_the_released_one_was_killed(
    store: str, make_recorded: MakeRecorded, make_daemon: MakeDaemon
) -> None:
    old = make_recorded("root", backend=store).start()
    with Client(old.ipc, timeout=PATIENCE_S) as client:
        dead, leased, *ready = [client.publish("work", f"body {number}")["messageKey"] for number in range(5)]
        later = client.publish("work", "later", delay_ms=10_000_000)["messageKey"]
        client.set_policy("work", {"retry": {"limit": 2}})
        client.set_schedule("yearly", "work", cron="0 0 1 1 *", message="happy new year")
        first = client.consume_next("work")
        assert first and first.message_key == dead
        client.nack(first, reason="broken", requeue=False)
        second = client.consume_next("work", visibility_timeout_sec=40_000)
        assert second and second.message_key == leased
        client.pause("work", operation="publish")
    old.kill()
    new = make_daemon(backend=store)
    assert new.root == old.root
    assert new.tool("verify").returncode == 0
    new.start()
    with Client(new.ipc, timeout=PATIENCE_S) as client:
        assert new.counts("work") == {"ready": 3, "inflight": 1, "delayed": 1, "dlq": 1}
        assert [one["messageKey"] for one in client.list_dlq("work")["messages"]] == [dead]
        assert client.get_policy("work")["policy"]["retry"]["limit"] == 2
        assert [one["name"] for one in client.list_schedules()["schedules"]] == ["yearly"]
        assert client.get_message(later)["message"]["state"] == "delayed"
        client.ack(leased, lease_id=second.lease_id)
        for number, key in enumerate(ready, 2):
            delivery = client.consume_next("work")
            assert delivery and (delivery.message_key, delivery.payload) == (key, f"body {number}")
            client.ack(delivery)
    new.stop()
    assert new.tool("verify").returncode == 0
