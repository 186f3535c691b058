"""The gateway as a service: sockets from the service manager, how closed its unit is, starts that fail."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from postroom_gateway.config.file import load
from tests.gateway.gateway import receive_answer, request
from tests.wire.daemon import PATIENCE_S

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"
UNITS = PACKAGING / "systemd"
EXPOSURE = 0.6


def listening() -> socket.socket:
    one = socket.create_server(("127.0.0.1", 0))
    one.set_inheritable(True)
    return one


def served_at(*, door: int, observe: int) -> str:
    return f"[observe]\nport = {observe}\n[doors.lmq-http]\nport = {door}\n"


def configuration_for(daemon, door: socket.socket, observe: socket.socket) -> str:
    ports = served_at(door=door.getsockname()[1], observe=observe.getsockname()[1])
    return f'[daemon]\nsocket = "{daemon.ipc / "lane.sock"}"\n{ports}'


def test_the_sockets_of_the_service_manager_are_served_and_outlive_the_gateway(daemon, make_gateway):
    with listening() as door, listening() as observe:
        gateway = make_gateway(daemon, configuration_for(daemon, door, observe)).start([door, observe])
        assert gateway.ports["lmq-http"] == door.getsockname()[1]
        assert gateway.ask("POST", "/messages/q", b"x").status == 200
        assert gateway.health()["ok"]
        gateway.stop()
        with gateway.connect() as early:  # it is accepted by the next one
            early.sendall(request("GET", "/messages/q?t=0"))
            gateway.start([door, observe])
            assert receive_answer(early).body == b"x"


def test_a_door_for_which_nobody_listens_and_a_socket_without_a_door_are_named(daemon, make_gateway):
    with listening() as door, listening() as observe:
        gateway = make_gateway(daemon, configuration_for(daemon, door, observe)).start([observe], ready=False)
        assert gateway.process.wait(PATIENCE_S) == 1
        port = door.getsockname()[1]
        assert f"door lmq-http: systemd does not listen on 127.0.0.1 port {port}" in gateway.log()
        with listening() as other:
            gateway.start([door, observe, other])
            port = other.getsockname()[1]
            assert f"no door is configured for 127.0.0.1 port {port}, on which systemd listens" in gateway.log()


def test_a_port_in_use_ends_the_start_with_1_and_a_wrong_configuration_with_2(make_gateway):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        gateway = make_gateway(toml=f"[doors.lmq-http]\nport = {port}\n").start(ready=False)
        assert gateway.process.wait(PATIENCE_S) == 1
        assert f'door lmq-http: cannot listen on 127.0.0.1 port {port}: Address already in use"' in gateway.log()
        gateway.write(f"[daemon]\n[observe]\nport = {port}\n")
        assert gateway.start(ready=False).process.wait(PATIENCE_S) == 1
        assert f'door [observe]: cannot listen on 127.0.0.1 port {port}: Address already in use"' in gateway.log()
    gateway.write("[doors.lmq-http]\nprot = 1\n")
    assert gateway.start(ready=False).process.wait(PATIENCE_S) == 2
    assert "doors.lmq-http.prot: unknown key" in gateway.log()


def test_the_service_manager_is_notified(make_gateway):
    gateway = make_gateway(environment={"WATCHDOG_USEC": "4000000"}).start()
    gateway.wait_notified("WATCHDOG=1")
    gateway.process.terminate()
    gateway.wait_notified("STOPPING=1")
    assert gateway.process.wait(PATIENCE_S) == 0


def test_the_unit_has_a_low_exposure() -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    unit = UNITS / "postroom-gateway.service"
    analyze = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    reported = subprocess.run(analyze, capture_output=True, text=True).stdout
    exposure = re.search(r"Overall exposure level for postroom-gateway.service: (\d+\.\d)", reported)
    assert exposure, reported
    assert float(exposure[1]) <= EXPOSURE, reported


def test_the_configuration_of_the_package_fits_its_socket_unit():
    settings = load(PACKAGING / "gateway.toml")
    text = (UNITS / "postroom-gateway.socket").read_text()
    listens = set(re.findall(r"^ListenStream=(.+)$", text, re.MULTILINE))
    served = [(one.address, one.port) for one in settings.doors.values()]
    served.append((settings.observe.address, settings.observe.port))
    assert {f"{address}:{port}" for address, port in served} == listens
