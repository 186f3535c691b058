"""Request files written without any client library."""

from __future__ import annotations

import os
import subprocess

from tests.wire.daemon import Daemon

SCRIPT = r"""
set -eu
box=$1/responses/shell
mkdir -p "$box"
printf '{"requestId":"%s","clientId":"shell","command":"publish","payload":{"queue":"telemetry","message":"%s"}}' \
    by-hand 'temp=36.5' > "$1/requests/by-hand.json.tmp"
mv "$1/requests/by-hand.json.tmp" "$1/requests/by-hand.json"
"""


def test_a_request_by_printf_and_mv_is_served(daemon: Daemon) -> None:
    subprocess.run(["sh", "-c", SCRIPT, "sh", str(daemon.ipc)], check=True)
    answer = daemon.responses / "shell" / "by-hand.json"
    daemon.wait(answer.exists, "the shell has its answer")
    assert '"ok":true' in answer.read_text()
    assert daemon.consume("telemetry")["message"]["payload"] == "temp=36.5"
    daemon.wait(lambda: not list(daemon.requests.iterdir()), "the executed requests are removed")


def test_a_request_that_came_by_link_is_served(daemon: Daemon) -> None:
    sent = daemon.request("publish", {"queue": "q", "message": "linked"})
    temporary = daemon.requests / (sent.name + ".tmp")
    temporary.write_bytes(sent.data)
    os.link(temporary, daemon.requests / sent.name)
    temporary.unlink()
    assert daemon.answer(sent)["ok"]


def test_a_request_that_was_linked_from_elsewhere_is_served_once_the_other_name_is_gone(daemon: Daemon) -> None:
    sent = daemon.request("publish", {"queue": "q", "message": "linked"})
    elsewhere = daemon.root / "elsewhere"
    elsewhere.write_bytes(sent.data)
    os.link(elsewhere, daemon.requests / sent.name)
    daemon.ask("health")
    assert (daemon.requests / sent.name).exists()
    assert not daemon.answer_path(sent).exists()
    elsewhere.unlink()
    assert daemon.answer(sent)["ok"]


def test_a_request_written_in_place_is_served(daemon: Daemon) -> None:
    sent = daemon.request("publish", {"queue": "q", "message": "direct"})
    (daemon.requests / sent.name).write_bytes(sent.data)
    assert daemon.answer(sent)["ok"]


def test_a_request_written_slowly_in_place_is_left_until_it_is_complete(daemon: Daemon) -> None:
    sent = daemon.request("publish", {"queue": "q", "message": "slow"})
    half = len(sent.data) // 2
    with (daemon.requests / sent.name).open("wb", buffering=0) as file:
        file.write(sent.data[:half])
        daemon.ask("health")  # it has been looked at
        file.write(sent.data[half:])
        assert daemon.answer(sent)["ok"]
    assert not list(daemon.dead.iterdir())


def test_only_names_that_end_in_json_are_looked_at(daemon: Daemon) -> None:
    sent = daemon.request("publish", {"queue": "q", "message": "not yet"})
    names = {"x.json.tmp", "x.txt", "x", ".json.swp"}
    for name in names:
        (daemon.requests / name).write_bytes(sent.data)
    daemon.ask("health")
    assert not daemon.answer_path(sent).exists()
    assert names <= {path.name for path in daemon.requests.iterdir()}
