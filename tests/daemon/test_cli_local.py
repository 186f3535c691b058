"""``postroomd local`` and ``postroomd run`` as processes, on one root: what one leaves, the other finds."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.wire.daemon import wait_until
from tests.wire.forked import run_command

DEADLINE_S = 60


def environment() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if not name.startswith(("POSTROOM_", "JOURNAL_STREAM"))}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "postroom_daemon", *arguments]


def local(root: Path, *arguments: str, status: int = 0, given: bytes | None = None) -> dict[str, Any]:
    done = run_command(["local", "--root", str(root), *arguments], environment(), given or b"")
    assert done.returncode == status, (arguments, done.stdout, done.stderr)
    (answer,) = done.stdout.splitlines()
    shown: dict[str, Any] = json.loads(answer)
    assert shown["ok"] is (status in (0, 4))
    inner: dict[str, Any] = shown["data"] if shown["ok"] else shown["error"]
    return inner


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def run(root: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **environ: str) -> subprocess.Popen[str]:
        line = command("run", "--root", str(root), *arguments)
        process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=environment() | environ)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def ask(root: Path, request_id: str, name: str, payload: dict[str, Any]) -> dict[str, Any]:
    requests = root / "ipc" / "requests"
    wait_until(requests.is_dir, "the mailbox is there")
    body = {"requestId": request_id, "clientId": "test", "command": name, "payload": payload}
    draft = requests / f"{request_id}.json.tmp"
    draft.write_text(json.dumps(body))
    draft.rename(requests / f"{request_id}.json")
    response = root / "ipc" / "responses" / "test" / f"{request_id}.json"
    wait_until(response.exists, f"{name} is answered")
    answer = json.loads(response.read_text())
    assert answer["ok"], answer
    data: dict[str, Any] = answer["data"]
    return data


def test_a_message_goes_through_its_life_without_a_daemon(root):
    published = local(root, "publish", "--queue", "q", "--message", "hello", "--priority", "3")
    assert local(root, "status", "--queue", "q")["metrics"]["ready"] == 1
    taken = local(root, "consume", "--queue", "q", "--consumer-id", "worker")
    assert taken["message"]["payload"] == "hello"
    assert taken["message"]["messageKey"] == published["messageKey"]
    lease = taken["lease"]["leaseId"]
    local(root, "extend", "--message-key", published["messageKey"], "--lease-id", lease, "--visibility", "60")
    assert local(root, "ack", "--message-key", published["messageKey"], "--lease-id", lease) == {}
    counts = local(root, "status", "--queue", "q")["metrics"]
    assert not any(counts.values())


def test_nothing_to_consume_is_exit_code_4(root):
    assert local(root, "consume", "--queue", "q", status=4)["message"] is None


def test_waiting_takes_a_delayed_message_when_it_is_due(root):
    local(root, "publish", "--queue", "q", "--message", "later", "--delay", "300")
    assert local(root, "consume", "--queue", "q", "--wait", "20000")["message"]["payload"] == "later"


def test_an_error_answer_is_json_and_exit_code_1(root):
    assert local(root, "ack", "--message-key", "msg:q:none", status=1)["code"] == "ERR_MESSAGE_NOT_FOUND"
    assert local(root, "publish", "--queue", "", "--message", "m", status=1)["code"] == "ERR_INVALID_REQUEST"


def test_a_message_may_come_from_standard_input_or_a_file(root, tmp_path):
    (tmp_path / "body").write_bytes(b"\xff\x00")
    local(root, "publish", "--queue", "q", given="안녕\n".encode())
    local(root, "publish", "--queue", "q", "--binary", "--message", f"@{tmp_path}/body")
    first, second = (local(root, "consume", "--queue", "q")["message"] for _ in range(2))
    assert first["payload"] == "안녕\n"
    assert (second["payload"], second["encoding"]) == ("/wA=", "base64")


def test_paged_work_is_done_to_the_end_unless_a_limit_is_given(root):
    for _ in range(3):
        messages = json.dumps([{"message": "m"}] * 800).encode()
        local(root, "publish-batch", "--queue", "q", "--messages", "-", given=messages)
    assert local(root, "purge", "--queue", "q", "--dry-run")["purged"] == 2400
    assert local(root, "move", "--queue", "q", "--to", "other", "--limit", "5")["moved"] == 5
    assert local(root, "move", "--queue", "q", "--to", "other")["moved"] == 2395
    assert local(root, "purge", "--queue", "other")["purged"] == 2400
    assert local(root, "reprocess", "--queue", "q") == {"reprocessed": 0, "next": ""}


def test_dead_letters_are_listed_and_reprocessed(root):
    local(root, "publish", "--queue", "q", "--message", "m")
    taken = local(root, "consume", "--queue", "q")
    key, lease = taken["message"]["messageKey"], taken["lease"]["leaseId"]
    nacked = local(root, "nack", "--message-key", key, "--lease-id", lease, "--reason", "no good")
    assert nacked["state"] == "dead"
    (letter,) = local(root, "list-dlq", "--queue", "q", "--limit", "5")["messages"]
    assert (letter["messageKey"], letter["reason"]) == (key, "no good")
    assert local(root, "reprocess", "--message-key", key)["reprocessed"] is True
    assert local(root, "queues")["queues"][0]["ready"] == 1


def test_pauses_and_policies_set_locally_apply_to_the_next_command(root):
    changed = local(root, "policy", "set", "--queue", "q", "--policy", '{"retry": {"limit": 2}}')
    assert changed["policy"]["retry"]["limit"] == 2
    assert local(root, "policy", "get", "--queue", "q")["override"] == {"retry": {"limit": 2}}
    assert local(root, "pause", "--queue", "q", "--publish")["paused"] == {"publish": True, "consume": False}
    assert local(root, "publish", "--queue", "q", "--message", "m", status=1)["code"] == "ERR_PAUSED"
    local(root, "resume", "--queue", "q", "--publish")
    local(root, "publish", "--queue", "q", "--message", "m")


def test_the_paused_operation_may_be_named_by_operation(root):
    local(root, "publish", "--queue", "q", "--message", "m")
    paused = local(root, "pause", "--queue", "q", "--operation", "consume")["paused"]
    assert paused == {"publish": False, "consume": True}


def test_root_and_json_may_come_before_and_after_the_command(root):
    for line in (
        ["--root", str(root), "--json", "health"],
        ["health", "--json", "--root", str(root)],
        ["--root", str(root / "other"), "health", "--root", str(root)],
        ["policy", "get", "--queue", "q", "--root", str(root)],
    ):
        done = subprocess.run(command("local", *line), capture_output=True, timeout=DEADLINE_S, env=environment())
        assert "ok" in json.loads(done.stdout), done.stderr


def test_health_and_metrics_are_shown_without_a_daemon(root):
    assert local(root, "metrics")["requests"]["total"] == 0
    assert local(root, "health")["status"] == "ok"


def test_configured_policies_apply(root):
    (root / "config.json").write_text('{"queues": [{"name": "q", "policy": {"retry": {"limit": 9}}}]}')
    assert local(root, "status", "--queue", "q")["policy"]["retry"]["limit"] == 9


def test_local_is_refused_while_a_daemon_serves_the_root(root, run):
    run()
    ask(root, "r1", "publish", {"queue": "q", "message": "served"})
    line = command("local", "--root", str(root), "status", "--queue", "q")
    done = subprocess.run(line, capture_output=True, text=True, timeout=DEADLINE_S, env=environment())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("postroomd: ")
    assert done.stderr.count("\n") == 1


def test_a_second_daemon_on_one_root_is_refused(root, run):
    run()
    ask(root, "r1", "health", {})
    second = run()
    _, reported = second.communicate(timeout=DEADLINE_S)
    assert second.returncode == 1
    last = json.loads(reported.splitlines()[-1])
    assert (last["level"], "another postroomd works on this root" in last["message"]) == ("critical", True)


def test_at_a_terminal_one_line_says_why_the_daemon_does_not_start(root, run):
    run()
    ask(root, "r1", "health", {})
    _, reported = run("--log-format", "text").communicate(timeout=DEADLINE_S)
    assert reported.splitlines()[-1].startswith("postroomd: ")


def test_sigterm_ends_the_daemon_with_0_and_local_sees_its_messages(root, run):
    process = run("--log-level", "debug", "--log-format", "text")
    ask(root, "r1", "publish", {"queue": "q", "message": "kept"})
    process.send_signal(signal.SIGTERM)
    _, reported = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert all(line.split(" ")[1] in ("DEBUG", "INFO", "WARNING") for line in reported.splitlines())
    assert local(root, "consume", "--queue", "q")["message"]["payload"] == "kept"


def test_the_log_begins_with_version_process_and_root_and_has_times(root, run):
    process = run("--log-format", "text")
    ask(root, "r1", "health", {})
    process.terminate()
    _, reported = process.communicate(timeout=DEADLINE_S)
    lines = reported.splitlines()
    assert re.search(rf" INFO postroomd [0-9.]+, pid {process.pid}, root {root}$", lines[0])
    for line in lines:
        assert datetime.fromisoformat(line.split(" ")[0]).tzinfo is not None


def test_the_daemon_sees_messages_stored_by_local(root, run):
    local(root, "publish", "--queue", "q", "--message", "before")
    run()
    assert ask(root, "r1", "consume_next", {"queue": "q"})["message"]["payload"] == "before"


def test_run_makes_the_root_that_is_missing_and_logs_the_configurations_warnings(root, run):
    root.rmdir()
    process = run("--lease-sweep-interval-ms", "0")
    ask(root, "r1", "health", {})
    assert root.stat().st_mode & 0o777 == 0o700
    process.send_signal(signal.SIGINT)
    _, reported = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    warning = "lease.sweepIntervalMs: 0 is out of range (1 to 3,600,000), using 1000"
    records = [json.loads(line) for line in reported.splitlines()]
    assert [one["level"] for one in records if one["message"] == f"flag --lease-sweep-interval-ms: {warning}"] == [
        "warning"
    ]
