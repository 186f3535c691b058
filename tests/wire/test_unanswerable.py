"""Requests whose answer could not be written: they are not executed, and health and the log say so.

The daemon is another user than its clients and may read everything, but not write into directories of others.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.wire.conftest import MakeDaemon
from tests.wire.daemon import Daemon, Fields, Sent
from tests.wire.users import ANNA, acting_as

#: The uid of the daemon, which nobody has.
DAEMON = 4200
AS_DAEMON = (
    "setpriv",
    f"--reuid={DAEMON}",
    f"--regid={DAEMON}",
    "--clear-groups",
    "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
)
POLICY = {"visibilityTimeoutSec": 1, "retry": {"limit": 5, "initialDelaySec": 1}}


@pytest.fixture
def daemon(make_shared: MakeDaemon) -> Daemon:
    """A daemon that is not root, in a mailbox that several users share."""
    made = make_shared(config={"policyDefaults": POLICY}, wrapper=AS_DAEMON)
    for path in (made.root, made.ipc, made.requests, made.responses):
        mode = path.stat().st_mode
        os.chown(path, DAEMON, DAEMON)
        path.chmod(mode)
    made.start(ready=False)
    as_operator(made, "health")
    return made


def as_operator(daemon: Daemon, command: str, **payload: object) -> Fields:
    """The data of a command of the daemon's own user."""
    with acting_as(DAEMON):
        daemon.wait(daemon.requests.is_dir, "the mailbox exists")
        return daemon.ask(command, **payload)


def put(daemon: Daemon, command: str, payload: Fields, mode: int = 0o755, **envelope: Any) -> Sent:
    """Anna sends a request; her program creates its response directory under umask 022."""
    sent = daemon.request(command, payload, client_id="cam", **envelope)
    with acting_as(ANNA):
        box = daemon.responses / "cam"
        if not box.exists():
            box.mkdir()
            box.chmod(mode)
        daemon.put(sent.data, sent.name)
    return sent


def check(daemon: Daemon) -> Fields:
    """The check of the mailbox in health."""
    return dict(as_operator(daemon, "health")["checks"]["mailbox"])


def wait_for(daemon: Daemon, count: int) -> Fields:
    """Wait until so many requests are unanswerable; the check."""
    return daemon.wait(lambda: (one := check(daemon)).get("requests", 0) == count and one, f"{count} are unanswerable")


def correct(daemon: Daemon) -> None:
    """The command that health names, and the log."""
    done = daemon.tool("add-client", "cam", "--user", str(ANNA))
    assert done.returncode == 0, done.stderr


def test_a_request_whose_answer_cannot_be_written_is_executed_once_it_can(daemon: Daemon) -> None:
    as_operator(daemon, "publish", queue="q", message="{}")
    consumes = [put(daemon, "consume_next", {"queue": "q"}) for _ in range(6)]
    publish = put(daemon, "publish", {"queue": "p", "message": "{}"})
    found = wait_for(daemon, 7)
    assert as_operator(daemon, "health")["status"] == "degraded"
    command = f"postroomd add-client cam --user {ANNA} --root {daemon.root}"
    assert (found["ok"], found["reason"], found["clients"]) == (False, "RESPONSE_DIRECTORY_NOT_WRITABLE", 1)
    assert "responses/cam belongs to uid 4101" in found["error"] and command in found["error"]
    assert as_operator(daemon, "metrics")["mailbox"]["unanswerable"] == 7
    assert [event["queue"] for event in daemon.events("published", "leased")] == ["q"], "nothing was executed"
    assert daemon.log().count(command) == 1, "one record for the client"
    correct(daemon)
    assert daemon.answer(consumes[0])["data"]["message"]["attempt"] == 1
    assert [daemon.answer(sent)["data"]["message"] for sent in consumes[1:]] == [None] * 5
    assert daemon.answer(publish)["ok"]
    assert len(daemon.events("published")) == 2
    assert check(daemon) == {"ok": True}
    assert as_operator(daemon, "health")["status"] == "ok"
    assert not list(daemon.dead.iterdir())


def test_an_unanswerable_request_survives_a_restart_and_can_be_withdrawn(daemon: Daemon) -> None:
    first, second = (put(daemon, "publish", {"queue": "p", "message": str(n)}) for n in range(2))
    wait_for(daemon, 2)
    daemon.kill()
    daemon.start(ready=False)
    wait_for(daemon, 2)
    with acting_as(ANNA):
        (daemon.requests / first.name).unlink()
    wait_for(daemon, 1)
    correct(daemon)
    assert daemon.answer(second)["ok"]
    assert len(daemon.events("published")) == 1


def test_an_unanswerable_request_is_rejected_when_its_deadline_passes(daemon: Daemon) -> None:
    sent = put(daemon, "publish", {"queue": "p", "message": "x"}, deadlineMs=1)
    reason = daemon.reason(sent.name)
    assert reason.startswith("deadline exceeded; not executed: its answer could not be written: responses/cam")
    assert daemon.events("published") == []
    assert as_operator(daemon, "metrics")["errors"]["timeout"] == 1


def test_a_directory_that_closes_while_requests_wait_costs_one_attempt_and_the_answer_comes(daemon: Daemon) -> None:
    waiting = [put(daemon, "consume_next", {"queue": "q", "waitMs": 600_000}, mode=0o770) for _ in range(3)]
    daemon.wait(lambda: as_operator(daemon, "metrics")["mailbox"]["parked"] == 3, "they wait")
    with acting_as(ANNA):
        (daemon.responses / "cam").chmod(0o755)
    for number in range(3):
        as_operator(daemon, "publish", queue="q", message=str(number))
    wait_for(daemon, 3)
    assert len(daemon.events("leased")) == 1
    with acting_as(ANNA):
        (daemon.responses / "cam").chmod(0o770)
    answers = [daemon.answer(sent) for sent in waiting]
    assert answers[0]["ok"] or answers[0]["error"]["code"] == "ERR_LEASE_EXPIRED", "the first one is a repeat"
    assert all(answer["data"]["message"]["attempt"] <= 2 for answer in answers[1:])


def closed_by_owner(box: Path) -> None:
    box.chmod(0o500)


def replaced_by_file(box: Path) -> None:
    box.rmdir()
    box.write_text("a file")


def replaced_by_link(box: Path) -> None:
    box.rmdir()
    box.symlink_to(box.parent)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (Path.rmdir, "its client has no response directory: make responses/cam, mode 0770"),
        (replaced_by_file, "responses/cam is not a directory"),
        (replaced_by_link, "responses/cam is not a directory"),
    ],
)
def test_without_a_directory_a_request_is_rejected_unexecuted(
    daemon: Daemon, change: Callable[[Path], None], reason: str
) -> None:
    sent = daemon.request("publish", {"queue": "p", "message": "x"}, client_id="cam")
    with acting_as(ANNA):
        (daemon.responses / "cam").mkdir()
        change(daemon.responses / "cam")
        daemon.put(sent.data, sent.name)
    assert daemon.reason(sent.name) == reason
    assert daemon.events("published") == []


def test_the_daemons_own_user_is_told_to_open_its_directory(daemon: Daemon) -> None:
    sent = daemon.request("publish", {"queue": "p", "message": "x"}, client_id="own")
    with acting_as(DAEMON):
        (daemon.responses / "own").mkdir()
        closed_by_owner(daemon.responses / "own")
        daemon.put(sent.data, sent.name)
    assert f"chmod u+rwx {daemon.responses / 'own'}" in wait_for(daemon, 1)["error"]
    with acting_as(DAEMON):
        (daemon.responses / "own").chmod(0o700)
    assert daemon.answer(sent)["ok"]
