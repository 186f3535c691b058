"""The gateway's units under systemd as PID 1: sockets that systemd passes, no network of its own, reload, stop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.service.installation import PYTHON, machine_with_product
from tests.service.machine import Machine, lacking
from tests.service.running_service import CONFIGURATION

PACKAGING: Final = Path(__file__).resolve().parents[2] / "packaging"
UNITS: Final = ("postroom-gateway.service", "postroom-gateway.socket")
SERVICE, SOCKET = UNITS
FILE: Final = "/etc/postroom/gateway.toml"
MESSAGES: Final = "http://127.0.0.1:9980/messages/q"
#: A door of SimpleMQ with heartbeats, and the addresses that systemd passes for it.
SIMPLEMQ: Final = """
[doors.simplemq.options.heartbeat]
server_id = "1a"
peers = ["127.0.0.1:9191"]
interval_seconds = 0.2
"""
ADDRESSES: Final = "[Socket]\nListenStream=127.0.0.1:8081\nListenDatagram=127.0.0.1:9091\n"
#: A peer that prints the heartbeats that it gets, until the one that is the last.
PEER: Final = """\
import json, socket
peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
peer.bind(("127.0.0.1", 9191))
peer.settimeout(30)
print("bound", flush=True)
status = ""
while status != "STOPPING":
    status = json.loads(peer.recv(4096))["status"]
    print(status, flush=True)
"""


@pytest.fixture(scope="module")
def prepared() -> Iterator[Machine]:
    """A machine with daemon and gateway as services, as the packages install them."""
    why = lacking()
    if why:
        pytest.skip(f"no machine can be started here: {why}")
    with machine_with_product("postroom-gateway") as made:
        for unit in UNITS:
            made.write(f"/etc/systemd/system/{unit}", (PACKAGING / "systemd" / unit).read_text())
        made.write("/etc/sysusers.d/gateway.conf", (PACKAGING / "systemd/postroom-gateway.sysusers.conf").read_text())
        made.write(FILE, (PACKAGING / "gateway.toml").read_text())
        made.start()
        made.run("postroomd", "init", "--system")
        made.run("systemd-sysusers", "/etc/sysusers.d/gateway.conf")
        configuration = json.loads(made.run("cat", CONFIGURATION))
        configuration["gateway"] = {"users": "postroom-gateway"}
        made.write(CONFIGURATION, json.dumps(configuration))
        made.run("systemctl", "daemon-reload")
        yield made


@pytest.fixture
def machine(prepared: Machine) -> Machine:
    """The machine with both services running, whatever the test before it stopped."""
    prepared.run("systemctl", "start", "postroomd.service", SOCKET, SERVICE)
    return prepared


def ask(machine: Machine, *arguments: str) -> str:
    return machine.run("curl", "--silent", "--show-error", "--max-time", "60", *arguments)


def test_systemd_knows_every_directive_of_the_units(machine: Machine) -> None:
    checked = machine.ask("systemd-analyze", "verify", "--man=no", *UNITS)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_clients_are_served_though_the_gateway_has_no_network(machine: Machine) -> None:
    machine.until(lambda: '"ok":true' in ask(machine, "http://127.0.0.1:9981/health"), "the gateway is connected")
    assert ask(machine, "--data", "hello", MESSAGES) == '{"accum":"no"}'
    assert ask(machine, f"{MESSAGES}?t=0") == "hello"
    pid = machine.run("systemctl", "show", "--property", "MainPID", "--value", SERVICE).strip()
    links = machine.run("nsenter", "--target", pid, "--net", "cat", "/proc/net/dev").splitlines()[2:]
    assert [line.split(":")[0].strip() for line in links] == ["lo"]
    assert "postroom-gateway" in machine.run("ps", "-o", "user:32=", "-p", pid)
    status = machine.run("systemctl", "show", "--property", "StatusText", "--value", SERVICE)
    assert status.strip() == "serving lmq-http, lmq-rpc"


def test_a_restart_loses_no_connection(machine: Machine) -> None:
    own = f"{MESSAGES}-restart"  # what is pulled here returns, and no other test may get it
    asking = machine.spawn("curl", "--silent", "--max-time", "60", f"{own}?t=0", "--next", f"{own}?t=20")
    machine.run("systemctl", "restart", SERVICE)
    ask(machine, "--data", "after", own)
    asking.communicate(timeout=60)
    assert asking.returncode == 0
    assert machine.run("systemctl", "is-active", SERVICE).strip() == "active"


def test_an_invalid_configuration_fails_the_reload_and_changes_nothing(machine: Machine) -> None:
    good = machine.run("cat", FILE)
    machine.write(FILE, good + "[limits]\nconections = 1\n")
    refused = machine.ask("systemctl", "reload", SERVICE)
    assert refused.returncode != 0
    machine.write(FILE, good + "[limits]\nrequests_per_second = 1000\n")
    machine.run("systemctl", "reload", SERVICE)
    log = machine.run("journalctl", "--unit", SERVICE, "--no-pager", "--output", "cat")
    assert "the configuration was reloaded" in log
    assert "conections: unknown key" in log


def test_a_killed_gateway_is_restarted_and_a_stopped_one_ends_in_order(machine: Machine) -> None:
    machine.run("systemctl", "kill", "--signal=KILL", SERVICE)
    machine.until(lambda: '"ok":true' in ask(machine, "http://127.0.0.1:9981/health"), "the gateway serves again")
    machine.run("systemctl", "stop", SERVICE, SOCKET)
    assert machine.run("systemctl", "show", "--property", "Result", "--value", SERVICE).strip() == "success"
    records = machine.run("journalctl", "-t", "postroom-gateway", "--no-pager", "--output", "json")
    assert "the gateway stops" in [json.loads(line)["MESSAGE"] for line in records.splitlines()]


def test_heartbeats_of_simplemq_are_sent_from_the_socket_of_systemd(machine: Machine) -> None:
    good = machine.run("cat", FILE)
    machine.write("/peer.py", PEER)
    machine.write(FILE, good + SIMPLEMQ)
    machine.write(f"/etc/systemd/system/{SOCKET}.d/simplemq.conf", ADDRESSES)
    machine.run("systemctl", "daemon-reload")
    peer = machine.spawn(f"{PYTHON}/bin/python3", "/peer.py")
    assert peer.stdout
    assert peer.stdout.readline() == "bound\n"
    machine.run("systemctl", "stop", SERVICE, SOCKET)
    machine.run("systemctl", "start", SOCKET, SERVICE)
    assert "RUNNING\n" in peer.stdout  # reads on until then
    machine.run("systemctl", "stop", SERVICE, SOCKET)
    assert peer.communicate(timeout=60)[0].splitlines()[-1] == "STOPPING"
    assert machine.run("systemctl", "show", "--property", "Result", "--value", SERVICE).strip() == "success"
    machine.run("rm", "-r", f"/etc/systemd/system/{SOCKET}.d")
    machine.write(FILE, good)
    machine.run("systemctl", "daemon-reload")
