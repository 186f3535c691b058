"""The messages of the daemon to a service manager, and a reload on its request."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.wire.conftest import on_every_store
from tests.wire.daemon import PATIENCE_S, Daemon


class Manager:
    """Listens where a service manager would."""

    def __init__(self, address: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(address))
        self._socket.settimeout(PATIENCE_S)
        self.address = str(address)

    def until(self, beginning: str) -> list[str]:
        """The lines told, up to the first message with one that begins so."""
        reported: list[str] = []
        while not any(line.startswith(beginning) for line in reported):
            reported += self._socket.recv(4096).decode().splitlines()
        return reported

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path / "notify")
    yield made
    made.close()


@pytest.fixture
def managed(make_daemon, manager: Manager) -> Daemon:
    """A daemon of which a service manager waits to hear; not started."""
    daemon: Daemon = make_daemon()
    daemon.environment["NOTIFY_SOCKET"] = manager.address
    return daemon


@on_every_store
def test_ready_is_notified_after_recovery_and_stopping_before_the_end(daemon: Daemon, manager: Manager) -> None:
    for number in range(300):
        daemon.put(daemon.request("publish", {"queue": "q", "message": str(number)}).data)
    daemon.wait(lambda: daemon.counts("q") == {"ready": 300}, "all are published")
    daemon.kill()
    last_id = daemon.events()[-1]["id"]
    daemon.forget_store()
    shutil.rmtree(daemon.ipc)
    daemon.environment["NOTIFY_SOCKET"] = manager.address
    daemon.start(ready=False)
    before = manager.until("READY=1")
    assert daemon.requests.is_dir()
    assert f"requests from the journal, up to event {last_id}" in daemon.log()
    assert "STATUS=opening the store" in before
    assert any(line.startswith("EXTEND_TIMEOUT_USEC=") for line in before)
    daemon.stop()
    manager.until("STOPPING=1")


def test_a_daemon_that_was_not_started_by_a_service_manager_needs_none(daemon: Daemon) -> None:
    daemon.environment["NOTIFY_SOCKET"] = "/nowhere/at/all"
    daemon.restart()


def test_the_status_line_shows_backlog_and_rates(managed: Daemon, manager: Manager) -> None:
    managed.start()
    assert manager.until("STATUS=serving")[-1].startswith("STATUS=serving: no messages; per second: 0 publish")
    for number in range(3):
        managed.publish(f"q{number}")
    managed.consume("q0")
    managed.restart()
    assert manager.until("STATUS=serving")[-1].startswith("STATUS=serving: 2 ready, 1 inflight; per second: ")


def test_the_watchdog_is_fed_regularly_while_the_loop_runs(managed: Daemon, manager: Manager) -> None:
    managed.environment["WATCHDOG_USEC"] = "2000000"
    managed.start(ready=False)
    manager.until("READY=1")
    for _ in range(2):
        manager.until("WATCHDOG=1")


def test_a_watchdog_that_waits_for_another_process_is_not_fed(managed: Daemon, manager: Manager) -> None:
    managed.environment |= {"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"}
    managed.start(ready=False)
    manager.until("READY=1")
    assert "WATCHDOG=1" not in manager.until("STATUS=serving")


def _configure(daemon: Daemon, **tree: object) -> None:
    (daemon.root / "config.json").write_text(json.dumps(tree))


def _reload(daemon: Daemon, manager: Manager) -> list[str]:
    daemon.process.send_signal(signal.SIGHUP)
    assert manager.until("RELOADING=1")[-1].startswith("MONOTONIC_USEC=")
    reported = manager.until("STATUS=reload")
    assert "READY=1" in reported
    return reported


def test_a_reload_puts_a_new_configuration_in_force(managed: Daemon, manager: Manager) -> None:
    managed.root.mkdir()
    _configure(managed, storage={"minFreeBytes": 2**39})
    managed.start(ready=False)
    manager.until("READY=1")
    assert managed.refusal("publish", queue="q", message="x") == "ERR_STORAGE_FULL"
    waiting = managed.send("consume_next", {"queue": "q", "waitMs": 600_000})
    _configure(
        managed,
        storage={"minFreeBytes": 0},
        policyDefaults={"retry": {"limit": 7}},
        queues=[{"name": "q", "policy": {"visibilityTimeoutSec": 5}}],
    )
    assert _reload(managed, manager)[-1] == "STATUS=reloaded"
    managed.publish("q", "for whoever waited before")
    assert managed.answer(waiting)["data"]["message"]["payload"] == "for whoever waited before"
    policy = managed.ask("get_policy", queue="q")["policy"]
    assert (policy["retry"]["limit"], policy["visibilityTimeoutSec"]) == (7, 5)
    assert "reloaded: storage.minFreeBytes 549755813888 → 0, policyDefaults, queues" in managed.log()


def test_an_invalid_configuration_is_refused_and_the_old_one_stays(managed: Daemon, manager: Manager) -> None:
    managed.root.mkdir()
    _configure(managed, policyDefaults={"retry": {"limit": 7}})
    managed.start()
    managed.publish("q")
    _configure(managed, policyDefaults={"retry": {"limit": "many"}})
    assert _reload(managed, manager)[-1].startswith("STATUS=reload refused: ")
    assert managed.ask("get_policy", queue="q")["policy"]["retry"]["limit"] == 7
    refused = next(line for line in managed.log().splitlines() if "reload refused" in line)
    assert "policyDefaults.retry.limit: expected integer" in refused
    (managed.root / "config.json").unlink()
    assert _reload(managed, manager)[-1] == "STATUS=reloaded"


def test_settings_that_need_a_restart_wait_for_it_and_are_reported(managed: Daemon, manager: Manager) -> None:
    managed.start(ready=False)
    manager.until("READY=1")
    _configure(managed, nodeId="device-7", journal={"root": "elsewhere", "retentionHours": 1})
    _reload(managed, manager)
    log = managed.log()
    assert f"reloaded, but journal.root stays {managed.root}/journal until the next start" in log
    assert "reloaded, but nodeId stays local-01 until the next start" in log
    assert "reloaded: journal.retentionHours 168 → 1" in log
    managed.publish("q")
    assert not (managed.root / "elsewhere").exists()


@pytest.fixture
def on_terminal(make_daemon, manager: Manager) -> Iterator[Callable[..., Daemon]]:
    """Starts a daemon whose standard input is a terminal."""
    terminal, other_end = pty.openpty()

    def start(*wrapper: str) -> Daemon:
        daemon: Daemon = make_daemon(wrapper=wrapper)
        daemon.environment["NOTIFY_SOCKET"] = manager.address
        daemon.stdin = other_end
        return daemon.start()

    yield start
    os.close(terminal)
    os.close(other_end)


def test_the_end_of_its_terminal_ends_a_daemon(on_terminal) -> None:
    daemon = on_terminal()
    daemon.process.send_signal(signal.SIGHUP)
    assert daemon.process.wait(PATIENCE_S) == 0


def test_the_end_of_its_terminal_does_not_end_a_daemon_under_nohup(on_terminal, manager: Manager) -> None:
    daemon = on_terminal("sh", "-c", 'trap "" HUP; exec "$@"', "sh")
    assert _reload(daemon, manager)[-1] == "STATUS=reloaded"
    daemon.publish("q")
