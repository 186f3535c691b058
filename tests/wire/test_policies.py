"""Policies by pattern and name, as a daemon has them, and as ``postroom policy`` shows them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.wire.conftest import MakeDaemon
from tests.wire.daemon import Daemon

CONFIG = {
    "policyDefaults": {"ttlSec": 90},
    "queues": [
        {"pattern": "sensor\\..*", "policy": {"retry": {"limit": 1}, "dlq": {"enabled": False}}},
        {"name": "sensor.hot", "policy": {"dlq": {"enabled": True}}},
    ],
}


@pytest.fixture
def daemon(make_daemon: MakeDaemon) -> Daemon:
    return make_daemon(config=CONFIG).start()


def postroom(daemon: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "postroom_client", "--ipc-root", str(daemon.ipc), *words]
    return subprocess.run(line, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("queue", "state"), [("sensor.cold", "dropped"), ("sensor.hot", "dead"), ("other", "delayed")])
def test_a_queue_that_is_made_by_a_publish_has_the_policy_of_its_pattern(
    daemon: Daemon, queue: str, state: str
) -> None:
    daemon.publish(queue, "x")
    assert daemon.settle("nack", daemon.consume(queue), requeue=True)["state"] == state


def test_the_origin_of_each_key_is_shown_even_after_a_restart(daemon: Daemon) -> None:
    daemon.publish("sensor.hot", "x")
    daemon.ask("set_policy", queue="sensor.hot", policy={"visibilityTimeoutSec": 9})
    before = daemon.ask("get_policy", queue="sensor.hot", explain=True)
    daemon.restart(kill=True)
    reported = daemon.ask("get_policy", queue="sensor.hot", explain=True)
    assert reported["explanation"] == before["explanation"]
    assert reported["explanation"]["visibilityTimeoutSec"] == {"value": 9, "layer": "override"}
    assert reported["explanation"]["dlq.enabled"] == {"value": True, "layer": "name", "name": "sensor.hot"}
    assert reported["explanation"]["retry.limit"] == {"value": 1, "layer": "pattern", "pattern": "sensor\\..*"}
    assert "explanation" not in daemon.ask("get_policy", queue="sensor.hot")


def test_null_resets_a_key_or_a_group_and_the_others_stay(daemon: Daemon) -> None:
    def override(policy: dict[str, Any]) -> Any:
        return daemon.ask("set_policy", queue="q", policy=policy)["override"]

    assert override({"retry": {"limit": 9, "jitter": 0.5}, "dlq": {"enabled": False}, "visibilityTimeoutSec": 7})
    assert override({"retry": {"limit": None}}) == {
        "retry": {"jitter": 0.5},
        "dlq": {"enabled": False},
        "visibilityTimeoutSec": 7,
    }
    assert override({"retry": None, "visibilityTimeoutSec": None}) == {"dlq": {"enabled": False}}
    daemon.restart(kill=True)
    assert daemon.ask("get_policy", queue="q")["override"] == {"dlq": {"enabled": False}}
    refused = daemon.answer(daemon.send("set_policy", {"queue": "q", "policy": {"retry": {"limits": None}}}))
    assert refused["error"]["code"] == "ERR_INVALID_REQUEST" and "retry.limits" in refused["error"]["message"]


def test_the_command_line_shows_it_as_a_table(daemon: Daemon) -> None:
    daemon.ask("set_policy", queue="sensor.hot", policy={"visibilityTimeoutSec": 9})
    shown = postroom(daemon, "policy", "sensor.hot", "--explain")
    rows = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert (shown.returncode, rows[0]) == (0, "key value from")
    assert "visibilityTimeoutSec 9 set at run time" in rows
    assert "dlq.enabled true name sensor.hot" in rows
    assert "retry.limit 1 pattern 'sensor\\..*'" in rows
    assert "ttlSec 90 policyDefaults" in rows
    assert "retry.backoff exponential default" in rows


def test_policy_and_a_queue_is_short_for_policy_get(daemon: Daemon) -> None:
    for queue in ("other", "get"):
        daemon.publish(queue, "x")
    short = postroom(daemon, "policy", "other", "--json")
    long = postroom(daemon, "policy", "get", "--queue", "other", "--json")
    assert json.loads(short.stdout) == json.loads(long.stdout)
    assert json.loads(short.stdout)["data"]["queue"] == "other"
    assert postroom(daemon, "policy", "get", "--queue", "get").returncode == 0
    assert postroom(daemon, "policy", "get").returncode == 2
    assert postroom(daemon, "policy").returncode == 2


def test_an_invalid_pattern_stops_the_daemon_from_starting(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(config={"queues": [{"pattern": "(a"}]}).start(ready=False)
    assert daemon.process.wait(60) == 2
    assert "queues[0].pattern" in daemon.log()


def test_the_list_of_queues_shows_the_policies_in_force_if_asked(daemon: Daemon) -> None:
    for queue in ("other", "sensor.cold", "sensor.hot"):
        daemon.publish(queue, "x")
    daemon.ask("set_policy", queue="other", policy={"visibilityTimeoutSec": 5})
    assert "policy" not in daemon.ask("list_queues")["queues"][0]
    for row in daemon.ask("list_queues", policies=True)["queues"]:
        assert row["policy"] == daemon.ask("get_policy", queue=row["queue"])["policy"]
    shown = postroom(daemon, "queues", "--policies").stdout.split("\n\n")
    assert [text.split("\n")[0] for text in shown[1:]] == ["other", "sensor.cold", "sensor.hot"]
    assert shown[1].count("visibilityTimeoutSec") == 1
