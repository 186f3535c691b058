"""A root of the C++ system, as its daemon left it, is taken over by the command line and then served as before."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.cpp_database import CppDatabase
from tests.daemon.cpp_files import CppDirectory, guid, write_body
from tests.wire.conftest import MakeDaemon
from tests.wire.daemon import Daemon

CPP_BACKENDS = ("sqlite", "filesystem", "hybrid")


def command(daemon: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "postroom_daemon", *words, "--root", str(daemon.root)]
    return subprocess.run(arguments, env=daemon.environment, capture_output=True, text=True, check=False)


def write(root: Path, backend: str, killed: bool) -> dict[str, str]:
    """Write data of the C++ system. Keys of its messages by their states."""
    now = time.time_ns() // 1_000_000
    dead: dict[str, Any] = {"dlqReason": "retry limit exceeded (attempt 5)", "dlqAt": now - 60_000}
    if backend == "filesystem":
        files = CppDirectory(root / "data/fs", now - 300_000)
        keys = {
            "ready": files.message(1),
            "inflight": files.message(2, "inflight", attempt=1, until=now + 300_000),
            "delayed": files.message(3, "delayed", availableAt=now + 300_000),
            "dlq": files.message(4, "dlq", attempt=5, **dead),
        }
        files.message(5, "acked")
        if killed:
            files.path(6, "ready").with_suffix(".json.tmp").write_text('{"key": "msg:te')
            keys["stranded"] = files.message(7, "inflight", lease=False)
        return keys
    path = root / "data/yirangmq.db"
    old = CppDatabase(path, now - 300_000)

    def value(number: int) -> str:
        if backend == "hybrid":
            return write_body(root / "data", guid(number), f'{{"n": {number}}}', folder="active")
        return f'{{"messageId": "{guid(number)}", "queue": "telemetry", "payload": "{{\\"n\\": {number}}}"}}'

    keys = {
        "ready": old.message(guid(1), value=value(1)),
        "inflight": old.message(guid(2), "inflight", attempt=1, until=now + 300_000, value=value(2)),
        "delayed": old.message(guid(3), "delayed", available=now + 300_000, value=value(3)),
    }
    facts = f'{{"dlqReason": "{dead["dlqReason"]}", "dlqAt": {dead["dlqAt"]}, {value(4)[1:]}'
    keys["dlq"] = old.message(guid(4), "dlq", attempt=5, value=facts)
    there = {suffix: path.with_name(path.name + suffix).read_bytes() for suffix in ("", "-wal", "-shm")}
    old.close()
    if killed:
        for suffix, data in there.items():
            path.with_name(path.name + suffix).write_bytes(data)
    return keys


@pytest.mark.parametrize("killed", [False, True], ids=["ended in order", "killed"])
@pytest.mark.parametrize("old", CPP_BACKENDS)
def test_a_root_is_refused_imported_and_served(make_daemon: MakeDaemon, old: str, killed: bool) -> None:
    daemon = make_daemon()
    daemon.audited = False  # the events of imported messages have the times of then
    keys = write(daemon.root, old, killed)
    refused = command(daemon, "run")
    assert refused.returncode == 1 and f"postroomd import cpp --root {daemon.root}" in refused.stderr
    shown = command(daemon, "import", "cpp", "--check")
    done = command(daemon, "import", "cpp")
    assert (shown.returncode, done.returncode) == (0, 0), done.stderr
    assert shown.stdout.splitlines()[0].replace("would import", "imported") in done.stdout
    daemon.start()
    counts = daemon.counts("telemetry")
    assert counts == {"ready": 2 if "stranded" in keys else 1, "inflight": 1, "delayed": 1, "dlq": 1}
    (letter,) = daemon.ask("list_dlq", queue="telemetry")["messages"]
    assert (letter["messageKey"], letter["reasonCode"]) == (keys["dlq"], "RETRY_LIMIT")
    message = daemon.ask("consume_next", queue="telemetry")["message"]
    assert (message["messageKey"], message["payload"]) == (keys["ready"], '{"n": 1}')
    proof = {"messageKey": keys["inflight"], "leaseId": guid(0x1002)}
    if old == "filesystem":  # the only one that has recorded who has it
        daemon.ask("ack", **proof)
    else:
        assert daemon.refusal("ack", **proof) == "ERR_LEASE_MISMATCH"
    daemon.stop()
    assert command(daemon, "verify").returncode == 0


def test_requests_that_its_daemon_did_not_finish_are_named_and_stay(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon()
    processing = daemon.ipc / "processing"
    processing.mkdir(parents=True)
    request = daemon.request("publish", {"queue": "telemetry", "message": "{}"})
    (processing / "left.json").write_bytes(request.data)
    daemon.start()
    assert "1 requests that the C++ daemon did not finish" in daemon.log()
    (processing / "left.json").rename(daemon.requests / "left.json")
    assert daemon.answer(request)["ok"]
    daemon.restart(kill=False)
    assert daemon.log().count("did not finish") == 1


def test_a_root_of_one_user_with_the_modes_of_a_usual_umask_starts_without_warnings(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon()
    for name in ("requests", "processing", "responses/consumer-01", "dead"):
        (daemon.ipc / name).mkdir(parents=True)
    for path in (daemon.root, *daemon.root.rglob("*")):
        path.chmod(0o755)
    daemon.start()
    assert '"level":"warning"' not in daemon.log()
    shown = command(daemon, "check-permissions")
    assert shown.returncode == 3 and "1 problem found with this root for one user" in shown.stdout


@pytest.mark.parametrize("by", ["options", "variables"])
def test_a_client_is_given_the_names_of_directories_that_the_configuration_has(
    make_daemon: MakeDaemon, by: str
) -> None:
    daemon = make_daemon(config={"ipc": {"requestsDir": "in", "responsesDir": "out", "deadDir": "bad"}})
    daemon.requests, daemon.responses, daemon.dead = (daemon.ipc / name for name in ("in", "out", "bad"))
    daemon.start()
    given = {"requests": "in", "responses": "out", "dead": "bad"}
    options = [word for name, value in given.items() for word in (f"--{name}-dir", value)]
    variables = {f"POSTROOM_IPC_{name.upper()}_DIR": value for name, value in given.items()}

    def postroom(*words: str) -> subprocess.CompletedProcess[str]:
        arguments = [sys.executable, "-m", "postroom_client", "--ipc-root", str(daemon.ipc)]
        arguments += options if by == "options" else []
        environment = {**daemon.environment, **(variables if by == "variables" else {})}
        return subprocess.run([*arguments, *words], env=environment, capture_output=True, text=True, check=False)

    assert postroom("publish", "--queue", "q", "--message", "body").returncode == 0
    worked = postroom(
        "work", "--queue", "q", "--until-empty", "--",
        sys.executable, "-m", "postroom_client", "publish", "--queue", "next",
    )  # fmt: skip
    assert worked.returncode == 0, worked.stderr
    assert postroom("consume", "--queue", "next", "--ack", "--raw").stdout == "body"
    assert command(daemon, "verify").returncode == 0  # through the running daemon
    without = subprocess.run(
        [sys.executable, "-m", "postroom_client", "--ipc-root", str(daemon.ipc), "--timeout", "50", "health"],
        env=daemon.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert without.returncode == 3 and f"{daemon.ipc} is not a mailbox" in without.stderr
