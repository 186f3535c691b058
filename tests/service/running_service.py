"""The daemon as a service of a test machine, and the commands of its users."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.service.machine import Machine

UNIT: Final = "postroomd.service"
ROOT: Final = "/var/lib/postroom"
IPC: Final = f"{ROOT}/ipc"
CONFIGURATION: Final = "/etc/postroom/config.json"
#: Overrides of the unit, so that a test waits less than a device.
DROP_IN: Final = """\
[Service]
RestartSec=100ms
WatchdogSec=6s
"""


class RunningService:
    """The service on a machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def set_up(self) -> None:
        """Set the system up and create the users."""
        run = self.machine.run
        run("postroomd", "init", "--system")
        self.machine.write(f"/etc/systemd/system/{UNIT}.d/test.conf", DROP_IN)
        run("systemctl", "daemon-reload")
        for name, groups in {"anna": "postroom-clients", "bert": "postroom-clients", "otto": ""}.items():
            run("useradd", "--no-create-home", "--groups", groups, name)
        run("useradd", "--no-create-home", "--groups", "postroom-clients,postroom-ops", "tess")

    def start(self) -> None:
        """Start it and wait until it is ready."""
        self.machine.run("systemctl", "start", UNIT)

    def stop(self) -> None:
        self.machine.run("systemctl", "stop", UNIT)

    def shows(self, name: str) -> str:
        return self.machine.run("systemctl", "show", "--property", name, "--value", UNIT).strip()

    @property
    def pid(self) -> int:
        """The process id of the daemon inside the machine."""
        return int(self.shows("MainPID"))

    def is_ready(self) -> bool:
        return self.shows("SubState") == "running" and self.shows("ActiveState") == "active"

    def until_ready_again(self, before: int) -> None:
        """Wait until another process than ``before`` serves."""
        self.machine.until(lambda: self.pid not in (0, before) and self.is_ready(), "the service is ready again")

    def log(self) -> str:
        return self.machine.run("journalctl", "--unit", UNIT, "--no-pager", "--output", "cat")

    def postroom(self, user: str, command: str, *arguments: str) -> Any:
        """Run a command as a user; its data. The command must succeed."""
        words = ["postroom", command, "--ipc-root", IPC, "--json", "--wait-daemon", *arguments]
        return json.loads(self.machine.run(*words, user=user))["data"]

    def publish(self, user: str, queue: str, message: str = "x") -> str:
        """Publish; the message's key."""
        return str(self.postroom(user, "publish", "--queue", queue, "--message", message)["messageKey"])

    def permissions(self) -> tuple[int, list[dict[str, str]]]:
        """Exit code and findings of ``check-permissions``."""
        ended = self.machine.ask("postroomd", "check-permissions", "--json", "--root", ROOT)
        return ended.returncode, json.loads(ended.stdout)["findings"]

    def events(self) -> list[dict[str, Any]]:
        """The events of the journal, read as a technician."""
        lines = self.machine.run("sh", "-c", f"cat {ROOT}/journal/*.jsonl", user="tess")
        return [json.loads(line) for line in lines.splitlines()]
