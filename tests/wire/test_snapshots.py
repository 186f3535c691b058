"""The hourly state file of a daemon: in driven time, over power cuts and on a full disk, and what is restored of it."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fleet.machine import Machine, MachineError
from postroom_client import Client
from tests.wire.daemon import PATIENCE_S, wait_until
from tests.wire.forked import run_command
from tests.wire.users import need_root

HOUR_MS = 3600 * 1000
#: The last full hour: a tool that reads the machine's files has the clock of the real one.
WALL_MS = int(time.time() * 1000) // HOUR_MS * HOUR_MS


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine whose power is cut at the end. It is off."""
    made = Machine("press", tmp_path / "root")
    yield made
    with suppress(MachineError):
        made.cut()
    print(made.log.read_text())


@pytest.fixture
def client(machine: Machine) -> Iterator[Client]:
    """A client of the machine, which is switched on."""
    machine.boot(WALL_MS)
    with Client(str(machine.root / "ipc"), client_id="panel", timeout=PATIENCE_S) as opened:
        yield opened


def tool(root: Path, command: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    done = run_command([command, "--root", str(root), *map(str, arguments)], dict(os.environ))
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def files_of(machine: Machine) -> list[Path]:
    root = machine.root / "data" / "snapshots"
    return sorted(root.iterdir()) if root.is_dir() else []


def held(root: Path) -> list[dict[str, Any]]:
    """The queues, facts and messages of a stopped root, as an export has them."""
    ended = tool(root, "export")
    assert ended.returncode == 0, ended.stderr
    return lines_of(ended.stdout)


def lines_of(text: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in text.splitlines()[1:-1]]
    return [{name: value for name, value in line.items() if name != "crc"} for line in lines]


def use(client: Client) -> None:
    """Messages in several states."""
    for number in range(5):
        client.publish("orders", f"order {number}", priority=number)
    client.publish("later", "tomorrow", delay_ms=36 * HOUR_MS)
    for _ in range(2):
        delivery = client.consume_next("orders")
        assert delivery
        client.nack(delivery, requeue=False, reason="torn")
    delivery = client.consume_next("orders")
    assert delivery
    client.ack(delivery)


def test_each_hour_in_which_something_changed_has_a_file_for_a_week(machine: Machine, client: Client) -> None:
    use(client)
    machine.advance(2 * HOUR_MS)
    assert len(files_of(machine)) == 1
    for _ in range(9):
        client.publish("orders", "one more")
        machine.advance(24 * HOUR_MS)
    names = [path.name for path in files_of(machine)]
    assert 7 <= len(names) <= 8
    assert names[-1] > names[0] > time.strftime("%Y-%m-%d-%H.json", time.gmtime(WALL_MS // 1000 + 2 * 3600))


@pytest.mark.parametrize("how", ["restore", "import"])
def test_a_root_made_from_a_state_file_has_the_same_messages(machine: Machine, client: Client, how: str) -> None:
    use(client)
    machine.advance(HOUR_MS)
    (file,) = files_of(machine)
    machine.stop()
    new = machine.root.with_name("new")
    ended = tool(new, "restore", "--from", file) if how == "restore" else tool(new, "import", file)
    assert ended.returncode == 0, ended.stderr
    if how == "restore":
        assert held(new) == lines_of(file.read_text()) == held(machine.root)
    else:
        shown = [
            [(line["key"], line["message"], line["state"], line.get("attempt")) for line in reported if "key" in line]
            for reported in (held(new), lines_of(file.read_text()))
        ]
        assert shown[0] == shown[1]
        assert len(shown[0]) == 5
    assert tool(new, "verify").returncode == 0


def test_a_root_is_restored_to_a_state_file_and_to_any_later_event(machine: Machine, client: Client) -> None:
    use(client)
    machine.advance(HOUR_MS)
    client.publish("orders", "behind the file")
    machine.stop()
    (file,), before = files_of(machine), held(machine.root)
    ended = tool(machine.root, "restore", "--from", file, "--replace", "--to-event", "last")
    assert ended.returncode == 0, ended.stderr
    assert held(machine.root) == before
    ended = tool(machine.root, "restore", "--from", file, "--replace")
    assert ended.returncode == 0, ended.stderr
    assert held(machine.root) == lines_of(file.read_text())
    assert len(held(machine.root)) == len(before) - 1


@pytest.mark.parametrize("fault", ["cut short", "flipped"])
def test_a_damaged_state_file_is_refused_and_changes_nothing(machine: Machine, client: Client, fault: str) -> None:
    use(client)
    machine.advance(HOUR_MS)
    machine.stop()
    (file,), before = files_of(machine), held(machine.root)
    data = bytearray(file.read_bytes())
    if fault == "flipped":
        data[len(data) // 2] ^= 1
    file.write_bytes(data if fault == "flipped" else data[:-40])
    ended = tool(machine.root, "restore", "--from", file, "--replace")
    assert ended.returncode == 1
    assert "line" in ended.stderr
    assert held(machine.root) == before


def test_a_daemon_that_is_killed_while_it_writes_leaves_no_half_a_file(machine: Machine, client: Client) -> None:
    for _ in range(20):
        client.publish_batch([{"queue": "orders", "message": "x" * 2000}] * 100)
    started = machine.process

    def advance() -> None:
        with suppress(MachineError, AssertionError, ValueError):
            machine.advance(HOUR_MS)

    waiter = threading.Thread(target=advance)
    waiter.start()
    wait_until(lambda: any(path.suffix == ".tmp" for path in files_of(machine)), "a file is begun")
    started.kill()
    waiter.join()
    machine.cut()
    assert [path.suffix for path in files_of(machine)] == [".tmp"]
    machine.boot(WALL_MS + 2 * HOUR_MS)
    machine.advance(HOUR_MS)
    assert [path.suffix for path in files_of(machine)] == [".json"]
    assert len(lines_of(files_of(machine)[0].read_text())) == 2001
    assert client.consume_next("orders")


def test_requests_are_answered_while_a_file_is_written(machine: Machine, client: Client) -> None:
    for _ in range(20):
        client.publish_batch([{"queue": "orders", "message": "x" * 2000}] * 100)
    waiter = threading.Thread(target=machine.advance, args=(HOUR_MS,))
    waiter.start()
    wait_until(lambda: files_of(machine) or (machine.root / "data" / "snapshots").is_dir(), "it has begun")
    answered = 0
    while not any(path.suffix == ".json" for path in files_of(machine)):
        client.publish("others", "meanwhile")
        answered += 1
    waiter.join()
    assert answered > 3


@pytest.fixture
def small_disk(machine: Machine) -> Iterator[None]:
    """The machine's root lies on a file system of 24 MB."""
    need_root()
    machine.root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(machine.root)], check=True)
    yield
    with suppress(MachineError):
        machine.cut()
    subprocess.run(["umount", str(machine.root)], check=True)


def test_a_full_disk_costs_the_file_and_no_publish(small_disk: None, machine: Machine) -> None:
    (machine.root / "config.json").write_text(json.dumps({"storage": {"minFreeBytes": 1_000_000}}))
    machine.boot(WALL_MS)
    with Client(str(machine.root / "ipc"), client_id="panel", timeout=PATIENCE_S) as client:
        for _ in range(5):
            client.publish_batch([{"queue": "orders", "message": "x" * 10_000}] * 100)
        machine.advance(HOUR_MS)
        assert not files_of(machine)
        assert "storage.minFreeBytes" in machine.log.read_text()
        assert client.publish("orders", "goes on")
        for _ in range(450):
            delivery = client.consume_next("orders")
            assert delivery
            client.ack(delivery)
        machine.advance(HOUR_MS)
        assert len(files_of(machine)) == 1
