"""A real daemon in driven time: what is due happens at its moment, whatever the clocks of the machine show."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.machine import BOOT_MS, Machine, MachineError
from postroom_client import Client
from postroom_common.events import Event, decode_event

PATIENCE_S = 60
WALL_MS = 1_772_409_600_000


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    root = tmp_path / "root"
    root.mkdir()
    made = Machine("m", root)
    made.boot(WALL_MS)
    yield made
    made.cut()


@pytest.fixture
def client(machine: Machine) -> Iterator[Client]:
    with Client(str(machine.root / "ipc"), client_id="test", timeout=PATIENCE_S) as made:
        yield made


def records(log: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.splitlines()]


def events(machine: Machine, *types: str) -> list[Event]:
    files = sorted((machine.root / "journal").glob("*.jsonl"))
    found = [decode_event(line) for path in files for line in path.read_bytes().splitlines()]
    return [one for one in found if one["type"] in types]


def test_a_lease_ends_when_its_simulated_time_has_passed_and_no_sooner(machine: Machine, client: Client) -> None:
    client.publish("q", "x")
    assert client.consume_next("q", visibility_timeout_sec=30)
    machine.advance(29_999)
    assert client.status("q")["metrics"]["inflight"] == 1
    machine.advance(1)
    assert client.status("q")["metrics"]["inflight"] == 0


def test_events_due_within_a_long_step_happen_at_their_own_time(machine: Machine, client: Client) -> None:
    client.publish("q", "x")
    assert client.consume_next("q", visibility_timeout_sec=7)
    machine.advance(24 * 3600 * 1000)
    assert [one["engineMs"] for one in events(machine, "retried")] == [7000]
    marks = [one["engineMs"] for one in events(machine, "clock_marked")]
    assert len(marks) > 20


def test_a_long_poll_is_served_at_the_moment_at_which_a_message_becomes_due(machine: Machine) -> None:
    box = str(machine.root / "ipc")
    waits = (
        f"from postroom_client import Client; c = Client({box!r}); print(c.consume_next('q', wait_ms=60000).payload)"
    )
    with Client(box, client_id="test", timeout=PATIENCE_S) as client:
        client.publish("q", "late", delay_ms=20_000)
        with subprocess.Popen([sys.executable, "-c", waits], stdout=subprocess.PIPE, text=True) as waiting:
            while not client.metrics()["mailbox"]["parked"]:
                machine.advance(0)
            machine.advance(60_000)
            assert waiting.communicate(timeout=PATIENCE_S)[0] == "late\n"
    assert [one["engineMs"] for one in events(machine, "leased")] == [20_000]


def test_clients_work_whatever_year_it_is_on_the_device(machine: Machine, client: Client) -> None:
    machine.set_wall(0)
    assert client.publish("q", "x", timeout=PATIENCE_S)["messageKey"]
    machine.set_wall(4_000_000_000_000)
    found = client.consume_next("q", timeout=PATIENCE_S)
    assert found and found.payload == "x"
    assert client.health()["timestamp"] == 4_000_000_000_000


def test_over_a_power_cut_engine_time_continues_by_the_wall_clock(machine: Machine, client: Client) -> None:
    client.publish("q", "x")
    assert client.consume_next("q", visibility_timeout_sec=100)
    machine.cut()
    machine.advance(60_000)
    machine.boot(WALL_MS + 60_000)
    machine.advance(39_999)
    assert client.status("q")["metrics"]["inflight"] == 1
    machine.advance(1)
    assert client.status("q")["metrics"]["inflight"] == 0
    assert [one["bootId"] for one in events(machine, "clock_marked")][-1] == "test-m-2"


def test_a_restart_within_a_boot_is_exact(machine: Machine, client: Client) -> None:
    machine.advance(5000)
    machine.stop()
    machine.advance(2000)
    machine.start(wall_ms=0)
    assert client.health()["engineNowMs"] == 7000


def test_health_the_log_and_the_journal_show_the_simulated_clock(machine: Machine, client: Client) -> None:
    assert client.health()["testClock"] is True
    warnings = [one["message"] for one in records(machine.log.read_text()) if one["level"] == "warning"]
    assert [one for one in warnings if one.startswith("a test clock: ")]
    client.publish("q", "x")
    assert events(machine, "clock_marked")[0]["bootId"] == "test-m-1"
    assert events(machine, "clock_marked")[0]["bootMs"] == BOOT_MS


def test_a_root_of_real_time_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    local = [sys.executable, "-m", "postroom_daemon", "local", "--root", str(root), "publish"]
    subprocess.run([*local, "--queue", "q", "--message", "x"], check=True, capture_output=True, timeout=PATIENCE_S)
    machine = Machine("m", root)
    with pytest.raises(MachineError, match="has ended"):
        machine.boot(WALL_MS)
    assert machine.process.wait(PATIENCE_S) == 2
    assert "machine's own clock" in machine.log.read_text()
    machine.cut()


def test_the_daemon_stops_in_order_when_its_driver_is_gone(machine: Machine, client: Client) -> None:
    client.publish("q", "x")
    machine.hang_up()
    assert machine.process.wait(PATIENCE_S) == 0
    assert events(machine, "clock_marked")[-1]["clean"] is True


def test_an_invalid_driver_is_refused_in_one_line(tmp_path: Path) -> None:
    mine, theirs = socket.socketpair()
    command = [sys.executable, "-m", "postroom_daemon", "run", "--root", str(tmp_path / "root"), "--test-clock"]
    with mine, theirs:
        mine.sendall(b"what time is it?\n")
        fd = theirs.fileno()
        done = subprocess.run([*command, str(fd)], pass_fds=[fd], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 2
    last = records(done.stderr)[-1]
    assert (last["level"], "traceback" in last) == ("critical", False)
    assert last["message"].startswith("--test-clock: expected the driver's time: ")
